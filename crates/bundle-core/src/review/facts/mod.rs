//! Input of the review rules: the write, and the facts that the caller looked up for this write.
//! The webhook and `kubectl bundle check` use the same types. The module `needs` lists the required
//! facts. The module `judge` decides.

pub(super) mod needs;

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

use crate::review::{class::Class, parts::ChangedParts, requester::Requester};
use crate::{
    diagnostic::{Finding, Findings},
    package,
    policy::{ParsedPolicy, SignatureResult, Unavailable},
    reference::{Digest, PinnedReference},
    version::ServerVersion,
};

/// Kinds that admission reviews.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The kind `Bundle`: immutable content.
    Bundle,
    /// The kind `BundleDeployment`: template of a Bundle, with the settings of its installation.
    BundleDeployment,
    /// The kind `BundleApproval`: approval of content by a user.
    BundleApproval,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Bundle, Self::BundleDeployment, Self::BundleApproval];

    /// Returns `kind` of the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bundle => "Bundle",
            Self::BundleDeployment => "BundleDeployment",
            Self::BundleApproval => "BundleApproval",
        }
    }

    /// Returns the plural name of the resource.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Bundle => "bundles",
            Self::BundleDeployment => "bundledeployments",
            Self::BundleApproval => "bundleapprovals",
        }
    }

    /// Returns the length limit of names, in characters.
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

/// State of the stamp or seal of the stored object, before any lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampState {
    /// The write creates the object, or it updates an object that has neither a valid stamp nor a
    /// seal.
    Unstamped,
    /// The write updates an object that has a seal or a valid stamp: the stored spec was checked
    /// before.
    Stamped,
    /// The webhook itself creates the Bundle that the template of a stamped BundleDeployment
    /// defines. The webhook has compared owner, hash and spec. The Bundle inherits the stamp.
    Inherited,
}

/// Reviewed write.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object. For an object with `generateName`, the webhook has generated this name.
    pub name: &'a str,
    /// Complete object before the write; `None` on create.
    pub old: Option<&'a Value>,
    /// Complete object after the write.
    pub new: &'a Value,
    /// State of the stamp or seal of the stored object.
    pub stamp_state: StampState,
    /// `true` if the requester confirms the whole spec of an existing object: the write sets the
    /// annotation `core.rukpak.io/admit` to the value for this spec. `kubectl bundle check` sets
    /// `true`, because it cannot verify stamps and therefore checks the whole spec.
    pub admits: bool,
    /// `true` if the requester is the webhook itself, which writes labels, annotations and
    /// finalizers and requires no stamp. `kubectl bundle check` sets `false`.
    pub own: bool,
}

impl<'a> Subject<'a> {
    /// Returns `spec` before the write; `None` on create.
    pub fn old_spec(&self) -> Option<&'a Value> {
        self.old.map(|old| &old["spec"])
    }

    /// Returns `spec` after the write.
    pub fn spec(&self) -> &'a Value {
        &self.new["spec"]
    }

    /// Returns `true` if the object is being deleted, its spec does not change, and the requester
    /// does not confirm the spec. Changes of the spec are checked even for such an object, because
    /// they affect the removal. A requester who confirms the spec becomes the requester of the
    /// object.
    pub fn is_deleted_unconfirmed(&self) -> bool {
        self.is_removed_unchanged() && !self.admits
    }

    /// Returns `true` if the object is being deleted and its spec does not change, so that no
    /// content will be installed.
    pub fn is_removed_unchanged(&self) -> bool {
        self.new["metadata"]["deletionTimestamp"].is_string() && self.spec_meaning_unchanged()
    }

    /// Returns `true` if an update does not change the text of the spec, so that the generation
    /// does not change.
    pub fn spec_text_unchanged(&self) -> bool {
        self.old_spec().is_some_and(|old| old == self.spec())
    }

    /// Returns the parts of the spec that get the user of this write as their requester.
    pub fn changed_parts(&self) -> ChangedParts {
        match self.old_spec() {
            Some(old) if !self.admits && self.stamp_state == StampState::Stamped => {
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

    /// Returns `true` if an update does not change the meaning of the spec.
    pub fn spec_meaning_unchanged(&self) -> bool {
        self.old_spec()
            .is_some_and(|old| super::same(old, self.spec()))
    }
}

/// Result of an access review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessReviewResult {
    /// The API server allows the request.
    Allowed,
    /// The API server denies the request.
    Denied,
    /// The API server did not respond.
    Unavailable(Finding),
}

/// Result of the lookup of a class by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClassFact {
    /// The class exists and is valid. The class may belong to another provisioner.
    Known(Box<Class>),
    /// The class exists but is invalid.
    Unreadable(Findings),
    /// The class does not exist.
    Unknown,
    /// The classes are not loaded.
    Unavailable(Finding),
}

