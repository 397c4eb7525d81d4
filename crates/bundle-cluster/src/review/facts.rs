//! Looks up the facts of a review in parallel. The facts about the image are not included.

use std::collections::{BTreeMap, BTreeSet};

use bundle_api::names;
use bundle_core::names::KubeName;
use bundle_core::review::{
    AccessReviewResult, ClassFact, ConfigMapFact, DeploymentFact, Requester, RequiredLookups,
    ReviewFacts, approval_terms, has_default_terms,
};
use bundle_core::rights::AccessReview;
use bundle_core::service_account::ServiceAccount;
use bundle_core::version::ServerVersion;
use futures::future::{OptionFuture, join_all};
use futures::stream::{self, StreamExt as _};
use serde_json::Value;

use super::ReviewLookups;
use super::content::Content;

/// Largest number of parallel ConfigMap lookups of one review. A spec can name hundreds of
/// ConfigMaps.
const MAX_PARALLEL_LOOKUPS: usize = 8;

/// Facts of one review, without the facts about its image.
pub(super) struct ObjectFacts {
    requester: Requester,
    classes: BTreeMap<String, ClassFact>,
    may_use: BTreeMap<String, AccessReviewResult>,
    may_impersonate: Option<AccessReviewResult>,
    deployment: Option<DeploymentFact>,
    may_approve: Option<AccessReviewResult>,
    may_read: BTreeMap<String, AccessReviewResult>,
    may_read_secret: Option<AccessReviewResult>,
    config_maps: BTreeMap<String, ConfigMapFact>,
    server: Option<ServerVersion>,
    system_namespace: String,
    state_namespace: String,
}

/// Returns the access review that checks `verb`, for example `use`, on the ProvisionerClass
/// `class`. The review contains the namespace of the pod. Therefore a RoleBinding in this namespace
/// can grant the verb, like a ClusterRoleBinding.
pub fn on_class(verb: &str, class: &str, system_namespace: &str) -> AccessReview {
    AccessReview::resource(
        verb,
        names::GROUP,
        "provisionerclasses",
        Some(system_namespace),
        Some(class),
    )
}

/// Looks up all required facts except the image.
pub(super) async fn gather<L: ReviewLookups>(
    lookups: &L,
    requester: &Requester,
    needs: &RequiredLookups,
) -> ObjectFacts {
    let system = lookups.system_namespace();
    let may =
        |question: AccessReview| async move { lookups.has_permission(requester, &question).await };

    let classes = join_all(needs.classes.iter().map(|name| async {
        let asked = may(on_class(names::verb::USE, name, system));
        let (class, allowed) = futures::join!(lookups.class(name), asked);
        (name.clone(), class, allowed)
    }));
    let impersonate = needs.impersonate.as_ref().map(|account| {
        let ServiceAccount { namespace, name } = account;
        may(AccessReview::resource(
            "impersonate",
            "",
            "serviceaccounts",
            Some(namespace),
            Some(name),
        ))
    });
    let secret = needs.secret.as_ref().map(|name| {
        let name = Some(name.as_str());
        let question = AccessReview::resource("get", "", "secrets", Some(system), name);
        Box::pin(may(question))
    });
    let approve = async {
        let fact = deployment(lookups, requester, needs.deployment.as_ref()?).await;
        let allowed = match &fact {
            DeploymentFact::Found { class, .. } => {
                Some(may(on_class(names::verb::APPROVE, class, system)).await)
            }
            _ => None,
        };
        Some((fact, allowed))
    };
    let config_maps = Box::pin(config_maps(lookups, requester, &needs.config_maps));
    let (classes, may_impersonate, may_read_secret, approve, config_maps) = futures::join!(
        classes,
        OptionFuture::from(impersonate),
        OptionFuture::from(secret),
        approve,
        config_maps
    );
    let (deployment, may_approve) = approve.map_or((None, None), |(fact, may)| (Some(fact), may));
    let mut gathered = ObjectFacts {
        requester: requester.clone(),
        classes: BTreeMap::new(),
        may_use: BTreeMap::new(),
        may_impersonate,
        deployment,
        may_approve,
        may_read: BTreeMap::new(),
        may_read_secret,
        config_maps: BTreeMap::new(),
        server: lookups.server(),
        system_namespace: system.to_owned(),
        state_namespace: lookups.state_namespace().to_owned(),
    };
    for (name, class, allowed) in classes {
        gathered.classes.insert(name.to_string(), class);
        gathered.may_use.insert(name.into(), allowed);
    }
    for (name, allowed, fact) in config_maps {
        let fact = fact.map(|fact| (name.clone(), fact));
        gathered.config_maps.extend(fact);
        gathered.may_read.insert(name, allowed);
    }
    gathered
}

