//! Constants of the API: labels, annotations, finalizers, conditions, reasons, field managers.

/// API group of all kinds of this project.
pub const GROUP: &str = "core.rukpak.io";
/// API version of all kinds of this project, without the group.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of all kinds of this project.
pub const API_VERSION: &str = "core.rukpak.io/v1alpha1";

/// Maximum length of the name of a Bundle, in bytes.
pub const BUNDLE_NAME_LIMIT: usize = 52;
/// Maximum length of the name of a BundleDeployment, in bytes. The Bundles of a BundleDeployment
/// have the names `<name>-<6 hexadecimal digits>`.
pub const DEPLOYMENT_NAME_LIMIT: usize = 45;

/// Schema pattern of a DNS-1123 label: names of classes and namespaces (`IsDNS1123Label` of
/// apimachinery, without the length).
pub const LABEL_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Maximum length of a DNS-1123 label, in bytes.
pub const LABEL_LIMIT: usize = 63;
/// Schema pattern of a DNS-1123 subdomain: names of most kinds (`IsDNS1123Subdomain` of
/// apimachinery, without the length).
pub const SUBDOMAIN_PATTERN: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Schema pattern of an optional DNS-1123 subdomain: the text matches [`SUBDOMAIN_PATTERN`] or is
/// empty.
pub const OPTIONAL_SUBDOMAIN_PATTERN: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$";
/// Maximum length of a DNS-1123 subdomain, in bytes.
pub const SUBDOMAIN_LIMIT: usize = 253;

/// Field manager of installed objects, for server-side apply.
pub const FIELD_MANAGER: &str = "bundle-webhook";
/// Field manager of the status of this project's kinds.
pub const STATUS_MANAGER: &str = "bundle-webhook-status";

/// Label on Bundles and installed objects with the kind of the owner.
pub const LABEL_OWNER_KIND: &str = "core.rukpak.io/owner-kind";
/// Label on Bundles and installed objects with the name of the owner.
pub const LABEL_OWNER_NAME: &str = "core.rukpak.io/owner-name";
/// Label on a Bundle that the pod created from a template: the hash of the template.
pub const LABEL_TEMPLATE_HASH: &str = "core.rukpak.io/bundle-template-hash";
/// Label on a template and its Bundle: the first digits of the digest of the archive that
/// `kubectl bundle run` uploads.
pub const LABEL_UPLOAD_DIGEST: &str = "core.rukpak.io/upload-digest";
/// Prefix of the labels and annotations of an ApplySet (KEP-3659).
pub const APPLYSET_PREFIX: &str = "applyset.kubernetes.io/";
/// Label on installed objects (KEP-3659): the ID of the ApplySet that contains the object.
pub const LABEL_APPLYSET_PART_OF: &str = "applyset.kubernetes.io/part-of";
/// Label on the parent of an ApplySet (KEP-3659): the ID of the ApplySet.
pub const LABEL_APPLYSET_ID: &str = "applyset.kubernetes.io/id";
/// Label on a CRD whose objects may be parents of an ApplySet (KEP-3659).
pub const LABEL_APPLYSET_PARENT_TYPE: &str = "applyset.kubernetes.io/is-parent-type";
/// Annotation on the parent of an ApplySet: the program that manages the ApplySet, with the version
/// of the program.
pub const ANNOTATION_APPLYSET_TOOLING: &str = "applyset.kubernetes.io/tooling";
/// Annotation on the parent of an ApplySet: the kinds of the objects in the ApplySet, `Kind.group`,
/// comma-separated.
pub const ANNOTATION_APPLYSET_GROUP_KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
/// Annotation on the parent of an ApplySet: the namespaces of the objects in the ApplySet,
/// comma-separated.
pub const ANNOTATION_APPLYSET_NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";

/// Field manager of `status.admission` of this project's kinds.
pub const SEAL_MANAGER: &str = "bundle-webhook-seal";
/// Field manager of the conditions that the pod sets on an object that is too large to be read.
pub const UNREADABLE_MANAGER: &str = "bundle-webhook-unreadable";

