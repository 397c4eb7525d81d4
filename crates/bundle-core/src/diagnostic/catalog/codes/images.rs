//! Diagnostic codes of container images in a bundle's objects.

area! {
    UNREADABLE = "BUNDLE-IMAGE-001", Refused, "an image reference cannot be read", "The text of an image field is not one that a container runtime takes, so that the pod would never start. Names are lower case, with an optional registry before and a tag or digest after.";
    NO_TAG = "BUNDLE-IMAGE-002", Refused, "an image has neither tag nor digest", "Without a tag a runtime pulls latest, which is another image from day to day: the same bundle would install different programs. Write the tag of a version or a digest, or allow it with --allow-mutable-tags.";
    MUTABLE_TAG = "BUNDLE-IMAGE-003", Refused, "an image has a tag that moves", "Tags such as latest and main are moved by custom, so that the same bundle would install different programs. Write the tag of a version or a digest, or allow it with --allow-mutable-tags.";
    BAD_LOCK = "BUNDLE-IMAGE-004", Refused, "the lock of images cannot be used", "images.lock.yaml is written by kubectl bundle build --lock and read strictly: an entry that says something else than its image means could install another one.";
    NOT_LOCKED = "BUNDLE-IMAGE-005", Refused, "the lock lacks an image", "There is an images.lock.yaml, and the manifests name an image that is not in it: it would be installed by its tag beside others that are installed by their digests. Write the lock again.";
    UNKNOWN_LOCKED = "BUNDLE-IMAGE-006", Refused, "the lock has an image that nothing names", "An entry of images.lock.yaml belongs to no image of the manifests. It was left behind when an image changed: write the lock again.";
    NOT_AN_IMAGE = "BUNDLE-IMAGE-007", Refused, "what looks like an image is none that the registry has", "A variable or argument looks like an image, and the registry does not have it. It is left as it is and not locked. If it is an image, check its name.";
}
