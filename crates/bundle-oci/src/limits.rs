//! Limits on the memory and time that untrusted input can use.

/// Maximum size of a manifest, index or image configuration, in bytes. Registries have the same
/// limit for manifests.
pub const MANIFEST_BYTES: u64 = 4 << 20;
/// Maximum size of a signature bundle, in bytes.
pub const SIGNATURE_BYTES: u64 = 1 << 20;
/// Maximum size of the manifest of a referrer, in bytes. The manifest of a referrer names only a
/// few layers.
pub const REFERRER_BYTES: u64 = 256 << 10;
/// Maximum total size of the signatures of one digest and their annotations, in bytes.
pub const SIGNATURES_BYTES: u64 = 16 << 20;
/// Maximum number of referrers of one digest, and maximum number of signatures that are read for
/// one digest. `bundle_trust::verify::MAX_SIGNATURES` has the same value, so that every signature
/// that is read is verified.
pub const REFERRERS: usize = 256;
/// Maximum number of pages of a list of referrers.
pub const REFERRER_PAGES: usize = 32;
/// Maximum number of tags of one repository.
pub const TAGS: usize = 20_000;
/// Maximum number of pages of a list of tags.
pub const TAG_PAGES: usize = 200;
/// Maximum number of bytes of an error response that are read for its message.
pub(crate) const ERROR_BYTES: u64 = 8 << 10;
/// Maximum size of the response of a token service, in bytes. Tokens have 1 to 3 KiB.
pub(crate) const TOKEN_BYTES: u64 = 64 << 10;
/// Maximum size of a file with credentials, certificates or mirrors, in bytes.
pub(crate) const CREDENTIAL_BYTES: u64 = 4 << 20;
/// Maximum number of redirects of one request.
pub(crate) const REDIRECTS: usize = 5;

/// Maximum total length of all paths of one bundle, in bytes. An unpacker keeps the paths in
/// memory, even if it writes the content to disk.
pub const NAMES: usize = 512 << 10;

/// Maximum number of layers of any image. Also the maximum number of digests in an image
/// configuration.
pub(crate) const LAYERS: usize = 256;

/// Limits on the content of one bundle, packed and unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum compressed size of one layer, and of an archive from a server or an upload, in
    /// bytes. The pod streams layers and archives to disk, and never has a whole layer or archive
    /// in memory.
    pub layer: u64,
    /// Maximum number of layers of one image.
    pub layers: usize,
    /// Maximum size of one file, in bytes. Kubernetes cannot store objects over 1.5 MiB, so a
    /// larger file is not a manifest.
    pub file: u64,
    /// Maximum total size of all layers after decompression, in bytes.
    pub total: u64,
    /// Maximum total number of tar entries in all layers. When an image is unpacked onto disk, each
    /// parent folder that is created without an entry also counts.
    pub entries: usize,
    /// Maximum total length of all paths in all layers, in bytes. The targets of links also count.
    pub names: usize,
    /// Maximum ratio of unpacked to compressed size. The ratio is checked only if the unpacked size
    /// is above 8 MiB. The ratio of a tar with thousands of small files is approximately 50. The
    /// ratio of a decompression bomb is approximately 1000.
    pub ratio: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            layer: 128 << 20,
            layers: 32,
            file: 8 << 20,
            total: 128 << 20,
            entries: 20_000,
            names: NAMES,
            ratio: 200,
        }
    }
}

impl Limits {
    /// Returns the limits for images of workloads. Such an image can contain a whole root file
    /// system. The layers are streamed to disk and are never completely in memory.
    pub fn for_images() -> Self {
        Self {
            layer: 64 << 30,
            layers: LAYERS,
            file: 64 << 30,
            total: 64 << 30,
            entries: 300_000,
            names: 128 << 20,
            ratio: 200,
        }
    }
}

/// Unpacked size in bytes below which the ratio is not checked.
pub(crate) const RATIO_FLOOR: u64 = 8 << 20;

/// Minimum average size of the members of a gzip file, in uncompressed bytes. Each member costs
/// time, even if the member is empty. Tools write at least one block of a tar into each member.
pub(crate) const GZIP_MEMBER_BYTES: u64 = 512;
/// The average size of gzip members is checked only if a file has more members than this number.
pub(crate) const GZIP_MEMBERS_FLOOR: u64 = 1024;

/// Formats a size for people: `8 MiB`, `300 B`.
pub(crate) fn format_size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (unit, name) in UNITS {
        if bytes >= unit {
            let tenths = (u128::from(bytes) * 10) / u128::from(unit);
            return if tenths % 10 == 0 {
                format!("{} {name}", tenths / 10)
            } else {
                format!("{}.{} {name}", tenths / 10, tenths % 10)
            };
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    #[test]
    fn formats_sizes_with_units() {
        assert_eq!(super::format_size(300), "300 B");
        assert_eq!(super::format_size(8 << 20), "8 MiB");
        assert_eq!(super::format_size((3 << 20) / 2), "1.5 MiB");
    }
}
