//! Diagnostic codes: what admission decides.
//! Not here: any other area.

area! {
    SPEC_IMMUTABLE = "BUNDLE-REVIEW-001", Refused, "the spec of a Bundle does not change", "A Bundle is what it was when it was admitted. To install other content, create another Bundle, or change the template of a BundleDeployment.";
    SOURCE_MEMBER = "BUNDLE-REVIEW-002", Refused, "a source lacks the member that its type names", "spec.source.type says which of image, git, configMaps, http and upload is read. That one must be set.";
    SOURCE_UNION = "BUNDLE-REVIEW-003", Refused, "a source has none or several of what it may have one of", "Exactly one of image, git, configMaps, http and upload is set in a source, and exactly one of branch, tag and commit in a git reference.";
    SOURCE_PATH = "BUNDLE-REVIEW-004", Refused, "a path leads out of the content", "Directories in a repository and paths in a bundle are relative and stay inside: no leading slash and no way up past the root.";
    CONFIGMAP_MUTABLE = "BUNDLE-REVIEW-005", Refused, "a ConfigMap of a source can change", "Content does not change, so a ConfigMap that it is made from must have immutable: true.";
    BAD_FIELD = "BUNDLE-REVIEW-006", Refused, "a field has a value that cannot be used", "The message names the field and what it takes. `kubectl explain` shows all of them.";
    MISSING_FIELD = "BUNDLE-REVIEW-007", Refused, "a required field is missing", "The message names the field. `kubectl explain` shows what belongs into it.";
    NAME_TOO_LONG = "BUNDLE-REVIEW-008", Refused, "a name is too long", "Names of Bundles have at most 52 characters, those of BundleDeployments 45, since their Bundles are called after them.";
    CLASS_UNKNOWN = "BUNDLE-REVIEW-009", Refused, "there is no such ProvisionerClass", "A warning: the object is admitted and nothing happens to it until an administrator creates the class and the object is written again.";
    CLASS_FOREIGN = "BUNDLE-REVIEW-010", Refused, "the ProvisionerClass is of another provisioner", "A warning: the object is admitted and left to that provisioner.";
    CLASS_UNREADABLE = "BUNDLE-REVIEW-011", Refused, "the ProvisionerClass cannot be read", "A class with a field that is not understood might mean a limit that would not be kept. Nothing is admitted under it until it is corrected.";
    USE_NOT_ALLOWED = "BUNDLE-REVIEW-012", Refused, "the requester may not use the ProvisionerClass", "Naming a class takes verb use on provisionerclasses/CLASS of group core.rukpak.io, by a ClusterRoleBinding, or by a RoleBinding in the namespace of the pod.";
    IMPERSONATE_NOT_ALLOWED = "BUNDLE-REVIEW-013", Refused, "the requester may not act as the ServiceAccount", "Installing as a ServiceAccount takes verb impersonate on it, exactly what the API server would ask of the requester.";
    APPROVE_NOT_ALLOWED = "BUNDLE-REVIEW-014", Refused, "the requester may not approve for the ProvisionerClass", "Approving content takes verb approve on provisionerclasses/CLASS of group core.rukpak.io.";
    RIGHTS_UNKNOWN = "BUNDLE-REVIEW-015", CannotTell, "whether the requester may do it could not be asked", "The API server did not answer the question in time. Nothing was decided: try again.";
    SOURCE_NOT_ALLOWED = "BUNDLE-REVIEW-016", Refused, "the ProvisionerClass does not take this source", "A class lists the types and hosts of sources that it takes in spec.sources.";
    CONTENT_UNSEEN = "BUNDLE-REVIEW-017", CannotTell, "the content could not be looked at", "The registry did not show the content. Where a signature is required that refuses; otherwise it is a warning, and everything is checked again before anything is installed.";
    KUBERNETES_ACCEPTED = "BUNDLE-REVIEW-018", Refused, "an unsupported Kubernetes version was accepted", "A warning: the BundleDeployment says spec.kubernetes.unsupported: Accept, so the range of the bundle is set aside. That is recorded in its status.";
    SERVER_UNKNOWN = "BUNDLE-REVIEW-019", CannotTell, "the version of the API server is not known", "The range of Kubernetes versions could not be checked at admission. It is checked again before anything is installed.";
    CLASSES_UNKNOWN = "BUNDLE-REVIEW-020", CannotTell, "the ProvisionerClasses are not known yet", "The webhook has just started, or cannot reach the API server. Nothing was decided: try again.";
    DEADLINE = "BUNDLE-REVIEW-021", CannotTell, "the review did not finish in time", "Something that had to be asked did not answer within the deadline of a review. Nothing was decided: try again.";
    MALFORMED = "BUNDLE-REVIEW-022", Failed, "the review cannot be read", "What was posted is not an AdmissionReview of admission.k8s.io/v1 with a request. API servers do not send such; check what else calls the webhook.";
    APPROVAL_IMMUTABLE = "BUNDLE-REVIEW-023", Refused, "the spec of a BundleApproval does not change", "An approval stands for what one person saw. To withdraw it, delete it; to approve other content, create another.";
    APPROVAL_TARGET = "BUNDLE-REVIEW-024", Refused, "the BundleDeployment of an approval is not there", "An approval names a BundleDeployment by name and uid. It was deleted, or created again under the same name.";
    NOT_ADMITTED = "BUNDLE-REVIEW-025", Refused, "the object carries no valid admission stamp", "It was written while admission was switched off, or its stamp was changed. Write it again while the webhook runs: apply it, or set any annotation on it, and it is checked and stamped for whoever does that.";
    DELETE_NOT_ALLOWED = "BUNDLE-REVIEW-040", Refused, "the requester may not delete it", "Deleting a Bundle or BundleDeployment removes what it installed, so it takes verb use on its class, and being the requester or having verb manage on the object. An approval is withdrawn by its author, or with verb manage. Changing owner references or removing the finalizer of a BundleDeployment takes the same. ClusterRole bundle-admin has verb manage.";
    REGISTRATIONS_ALTERED = "BUNDLE-REVIEW-041", CannotTell, "the webhook registrations are missing or altered", "The API server may store objects without asking the webhook, so no review is answered. /readyz and the log of bundle-webhook name what is wrong; apply webhook/deploy/admission again.";
    OBJECT_TOO_LARGE = "BUNDLE-REVIEW-042", Refused, "the objects of a review take too much memory", "Parsed, the objects would take more memory than the webhook has for reviews. Very many tiny values cause this, such as empty lists. Put large configuration into fewer and longer values, or give the webhook more memory.";
    BUSY = "BUNDLE-REVIEW-043", CannotTell, "the webhook has no memory left for another review", "Other reviews use the memory that is set aside for reviews. Nothing was decided: try again.";
}
