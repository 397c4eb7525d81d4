//! Diagnostic codes: unpacking, installing, keeping and removing content on a cluster.
//! Not here: any other area.

area! {
    MISSING_KIND = "BUNDLE-INSTALL-001", CannotTell, "the cluster does not have a kind that the content needs", "A CustomResourceDefinition or an API server that serves the kind is missing. Nothing was applied. It is tried again by itself, and succeeds once the provider of the kind is installed.";
    COLLISION = "BUNDLE-INSTALL-002", Refused, "an object of the content exists already", "An object of the same name exists and was not made by this BundleDeployment. Nothing was applied. Remove it, rename it, or set spec.collision: Adopt to take over objects that belong to nobody.";
    OWNED_BY_OTHER = "BUNDLE-INSTALL-003", Refused, "an object of the content belongs to another BundleDeployment", "One object has one owner. Nothing was applied. Delete the object from the content of one of the two.";
    APPLY_FAILED = "BUNDLE-INSTALL-004", Failed, "objects could not be applied", "The API server's own words stand in the message, for each object. What was applied stays; it is tried again by itself.";
    NOT_READY = "BUNDLE-INSTALL-005", Failed, "an object that others need did not become ready", "A Namespace or CustomResourceDefinition of the content was applied and is not active or established. It is tried again by itself.";
    NOT_AUTHORIZED = "BUNDLE-INSTALL-006", Refused, "the requester lacks rights for the content", "The class says authorization: Requester, so whoever asks for content must be allowed to write every object in it, and to hold or hand on every right that it gives. The missing rights are listed as RBAC rules.";
    RIGHTS_UNKNOWN = "BUNDLE-INSTALL-007", CannotTell, "the rights of the requester could not be asked", "The API server did not answer. Nothing was applied; it is tried again by itself.";
    NOT_APPROVED = "BUNDLE-INSTALL-008", Refused, "the content waits for approval", "The class says approval: Required. Somebody with verb approve on the class has to approve exactly this content digest for this BundleDeployment.";
    OUTSIDE_TARGETS = "BUNDLE-INSTALL-009", Refused, "an object lies outside of what the class allows", "A class lists the namespaces that content may land in, and whether it may hold cluster-scoped objects, in spec.targets.";
    NO_ACCOUNT = "BUNDLE-INSTALL-010", Refused, "there is no ServiceAccount to install as", "Neither the BundleDeployment nor its class names one. Set spec.serviceAccount on one of them.";
    NOT_WATCHED = "BUNDLE-INSTALL-011", Failed, "installed objects cannot be watched", "The installing ServiceAccount needs list and watch on every kind in the content, in its namespaces.";
    CONTENT_LOST = "BUNDLE-INSTALL-012", CannotTell, "the content cannot be read again", "The cache does not have it, and its registry does not give it. What is installed stays; it is tried again by itself.";
    CONTENT_CHANGED = "BUNDLE-INSTALL-013", Refused, "a Bundle is not what it was when it was unpacked", "Its spec was changed while admission was switched off. The content that was recorded first is the only one that is ever accepted under its name.";
    SOURCE_MOVED = "BUNDLE-INSTALL-014", Refused, "the source names other content now", "A tag was moved. Nothing was changed: the content that was first unpacked is the only one under this name. To install what the tag names now, create another Bundle, or change the template of the BundleDeployment.";
    SOURCE_UNSUPPORTED = "BUNDLE-INSTALL-015", Refused, "the provisioner cannot unpack this type of source", "Only sources of type image can be unpacked yet.";
    RESOURCES_LEFT = "BUNDLE-INSTALL-016", Refused, "custom resources would be lost", "The content defines kinds of which objects exist that it did not install. Nothing is torn down until they are gone, or spec.deletion.customResources says Orphan or Delete.";
    REMOVAL_FAILED = "BUNDLE-INSTALL-017", Failed, "objects could not be removed", "The installing ServiceAccount must be there and may delete what it installed. It is tried again by itself. With spec.deletion.objects: Orphan the objects are left behind.";
    NOT_IMPLEMENTED = "BUNDLE-INSTALL-018", Failed, "a field is set that has no effect yet", "The field is part of the API, and this version does not act on it. Everything else is done.";
    CHILD_TAKEN = "BUNDLE-INSTALL-019", Refused, "the Bundle of a template belongs to somebody else", "A Bundle of the name that the template leads to exists and was not made by this BundleDeployment. Delete it, or change the template.";
    DRIFT = "BUNDLE-INSTALL-020", Failed, "installed objects are out of line", "Somebody changed or deleted them. They are restored at once, unless the BundleDeployment is paused or says drift.mode: Report.";
    CLASS_GONE = "BUNDLE-INSTALL-021", CannotTell, "the ProvisionerClass is gone", "What was installed under it stays, and nothing further is changed until the class is there again.";
    DOWNGRADE = "BUNDLE-INSTALL-022", Refused, "a policy forbids to go back to a lower version", "A SignaturePolicy that covers the content has versions without allowDowngrade: true, and what is installed has a higher version. The versions compared are those inside the signed content, not tags.";
}
