//! How much we read of what others send: every number that bounds memory and time in this crate.
//! Not here: the rules that apply them.

/// Largest manifest, index or image configuration that is read, in bytes (the size that registries themselves accept).
pub const MANIFEST_BYTES: u64 = 4 << 20;
/// Largest signature bundle that is read, in bytes.
pub const SIGNATURE_BYTES: u64 = 1 << 20;
/// Largest manifest of a referrer that is read beside a digest, in bytes. It names one layer or a few.
pub const REFERRER_BYTES: u64 = 256 << 10;
/// Most bytes of signatures and their annotations that are read beside one digest, of all places where they may be.
pub const SIGNATURES_BYTES: u64 = 16 << 20;
/// Most referrers of one digest that are looked at, and most signatures beside it that are read, of all places. `bundle_trust::verify::MAX_SIGNATURES`
/// is the same number, so that whatever is read is examined.
pub const REFERRERS: usize = 256;
/// Most pages of a referrers list that are followed.
pub const REFERRER_PAGES: usize = 32;
/// Most tags of one repository that are listed.
pub const TAGS: usize = 20_000;
/// Most pages of a list of tags that are followed.
pub const TAG_PAGES: usize = 200;
/// Most of an error answer that is read for its message, in bytes.
pub(crate) const ERROR_BYTES: u64 = 8 << 10;
/// Most of a token answer that is read, in bytes.
pub(crate) const TOKEN_BYTES: u64 = 256 << 10;
/// Most of a file of credentials, certificates or mirrors that is read, in bytes.
pub(crate) const CREDENTIAL_BYTES: u64 = 4 << 20;
/// Most redirects that one request follows.
pub(crate) const REDIRECTS: usize = 5;

/// Most bytes of the paths of one bundle: they are all that unpacking onto a disk holds in memory.
pub const NAMES: usize = 512 << 10;

/// Bounds on the content of one bundle, packed and unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// One layer as it is transferred, in bytes.
    pub layer: u64,
    /// Layers of one image.
    pub layers: usize,
    /// One file, in bytes. A Kubernetes object of more than 1.5 MiB cannot be stored, so a file this large is no manifest.
    pub file: u64,
    /// All files together (and the tar around them), in bytes.
    pub total: u64,
    /// Entries of all layers together.
    pub entries: usize,
    /// How many times larger than its layer the content may be, once it is past 8 MiB: a tar of thousands of small files shrinks
    /// about fiftyfold, a bomb a thousandfold.
    pub ratio: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            layer: 64 << 20,
            layers: 32,
            file: 8 << 20,
            total: 128 << 20,
            entries: 20_000,
            ratio: 200,
        }
    }
}

impl Limits {
    /// For images of others, which hold whole systems: they are written to disk as they arrive and never stand in memory.
    pub fn of_images() -> Self {
        Self {
            layer: 64 << 30,
            layers: 256,
            file: 64 << 30,
            total: 64 << 30,
            entries: 300_000,
            ratio: 200,
        }
    }
}

/// Below this many unpacked bytes the ratio is not looked at.
pub(crate) const RATIO_FLOOR: u64 = 8 << 20;

/// A size as people read it: `8 MiB`, `300 B`.
pub(crate) fn human(bytes: u64) -> String {
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
    fn sizes_read_like_sizes() {
        assert_eq!(super::human(300), "300 B");
        assert_eq!(super::human(8 << 20), "8 MiB");
        assert_eq!(super::human((3 << 20) / 2), "1.5 MiB");
    }
}