/// Annotation with the admission stamp: the requester of this spec, with a MAC. Only the pod has
/// the key of the MAC. The pod removes the annotation after it has written the seal into the
/// status.
pub const ANNOTATION_STAMP: &str = "core.rukpak.io/stamp";
/// Annotation that admits an object without stamp or seal. The user who sets the annotation becomes
/// the requester of the whole spec. The value is valid for one spec of one object.
pub const ANNOTATION_ADMIT: &str = "core.rukpak.io/admit";
/// Annotation with the OCI manifest and its signatures, encoded with gzip and base64. With this
/// annotation an admission review needs no registry.
pub const ANNOTATION_PROOF: &str = "core.rukpak.io/proof";
/// Annotation on installed objects: a mark that distinguishes objects of the pod from objects that
/// other clients created under the same name. The pod reads the mark only if it has not recorded
/// the result of its create request.
pub const ANNOTATION_CREATION_MARK: &str = "core.rukpak.io/creation-mark";
/// Annotation of a Secret in an operator's content. The value is the name of a Service in the same
/// namespace. The pod issues a certificate for this Service, and writes the certificate and its key
/// into the Secret.
pub const ANNOTATION_SERVING_CERTIFICATE: &str = "core.rukpak.io/serving-certificate";
/// Annotation of a webhook configuration or CustomResourceDefinition in an operator's content. The
/// value is `NAMESPACE/NAME` of a Service. The pod writes the certificate authorities of this
/// Service into `caBundle`.
pub const ANNOTATION_INJECT_AUTHORITY: &str = "core.rukpak.io/inject-authority";

/// Finalizer of a Bundle: removes its unpacked content from the cache.
pub const FINALIZER_CACHED_BUNDLE: &str = "core.rukpak.io/delete-cached-bundle";
/// Finalizer of a BundleDeployment: removes or orphans the installed objects, according to
/// `spec.deletion`.
pub const FINALIZER_INSTALLED: &str = "core.rukpak.io/delete-installed-objects";

/// `status.phase` of a Bundle that waits for the upload of its content.
pub const PHASE_PENDING: &str = "Pending";
/// `status.phase` of a Bundle while its content is being pulled.
pub const PHASE_UNPACKING: &str = "Unpacking";
/// `status.phase` of a Bundle after unpacking its content failed.
pub const PHASE_FAILING: &str = "Failing";
/// `status.phase` of a Bundle after its content was unpacked.
pub const PHASE_UNPACKED: &str = "Unpacked";

/// Condition types.
pub mod condition {
    /// Condition of a Bundle: the content was pulled and read.
    pub const UNPACKED: &str = "Unpacked";
    /// Condition of a Bundle: the pulled content has the signatures that policies require.
    pub const VERIFIED: &str = "Verified";
    /// Condition of a Bundle: the Kubernetes version range of the content includes the version of
    /// this server.
    pub const COMPATIBLE: &str = "Compatible";
    /// Condition of a Bundle: the source now refers to other content than the content that was
    /// first unpacked, for example because a tag moved. The unpacked content does not change.
    pub const SOURCE_MOVED: &str = "SourceMoved";
    /// Condition of a BundleDeployment: a Bundle of the current template is unpacked.
    pub const HAS_VALID_BUNDLE: &str = "HasValidBundle";
    /// Condition of a BundleDeployment: the content is installed.
    pub const INSTALLED: &str = "Installed";
    /// Condition of a BundleDeployment: the requester has the permissions that the content
    /// requires.
    pub const AUTHORIZED: &str = "Authorized";
    /// Condition of a BundleDeployment: the content is approved, if the class requires approval.
    pub const APPROVED: &str = "Approved";
    /// Condition of a BundleDeployment: the installed objects are healthy.
    pub const HEALTHY: &str = "Healthy";
    /// Condition of a BundleDeployment: installed objects differ from the content.
    pub const DRIFTED: &str = "Drifted";
    /// Condition of a BundleDeployment: an installation or upgrade is in progress.
    pub const PROGRESSING: &str = "Progressing";
    /// Condition of every kind: the object is reconciled or valid. kstatus, Flux, Argo CD and
    /// `kubectl wait` read this condition.
    pub const READY: &str = "Ready";
    /// Condition of a BundleApproval: the approval is valid.
    pub const ACCEPTED: &str = "Accepted";
}

