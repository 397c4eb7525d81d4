use std::io::{Read as _, Write as _};

use super::*;

const UID: &str = "8f7d3f0e-0000-4000-8000-000000000001";
const OTHER: &str = "8f7d3f0e-0000-4000-8000-000000000002";

fn upload(store: &UploadStore, user: &str, uid: &str, bytes: &[u8]) -> Digest {
    let arriving = store.begin(user).unwrap();
    arriving.writer().unwrap().write_all(bytes).unwrap();
    let digest = Digest::of(bytes);
    let size = bytes.len() as u64;
    store.keep(arriving, uid, &digest, size).unwrap();
    digest
}

fn read(store: &UploadStore, digest: &Digest) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = store.open(digest).unwrap()?;
    file.read_to_end(&mut bytes).unwrap();
    Some(bytes)
}

fn files(folder: &Path) -> usize {
    fs_err::read_dir(folder).map_or(0, Iterator::count)
}

#[test]
fn uploads_are_kept_across_restarts_until_they_are_replaced_or_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = UploadStore::new(folder.path().to_owned());
    let first = upload(&store, "ana", UID, b"first");
    let second = upload(&store, "ana", UID, b"second");
    assert_eq!(store.digest(UID), Some(second.clone()));
    assert_eq!(read(&store, &first), None);
    upload(&store, "ana", OTHER, b"second");
    assert_eq!(files(folder.path()), 2);
    // The process ends during an upload.
    let unfinished = store.begin("ana").unwrap();
    let (_, kept) = unfinished.file.keep().unwrap();

    let store = UploadStore::new(folder.path().to_owned());
    assert_eq!(store.uids(), [UID, OTHER].map(str::to_owned).into());
    assert_eq!(read(&store, &second).unwrap(), b"second");
    assert!(!kept.exists());
    store.remove(UID);
    assert_eq!(read(&store, &second).unwrap(), b"second");
    store.remove(OTHER);
    assert_eq!(read(&store, &second), None);
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn abandoned_upload_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = UploadStore::new(folder.path().to_owned());
    for _ in 0..2 {
        let arriving = store.begin("ana").unwrap();
        store.reserve(&arriving.space, UPLOADS / 2).unwrap();
        assert_eq!(files(folder.path()), 1);
        drop(arriving);
        assert_eq!(files(folder.path()), 0);
    }
}

#[test]
fn one_requester_has_half_of_the_space_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = UploadStore::new(folder.path().to_owned());
    upload(&store, "ana", UID, b"a");
    let store = UploadStore::new(folder.path().to_owned());
    assert!(store.digest(UID).is_some());
    let full = |user, bytes| {
        let arriving = store.begin(user).unwrap();
        let reserved = store.reserve(&arriving.space, bytes);
        matches!(reserved, Err(UploadError::Full))
    };
    assert!(full("ana", UPLOADS / 2));
    assert!(!full("eve", UPLOADS / 4));
    // An upload that was unpacked makes room.
    store.unpacked(UID, &Digest::of(b"a"));
    assert!(store.digest(UID).is_some());
    assert!(!full("ana", UPLOADS / 2));
    assert_eq!(store.digest(UID), None);
}

#[test]
fn uploads_of_several_requesters_are_kept_across_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let store = UploadStore::new(folder.path().to_owned());
    // Half of the space, and half of the rest.
    for (user, uid, bytes) in [("ana", UID, UPLOADS / 2), ("eve", OTHER, UPLOADS / 4)] {
        let arriving = store.begin(user).unwrap();
        arriving.writer().unwrap().set_len(bytes).unwrap();
        let digest = Digest::of(user.as_bytes());
        store.keep(arriving, uid, &digest, bytes).unwrap();
    }
    let store = UploadStore::new(folder.path().to_owned());
    assert_eq!(store.uids(), [UID, OTHER].map(str::to_owned).into());
}

#[test]
fn upload_after_other_content_was_unpacked_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = UploadStore::new(folder.path().to_owned());
    upload(&store, "ana", UID, b"late");
    store.unpacked(UID, &Digest::of(b"first"));
    assert_eq!(store.digest(UID), None);
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn files_of_other_names_are_removed_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let hex = Digest::of(b"").hex().to_owned();
    for name in [
        format!("{UID}_{hex}.upload"),
        format!("{UID}_0_{hex}_1.upload"),
        format!("{UID}_0_{hex}.archive"),
        format!("a.b_0_{hex}.upload"),
        format!("_0_{hex}.upload"),
        format!("{UID}_0_1234.upload"),
    ] {
        fs_err::write(folder.path().join(name), b"").unwrap();
    }
    let store = UploadStore::new(folder.path().to_owned());
    assert_eq!(store.uids(), HashSet::new());
    assert_eq!(files(folder.path()), 0);
    let arriving = store.begin("ana").unwrap();
    let digest = Digest::of(b"");
    assert!(store.keep(arriving, "../../a", &digest, 0).is_err());
    assert_eq!(files(folder.path()), 0);
}
