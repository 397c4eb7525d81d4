//! Diagnostic codes of container images in a bundle's objects.

area! {
    UNREADABLE = "BUNDLE-IMAGE-001", Refused, "invalid container image reference", "The value of an image field is not a valid reference, so the kubelet could not pull the image. A reference has a repository name in lower case, an optional registry before it, and an optional tag or digest after it.";
    NO_TAG = "BUNDLE-IMAGE-002", Refused, "an image has neither tag nor digest", "Without a tag, the kubelet pulls latest, which changes over time: the same bundle would run different programs. Add the tag of a version or a digest, or pass --allow-mutable-tags.";
    MUTABLE_TAG = "BUNDLE-IMAGE-003", Refused, "an image has a mutable tag", "Tags such as latest and main are moved with each release, so the same bundle would run different programs over time. Use the tag of a version or a digest, or pass --allow-mutable-tags.";
    BAD_LOCK = "BUNDLE-IMAGE-004", Refused, "invalid images.lock.yaml", "`kubectl bundle build --lock` writes images.lock.yaml. The file is validated strictly, because an entry whose fields contradict each other could install another image. Write the lock file again.";
    NOT_LOCKED = "BUNDLE-IMAGE-005", Refused, "an image is missing from images.lock.yaml", "The manifests use an image that images.lock.yaml does not contain. The kubelet would pull this image by its tag, and all other images by their digests. Write the lock file again with `kubectl bundle build --lock`.";
    UNKNOWN_LOCKED = "BUNDLE-IMAGE-006", Refused, "images.lock.yaml has an entry for an unused image", "No manifest uses the image of an entry in images.lock.yaml. The manifests have changed since the lock file was written. Write the lock file again with `kubectl bundle build --lock`.";
    NOT_AN_IMAGE = "BUNDLE-IMAGE-007", Refused, "a value looks like an image, but the registry does not have this image", "This is a warning. The value of an environment variable or argument has the form of an image reference, and the registry does not have such an image. The value is not changed and not locked. If the value is an image, correct its name.";
}
