use std::io::Write as _;

use bundle_core::reference::Reference;
use bundle_core::review::Source;
use bundle_core::review::source::PullCredentials;
use bundle_oci::unpack::FileSink as _;

use super::*;
use crate::archives::BundleArchive as _;
use crate::telemetry::metrics::Metrics;

pub(super) const LARGE: u64 = 1 << 20;

pub(super) fn image(repository: &str, content: &[u8], pull_secret: Option<&str>) -> ContentId {
    let reference: Reference = format!("registry.example.com/{repository}")
        .parse()
        .unwrap();
    let source = Source::Image {
        reference,
        credentials: match pull_secret {
            Some(name) => PullCredentials::Secret(name.parse().unwrap()),
            None => PullCredentials::Class("plain".parse().unwrap()),
        },
    };
    ContentId::new(&source, Digest::of(content))
}

fn summary() -> Summary {
    Summary {
        bytes: 4,
        weight: 100,
    }
}

pub(super) fn new_store(folder: PathBuf, limit: u64) -> Store {
    Store::new(folder, limit, CacheMetrics::default())
}

/// Returns bytes that cannot be compressed.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(size).collect()
}

/// Stores content with two files. The second file has `size` bytes.
pub(super) fn keep(
    store: &Store,
    origin: &ContentId,
    key: &[u8],
    owner: &str,
    size: usize,
) -> io::Result<()> {
    let mut writer = store.begin().unwrap();
    let mut files = Vec::new();
    for (path, bytes) in [
        ("manifests/a.yaml", b"a: 1".to_vec()),
        ("noise", noise(size)),
    ] {
        writer.write_all(&bytes).unwrap();
        let location = writer.end_file().unwrap();
        files.push(StoredFile {
            path: path.to_owned(),
            location,
        });
    }
    // A file can be read before the copy is stored.
    assert_eq!(writer.read(&files[0].location).unwrap(), b"a: 1");
    store.store(writer, files, summary(), origin, key, owner)
}

/// Returns the first file of the cached copy. Returns `None` if the copy is missing or damaged.
pub(super) fn first(store: &Store, origin: &ContentId, key: &[u8]) -> Option<Vec<u8>> {
    let mut content = store.open(origin, key)?;
    assert_eq!(content.summary(), summary());
    let location = content.files().first()?.location;
    content.read(&location).ok()
}

pub(super) fn names(folder: &Path) -> usize {
    fs_err::read_dir(folder).unwrap().count()
}

#[test]
fn stored_content_is_read_only_under_its_identity() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().join("content"), LARGE);
    let origin = image("a:1", b"1", None);
    let other = image("a:1", b"2", None);
    assert_eq!(first(&store, &origin, b"key"), None);
    keep(&store, &origin, b"key", "ana", 0).unwrap();
    assert_eq!(first(&store, &origin, b"key").unwrap(), b"a: 1");
    assert_eq!(first(&store, &origin, b"another key"), None);
    // A copy with the file name of other content is not opened.
    fs_err::copy(store.path(&origin), store.path(&other)).unwrap();
    assert_eq!(first(&store, &other, b"key"), None);
    store.remove(origin.digest());
    assert_eq!(first(&store, &origin, b"key"), None);
}

#[test]
fn cached_content_is_scoped_to_repository_and_pull_secret() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let origin = image("team/private:1", b"1", Some("robot"));
    keep(&store, &origin, b"key", "ana", 0).unwrap();
    let same = image("team/private:2", b"1", Some("robot"));
    assert!(first(&store, &same, b"key").is_some());
    for (repository, secret) in [("team/private:1", None), ("elsewhere:1", Some("robot"))] {
        let other = image(repository, b"1", secret);
        assert_eq!(first(&store, &other, b"key"), None);
        fs_err::copy(store.path(&origin), store.path(&other)).unwrap();
        assert_eq!(first(&store, &other, b"key"), None);
    }
}

