//! What a review may ask of others, and the gathering of all that it needs but the image, at once.
//! Not here: how the API server and registries are asked (live), and what follows from the answers (bundle_core::review).

use std::collections::BTreeMap;
use std::sync::Arc;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::names::KubeName;
use bundle_core::package;
use bundle_core::policy::Policy;
use bundle_core::review::deployment::ServiceAccount;
use bundle_core::review::{
    Answer, ClassFact, ConfigMapFact, ContentFact, DeploymentFact, Facts, Image, Needs, Requester,
    approval_terms, has_default_terms,
};
use bundle_core::version::ServerVersion;
use bundle_oci::registry::Looked;
use bundle_trust::proof;
use futures::future::{OptionFuture, join_all};
use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::review::UserInfo;
use crate::budget::looks::LookMemory;
use crate::heavy;

/// ConfigMaps that one review asks about at a time: a spec may name hundreds.
const QUESTIONS: usize = 8;

/// A right, as RBAC has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Right {
    /// The verb.
    pub verb: &'static str,
    /// API group of the resource.
    pub group: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// Namespace of the object. For classes that of the pod: then a RoleBinding there counts like a ClusterRoleBinding.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

/// The SignaturePolicies by name.
pub type Policies = Arc<BTreeMap<String, Arc<Policy>>>;

/// Whom a review asks. Tests answer from memory.
pub trait Lookups: Send + Sync + 'static {
    /// The namespace of the pod.
    fn system_namespace(&self) -> &str;

    /// The namespace of the pod's keys and inventories.
    fn state_namespace(&self) -> &str;
    /// The key of the stamp; handed to `with` so that it is never copied.
    fn with_stamp_key<T>(&self, with: impl FnOnce(&[u8]) -> T) -> T;
    /// The policies, with a number that changes with them; `None` until they are known.
    fn policies(&self) -> Option<(Policies, u64)>;
    /// The API server; `None` until it has said its version.
    fn server(&self) -> Option<ServerVersion>;
    /// The user name of the pod's own identity; `None` where it could not be found out.
    fn own_user(&self) -> impl Future<Output = Option<String>> + Send;
    /// A class by name.
    fn class(&self, name: &KubeName) -> impl Future<Output = ClassFact> + Send;
    /// Whether that user has that right.
    fn may(
        &self,
        user: &UserInfo,
        right: &Right,
    ) -> impl Future<Output = Result<bool, Finding>> + Send;
    /// A BundleDeployment by name.
    fn deployment(
        &self,
        name: &KubeName,
    ) -> impl Future<Output = Result<Option<Value>, Finding>> + Send;
    /// Whether a ConfigMap of the system namespace is immutable; `None` if there is none.
    fn immutable(
        &self,
        name: &KubeName,
    ) -> impl Future<Output = Result<Option<bool>, Finding>> + Send;
    /// The time, that trust roots and stamps are held against.
    fn now(&self) -> Timestamp;
    /// Since when the registrations have been intact; `None` while they are not.
    fn intact_since(&self) -> Option<Timestamp>;
    /// Since when the API server can have carried out nothing without a review; `None` while it can, and while that is not known.
    fn enforced_since(&self) -> Option<Timestamp>;
    /// The examinations of signatures that this process remembers.
    fn examinations(&self) -> &proof::Memory;
    /// An image, with its signatures if they are wanted. Answers of the registry are held in `memory`.
    fn look(
        &self,
        image: &Image,
        signatures: bool,
        memory: Arc<LookMemory>,
    ) -> impl Future<Output = Result<Looked, Finding>> + Send;
}

/// What was found out, with what it borrows from.
pub(super) struct Gathered {
    requester: Requester,
    classes: BTreeMap<String, ClassFact>,
    may_use: BTreeMap<String, Answer>,
    may_impersonate: Option<Answer>,
    deployment: Option<DeploymentFact>,
    may_approve: Option<Answer>,
    may_read: BTreeMap<String, Answer>,
    config_maps: BTreeMap<String, ConfigMapFact>,
    server: Option<ServerVersion>,
    system_namespace: String,
    state_namespace: String,
}

/// What is known of the image, beside the rest.
pub(super) enum Content<'a> {
    /// Nothing depends on it, or nobody asked yet.
    NotAsked,
    /// The policies are not known, and why.
    PoliciesUnknown(Finding),
    /// What was seen, or why nothing was, under the policies that are about it.
    Seen {
        looked: &'a Result<Arc<Looked>, Finding>,
        policies: &'a [Arc<Policy>],
        examinations: &'a proof::Memory,
        now: Timestamp,
        /// When the review has to be answered: no signature is examined after that.
        until: Instant,
    },
}

