//! Unpacked content on disk, by digest. A copy that is damaged, incomplete or not ours counts as none; losing all of them loses time only.
//! Not here: where content comes from (pull), or what it means (bundle_core::format).

use std::collections::BTreeSet;
use std::path::PathBuf;

use bundle_core::format::Files;
use bundle_core::reference::Digest;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Length of the seal that each file begins with.
const SEAL: usize = 32;

/// The folder with the copies.
pub(super) struct Store {
    folder: PathBuf,
}

impl Store {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{}.content", digest.hex()))
    }

    /// The files that were kept under `digest`, if the copy is just what was written, with this key.
    pub(super) fn read(&self, digest: &Digest, key: &[u8]) -> Option<Files> {
        let bytes = fs_err::read(self.path(digest)).ok()?;
        let (sealed, body) = bytes.split_at_checked(SEAL)?;
        if seal(key, digest, body).verify_slice(sealed).is_err() {
            tracing::warn!(%digest, "a copy in the cache is damaged and not used");
            return None;
        }
        decode(body)
    }

    /// Keeps a copy. It appears whole or not at all.
    pub(super) fn write(&self, digest: &Digest, key: &[u8], files: &Files) -> std::io::Result<()> {
        fs_err::create_dir_all(&self.folder)?;
        let body = encode(files);
        let mut bytes = seal(key, digest, &body).finalize().into_bytes().to_vec();
        bytes.extend(body);
        let path = self.path(digest);
        let unfinished = path.with_extension("unfinished");
        fs_err::write(&unfinished, bytes)?;
        fs_err::rename(unfinished, path)
    }

    /// Removes the copy, if there is one.
    pub(super) fn remove(&self, digest: &Digest) {
        fs_err::remove_file(self.path(digest)).ok();
    }
}

impl Store {
    /// Removes every copy whose digest is not among `needed`, and what was left unfinished.
    pub(super) fn sweep(&self, needed: &BTreeSet<String>) {
        let Ok(entries) = fs_err::read_dir(&self.folder) else {
            return;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let kept = path
                .extension()
                .is_some_and(|extension| extension == "content")
                && path
                    .file_stem()
                    .and_then(|stem| stem.to_str())
                    .is_some_and(|stem| needed.contains(&format!("sha256:{stem}")));
            if !kept {
                fs_err::remove_file(path).ok();
            }
        }
    }
}

fn seal(key: &[u8], digest: &Digest, body: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .unwrap_or_else(|_| Hmac::<Sha256>::new(&hmac::digest::Key::<Hmac<Sha256>>::default()));
    mac.update(b"content\0");
    mac.update(digest.as_str().as_bytes());
    mac.update(&[0]);
    mac.update(body);
    mac
}

/// Each file as length of its path, path, length, bytes; lengths as eight bytes.
fn encode(files: &Files) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, bytes) in files {
        for part in [path.as_bytes(), bytes] {
            out.extend((part.len() as u64).to_be_bytes());
            out.extend(part);
        }
    }
    out
}

fn decode(mut body: &[u8]) -> Option<Files> {
    let mut next = || -> Option<Option<Vec<u8>>> {
        if body.is_empty() {
            return Some(None);
        }
        let (length, rest) = body.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
        let (part, rest) = rest.split_at_checked(length)?;
        body = rest;
        Some(Some(part.to_vec()))
    };
    let mut files = Files::new();
    while let Some(path) = next()? {
        let bytes = next()??;
        files.insert(String::from_utf8(path).ok()?, bytes);
    }
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Files {
        [
            ("manifests/a.yaml".to_owned(), b"a: 1".to_vec()),
            ("bundle.yaml".to_owned(), Vec::new()),
        ]
        .into()
    }

    #[test]
    fn what_was_kept_is_read_again_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().join("content"));
        let (digest, other) = (Digest::of(b"1"), Digest::of(b"2"));
        assert_eq!(store.read(&digest, b"key"), None);
        store.write(&digest, b"key", &files()).unwrap();
        assert_eq!(store.read(&digest, b"key"), Some(files()));
        assert_eq!(store.read(&digest, b"another key"), None);
        // A copy under another digest is not that content.
        fs_err::copy(store.path(&digest), store.path(&other)).unwrap();
        assert_eq!(store.read(&other, b"key"), None);
        store.remove(&digest);
        assert_eq!(store.read(&digest, b"key"), None);
    }

    #[test]
    fn damaged_copies_count_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned());
        let digest = Digest::of(b"1");
        store.write(&digest, b"key", &files()).unwrap();
        let good = fs_err::read(store.path(&digest)).unwrap();
        for damaged in [
            &good[..good.len() - 1],
            &good[..SEAL],
            &good[..5],
            &[0; 64][..],
            b"",
        ] {
            fs_err::write(store.path(&digest), damaged).unwrap();
            assert_eq!(store.read(&digest, b"key"), None);
        }
    }

    #[test]
    fn a_sweep_leaves_what_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned());
        let (needed, other) = (Digest::of(b"1"), Digest::of(b"2"));
        for digest in [&needed, &other] {
            store.write(digest, b"key", &files()).unwrap();
        }
        fs_err::write(folder.path().join("x.unfinished"), b"x").unwrap();
        store.sweep(&[needed.to_string()].into());
        assert!(store.read(&needed, b"key").is_some());
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
        Store::new(folder.path().join("not there")).sweep(&BTreeSet::new());
    }

    #[test]
    fn no_bytes_make_decoding_fail_badly() {
        for body in [
            &[0xff; 8][..],
            &[0, 0, 0, 0, 0, 0, 0, 9, 1],
            &[0, 0, 0, 0, 0, 0, 0, 1, b'a'],
        ] {
            assert_eq!(decode(body), None);
        }
        assert_eq!(decode(&encode(&files())), Some(files()));
    }
}