#[test]
fn damaged_copies_count_as_missing() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let origin = image("a:1", b"1", None);
    keep(&store, &origin, b"key", "ana", 10).unwrap();
    let good = fs_err::read(store.path(&origin)).unwrap();
    for at in 0..4 {
        let mut damaged = good.clone();
        damaged[at] ^= 1;
        fs_err::write(store.path(&origin), damaged).unwrap();
        assert_eq!(first(&store, &origin, b"key"), None, "byte {at}");
    }
    for damaged in [&good[..good.len() - 1], &good[..32], &[0; 64][..], b""] {
        fs_err::write(store.path(&origin), damaged).unwrap();
        assert_eq!(first(&store, &origin, b"key"), None);
    }
}

#[test]
fn unfinished_copies_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let writer = store.begin().unwrap();
    assert_eq!(names(folder.path()), 1);
    drop(writer);
    assert_eq!(names(folder.path()), 0);
    fs_err::write(folder.path().join("1-1.unfinished"), b"x").unwrap();
    // The sweep keeps the file, because the file may belong to a running fetch. A new process
    // removes the file, because no fetch is running.
    store.sweep(BTreeSet::new());
    assert_eq!(names(folder.path()), 1);
    new_store(folder.path().to_owned(), LARGE);
    assert_eq!(names(folder.path()), 0);
}

#[test]
fn sweep_removes_only_unneeded_copies() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let needed = image("a:1", b"1", None);
    let other = image("a:1", b"2", None);
    for origin in [&needed, &other] {
        keep(&store, origin, b"key", "ana", 0).unwrap();
    }
    let digests = [&needed, &other].map(|origin| origin.digest().to_string());
    assert_eq!(store.digests(), BTreeSet::from(digests));
    store.sweep([needed.digest().to_string()].into());
    assert_eq!(store.digests().len(), 1);
    assert!(first(&store, &needed, b"key").is_some());
    assert_eq!(names(folder.path()), 1);
    new_store(folder.path().join("not there"), LARGE).sweep(BTreeSet::new());
}

#[test]
fn eviction_begins_with_large_requesters_and_unneeded_copies() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), 1_000_000);
    let origins: Vec<ContentId> = (0..5).map(|number| image("a:1", &[number], None)).collect();
    let there = |index: usize| first(&store, &origins[index], b"key").is_some();
    keep(&store, &origins[0], b"key", "ana", 300_000).unwrap();
    keep(&store, &origins[1], b"key", "ben", 200_000).unwrap();
    keep(&store, &origins[2], b"key", "ben", 300_000).unwrap();
    // The copies of Ben use more than half of the cache. Therefore his oldest copy is removed,
    // although the copy of Ana is older.
    keep(&store, &origins[3], b"key", "ben", 300_000).unwrap();
    assert!(there(0) && !there(1) && there(2) && there(3));
    assert!(keep(&store, &origins[4], b"key", "eve", 2_000_000).is_err());
    assert!(there(0) && there(3));
}

