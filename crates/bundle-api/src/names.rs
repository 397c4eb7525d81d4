//! Constants that objects, people and other programs see: labels, annotations, finalizers, conditions, reasons, managers.
//! Not here: the rules that set or read them (bundle-core) and diagnostic codes (bundle_core::diagnostic).

/// The API group of all our kinds.
pub const GROUP: &str = "core.rukpak.io";
/// The version of all our kinds.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of all our kinds.
pub const API_VERSION: &str = "core.rukpak.io/v1alpha1";

/// The longest name of a Bundle.
pub const BUNDLE_NAME_LIMIT: usize = 52;
/// The longest name of a BundleDeployment: its Bundles are called `<name>-<6 hexadecimal digits>`.
pub const DEPLOYMENT_NAME_LIMIT: usize = 45;

/// The schema pattern of a name that is a DNS-1123 label: classes and namespaces (`IsDNS1123Label` of apimachinery, without its length).
pub const LABEL_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// The longest DNS-1123 label, in bytes.
pub const LABEL_LIMIT: usize = 63;
/// The schema pattern of a name that is a DNS-1123 subdomain: most kinds (`IsDNS1123Subdomain` of apimachinery, without its length).
pub const SUBDOMAIN_PATTERN: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// The same where an empty name means none.
pub const OPTIONAL_SUBDOMAIN_PATTERN: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$";
/// The longest DNS-1123 subdomain, in bytes.
pub const SUBDOMAIN_LIMIT: usize = 253;

/// Who writes our fields on installed objects, by server-side apply.
pub const FIELD_MANAGER: &str = "bundle-webhook";
/// Who writes the status of our own kinds.
pub const STATUS_MANAGER: &str = "bundle-webhook-status";

/// The provisioner that installs plain manifests, as a class names it in `spec.provisioner`.
pub const PROVISIONER_PLAIN: &str = "core.rukpak.io/plain";
/// The provisioner that installs registry+v1 bundles.
pub const PROVISIONER_REGISTRY: &str = "core.rukpak.io/registry";
/// The provisioner that installs charts.
pub const PROVISIONER_HELM: &str = "core.rukpak.io/helm";

/// Label on Bundles and installed objects: the kind of the owner.
pub const LABEL_OWNER_KIND: &str = "core.rukpak.io/owner-kind";
/// Label on Bundles and installed objects: the name of the owner.
pub const LABEL_OWNER_NAME: &str = "core.rukpak.io/owner-name";
/// Label on a Bundle made from a template: the hash of that template.
pub const LABEL_TEMPLATE_HASH: &str = "core.rukpak.io/bundle-template-hash";
/// Label on installed objects (KEP-3659): the ApplySet that they are part of.
pub const LABEL_APPLYSET_PART_OF: &str = "applyset.kubernetes.io/part-of";
/// Label on the parent of an ApplySet (KEP-3659): its ID.
pub const LABEL_APPLYSET_ID: &str = "applyset.kubernetes.io/id";
/// Label on a CRD whose objects may be parents of an ApplySet (KEP-3659).
pub const LABEL_APPLYSET_PARENT_TYPE: &str = "applyset.kubernetes.io/is-parent-type";
/// Annotation on the parent of an ApplySet: the program that manages it, with its version.
pub const ANNOTATION_APPLYSET_TOOLING: &str = "applyset.kubernetes.io/tooling";
/// Annotation on the parent of an ApplySet: the kinds of its objects, `Kind.group`, comma-separated.
pub const ANNOTATION_APPLYSET_GROUP_KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
/// Annotation on the parent of an ApplySet: the namespaces of its objects, comma-separated.
pub const ANNOTATION_APPLYSET_NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";

/// Who writes `status.admission` of our own kinds.
pub const SEAL_MANAGER: &str = "bundle-webhook-seal";
/// Field manager of the conditions of an object of ours that is too large to be read.
pub const UNREADABLE_MANAGER: &str = "bundle-webhook-unreadable";

/// Annotation with the admission stamp: who asked for this spec, under a MAC with a key that only the pod has. It lives until the object is sealed.
pub const ANNOTATION_STAMP: &str = "core.rukpak.io/stamp";
/// Annotation with which somebody vouches for all of a spec that nothing vouches for, and becomes its requester. Its value is for one spec of one object.
pub const ANNOTATION_ADMIT: &str = "core.rukpak.io/admit";
/// Annotation with the OCI manifest and its signatures, gzip and base64, so that a review needs no registry.
pub const ANNOTATION_PROOF: &str = "core.rukpak.io/proof";
/// Annotation on installed objects: a mark that tells objects that we created from others of the same name. Nothing but a crash makes anybody ask for it.
pub const ANNOTATION_CREATION_MARK: &str = "core.rukpak.io/creation-mark";

/// Finalizer of a Bundle: its unpacked content is removed from the cache first.
pub const FINALIZER_CACHED_BUNDLE: &str = "core.rukpak.io/delete-cached-bundle";
/// Finalizer of a BundleDeployment: what it installed is removed, or left behind, as `spec.deletion` says.
pub const FINALIZER_INSTALLED: &str = "core.rukpak.io/delete-installed-objects";

/// `status.phase` of a Bundle that nothing was done for yet.
pub const PHASE_PENDING: &str = "Pending";
/// `status.phase` of a Bundle whose content is on its way.
pub const PHASE_UNPACKING: &str = "Unpacking";
/// `status.phase` of a Bundle whose content could not be had.
pub const PHASE_FAILING: &str = "Failing";
/// `status.phase` of a Bundle whose content is there.
pub const PHASE_UNPACKED: &str = "Unpacked";

