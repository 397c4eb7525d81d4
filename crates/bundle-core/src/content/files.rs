//! Files of content without an OCI manifest, and the digest over them.

use std::collections::BTreeMap;

use crate::reference::Digest;

/// First line of the text that [`FileIndex::digest`] hashes. No OCI manifest begins with this line,
/// so the digest of files never equals the digest of an image.
const HEADER: &str = "core.rukpak.io/files v1\n";

/// Paths of files with the sha256 hashes of their bytes. The order in which files are inserted does
/// not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileIndex(BTreeMap<String, [u8; 32]>);

impl FileIndex {
    /// Inserts a file. The caller checks that `path` contains no control characters.
    pub fn insert(&mut self, path: String, hash: [u8; 32]) {
        self.0.insert(path, hash);
    }

    /// Returns the digest of these files: the sha256 of a text. The text has a header line, and one
    /// line for each file in the order of the paths, in the format of `sha256sum`.
    pub fn digest(&self) -> Digest {
        let mut text = HEADER.to_owned();
        for (path, hash) in &self.0 {
            text.push_str(&hex::encode(hash));
            text.push_str("  ");
            text.push_str(path);
            text.push('\n');
        }
        Digest::of(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(files: &[(&str, u8)]) -> FileIndex {
        let mut index = FileIndex::default();
        for (path, hash) in files {
            index.insert((*path).to_owned(), [*hash; 32]);
        }
        index
    }

    #[test]
    fn digest_depends_on_paths_and_hashes_and_on_no_order() {
        let one = index(&[("manifests/a.yaml", 1), ("manifests/b.yaml", 2)]);
        let other = index(&[("manifests/b.yaml", 2), ("manifests/a.yaml", 1)]);
        assert_eq!(one.digest(), other.digest());
        for files in [
            &[("manifests/a.yaml", 2), ("manifests/b.yaml", 1)][..],
            &[("manifests/a.yaml", 1)],
            &[("manifests/a.yaml", 1), ("manifests/c.yaml", 2)],
            &[],
        ] {
            assert_ne!(index(files).digest(), one.digest(), "{files:?}");
        }
    }

    #[test]
    fn digest_of_known_files_never_changes() {
        let text = format!("{HEADER}{}  manifests/a.yaml\n", "01".repeat(32));
        assert_eq!(
            index(&[("manifests/a.yaml", 1)]).digest(),
            Digest::of(text.as_bytes())
        );
        assert_eq!(
            index(&[("manifests/a.yaml", 1)]).digest().as_str(),
            "sha256:54b6a0fb2dfa2101b4772b3d797caf5fab697101c1dc0e2fdb54a8a6b4ec5a5d"
        );
    }
}
