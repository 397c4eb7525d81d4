use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;

use bundle_core::format::helm::ServedApis;
use bundle_core::format::{self, Content, Files};
use serde_json::{Value, json};

use super::tests::{LARGE, archive, first, image, keep, names, new_store};
use super::*;

const PACKAGE: &str = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\nkubernetes: {supported: '>=1.30'}\n";
const OBJECTS: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: one}
data: {text: first}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: one, namespace: other}
data: {text: second}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: two, namespace: other}
data: {text: third}
---
apiVersion: example.com/v1
kind: Shop
metadata: {name: one, namespace: web}
spec: {ratio: 0.1, count: 18446744073709551615}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Shop, plural: shops}
  versions: [{name: v1, served: true, storage: true}]
";

fn content(objects: &str) -> Content {
    let files = [("bundle.yaml", PACKAGE), ("manifests/all.yaml", objects)];
    let files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
    format::read(&Files::from_iter(files)).unwrap()
}

fn keys(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

/// Returns the cache key of the rendered copies in these tests.
fn web() -> Digest {
    Digest::of(b"web")
}

fn keep_rendered(store: &Store, origin: &ContentId, text: &str) -> io::Result<()> {
    let existing = store.rendered_seal(origin, &web(), b"key");
    let location = (origin, &web());
    let rendered = content(text);
    store.store_rendered(
        (&rendered, None),
        location,
        existing.as_ref(),
        b"key",
        "ana",
    )
}

fn select(store: &Store, origin: &ContentId, wanted: &[&str]) -> Option<SelectedObjects> {
    store.select(origin, &web(), b"key", &keys(wanted))
}

/// Returns `data.text` of each object that is read for the object keys `wanted`.
fn texts(store: &Store, origin: &ContentId, wanted: &[&str]) -> Option<Vec<Value>> {
    let (content, _) = select(store, origin, wanted)?.read().ok()?;
    let objects = content.objects.into_iter();
    Some(
        objects
            .map(|object| object.value["data"]["text"].clone())
            .collect(),
    )
}

#[test]
fn only_content_with_a_sealed_copy_of_its_objects_was_rendered() {
    let folder = tempfile::tempdir().unwrap();
    let origin = image("a:1", b"1", None);
    let store = new_store(folder.path().to_owned(), LARGE);
    let is_rendered = |target: &[u8], key| {
        let seal = store.rendered_seal(&origin, &Digest::of(target), key);
        seal.is_some()
    };
    assert!(!is_rendered(b"web", b"key"));
    keep_rendered(&store, &origin, OBJECTS).unwrap();
    assert!(is_rendered(b"web", b"key"));
    assert!(!is_rendered(b"other", b"key"));
    assert!(!is_rendered(b"web", b"other key"));
    let other = image("a:1", b"2", None);
    assert!(store.rendered_seal(&other, &web(), b"key").is_none());
}

#[test]
fn rendered_copy_is_written_again_only_if_its_objects_or_its_index_changed() {
    let folder = tempfile::tempdir().unwrap();
    let origin = image("a:1", b"1", None);
    let store = new_store(folder.path().to_owned(), LARGE);
    let path = store.rendered_path(&origin, &web());
    // The old file stays open, so that a new file cannot get the same inode number.
    let written = |text: &str| {
        let before = fs_err::File::open(&path).ok();
        keep_rendered(&store, &origin, text).unwrap();
        let number = |file: std::fs::Metadata| file.ino();
        let before = before.map(|file| number(file.metadata().unwrap()));
        before != Some(number(fs_err::metadata(&path).unwrap()))
    };
    assert!(written(OBJECTS));
    assert!(!written(OBJECTS));
    assert!(written(&OBJECTS.replace("third", "fourth")));
    let mut bytes = fs_err::read(&path).unwrap();
    // The last byte of the index. It precedes the length of the index (8 bytes) and the seal (32
    // bytes).
    let last = bytes.len() - 41;
    bytes[last] ^= 1;
    fs_err::write(&path, &bytes).unwrap();
    assert!(store.rendered_seal(&origin, &web(), b"key").is_none());
    assert!(written(&OBJECTS.replace("third", "fourth")));
    assert!(!written(&OBJECTS.replace("third", "fourth")));
}

#[test]
fn single_rendered_objects_are_read_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let origin = image("a:1", b"1", None);
    let store = new_store(folder.path().to_owned(), LARGE);
    assert!(select(&store, &origin, &["ConfigMap/other/two"]).is_none());
    keep_rendered(&store, &origin, OBJECTS).unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let read = |wanted: &[&str]| texts(&store, &origin, wanted).unwrap();
    assert_eq!(read(&["ConfigMap/other/two"]), ["third"]);
    // An object without a namespace can be installed into any namespace, so it also matches.
    assert_eq!(read(&["ConfigMap/other/one"]), ["first", "second"]);
    assert_eq!(read(&["ConfigMap/web/one"]), ["first"]);
    let selected = select(&store, &origin, &["Shop.example.com/web/one", "Secret/a/b"]).unwrap();
    assert_eq!(selected.missing(), &keys(&["Secret/a/b"]));
    let (single, kinds) = selected.read().unwrap();
    let whole = content(OBJECTS);
    let [shop] = &single.objects[..] else {
        panic!("{single:?}");
    };
    assert_eq!(
        (&shop.id, &shop.value),
        (&whole.objects[3].id, &whole.objects[3].value)
    );
    assert_eq!(kinds[0].plural, "shops");
    let (package, whole) = (single.package.unwrap(), whole.package.unwrap());
    assert_eq!(
        (package.title(), package.kubernetes),
        (whole.title(), whole.kubernetes)
    );
}