impl ObjectFacts {
    /// Returns all facts of the review for the rules.
    pub(super) fn facts<'a>(&self, content: &Content<'a>) -> ReviewFacts<'a> {
        let mut facts = ReviewFacts {
            requester: self.requester.clone(),
            classes: self.classes.clone(),
            may_use: self.may_use.clone(),
            may_impersonate: self.may_impersonate.clone(),
            may_approve: self.may_approve.clone(),
            deployment: self.deployment.clone(),
            may_read: self.may_read.clone(),
            may_read_secret: self.may_read_secret.clone(),
            config_maps: self.config_maps.clone(),
            server: self.server.clone(),
            system_namespace: self.system_namespace.clone(),
            state_namespace: self.state_namespace.clone(),
            ..ReviewFacts::default()
        };
        content.add_to(&mut facts);
        facts
    }
}

/// Looks up the ConfigMaps of a source. For each ConfigMap, returns its name, the result of the
/// access review, and, if the requester has permission to read it, its state. If `names` has
/// several ConfigMaps, one access review for all ConfigMaps of the namespace is sent first. The
/// lookups end at the first ConfigMap that the requester has no permission to read.
async fn config_maps<L: ReviewLookups>(
    lookups: &L,
    requester: &Requester,
    names: &BTreeSet<KubeName>,
) -> Vec<(String, AccessReviewResult, Option<ConfigMapFact>)> {
    let system = lookups.system_namespace();
    let question =
        |name: Option<&str>| AccessReview::resource("get", "", "configmaps", Some(system), name);
    let may_read_all = names.len() > 1
        && lookups.has_permission(requester, &question(None)).await == AccessReviewResult::Allowed;
    let found = stream::iter(names.iter().cloned().map(|name| {
        let question = question(Some(&name));
        async move {
            let allowed = if may_read_all {
                AccessReviewResult::Allowed
            } else {
                lookups.has_permission(requester, &question).await
            };
            let fact = match allowed {
                AccessReviewResult::Allowed => Some(config_map(lookups, requester, &name).await),
                _ => None,
            };
            (name.to_string(), allowed, fact)
        }
    }));
    let mut found = std::pin::pin!(found.buffered(MAX_PARALLEL_LOOKUPS));
    let mut config_maps = Vec::new();
    while let Some(config_map) = found.next().await {
        let is_denied = config_map.1 == AccessReviewResult::Denied;
        config_maps.push(config_map);
        if is_denied {
            break;
        }
    }
    config_maps
}

async fn config_map<L: ReviewLookups>(
    lookups: &L,
    requester: &Requester,
    name: &KubeName,
) -> ConfigMapFact {
    match lookups.immutable(requester, name).await {
        Ok(Some(true)) => ConfigMapFact::Immutable,
        Ok(Some(false)) => ConfigMapFact::Mutable,
        Ok(None) => ConfigMapFact::Missing,
        Err(why) => ConfigMapFact::Unavailable(why),
    }
}

