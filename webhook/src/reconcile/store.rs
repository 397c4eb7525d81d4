//! Unpacked content on disk, by digest and by where it came from: who knows a digest alone gets nothing that others pulled. A copy that is damaged or not ours
//! counts as none; losing all of them loses time only.
//! Not here: where content comes from (pull), or what it means (bundle_core::format).

use std::collections::BTreeSet;
use std::path::PathBuf;

use bundle_core::format::Files;
use bundle_core::reference::{Digest, PinnedReference};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Length of the seal that each file begins with.
const SEAL: usize = 32;

/// A content, and the repository and pull secret that it was or would be pulled with. What a registry would not give under another name, or to somebody else, is
/// not given from here either.
pub(super) struct Origin<'a> {
    digest: &'a Digest,
    place: Digest,
}

impl<'a> Origin<'a> {
    pub(super) fn new(reference: &'a PinnedReference, pull_secret: Option<&str>) -> Self {
        let place = format!(
            "{} {}",
            reference.without_tag(),
            pull_secret.unwrap_or_default()
        );
        Self {
            digest: reference.digest(),
            place: Digest::of(place.as_bytes()),
        }
    }
}

/// The folder with the copies.
pub(super) struct Store {
    folder: PathBuf,
}

impl Store {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn path(&self, origin: &Origin<'_>) -> PathBuf {
        let hex = origin.digest.hex();
        self.folder
            .join(format!("{hex}-{}.content", &origin.place.hex()[..16]))
    }

    /// The files that were kept of `origin`, if the copy is just what was written, with this key.
    pub(super) fn read(&self, origin: &Origin<'_>, key: &[u8]) -> Option<Files> {
        let bytes = fs_err::read(self.path(origin)).ok()?;
        let (sealed, body) = bytes.split_at_checked(SEAL)?;
        let digest = origin.digest;
        if seal(key, origin, body).verify_slice(sealed).is_err() {
            tracing::warn!(%digest, "a copy in the cache is damaged and not used");
            return None;
        }
        decode(body)
    }

    /// Keeps a copy. It appears whole or not at all.
    pub(super) fn write(
        &self,
        origin: &Origin<'_>,
        key: &[u8],
        files: &Files,
    ) -> std::io::Result<()> {
        fs_err::create_dir_all(&self.folder)?;
        let body = encode(files);
        let mut bytes = seal(key, origin, &body).finalize().into_bytes().to_vec();
        bytes.extend(body);
        let path = self.path(origin);
        let unfinished = path.with_extension("unfinished");
        fs_err::write(&unfinished, bytes)?;
        fs_err::rename(unfinished, path)
    }

    /// Removes all copies of `digest`.
    pub(super) fn remove(&self, digest: &Digest) {
        self.retain(|name| !name.starts_with(&format!("{}-", digest.hex())));
    }

    /// Removes every copy whose digest is not among `needed`, and what was left unfinished.
    pub(super) fn sweep(&self, needed: &BTreeSet<String>) {
        self.retain(|name| {
            name.strip_suffix(".content")
                .and_then(|stem| stem.split_once('-'))
                .is_some_and(|(hex, _)| needed.contains(&format!("sha256:{hex}")))
        });
    }

    /// Removes every file whose name is not to be kept.
    fn retain(&self, keep: impl Fn(&str) -> bool) {
        let Ok(entries) = fs_err::read_dir(&self.folder) else {
            return;
        };
        for entry in entries.flatten() {
            if !entry.file_name().to_str().is_some_and(&keep) {
                fs_err::remove_file(entry.path()).ok();
            }
        }
    }
}

fn seal(key: &[u8], origin: &Origin<'_>, body: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .unwrap_or_else(|_| Hmac::<Sha256>::new(&hmac::digest::Key::<Hmac<Sha256>>::default()));
    mac.update(b"content\0");
    mac.update(origin.digest.as_str().as_bytes());
    mac.update(origin.place.as_str().as_bytes());
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
    use bundle_core::reference::Reference;

    use super::*;

    fn files() -> Files {
        [
            ("manifests/a.yaml".to_owned(), b"a: 1".to_vec()),
            ("bundle.yaml".to_owned(), Vec::new()),
        ]
        .into()
    }

    fn pinned(repository: &str, content: &[u8]) -> PinnedReference {
        let reference: Reference = format!("registry.example.com/{repository}")
            .parse()
            .unwrap();
        reference.pin(Digest::of(content))
    }

    #[test]
    fn what_was_kept_is_read_again_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().join("content"));
        let (one, two) = (pinned("a:1", b"1"), pinned("a:1", b"2"));
        let (origin, other) = (Origin::new(&one, None), Origin::new(&two, None));
        assert_eq!(store.read(&origin, b"key"), None);
        store.write(&origin, b"key", &files()).unwrap();
        assert_eq!(store.read(&origin, b"key"), Some(files()));
        assert_eq!(store.read(&origin, b"another key"), None);
        // A copy under another digest is not that content.
        fs_err::copy(store.path(&origin), store.path(&other)).unwrap();
        assert_eq!(store.read(&other, b"key"), None);
        store.remove(one.digest());
        assert_eq!(store.read(&origin, b"key"), None);
    }

    #[test]
    fn who_knows_a_digest_alone_gets_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned());
        let private = pinned("team/private:1", b"1");
        let origin = Origin::new(&private, Some("robot"));
        store.write(&origin, b"key", &files()).unwrap();
        let (same, elsewhere) = (pinned("team/private:2", b"1"), pinned("elsewhere:1", b"1"));
        assert!(
            store
                .read(&Origin::new(&same, Some("robot")), b"key")
                .is_some()
        );
        for (reference, secret) in [(&private, None), (&elsewhere, Some("robot"))] {
            let other = Origin::new(reference, secret);
            assert_eq!(store.read(&other, b"key"), None);
            fs_err::copy(store.path(&origin), store.path(&other)).unwrap();
            assert_eq!(store.read(&other, b"key"), None);
        }
    }

    #[test]
    fn damaged_copies_count_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned());
        let reference = pinned("a:1", b"1");
        let origin = Origin::new(&reference, None);
        store.write(&origin, b"key", &files()).unwrap();
        let good = fs_err::read(store.path(&origin)).unwrap();
        for damaged in [
            &good[..good.len() - 1],
            &good[..SEAL],
            &good[..5],
            &[0; 64][..],
            b"",
        ] {
            fs_err::write(store.path(&origin), damaged).unwrap();
            assert_eq!(store.read(&origin, b"key"), None);
        }
    }

    #[test]
    fn a_sweep_leaves_what_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned());
        let (needed, other) = (pinned("a:1", b"1"), pinned("a:1", b"2"));
        for reference in [&needed, &other] {
            let origin = Origin::new(reference, None);
            store.write(&origin, b"key", &files()).unwrap();
        }
        fs_err::write(folder.path().join("x.unfinished"), b"x").unwrap();
        store.sweep(&[needed.digest().to_string()].into());
        assert!(store.read(&Origin::new(&needed, None), b"key").is_some());
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
