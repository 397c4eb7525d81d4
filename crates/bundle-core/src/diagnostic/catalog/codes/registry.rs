//! Diagnostic codes: registries and archives.
//! Not here: any other area.

area! {
    UNREACHABLE = "BUNDLE-REGISTRY-001", CannotTell, "the registry does not answer", "The registry could not be reached, or did not answer within the deadline. Nothing was decided from that, and nothing was changed: try again.";
    NOT_FOUND = "BUNDLE-REGISTRY-002", Failed, "the registry does not have it", "The repository, tag or digest does not exist in that registry, or is hidden from these credentials. Registries seldom tell the two apart.";
    DENIED = "BUNDLE-REGISTRY-003", Failed, "the registry refuses access", "The registry wants other credentials, or these do not reach the repository. Log in (docker login, crane auth login), or name a pull secret. It is never taken to mean that there is nothing.";
    DIGEST_MISMATCH = "BUNDLE-REGISTRY-004", Refused, "content is not what its digest says", "The bytes that arrived hash to something else than was asked for: they were cut short, changed on the way, or the registry lies. Nothing of them was used.";
    TOO_LARGE = "BUNDLE-REGISTRY-005", Refused, "content is larger than allowed", "A manifest, layer, file or archive is past the limit that the message names. Reading stopped there.";
    STALLED = "BUNDLE-REGISTRY-006", CannotTell, "the registry stopped answering", "A request was begun and no more bytes came, or the whole did not end within its deadline. Nothing was decided from that, and nothing was changed: try again.";
    WRONG_MEDIA_TYPE = "BUNDLE-REGISTRY-007", Refused, "content is of another kind", "The registry sent something else than was asked for, such as an index, another artifact, or the HTML page of a proxy.";
    MALFORMED = "BUNDLE-REGISTRY-008", Refused, "content cannot be read", "A manifest, configuration or archive is damaged or does not follow its format.";
    TAG_TAKEN = "BUNDLE-REGISTRY-009", Refused, "the tag names other content", "The tag exists and names another digest. Tags that people rely on are not moved by accident: take another version, or say that it is meant.";
    UNSAFE_ENTRY = "BUNDLE-REGISTRY-010", Refused, "an entry cannot be part of a bundle", "A bundle holds regular files under relative paths. Links, devices, absolute paths, paths with `..`, names that are not UTF-8 and entries that appear twice are refused, in archives and in folders.";
    BUSY = "BUNDLE-REGISTRY-011", CannotTell, "the registry is not able to answer now", "The registry answered that it is overloaded or broken (429 or 5xx), also after a few more tries. Nothing was decided from that: try again later.";
    BAD_CREDENTIALS = "BUNDLE-REGISTRY-012", Failed, "stored credentials cannot be read", "The file or helper that keeps registry credentials is damaged. It is not passed over, because being anonymous by accident is confusing.";
    CERTIFICATE = "BUNDLE-REGISTRY-013", Failed, "the registry's certificate is not trusted", "The certificate does not lead to a trusted authority, has expired, or names another host. Give the authority's certificate; verification cannot be switched off.";
    BAD_LAYOUT = "BUNDLE-REGISTRY-014", Failed, "an OCI layout cannot be used", "The folder is not an OCI image layout, misses a blob, or holds other images than the one that is meant.";
    SIGNATURE_LOST = "BUNDLE-REGISTRY-015", CannotTell, "a signature was overwritten by another writer", "Without a referrers API, signatures are listed under a tag that every signer rewrites. Others kept rewriting it, and ours was not in it at the end: sign again.";
    REFUSED = "BUNDLE-REGISTRY-016", Failed, "the registry refuses the request", "The registry understood the request and does not want it; the message has its words.";
    REDIRECT = "BUNDLE-REGISTRY-017", Refused, "the registry redirects where we do not go", "A redirect from https to http, to another scheme, without an address, or one too many. Content and credentials are not sent there.";
    NO_PLATFORM = "BUNDLE-REGISTRY-031", Failed, "there is nothing for the chosen platforms", "The index names images for other platforms than those that were chosen. Nothing was copied: an index without any of its images is of no use.";
    SPARSE_INDEX = "BUNDLE-REGISTRY-032", Failed, "the registry takes no index without its images", "The index was copied or saved for chosen platforms only. Its digest stays what it was, because that is what is signed and locked, so it still names the images that were left out; most registries refuse such an index. Take it for all platforms, or a registry that allows it.";
    NO_ORIGIN = "BUNDLE-REGISTRY-033", Usage, "an image does not say where it came from", "Images are put under a prefix by the reference that they had. This one has only a tag, or no name: push it by itself to the reference that it shall have.";
    NO_LOCK = "BUNDLE-REGISTRY-034", Failed, "the package does not say which images it runs", "The images that go along are those of the package's lock, images.lock.yaml, each by its digest. Without a lock they would have to be guessed. Build the package with --lock.";
}