/// Looks up the facts about a BundleDeployment. The BundleDeployment itself is dropped before this
/// function returns, so that it needs no memory during the access review for its class.
async fn deployment<L: ReviewLookups>(
    lookups: &L,
    requester: &Requester,
    name: &KubeName,
) -> DeploymentFact {
    match lookups.deployment(requester, name).await {
        Ok(Some(found)) => DeploymentFact::Found {
            uid: text(&found["metadata"]["uid"]),
            class: text(&found["spec"]["provisionerClassName"]),
            terms: approval_terms(&found["spec"]),
            generation: found["metadata"]["generation"].as_i64().unwrap_or_default(),
            has_default_terms: has_default_terms(&found["spec"]),
        },
        Ok(None) => DeploymentFact::Missing,
        Err(why) => DeploymentFact::Unavailable(why),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::ops::Deref;
    use std::sync::{Arc, Mutex};

    use bundle_core::diagnostic::Finding;
    use bundle_trust::proof;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    /// Fake API server. `allowed` returns the result of each access review. Its argument is the
    /// ConfigMap name in the review, or `None` for the review of all ConfigMaps.
    struct Fake {
        allowed: fn(Option<&str>) -> bool,
        /// ConfigMap names in the access reviews that were sent; `None` for a review of all
        /// ConfigMaps.
        asked: Mutex<Vec<Option<String>>>,
        /// Has one more reference for each BundleDeployment in memory.
        held: Arc<()>,
        examinations: proof::ExaminationCache,
    }

    /// BundleDeployment of the class `plain`. The value is counted until it is dropped.
    struct HeldFake {
        object: Value,
        _held: Arc<()>,
    }

    impl Deref for HeldFake {
        type Target = Value;

        fn deref(&self) -> &Value {
            &self.object
        }
    }

    fn fake(allowed: fn(Option<&str>) -> bool) -> Fake {
        Fake {
            allowed,
            asked: Mutex::default(),
            held: Arc::default(),
            examinations: proof::ExaminationCache::default(),
        }
    }

    impl ReviewLookups for Fake {
        type HeldDeployment = HeldFake;

        fn system_namespace(&self) -> &'static str {
            "bundle-system"
        }
        fn state_namespace(&self) -> &'static str {
            "bundle-system-state"
        }
        fn server(&self) -> Option<ServerVersion> {
            None
        }
        async fn class(&self, _name: &KubeName) -> ClassFact {
            ClassFact::Unknown
        }
        async fn has_permission(
            &self,
            _requester: &Requester,
            question: &AccessReview,
        ) -> AccessReviewResult {
            // No BundleDeployment is in memory during an access review.
            assert_eq!(Arc::strong_count(&self.held), 1);
            let AccessReview::Resource { name, .. } = question else {
                return AccessReviewResult::Denied;
            };
            self.asked.lock().unwrap().push(name.clone());
            if (self.allowed)(name.as_deref()) {
                AccessReviewResult::Allowed
            } else {
                AccessReviewResult::Denied
            }
        }
        async fn deployment(
            &self,
            _requester: &Requester,
            _name: &KubeName,
        ) -> Result<Option<HeldFake>, Finding> {
            Ok(Some(HeldFake {
                object: json!({"spec": {"provisionerClassName": "plain"}}),
                _held: Arc::clone(&self.held),
            }))
        }
        async fn immutable(
            &self,
            _requester: &Requester,
            _name: &KubeName,
        ) -> Result<Option<bool>, Finding> {
            Ok(Some(true))
        }
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }
        fn examinations(&self) -> &proof::ExaminationCache {
            &self.examinations
        }
    }

    /// Looks up `count` ConfigMaps. Returns the number of access reviews that were sent, and the
    /// result for each ConfigMap.
    async fn looked_up(
        count: usize,
        allowed: fn(Option<&str>) -> bool,
    ) -> (usize, Vec<AccessReviewResult>) {
        let fake = fake(allowed);
        let names = (0..count).map(|number| format!("a{number:03}").parse().unwrap());
        let names: BTreeSet<KubeName> = names.collect();
        let found = config_maps(&fake, &Requester::default(), &names).await;
        let answers = found.into_iter().map(|(_, answer, fact)| {
            assert_eq!(fact.is_some(), answer == AccessReviewResult::Allowed);
            answer
        });
        let answers = answers.collect();
        (fake.asked.into_inner().unwrap().len(), answers)
    }

    #[tokio::test]
    async fn deployment_is_not_in_memory_during_the_access_review_of_its_approval() {
        let fake = fake(|class| class == Some("plain"));
        let needs = RequiredLookups {
            deployment: Some("web".parse().unwrap()),
            ..RequiredLookups::default()
        };
        // The fake API server checks the number of BundleDeployments in memory.
        let gathered = gather(&fake, &Requester::default(), &needs).await;
        assert_eq!(gathered.may_approve, Some(AccessReviewResult::Allowed));
        assert!(matches!(
            gathered.deployment,
            Some(DeploymentFact::Found { .. })
        ));
    }

    #[tokio::test]
    async fn general_permission_suffices_for_all_config_maps() {
        let (asked, answers) = looked_up(200, |name| name.is_none()).await;
        assert_eq!(
            (asked, answers),
            (1, vec![AccessReviewResult::Allowed; 200])
        );
    }

    #[tokio::test]
    async fn lookups_end_at_the_first_denied_config_map() {
        let (asked, answers) = looked_up(200, |_| false).await;
        assert_eq!(answers, [AccessReviewResult::Denied]);
        assert!(asked <= 1 + MAX_PARALLEL_LOOKUPS, "{asked}");
        let (asked, answers) = looked_up(200, |name| name == Some("a000")).await;
        assert_eq!(
            answers,
            [AccessReviewResult::Allowed, AccessReviewResult::Denied]
        );
        assert!(asked <= 2 + MAX_PARALLEL_LOOKUPS, "{asked}");
    }

    #[tokio::test]
    async fn each_config_map_is_checked_without_the_general_permission() {
        let (asked, answers) = looked_up(20, |name| name.is_some()).await;
        assert_eq!(
            (asked, answers),
            (21, vec![AccessReviewResult::Allowed; 20])
        );
        let (asked, answers) = looked_up(1, |name| name.is_some()).await;
        assert_eq!((asked, answers), (1, vec![AccessReviewResult::Allowed]));
    }
}