#[test]
fn rendered_copy_records_the_api_versions_for_which_a_chart_was_rendered() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let origin = image("a:1", b"1", None);
    keep_rendered(&store, &origin, OBJECTS).unwrap();
    let all = |store: &Store| store.select_all(&origin, &web(), b"key").unwrap();
    assert_eq!(all(&store).apis(), None);
    let versions = (0..1_100).map(|number| format!("g{number}.example.com/v1"));
    let served = ServedApis::new(versions.collect(), BTreeSet::new());
    let apis = RenderedApis::new(&served, SystemTime::UNIX_EPOCH);
    let rendered = content(OBJECTS);
    let key = web();
    let kept = store.store_rendered(
        (&rendered, Some(&apis)),
        (&origin, &key),
        None,
        b"key",
        "ana",
    );
    kept.unwrap();
    let selected = all(&store);
    assert_eq!(selected.apis(), Some(&apis));
    let (content, _) = selected.read().unwrap();
    let warning = content.warnings.first().unwrap();
    assert!(warning.message.contains("without 76 of the API versions"));
}

#[test]
fn objects_with_one_name_in_many_namespaces_are_found_without_comparing_all_namespaces() {
    let folder = tempfile::tempdir().unwrap();
    let origin = image("a:1", b"1", None);
    let store = new_store(folder.path().to_owned(), 64 * LARGE);
    let mut rendered = content(OBJECTS);
    let one = rendered.objects[1].clone();
    let objects = (0..30_000).map(|number| {
        let mut object = one.clone();
        object.id.namespace = Some(format!("team-{number}"));
        object
    });
    rendered.objects = objects.collect();
    let key = web();
    let kept = store.store_rendered((&rendered, None), (&origin, &key), None, b"key", "ana");
    kept.unwrap();
    let wanted: BTreeSet<String> = (1..30_001)
        .map(|number| format!("ConfigMap/team-{number}/one"))
        .collect();
    let selected = store.select(&origin, &key, b"key", &wanted).unwrap();
    assert_eq!(selected.missing(), &keys(&["ConfigMap/team-30000/one"]));
    let (content, _) = selected.read().unwrap();
    assert_eq!(content.objects.len(), 29_999);
}

#[test]
fn weight_of_selected_objects_excludes_other_objects() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let origin = image("a:1", b"1", None);
    let large = format!(
        "{OBJECTS}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: large}}\ndata: {{text: {}}}\n",
        "x".repeat(100_000)
    );
    keep_rendered(&store, &origin, &large).unwrap();
    let weight = |key: &str| select(&store, &origin, &[key]).unwrap().weight();
    assert!(weight("ConfigMap/other/two") < 10_000);
    assert!(weight("ConfigMap/web/large") > 200_000);
}

#[test]
fn tampered_rendered_objects_are_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let origin = image("a:1", b"1", None);
    keep_rendered(&store, &origin, OBJECTS).unwrap();
    let path = store.rendered_path(&origin, &web());
    let good = fs_err::read(&path).unwrap();
    let of = |key: &str| texts(&store, &origin, &[key]);
    for at in [0, good.len() - 1, good.len() - 33, good.len() - 100] {
        let mut damaged = good.clone();
        damaged[at] ^= 1;
        fs_err::write(&path, damaged).unwrap();
        assert_eq!(of("ConfigMap/web/one"), None, "byte {at}");
    }
    for damaged in [&good[..good.len() - 1], &good[..40], b""] {
        fs_err::write(&path, damaged).unwrap();
        assert_eq!(of("ConfigMap/web/one"), None);
    }
    // Storing the rendered objects again replaces the damaged copy.
    keep_rendered(&store, &origin, OBJECTS).unwrap();
    assert_eq!(fs_err::read(&path).unwrap(), good);
    store.remove_rendered(&origin, &web());
    assert_eq!(of("ConfigMap/web/one"), None);
}