/// Reasons of conditions. Reasons that RukPak defines have the same meaning as in RukPak.
pub mod reason {
    /// Reason of the condition `Unpacked`: unpacking has not started.
    pub const UNPACK_PENDING: &str = "UnpackPending";
    /// Reason of the condition `Unpacked`: unpacking is in progress.
    pub const UNPACKING: &str = "Unpacking";
    /// Reason of the condition `Unpacked`: unpacking succeeded.
    pub const UNPACK_SUCCESSFUL: &str = "UnpackSuccessful";
    /// Reason of the condition `Unpacked`: unpacking failed.
    pub const UNPACK_FAILED: &str = "UnpackFailed";
    /// Reason of the conditions `HasValidBundle` and `Installed`: the Bundle's content could not be
    /// loaded.
    pub const BUNDLE_LOAD_FAILED: &str = "BundleLoadFailed";
    /// Reason of the conditions `HasValidBundle` and `Installed`: the content is invalid.
    pub const READING_CONTENT_FAILED: &str = "ReadingContentFailed";
    /// Reason of the condition `Installed`: the client for the installing ServiceAccount could not
    /// be created.
    pub const ERROR_GETTING_CLIENT: &str = "ErrorGettingClient";
    /// Reason of the condition `Installed`: the first installation failed.
    pub const INSTALL_FAILED: &str = "InstallFailed";
    /// Reason of the condition `Installed`: an upgrade failed. The previous content is still
    /// installed.
    pub const UPGRADE_FAILED: &str = "UpgradeFailed";
    /// Reason of the condition `Installed`: the package requires APIs or packages that are missing
    /// on the cluster.
    pub const REQUIREMENTS_MISSING: &str = "RequirementsMissing";
    /// Reason of the condition `Installed`: restoring drifted objects failed.
    pub const RECONCILE_FAILED: &str = "ReconcileFailed";
    /// Reason of the condition `Installed`: `spec.config` does not match the schema of the package.
    pub const INVALID_CONFIGURATION: &str = "InvalidConfiguration";
    /// Reason of the condition `Installed`: a watch on installed objects could not be opened.
    pub const CREATE_DYNAMIC_WATCH_FAILED: &str = "CreateDynamicWatchFailed";
    /// Reason of the condition `Installed`: the installation succeeded.
    pub const INSTALLATION_SUCCEEDED: &str = "InstallationSucceeded";
    /// Reason of conditions of every kind: the object has neither a valid seal nor a recent
    /// admission stamp. The object was written while admission was off, or its stamp was changed.
    pub const NOT_ADMITTED: &str = "NotAdmitted";
    /// Reason of the conditions `Authorized` and `Ready`: the requester of the installed content
    /// has lost permissions that the content requires. The content stays installed and is not
    /// changed any more.
    pub const RIGHTS_WITHDRAWN: &str = "RightsWithdrawn";
    /// Reason of conditions of every kind: the object exceeds the size limit of the webhook, and is
    /// not reconciled.
    pub const TOO_LARGE_TO_READ: &str = "TooLargeToRead";
    /// Reason of the condition `SourceMoved`: the source now refers to other content.
    pub const SOURCE_MOVED: &str = "SourceMoved";
    /// Reason of the condition `SourceMoved`: the source refers to the unpacked content.
    pub const SOURCE_UNCHANGED: &str = "SourceUnchanged";
    /// Reason of the condition `Progressing`: the content is applied, and its objects are not
    /// healthy yet. Reason of the conditions `Installed`, `Progressing` and `Ready`: the objects of
    /// a phase are applied and not healthy, and the next phase waits for these objects.
    pub const WAITING_FOR_HEALTH: &str = "WaitingForHealth";
    /// Reason of the conditions `Progressing` and `Ready`: the objects of the content are not
    /// healthy by `spec.rollout.deadline`. The content stays installed.
    pub const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
    /// Reason of the conditions `Progressing` and `Ready`: the content is not healthy by
    /// `spec.rollout.deadline`, and the former content is being installed again.
    pub const ROLLING_BACK: &str = "RollingBack";
    /// Reason of the conditions `Installed`, `Progressing` and `Ready`: the content was not healthy
    /// by `spec.rollout.deadline`, and the former content is installed again.
    pub const ROLLED_BACK: &str = "RolledBack";
    /// Reason of the conditions `Ready` and `Progressing`: `spec.paused` is true.
    pub const PAUSED: &str = "Paused";
    /// Reason of the condition `Accepted` of a BundleApproval: the approval is valid.
    pub const ACCEPTED: &str = "Accepted";
    /// Reason of the condition `Accepted` of a BundleApproval: requester and approver are the same
    /// person, but the class requires two persons.
    pub const SELF_APPROVAL: &str = "SelfApproval";
    /// Reason of the condition `Accepted` of a BundleApproval: the BundleDeployment now requests
    /// other content.
    pub const SUPERSEDED: &str = "Superseded";
}

/// RBAC verbs on `provisionerclasses`.
pub mod verb {
    /// Allows naming the class in a Bundle or BundleDeployment.
    pub const USE: &str = "use";
    /// Allows approving content for BundleDeployments of the class.
    pub const APPROVE: &str = "approve";
    /// Allows deleting a Bundle, BundleDeployment or BundleApproval of another requester.
    pub const MANAGE: &str = "manage";
}
