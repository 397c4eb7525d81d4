//! What the judge is given: the write that is asked for, and what was found out about it. The webhook and `kubectl bundle check` fill in the same.
//! Not here: what has to be found out (needs) and what follows (judge).

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

use super::{class::Class, parts::ChangedParts, requester::Requester};
use crate::{
    diagnostic::{Finding, Findings},
    package,
    policy::{ReadyPolicy, SignatureFound, Unavailable},
    reference::{Digest, PinnedReference},
    version::ServerVersion,
};

/// The kinds that are reviewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Content that never changes.
    Bundle,
    /// A template of a Bundle, and how to install it.
    BundleDeployment,
    /// A person's approval of content.
    BundleApproval,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bundle, Self::BundleDeployment, Self::BundleApproval];

    /// `kind` of the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bundle => "Bundle",
            Self::BundleDeployment => "BundleDeployment",
            Self::BundleApproval => "BundleApproval",
        }
    }

    /// The resource.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Bundle => "bundles",
            Self::BundleDeployment => "bundledeployments",
            Self::BundleApproval => "bundleapprovals",
        }
    }

    /// The longest name.
    pub fn name_limit(self) -> usize {
        match self {
            Self::Bundle => 52,
            Self::BundleDeployment => 45,
            Self::BundleApproval => 253,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How much is known about a write before anything is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nothing: every create, and an update of an object that nothing vouches for.
    Unstamped,
    /// An update of an object that is sealed, or has a fresh stamp: what it says was checked before.
    Stamped,
    /// A create, by the pod itself, of the Bundle that a stamped BundleDeployment's template asks for. The pod has compared owner, hash and spec. It
    /// inherits that stamp, with everything that was checked for it.
    Inherited,
}

/// The write that is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// What is written.
    pub kind: Kind,
    /// Its name; the name that it will get, where the API server generates it.
    pub name: &'a str,
    /// The whole object as it was: absent on create.
    pub old: Option<&'a Value>,
    /// The whole object as it will be.
    pub new: &'a Value,
    /// What is known already.
    pub standing: Standing,
    /// Whether the requester vouches for the whole spec of an object that exists: the write sets annotation `core.rukpak.io/admit` to the value for
    /// exactly this spec. `check`: true, since it cannot tell what stamps are worth, and checks everything.
    pub admits: bool,
    /// Whether the pod's own identity asks, of which nobody expects a stamp: it writes labels, annotations and finalizers. `check`: false.
    pub own: bool,
}

impl<'a> Subject<'a> {
    /// `spec` as it was.
    pub fn old_spec(&self) -> Option<&'a Value> {
        self.old.map(|old| &old["spec"])
    }

    /// `spec` as it will be.
    pub fn spec(&self) -> &'a Value {
        &self.new["spec"]
    }

    /// Whether the object is on its way out and its spec stays as it is, so that nothing will come of the write. What is to be left behind can be
    /// changed to the last, so a change of the spec is checked as ever. Whoever admits the spec takes the object over, and decides on its removal.
    pub fn is_leaving(&self) -> bool {
        self.is_removed_unchanged() && !self.admits
    }

    /// Whether the object is being deleted, and the write leaves its spec as it is: no content will be installed any more.
    pub fn is_removed_unchanged(&self) -> bool {
        self.new["metadata"]["deletionTimestamp"].is_string() && self.spec_is_kept()
    }

    /// Whether an update leaves the spec as it is written, so that the generation stays.
    pub fn spec_is_untouched(&self) -> bool {
        self.old_spec().is_some_and(|old| old == self.spec())
    }

    /// Which parts of the spec the requester asks for by this write.
    pub fn changed_parts(&self) -> ChangedParts {
        match self.old_spec() {
            Some(old) if !self.admits && self.standing == Standing::Stamped => {
                ChangedParts::between(old, self.spec())
            }
            _ => ChangedParts {
                class: true,
                template: true,
                config: true,
                service_account: true,
                settings: true,
            },
        }
    }

    /// Whether an update leaves what the spec means alone.
    pub fn spec_is_kept(&self) -> bool {
        self.old_spec()
            .is_some_and(|old| super::same(old, self.spec()))
    }
}

/// An answer to "may the requester do that?".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Yes.
    Yes,
    /// No.
    No,
    /// The API server did not say.
    Unavailable(Finding),
}

/// What is known of a class by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClassFact {
    /// It exists and was read; it may be another provisioner's.
    Known(Box<Class>),
    /// It exists and cannot be read.
    Unreadable(Findings),
    /// There is none.
    Unknown,
    /// Whether there is one could not be told.
    Unavailable(Finding),
}

/// What is known of a ConfigMap that content is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigMapFact {
    /// It has `immutable: true`.
    Immutable,
    /// It has not.
    Mutable,
    /// There is none yet, which is not refused.
    Missing,
    /// It could not be read.
    Unavailable(Finding),
}

/// What is known of the image.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one in a review, and it is the large one"
)]
pub enum ContentFact {
    /// Nobody asked, since nothing depends on it.
    #[default]
    NotAsked,
    /// The registry did not show it, and why.
    Unavailable(Finding),
    /// The SignaturePolicies are not known, and why: so it is not known either whether a signature is required.
    PoliciesUnknown(Finding),
    /// It was looked at.
    Found {
        /// What the reference means now.
        pinned: PinnedReference,
        /// What its manifest says about the bundle in it.
        package: Result<Box<package::Facts>, Finding>,
        /// What an examination made of its signatures; empty where no policy is about it.
        signatures: Result<Vec<SignatureFound>, Unavailable>,
    },
}

/// What is known of the BundleDeployment that an approval is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeploymentFact {
    /// It exists.
    Found {
        /// Its uid.
        uid: String,
        /// Its class.
        class: String,
        /// What an approval of its content takes for granted ([`approval_terms`](super::approval_terms)).
        terms: Digest,
        /// Its generation.
        generation: i64,
        /// Whether an approval can leave the generation out ([`has_default_terms`](super::has_default_terms)).
        has_default_terms: bool,
    },
    /// It does not.
    Missing,
    /// It could not be read.
    Unavailable(Finding),
}

/// What was found out. Of each map, only the entries that [`needs`](super::needs) names are looked at; a missing one is taken as "not asked" and
/// answered with "cannot tell".
#[derive(Debug, Clone, Default)]
pub struct Facts<'a> {
    /// Who asks.
    pub requester: Requester,
    /// The classes, by name.
    pub classes: BTreeMap<String, ClassFact>,
    /// Whether the requester has verb `use` on each class.
    pub may_use: BTreeMap<String, Answer>,
    /// Whether the requester has verb `impersonate` on the ServiceAccount.
    pub may_impersonate: Option<Answer>,
    /// Whether the requester has verb `approve` on the class of `deployment`.
    pub may_approve: Option<Answer>,
    /// The BundleDeployment of an approval.
    pub deployment: Option<DeploymentFact>,
    /// Whether the requester has verb `get` on each ConfigMap.
    pub may_read: BTreeMap<String, Answer>,
    /// The ConfigMaps, by name.
    pub config_maps: BTreeMap<String, ConfigMapFact>,
    /// The image.
    pub content: ContentFact,
    /// The SignaturePolicies that are about the image, with their keys.
    pub policies: Vec<ReadyPolicy<'a>>,
    /// The API server; `None` where it has not said its version yet.
    pub server: Option<ServerVersion>,
    /// The namespace of the pod: never a target, and named in hints.
    pub system_namespace: String,
    /// The namespace of the pod's keys and inventories: never a target.
    pub state_namespace: String,
}
