use std::io::{Read as _, Write as _};

use super::*;
use crate::config::stamp_key::StampKey;

const UID: &str = "8f7d3f0e-0000-4000-8000-000000000001";
const OTHER: &str = "8f7d3f0e-0000-4000-8000-000000000002";

fn key(bytes: &[u8]) -> CurrentStampKey {
    CurrentStampKey::new(StampKey::new(bytes.to_vec()))
}

fn store_in(folder: &Path) -> UploadStore {
    UploadStore::new(folder.to_owned(), key(b"a key of the pod"))
}

fn upload(store: &UploadStore, user: &str, uid: &str, bytes: &[u8]) -> Digest {
    let arriving = store.begin(user).unwrap();
    arriving.writer().unwrap().write_all(bytes).unwrap();
    let digest = Digest::of(bytes);
    let size = bytes.len() as u64;
    store.keep(arriving, uid, &digest, size).unwrap();
    digest
}

/// Stores an upload of `bytes` bytes without its content.
fn unwritten(store: &UploadStore, user: &str, uid: &str, bytes: u64) -> Digest {
    let arriving = store.begin(user).unwrap();
    arriving.writer().unwrap().set_len(bytes).unwrap();
    let digest = Digest::of(user.as_bytes());
    store.keep(arriving, uid, &digest, bytes).unwrap();
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
    let store = store_in(folder.path());
    let first = upload(&store, "ana", UID, b"first");
    let second = upload(&store, "ana", UID, b"second");
    assert_eq!(store.digest(UID), Some(second.clone()));
    assert_eq!(read(&store, &first), None);
    upload(&store, "ana", OTHER, b"second");
    assert_eq!(files(folder.path()), 2);
    // The process ends while an upload is in progress.
    let unfinished = store.begin("ana").unwrap();
    let (_, kept) = unfinished.file.keep().unwrap();

    let store = store_in(folder.path());
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
    let store = store_in(folder.path());
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
    let store = store_in(folder.path());
    upload(&store, "ana", UID, b"a");
    let store = store_in(folder.path());
    assert!(store.digest(UID).is_some());
    let full = |user, bytes| {
        let arriving = store.begin(user).unwrap();
        let reserved = store.reserve(&arriving.space, bytes);
        matches!(reserved, Err(UploadError::Full))
    };
    assert!(full("ana", UPLOADS / 2));
    assert!(!full("eve", UPLOADS / 4));
    // An upload that was unpacked is removed when space is needed.
    store.unpacked(UID, &Digest::of(b"a"));
    assert!(store.digest(UID).is_some());
    assert!(!full("ana", UPLOADS / 2));
    assert_eq!(store.digest(UID), None);
}

#[test]
fn uploads_of_several_requesters_are_kept_across_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path());
    // The first requester has half of the space. The second requester has half of the remaining
    // space.
    for (user, uid, bytes) in [("ana", UID, UPLOADS / 2), ("eve", OTHER, UPLOADS / 4)] {
        unwritten(&store, user, uid, bytes);
    }
    let store = store_in(folder.path());
    assert_eq!(store.uids(), [UID, OTHER].map(str::to_owned).into());
}

#[test]
fn upload_after_other_content_was_unpacked_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path());
    upload(&store, "ana", UID, b"late");
    store.unpacked(UID, &Digest::of(b"first"));
    assert_eq!(store.digest(UID), None);
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn upload_above_the_limit_of_a_requester_removes_nothing_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path());
    let arriving = store.begin("eve").unwrap();
    store.reserve(&arriving.space, UPLOADS / 2).unwrap();
    upload(&store, "ana", UID, b"a");
    store.unpacked(UID, &Digest::of(b"a"));
    let more = store.reserve(&arriving.space, UPLOADS / 2 + STEP);
    assert!(matches!(more, Err(UploadError::Full)));
    assert!(store.digest(UID).is_some());
}

#[test]
fn small_uploads_use_a_minimum_of_space() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path());
    upload(&store, "ana", UID, b"a");
    assert_eq!(store.space.used(), SMALLEST);
    let store = store_in(folder.path());
    assert_eq!(store.uids().len(), 1);
    assert_eq!(store.space.used(), SMALLEST);
}

#[test]
fn own_uploads_are_removed_before_those_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path());
    for (user, uid, bytes) in [("ana", UID, STEP), ("eve", OTHER, UPLOADS / 16)] {
        let digest = unwritten(&store, user, uid, bytes);
        store.unpacked(uid, &digest);
    }
    let arriving = store.begin("eve").unwrap();
    store.reserve(&arriving.space, UPLOADS / 2 - STEP).unwrap();
    assert_eq!(store.uids(), [UID.to_owned()].into());
}

#[test]
fn files_of_other_programs_are_removed_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let digest = Digest::of(b"content");
    let name = UploadName {
        uid: UID.to_owned(),
        requester: "0".to_owned(),
        digest: digest.clone(),
    };
    let valid = name.file(b"a key of the pod").unwrap();
    let mac = valid.rsplit('_').next().unwrap();
    let hex = digest.hex();
    let path = |name: &str| folder.path().join(name);
    for name in [
        // Names without a MAC, with a MAC of another key, and with the MAC of another Bundle or
        // requester.
        format!("{UID}_0_{hex}.upload"),
        name.file(b"another key").unwrap(),
        format!("{OTHER}_0_{hex}_{mac}"),
        format!("{UID}_1_{hex}_{mac}"),
        format!("{UID}_0_{}_{mac}", Digest::of(b"").hex()),
        format!("{UID}_0_{hex}_1_{mac}"),
        format!("{valid}.archive"),
        format!("a.b_0_{hex}_{mac}"),
        format!("_0_{hex}_{mac}"),
        format!("{UID}_0_1234_{mac}"),
    ] {
        fs_err::write(path(&name), b"content").unwrap();
    }
    std::os::unix::fs::symlink("/etc/hostname", path(&valid)).unwrap();
    let store = store_in(folder.path());
    assert_eq!(store.uids(), HashSet::new());
    assert_eq!(files(folder.path()), 0);
    let arriving = store.begin("ana").unwrap();
    assert!(store.keep(arriving, "../../a", &digest, 0).is_err());
    assert_eq!(files(folder.path()), 0);

    fs_err::write(path(&valid), b"content").unwrap();
    let store = store_in(folder.path());
    assert_eq!(store.digest(UID), Some(digest));
}
