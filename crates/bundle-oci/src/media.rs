//! The media types that we write and read, and what each of them is to us.
//! Not here: the documents that carry them (manifest).

/// OCI image manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// OCI image index: several manifests under one name.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// OCI image configuration.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Layer: gzip over tar, what we write.
pub const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Layer: tar as it is.
pub const LAYER_TAR: &str = "application/vnd.oci.image.layer.v1.tar";
/// The two bytes `{}`, where a configuration has to be named and there is none.
pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// Sigstore bundle v0.3: how signatures are stored.
pub const SIGSTORE_BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// What every version of a Sigstore bundle's media type begins with.
pub const SIGSTORE_BUNDLE_PREFIX: &str = "application/vnd.dev.sigstore.bundle";
/// The payload that cosign 2 signs, as the layers of a `.sig` tag.
pub const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// An attestation by cosign 2: an envelope, whose evidence is in annotations.
pub const DSSE_ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";
/// What cosign 2 calls an image of such layers that it put beside the content as a referrer.
pub const COSIGN_SIGNATURE: &str = "application/vnd.dev.cosign.artifact.sig.v1+json";

/// Docker's name for an image manifest; images built by older tools have it.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's name for an index.
pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker's name for an image configuration.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// Docker's name for a gzip layer.
pub const DOCKER_LAYER_GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

/// The value of `Accept` when a manifest is asked for.
pub(crate) const ACCEPT_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// Whether this names one image manifest.
pub fn is_manifest(media_type: &str) -> bool {
    matches!(media_type, MANIFEST | DOCKER_MANIFEST)
}

/// Whether this names an index of manifests.
pub fn is_index(media_type: &str) -> bool {
    matches!(media_type, INDEX | DOCKER_INDEX)
}

/// Whether this names an image configuration.
pub fn is_config(media_type: &str) -> bool {
    matches!(media_type, CONFIG | DOCKER_CONFIG)
}

/// Whether this names a layer that its maker does not allow to be passed on, or that is fetched from elsewhere: old images of Windows have such.
pub fn is_foreign(media_type: &str) -> bool {
    media_type.contains(".nondistributable.")
        || media_type.starts_with("application/vnd.docker.image.rootfs.foreign.")
}