#[test]
fn metrics_count_lookups_and_evictions_and_have_the_size_of_the_copies() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = Metrics::default();
    let new = || Store::new(folder.path().to_owned(), 1_000_000, metrics.cache.clone());
    let store = new();
    let [small, large] = [b"1", b"2"].map(|content| image("a:1", content, None));
    assert!(store.open(&small, b"key").is_none());
    keep(&store, &small, b"key", "ana", 300_000).unwrap();
    assert!(store.open(&small, b"key").is_some());
    assert!(store.open(&small, b"another key").is_none());
    let has = |line: &str| {
        let page = metrics.page();
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    };
    for (outcome, count) in [("miss", 1), ("hit", 1), ("damaged", 1)] {
        has(&format!(
            r#"bundle_cache_lookups_total{{copy="content",outcome="{outcome}"}} {count}"#
        ));
    }
    keep(&store, &large, b"key", "ana", 900_000).unwrap();
    has(r#"bundle_cache_evictions_total{copy="content"} 1"#);
    has(r#"bundle_cache_copies{copy="content"} 1"#);
    has("bundle_cache_limit_bytes 1000000");
    let bytes = fs_err::metadata(store.path(&large)).unwrap().len();
    let size = format!(r#"bundle_cache_size_bytes{{copy="content"}} {bytes}"#);
    has(&size);
    // The metrics also contain the copies that an earlier process wrote.
    metrics.cache.holds("content", 0, 0);
    drop(new());
    has(&size);
    store.sweep(BTreeSet::new());
    has(r#"bundle_cache_copies{copy="content"} 0"#);
}

#[test]
fn size_of_the_copies_is_correct_after_replacements_and_removals_by_other_programs() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = Metrics::default();
    let store = Store::new(folder.path().to_owned(), 1_000_000, metrics.cache.clone());
    let has_copies = |count: usize| {
        let line = format!(r#"bundle_cache_copies{{copy="content"}} {count}"#);
        let page = metrics.page();
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    };
    let [first, second, third] = [b"1", b"2", b"3"].map(|content| image("a:1", content, None));
    // Each copy of the same content replaces the former copy.
    for _ in 0..3 {
        keep(&store, &first, b"key", "ana", 400_000).unwrap();
    }
    has_copies(1);
    keep(&store, &second, b"key", "ben", 400_000).unwrap();
    has_copies(2);
    // No copy is removed for the third copy, because another program has removed the first copy.
    fs_err::remove_file(store.path(&first)).unwrap();
    keep(&store, &third, b"key", "eve", 400_000).unwrap();
    has_copies(2);
    assert!(store.open(&second, b"key").is_some() && store.open(&third, b"key").is_some());
    store.remove(second.digest());
    has_copies(1);
}

/// Stores the archive of `origin`, and returns its bytes.
pub(super) fn archive(store: &Store, origin: &ContentId) -> Vec<u8> {
    let stored = store.open(origin, b"key").unwrap();
    let cancellation = Cancellation::default();
    let mut archive = store
        .store_archive(stored, origin, (b"key", "ana"), &cancellation)
        .unwrap();
    all_bytes(&mut archive)
}

fn all_bytes(archive: &mut StoredArchive) -> Vec<u8> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < archive.size() {
        bytes.extend(archive.read(bytes.len() as u64).unwrap());
    }
    assert_eq!(&Digest::of(&bytes), archive.digest());
    bytes
}

#[test]
fn archives_have_the_same_bytes_each_time_and_are_read_from_any_offset() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let origin = image("a:1", b"1", None);
    // The content is longer than one part, and cannot be compressed.
    keep(&store, &origin, b"key", "ana", 200_000).unwrap();
    assert!(store.open_archive(&origin, b"key").is_none());
    let bytes = archive(&store, &origin);
    let mut opened = store.open_archive(&origin, b"key").unwrap();
    assert_eq!(all_bytes(&mut opened), bytes);
    for offset in [1, 65_535, 65_536, bytes.len() - 1] {
        let part = opened.read(offset as u64).unwrap();
        assert!(!part.is_empty() && bytes[offset..].starts_with(&part));
    }
    assert!(opened.read(bytes.len() as u64 + 65_536).is_err());
    store.remove(origin.digest());
    assert!(store.open_archive(&origin, b"key").is_none());
    keep(&store, &origin, b"key", "ana", 200_000).unwrap();
    assert_eq!(archive(&store, &origin), bytes);
}

#[test]
fn damaged_archives_and_those_of_other_sources_are_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let origin = image("team/private:1", b"1", Some("robot"));
    keep(&store, &origin, b"key", "ana", 10).unwrap();
    archive(&store, &origin);
    assert!(store.open_archive(&origin, b"another key").is_none());
    let other = image("team/private:1", b"1", None);
    fs_err::copy(store.archive_path(&origin), store.archive_path(&other)).unwrap();
    assert!(store.open_archive(&other, b"key").is_none());
    let path = store.archive_path(&origin);
    let mut damaged = fs_err::read(&path).unwrap();
    damaged[12] ^= 1;
    fs_err::write(&path, damaged).unwrap();
    let mut opened = store.open_archive(&origin, b"key").unwrap();
    assert!(opened.read(0).is_err());
}