/// Condition types.
pub mod condition {
    /// Bundle: the content was pulled and read.
    pub const UNPACKED: &str = "Unpacked";
    /// Bundle: the signatures that policies ask for were found on the digest that was pulled.
    pub const VERIFIED: &str = "Verified";
    /// Bundle: the content's Kubernetes range includes this server.
    pub const COMPATIBLE: &str = "Compatible";
    /// Bundle: the source names other content than was first unpacked. True: a tag moved, and nothing was changed.
    pub const SOURCE_MOVED: &str = "SourceMoved";
    /// BundleDeployment: a Bundle of the current template is unpacked.
    pub const HAS_VALID_BUNDLE: &str = "HasValidBundle";
    /// BundleDeployment: the content is installed.
    pub const INSTALLED: &str = "Installed";
    /// BundleDeployment: the requester may do what the content does.
    pub const AUTHORIZED: &str = "Authorized";
    /// BundleDeployment: the content was approved, where the class asks for that.
    pub const APPROVED: &str = "Approved";
    /// BundleDeployment: the installed objects are healthy.
    pub const HEALTHY: &str = "Healthy";
    /// BundleDeployment: installed objects differ from the content.
    pub const DRIFTED: &str = "Drifted";
    /// BundleDeployment: work is under way.
    pub const PROGRESSING: &str = "Progressing";
    /// All kinds: the one that kstatus, Flux, Argo CD and `kubectl wait` read.
    pub const READY: &str = "Ready";
    /// BundleApproval: it counts.
    pub const ACCEPTED: &str = "Accepted";
}

/// Reasons of conditions. Those of RukPak keep their meaning.
pub mod reason {
    /// Unpacked: not begun.
    pub const UNPACK_PENDING: &str = "UnpackPending";
    /// Unpacked: under way.
    pub const UNPACKING: &str = "Unpacking";
    /// Unpacked: done.
    pub const UNPACK_SUCCESSFUL: &str = "UnpackSuccessful";
    /// Unpacked: failed.
    pub const UNPACK_FAILED: &str = "UnpackFailed";
    /// Unpacked, Installed: a finalizer could not do its work.
    pub const PROCESSING_FINALIZER_FAILED: &str = "ProcessingFinalizerFailed";
    /// HasValidBundle, Installed: the Bundle's content could not be loaded.
    pub const BUNDLE_LOAD_FAILED: &str = "BundleLoadFailed";
    /// HasValidBundle, Installed: the content could not be read.
    pub const READING_CONTENT_FAILED: &str = "ReadingContentFailed";
    /// Installed: no client for the installing identity.
    pub const ERROR_GETTING_CLIENT: &str = "ErrorGettingClient";
    /// Installed: the state of what is installed could not be read.
    pub const ERROR_GETTING_RELEASE_STATE: &str = "ErrorGettingReleaseState";
    /// Installed: the first installation failed.
    pub const INSTALL_FAILED: &str = "InstallFailed";
    /// Installed: an upgrade failed; what was installed before stays.
    pub const UPGRADE_FAILED: &str = "UpgradeFailed";
    /// Installed: restoring drifted objects failed.
    pub const RECONCILE_FAILED: &str = "ReconcileFailed";
    /// Installed: a watch on installed objects could not be opened.
    pub const CREATE_DYNAMIC_WATCH_FAILED: &str = "CreateDynamicWatchFailed";
    /// Installed: done.
    pub const INSTALLATION_SUCCEEDED: &str = "InstallationSucceeded";
    /// Any: there is no valid seal or fresh admission stamp, so the object was written while admission was off, or its stamp was tampered with.
    pub const NOT_ADMITTED: &str = "NotAdmitted";
    /// Authorized, Ready: whoever asked for what is installed has lost rights that it needs. It stays, and nothing is changed any more.
    pub const RIGHTS_WITHDRAWN: &str = "RightsWithdrawn";
    /// Any: the object is larger than the webhook reads, so nothing is done for it.
    pub const TOO_LARGE_TO_READ: &str = "TooLargeToRead";
    /// SourceMoved: the source names other content now.
    pub const SOURCE_MOVED: &str = "SourceMoved";
    /// SourceMoved: the source names what was unpacked.
    pub const SOURCE_UNCHANGED: &str = "SourceUnchanged";
    /// Ready, Progressing: `spec.paused` is true.
    pub const PAUSED: &str = "Paused";
    /// BundleApproval: it counts.
    pub const ACCEPTED: &str = "Accepted";
    /// BundleApproval: its author lacks verb `approve` on the class.
    pub const NOT_ALLOWED: &str = "NotAllowed";
    /// BundleApproval: requester and approver are one person, and the class asks for two.
    pub const SELF_APPROVAL: &str = "SelfApproval";
    /// BundleApproval: there is no such BundleDeployment.
    pub const NO_SUCH_DEPLOYMENT: &str = "NoSuchDeployment";
    /// BundleApproval: the BundleDeployment asks for other content by now.
    pub const SUPERSEDED: &str = "Superseded";
}

/// Verbs that we ask RBAC about, on `provisionerclasses`.
pub mod verb {
    /// May name the class in a Bundle or BundleDeployment.
    pub const USE: &str = "use";
    /// May approve content for BundleDeployments of the class.
    pub const APPROVE: &str = "approve";
    /// May delete the Bundle, BundleDeployment or BundleApproval that somebody else asked for.
    pub const MANAGE: &str = "manage";
}