/// Result of the lookup of a ConfigMap of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigMapFact {
    /// The ConfigMap has `immutable: true`.
    Immutable,
    /// The ConfigMap does not have `immutable: true`.
    Mutable,
    /// The ConfigMap does not exist. The review admits a reference to a missing ConfigMap.
    Missing,
    /// The ConfigMap could not be read.
    Unavailable(Finding),
}

/// Result of the lookup of the image.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::large_enum_variant,
    reason = "a review has one value, and this variant is the usual one"
)]
pub enum ContentFact {
    /// There was no lookup, because no rule depends on this fact.
    #[default]
    NotNeeded,
    /// The registry did not return the manifest. Contains the reason.
    Unavailable(Finding),
    /// The SignaturePolicies could not be read, so the review cannot decide whether a signature is
    /// required. Contains the reason.
    PoliciesUnknown(Finding),
    /// The image was read.
    Found {
        /// Reference with the current digest.
        pinned: PinnedReference,
        /// Facts about the bundle from the annotations of the manifest.
        package: Result<Box<package::PackageDescription>, Finding>,
        /// Results of the signature verification. The list is empty if no policy matches.
        signatures: Result<Vec<SignatureResult>, Unavailable>,
    },
}

/// Result of the lookup of the BundleDeployment of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeploymentFact {
    /// The BundleDeployment exists.
    Found {
        /// Uid of the BundleDeployment.
        uid: String,
        /// Name of the class of the BundleDeployment.
        class: String,
        /// Digest of the settings that an approval covers
        /// ([`approval_terms`](super::approval_terms)).
        terms: Digest,
        /// `metadata.generation`.
        generation: i64,
        /// `true` if an approval may omit the generation
        /// ([`has_default_terms`](super::has_default_terms)).
        has_default_terms: bool,
    },
    /// The BundleDeployment does not exist.
    Missing,
    /// The BundleDeployment could not be read.
    Unavailable(Finding),
}

/// Facts that were looked up for a review. The review uses only the map entries that
/// [`needs`](needs::needs) lists. A missing entry counts as unknown, so the review ends with
/// [`Outcome::Unknown`](crate::diagnostic::Outcome::Unknown).
#[derive(Debug, Clone, Default)]
pub struct ReviewFacts<'a> {
    /// User of the request.
    pub requester: Requester,
    /// Classes by name.
    pub classes: BTreeMap<String, ClassFact>,
    /// Access reviews for verb `use`, by class.
    pub may_use: BTreeMap<String, AccessReviewResult>,
    /// Access review for verb `impersonate` on the ServiceAccount; `None` if there was no review.
    pub may_impersonate: Option<AccessReviewResult>,
    /// Access review for verb `approve` on the class of `deployment`; `None` if there was no
    /// review.
    pub may_approve: Option<AccessReviewResult>,
    /// BundleDeployment of an approval; `None` if there was no lookup.
    pub deployment: Option<DeploymentFact>,
    /// Access reviews for verb `get`, by ConfigMap.
    pub may_read: BTreeMap<String, AccessReviewResult>,
    /// Access review for verb `get` on the Secret of the source; `None` if there was no review.
    pub may_read_secret: Option<AccessReviewResult>,
    /// ConfigMaps by name.
    pub config_maps: BTreeMap<String, ConfigMapFact>,
    /// Image of the source.
    pub content: ContentFact,
    /// SignaturePolicies that match the image, with their keys.
    pub policies: Vec<ParsedPolicy<'a>>,
    /// Version of the API server; `None` if the version is unknown.
    pub server: Option<ServerVersion>,
    /// Namespace of the webhook. This namespace cannot be a target namespace. Hints contain this
    /// name.
    pub system_namespace: String,
    /// Namespace of the keys and inventories of the webhook. This namespace cannot be a target
    /// namespace.
    pub state_namespace: String,
}
