//! The media types that this crate reads and writes.

/// OCI image manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// OCI image index: a list of manifests.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// OCI image configuration.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Layer: gzipped tar. This crate writes only layers of this type.
pub const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Layer: uncompressed tar.
pub const LAYER_TAR: &str = "application/vnd.oci.image.layer.v1.tar";
/// Empty configuration: the two bytes `{}`.
pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// Sigstore bundle v0.3, in which signatures are stored.
pub const SIGSTORE_BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// Prefix of the media types of all versions of a Sigstore bundle.
pub const SIGSTORE_BUNDLE_PREFIX: &str = "application/vnd.dev.sigstore.bundle";
/// Payload that cosign 2 signs: a layer of the image under the `.sig` tag.
pub const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// DSSE envelope: an attestation of cosign 2. The certificate and the log entry are in annotations.
pub(crate) const DSSE_ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";
/// Artifact type of the referrer in which cosign 2 stores signatures.
pub(crate) const COSIGN_SIGNATURE: &str = "application/vnd.dev.cosign.artifact.sig.v1+json";

/// Docker's media type of an image manifest. Older build tools write this media type.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's media type of an index.
pub(crate) const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker's media type of an image configuration.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// Docker's media type of a gzip layer.
pub(crate) const DOCKER_LAYER_GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

/// Value of `Accept` in requests for manifests.
pub(crate) const ACCEPT_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// Returns `true` for the media types of an image manifest.
pub fn is_manifest(media_type: &str) -> bool {
    matches!(media_type, MANIFEST | DOCKER_MANIFEST)
}

/// Returns `true` for the media types of an index.
pub fn is_index(media_type: &str) -> bool {
    matches!(media_type, INDEX | DOCKER_INDEX)
}

/// Returns `true` for the media types of an image configuration.
pub fn is_config(media_type: &str) -> bool {
    matches!(media_type, CONFIG | DOCKER_CONFIG)
}

/// Returns `true` for the media types of layers that must not be distributed or are fetched from
/// elsewhere, for example in old Windows images.
pub fn is_foreign(media_type: &str) -> bool {
    media_type.contains(".nondistributable.")
        || media_type.starts_with("application/vnd.docker.image.rootfs.foreign.")
}
