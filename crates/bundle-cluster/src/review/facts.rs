//! Facts of a review except the image, looked up in parallel.

use std::collections::BTreeMap;

use bundle_api::names;
use bundle_core::names::KubeName;
use bundle_core::review::{
    Answer, ClassFact, ConfigMapFact, DeploymentFact, Facts, Needs, Requester, approval_terms,
    has_default_terms,
};
use bundle_core::rights::Question;
use bundle_core::service_account::ServiceAccount;
use bundle_core::version::ServerVersion;
use futures::future::{OptionFuture, join_all};
use futures::stream::{self, StreamExt as _};
use serde_json::Value;

use super::ReviewLookups;
use super::content::Content;

/// Largest number of parallel ConfigMap lookups of one review. A spec can name hundreds.
const QUESTIONS: usize = 8;

/// Facts without the image.
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

/// Returns the permission for a verb of this project on a class. Its namespace is that of the pod,
/// so that a RoleBinding there counts like a ClusterRoleBinding.
pub fn on_class(verb: &str, class: &str, system_namespace: &str) -> Question {
    Question::resource(
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
    needs: &Needs,
) -> Gathered {
    let system = lookups.system_namespace();
    let may =
        |question: Question| async move { lookups.has_permission(requester, &question).await };

    let classes = join_all(needs.classes.iter().map(|name| async {
        let asked = may(on_class(names::verb::USE, name, system));
        let (class, allowed) = futures::join!(lookups.class(name), asked);
        (name.clone(), class, allowed)
    }));
    let impersonate = needs.impersonate.as_ref().map(|account| {
        let ServiceAccount { namespace, name } = account;
        may(Question::resource(
            "impersonate",
            "",
            "serviceaccounts",
            Some(namespace),
            Some(name),
        ))
    });
    let approve = async {
        let fact = deployment(lookups, needs.deployment.as_ref()?).await;
        let allowed = match &fact {
            DeploymentFact::Found { class, .. } => {
                Some(may(on_class(names::verb::APPROVE, class, system)).await)
            }
            _ => None,
        };
        Some((fact, allowed))
    };
    let questions = needs.config_maps.iter().cloned();
    let config_maps = stream::iter(questions.map(|name| {
        let right = Question::resource("get", "", "configmaps", Some(system), Some(&name));
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
        requester: requester.clone(),
        classes: BTreeMap::new(),
        may_use: BTreeMap::new(),
        may_impersonate,
        deployment,
        may_approve,
        may_read: BTreeMap::new(),
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

impl Gathered {
    /// Returns the facts for the verdict.
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
            server: self.server.clone(),
            system_namespace: self.system_namespace.clone(),
            state_namespace: self.state_namespace.clone(),
            ..Facts::default()
        };
        content.add_to(&mut facts);
        facts
    }
}

async fn config_map<L: ReviewLookups>(lookups: &L, name: &KubeName) -> ConfigMapFact {
    match lookups.immutable(name).await {
        Ok(Some(true)) => ConfigMapFact::Immutable,
        Ok(Some(false)) => ConfigMapFact::Mutable,
        Ok(None) => ConfigMapFact::Missing,
        Err(why) => ConfigMapFact::Unavailable(why),
    }
}

async fn deployment<L: ReviewLookups>(lookups: &L, name: &KubeName) -> DeploymentFact {
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