/// Asks everything that is needed but the image, all at once. The image comes last: a registry of the requester's choice is only spoken to for those
/// whom the judge would let through so far.
pub(super) async fn gather<L: Lookups>(lookups: &L, user: &UserInfo, needs: &Needs) -> Gathered {
    let system = lookups.system_namespace().to_owned();
    let on_class = |verb: &'static str, name: &str| Right {
        verb,
        group: bundle_api::names::GROUP,
        resource: "provisionerclasses",
        namespace: system.clone(),
        name: name.to_owned(),
    };
    let may = |right: Right| async move { answer(lookups.may(user, &right).await, user, &right) };

    let classes = join_all(needs.classes.iter().map(|name| async {
        let asked = may(on_class(bundle_api::names::verb::USE, name));
        let (class, allowed) = futures::join!(lookups.class(name), asked);
        (name.clone(), class, allowed)
    }));
    let impersonate = needs.impersonate.as_ref().map(|account| {
        let ServiceAccount { namespace, name } = account.clone();
        may(Right {
            verb: "impersonate",
            group: "",
            resource: "serviceaccounts",
            namespace: namespace.into(),
            name: name.into(),
        })
    });
    let approve = async {
        let fact = deployment(lookups, needs.deployment.as_ref()?).await;
        let allowed = match &fact {
            DeploymentFact::Found { class, .. } => {
                Some(may(on_class(bundle_api::names::verb::APPROVE, class)).await)
            }
            _ => None,
        };
        Some((fact, allowed))
    };
    let questions = needs.config_maps.iter().cloned();
    let config_maps = stream::iter(questions.map(|name| {
        let right = Right {
            verb: "get",
            group: "",
            resource: "configmaps",
            namespace: system.clone(),
            name: name.to_string(),
        };
        let allowed = may(right);
        async move {
            let allowed = allowed.await;
            let fact = match allowed {
                Answer::Yes => Some(config_map(lookups, &name).await),
                _ => None,
            };
            (name.to_string(), allowed, fact)
        }
    }));
    let config_maps = config_maps.buffered(QUESTIONS).collect::<Vec<_>>();
    let (classes, may_impersonate, approve, config_maps) = futures::join!(
        classes,
        OptionFuture::from(impersonate),
        approve,
        config_maps
    );
    let (deployment, may_approve) = approve.map_or((None, None), |(fact, may)| (Some(fact), may));
    let mut gathered = Gathered {
        requester: user.into(),
        classes: BTreeMap::new(),
        may_use: BTreeMap::new(),
        may_impersonate,
        deployment,
        may_approve,
        may_read: BTreeMap::new(),
        config_maps: BTreeMap::new(),
        server: lookups.server(),
        system_namespace: system,
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

impl Gathered {
    /// The facts for the judge.
    pub(super) fn facts<'a>(&self, content: &Content<'a>) -> Facts<'a> {
        let mut facts = Facts {
            requester: self.requester.clone(),
            classes: self.classes.clone(),
            may_use: self.may_use.clone(),
            may_impersonate: self.may_impersonate.clone(),
            may_approve: self.may_approve.clone(),
            deployment: self.deployment.clone(),
            may_read: self.may_read.clone(),
            config_maps: self.config_maps.clone(),
            content: ContentFact::NotAsked,
            policies: Vec::new(),
            server: self.server.clone(),
            system_namespace: self.system_namespace.clone(),
            state_namespace: self.state_namespace.clone(),
        };
        match content {
            Content::NotAsked => {}
            Content::PoliciesUnknown(why) => {
                facts.content = ContentFact::PoliciesUnknown(why.clone());
            }
            Content::Seen {
                looked,
                policies,
                examinations,
                now,
                until,
            } => {
                let policies = policies.iter().map(AsRef::as_ref);
                match looked {
                    Err(why) => {
                        facts.content = ContentFact::Unavailable(why.clone());
                        facts.policies = proof::unexamined(policies, *now);
                    }
                    Ok(looked) => {
                        let (pinned, signatures) = (&looked.pinned, &looked.signatures);
                        let in_time = || Instant::now() < *until;
                        let examined = heavy::run(|| {
                            examinations.examine_while(pinned, signatures, policies, *now, &in_time)
                        });
                        facts.policies = examined.policies;
                        facts.content = ContentFact::Found {
                            pinned: looked.pinned.clone(),
                            package: package::Facts::from_annotations(&looked.annotations)
                                .map(Box::new),
                            signatures: examined.found,
                        };
                    }
                }
            }
        }
        facts
    }
}

/// The policies that are about the image, with the number of all; an error where they are not known yet.
pub(super) fn matching<L: Lookups>(
    lookups: &L,
    image: &Image,
) -> Result<(Vec<Arc<Policy>>, u64), Finding> {
    let Some((policies, generation)) = lookups.policies() else {
        return Err(Finding::error(
            codes::trust::CANNOT_TELL,
            "the SignaturePolicies are not known yet",
        )
        .hint("try again in a moment"));
    };
    let matching = policies
        .values()
        .filter(|policy| policy.matches(&image.reference))
        .cloned()
        .collect();
    Ok((matching, generation))
}

pub(super) fn answer(result: Result<bool, Finding>, user: &UserInfo, right: &Right) -> Answer {
    match result {
        Ok(true) => Answer::Yes,
        Ok(false) => Answer::No,
        Err(why) => {
            let message = format!(
                "whether {:?} has verb {} on {}/{} could not be asked: {}",
                user.username, right.verb, right.resource, right.name, why.message
            );
            Answer::Unavailable(
                Finding::error(codes::review::RIGHTS_UNKNOWN, message)
                    .hint("try again; nothing was decided"),
            )
        }
    }
}

async fn config_map<L: Lookups>(lookups: &L, name: &KubeName) -> ConfigMapFact {
    match lookups.immutable(name).await {
        Ok(Some(true)) => ConfigMapFact::Immutable,
        Ok(Some(false)) => ConfigMapFact::Mutable,
        Ok(None) => ConfigMapFact::Missing,
        Err(why) => ConfigMapFact::Unavailable(why),
    }
}

async fn deployment<L: Lookups>(lookups: &L, name: &KubeName) -> DeploymentFact {
    match lookups.deployment(name).await {
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
