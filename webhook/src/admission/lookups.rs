//! What a review may ask of others, and the gathering of all that it needs, at once.
//! Not here: how the API server and registries are asked (live), and what follows from the answers (bundle_core::review).

use std::collections::BTreeMap;
use std::sync::Arc;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::package;
use bundle_core::policy::Policy;
use bundle_core::review::deployment::ServiceAccount;
use bundle_core::review::{
    Answer, ClassFact, ConfigMapFact, ContentFact, DeploymentFact, Facts, Image, Needs, Requester,
    Subject, may_look,
};
use bundle_core::version::ServerVersion;
use bundle_oci::registry::Looked;
use bundle_trust::proof;
use futures::future::{OptionFuture, join_all};
use jiff::Timestamp;
use serde_json::Value;

use super::review::UserInfo;

/// A right, as RBAC has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Right {
    /// The verb.
    pub verb: &'static str,
    /// API group of the resource.
    pub group: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// Namespace of the object. For cluster-scoped ones that of the pod: then a RoleBinding there counts like a ClusterRoleBinding.
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
    /// The key of the stamp; handed to `with` so that it is never copied.
    fn with_stamp_key<T>(&self, with: impl FnOnce(&[u8]) -> T) -> T;
    /// The policies, with a number that changes with them; `None` until they are known.
    fn policies(&self) -> Option<(Policies, u64)>;
    /// The API server; `None` until it has said its version.
    fn server(&self) -> Option<ServerVersion>;
    /// The user name of the pod's own identity; `None` where it could not be found out.
    fn own_user(&self) -> impl Future<Output = Option<String>> + Send;
    /// A class by name.
    fn class(&self, name: &str) -> impl Future<Output = ClassFact> + Send;
    /// Whether that user has that right.
    fn may(
        &self,
        user: &UserInfo,
        right: &Right,
    ) -> impl Future<Output = Result<bool, Finding>> + Send;
    /// A BundleDeployment by name.
    fn deployment(&self, name: &str)
    -> impl Future<Output = Result<Option<Value>, Finding>> + Send;
    /// Whether a ConfigMap of the system namespace is immutable; `None` if there is none.
    fn immutable(&self, name: &str) -> impl Future<Output = Result<Option<bool>, Finding>> + Send;
    /// An image, with its signatures if they are wanted.
    fn look(
        &self,
        image: &Image,
        signatures: bool,
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
    config_maps: BTreeMap<String, ConfigMapFact>,
    /// The image, or why it was not seen.
    pub(super) image: Option<Result<Looked, Finding>>,
    policies: Result<Vec<Arc<Policy>>, Finding>,
    server: Option<ServerVersion>,
    system_namespace: String,
    now: Timestamp,
}

/// Asks everything that is needed, all at once but for the image, which comes last. `remembered` is the image, where it is known already.
pub(super) async fn gather<L: Lookups>(
    lookups: &L,
    user: &UserInfo,
    subject: &Subject<'_>,
    needs: &Needs,
    remembered: Option<Looked>,
) -> Gathered {
    let system = lookups.system_namespace().to_owned();
    let on_class = |verb: &'static str, name: &str| Right {
        verb,
        group: bundle_api::names::GROUP,
        resource: "provisionerclasses",
        namespace: system.clone(),
        name: name.to_owned(),
    };
    let may = |right: Right| async move { answer(lookups.may(user, &right).await, user, &right) };
    let policies = matching(lookups, needs);

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
            namespace,
            name,
        })
    });
    let approve = async {
        let fact = deployment(lookups, needs.deployment.as_deref()?).await;
        let allowed = match &fact {
            DeploymentFact::Found { class, .. } => {
                Some(may(on_class(bundle_api::names::verb::APPROVE, class)).await)
            }
            _ => None,
        };
        Some((fact, allowed))
    };
    let config_maps = join_all(needs.config_maps.iter().map(|name| async {
        let fact = match lookups.immutable(name).await {
            Ok(Some(true)) => ConfigMapFact::Immutable,
            Ok(Some(false)) => ConfigMapFact::Mutable,
            Ok(None) => ConfigMapFact::Missing,
            Err(why) => ConfigMapFact::Unavailable(why),
        };
        (name.clone(), fact)
    }));
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
        config_maps: config_maps.into_iter().collect(),
        image: None,
        policies: Ok(Vec::new()),
        server: lookups.server(),
        system_namespace: system,
        now: Timestamp::now(),
    };
    for (name, class, allowed) in classes {
        gathered.classes.insert(name.clone(), class);
        gathered.may_use.insert(name, allowed);
    }
    // Last: a registry of the requester's choice is only spoken to for those whom the judge would let through so far.
    if let Some(image) = &needs.image
        && may_look(subject, &gathered.facts())
    {
        gathered.policies = policies;
        gathered.image = match (&gathered.policies, remembered) {
            (Err(_), _) => None,
            (Ok(_), Some(looked)) => Some(Ok(looked)),
            (Ok(policies), None) => Some(lookups.look(image, !policies.is_empty()).await),
        };
    }
    gathered
}

impl Gathered {
    /// The facts for the judge.
    pub(super) fn facts(&self) -> Facts<'_> {
        let mut facts = Facts {
            requester: self.requester.clone(),
            classes: self.classes.clone(),
            may_use: self.may_use.clone(),
            may_impersonate: self.may_impersonate.clone(),
            may_approve: self.may_approve.clone(),
            deployment: self.deployment.clone(),
            config_maps: self.config_maps.clone(),
            content: ContentFact::NotAsked,
            policies: Vec::new(),
            server: self.server.clone(),
            system_namespace: self.system_namespace.clone(),
        };
        match (&self.policies, &self.image) {
            (Err(why), _) => facts.content = ContentFact::PoliciesUnknown(why.clone()),
            (Ok(_), None) => {}
            (Ok(policies), Some(Err(why))) => {
                facts.content = ContentFact::Unavailable(why.clone());
                facts.policies = proof::unexamined(policies.iter().map(AsRef::as_ref), self.now);
            }
            (Ok(policies), Some(Ok(looked))) => {
                let policies = policies.iter().map(AsRef::as_ref);
                let examined =
                    proof::examine(&looked.pinned, &looked.signatures, policies, self.now);
                facts.policies = examined.policies;
                facts.content = ContentFact::Found {
                    pinned: looked.pinned.clone(),
                    package: package::Facts::from_annotations(&looked.annotations).map(Box::new),
                    signatures: examined.found,
                };
            }
        }
        facts
    }
}

/// The policies that are about the image; an error where they are not known yet.
fn matching<L: Lookups>(lookups: &L, needs: &Needs) -> Result<Vec<Arc<Policy>>, Finding> {
    let Some(image) = &needs.image else {
        return Ok(Vec::new());
    };
    let Some((policies, _)) = lookups.policies() else {
        return Err(Finding::error(
            codes::trust::CANNOT_TELL,
            "the SignaturePolicies are not known yet",
        )
        .hint("try again in a moment"));
    };
    Ok(policies
        .values()
        .filter(|policy| policy.matches(&image.reference))
        .cloned()
        .collect())
}

fn answer(result: Result<bool, Finding>, user: &UserInfo, right: &Right) -> Answer {
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

async fn deployment<L: Lookups>(lookups: &L, name: &str) -> DeploymentFact {
    match lookups.deployment(name).await {
        Ok(Some(found)) => DeploymentFact::Found {
            uid: text(&found["metadata"]["uid"]),
            class: text(&found["spec"]["provisionerClassName"]),
        },
        Ok(None) => DeploymentFact::Missing,
        Err(why) => DeploymentFact::Unavailable(why),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