#[test]
fn rendered_objects_are_those_of_one_content_target_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let origin = image("team/private:1", b"1", Some("robot"));
    keep_rendered(&store, &origin, OBJECTS).unwrap();
    let path = store.rendered_path(&origin, &web());
    let wanted = keys(&["ConfigMap/other/two"]);
    assert!(store.select(&origin, &web(), b"another", &wanted).is_none());
    let others = [
        (image("team/private:1", b"2", Some("robot")), web()),
        (image("team/private:1", b"1", None), web()),
        (image("elsewhere:1", b"1", Some("robot")), web()),
        (origin.clone(), Digest::of(b"shop")),
    ];
    for (other, target) in others {
        assert!(store.select(&other, &target, b"key", &wanted).is_none());
        fs_err::copy(&path, store.rendered_path(&other, &target)).unwrap();
        assert!(store.select(&other, &target, b"key", &wanted).is_none());
    }
}

#[test]
fn rendered_objects_are_replaced_if_the_content_renders_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let origin = image("a:1", b"1", None);
    keep_rendered(&store, &origin, OBJECTS).unwrap();
    keep_rendered(&store, &origin, &OBJECTS.replace("third", "fourth")).unwrap();
    let read = texts(&store, &origin, &["ConfigMap/other/two"]).unwrap();
    assert_eq!(read, ["fourth"]);
    assert_eq!(names(folder.path()), 1);
}

#[test]
fn rendered_objects_are_evicted_for_content_and_never_the_reverse() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), 200_000);
    let origin = image("a:1", b"1", None);
    let other = image("a:1", b"2", None);
    keep(&store, &origin, b"key", "ana", 190_000).unwrap();
    assert!(keep_rendered(&store, &origin, OBJECTS).is_err());
    assert!(first(&store, &origin, b"key").is_some());
    store.remove(origin.digest());
    keep_rendered(&store, &origin, OBJECTS).unwrap();
    keep(&store, &other, b"key", "ana", 190_000).unwrap();
    assert!(first(&store, &other, b"key").is_some());
    assert!(select(&store, &origin, &["ConfigMap/other/two"]).is_none());
}

#[test]
fn number_of_rendered_copies_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let origin = image("a:1", b"1", None);
    let rendered = content(OBJECTS);
    for number in 0..1_000_u32 {
        let target = Digest::of(&number.to_be_bytes());
        let location = (&origin, &target);
        let kept = store.store_rendered((&rendered, None), location, None, b"key", "ana");
        kept.unwrap();
    }
    assert_eq!(names(folder.path()), 16);
    assert_eq!(lock(&store.owners).len(), 16);
}

#[test]
fn archive_is_stored_in_a_cache_full_of_rendered_copies_of_another_requester() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let [crowded, origin] = [b"1", b"2"].map(|bytes| image("a:1", bytes, None));
    let rendered = content(OBJECTS);
    for number in 0..16_u32 {
        let target = Digest::of(&number.to_be_bytes());
        let location = (&crowded, &target);
        let kept = store.store_rendered((&rendered, None), location, None, b"key", "eve");
        kept.unwrap();
    }
    keep(&store, &origin, b"key", "ana", 0).unwrap();
    assert_eq!(names(folder.path()), 16);
    assert!(!archive(&store, &origin).is_empty());
    assert!(first(&store, &origin, b"key").is_some());
    assert_eq!(names(folder.path()), 16);
}

#[test]
fn rendered_objects_are_removed_with_their_content() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let [needed, other] = [b"1", b"2"].map(|bytes| image("a:1", bytes, None));
    for origin in [&needed, &other] {
        keep_rendered(&store, origin, OBJECTS).unwrap();
    }
    store.sweep([needed.digest().to_string()].into());
    assert_eq!(names(folder.path()), 1);
    store.remove(needed.digest());
    assert_eq!(names(folder.path()), 0);
}

#[test]
fn objects_that_json_does_not_preserve_are_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store = new_store(folder.path().to_owned(), LARGE);
    let origin = image("a:1", b"1", None);
    let mut deep = json!([]);
    for _ in 0..127 {
        deep = json!([deep]);
    }
    let mut rendered = content(OBJECTS);
    rendered.objects[0].value["data"] = deep;
    let key = web();
    let location = (&origin, &key);
    let kept = store.store_rendered((&rendered, None), location, None, b"key", "ana");
    assert!(kept.is_err());
    assert_eq!(names(folder.path()), 0);
}
