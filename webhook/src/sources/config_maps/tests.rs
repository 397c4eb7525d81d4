//! Tests of ConfigMaps as files: accepted ConfigMaps, their digest, and the requests to the API
//! server.

use bundle_core::diagnostic::rendered;
use bundle_oci::unpack::InMemory;
use bundle_testkit::UNSAFE_PATHS;
use http::{Request, Response, StatusCode};
use k8s_openapi::ByteString;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

fn map(entries: &[(&str, &str)]) -> ConfigMap {
    let entries = entries.iter();
    ConfigMap {
        data: Some(
            entries
                .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
                .collect(),
        ),
        ..ConfigMap::default()
    }
}

/// Collects the files of ConfigMaps. Each ConfigMap is added to its own folders.
fn collect(
    maps: &[(&str, &[&str], ConfigMap)],
    limits: Limits,
) -> Result<CollectedFiles<InMemory>, ConfigMapsError> {
    let mut collected = CollectedFiles::new(InMemory::default(), limits);
    for (name, folders, map) in maps {
        let folders = folders.iter().copied().collect();
        collected.add(name, &folders, map)?;
    }
    collected.check()?;
    Ok(collected)
}

#[test]
fn messages_of_config_map_sources_are_recorded() {
    let same = || map(&[("web.yaml", "a: 1")]);
    let maps = [
        ("one", &["manifests"][..], same()),
        ("two", &["manifests"][..], same()),
    ];
    let duplicate = collect(&maps, Limits::default()).err().unwrap();
    let missing = ConfigMapsError::Missing {
        namespace: "bundle-system".to_owned(),
        name: "one".to_owned(),
    };
    let changed = ConfigMapsError::Changed {
        expected: Digest::of(b"1"),
        found: Digest::of(b"2"),
    };
    let findings = [missing, duplicate, changed].map(|error| error.finding());
    let recorded = include_str!("messages.txt");
    let text = rendered(&findings);
    assert_eq!(text, recorded, "copy the left side to messages.txt");
}

fn refused(maps: &[(&str, &[&str], ConfigMap)]) -> String {
    let error = collect(maps, Limits::default()).err().unwrap();
    assert_eq!(error.finding().code, codes::install::SOURCE_FILES);
    error.to_string()
}

#[test]
fn entries_of_both_kinds_become_files_in_their_folders() {
    let mut one = map(&[("a.yaml", "a: 1")]);
    one.binary_data = Some([("b.bin".to_owned(), ByteString(vec![0, 255]))].into());
    let other = map(&[("bundle.yaml", "b: 2")]);
    let maps = [
        ("one", &["manifests"][..], one),
        ("other", &[""][..], other),
    ];
    let found = collect(&maps, Limits::default()).unwrap();
    let expected: BTreeMap<String, Vec<u8>> = [
        ("bundle.yaml", b"b: 2".to_vec()),
        ("manifests/a.yaml", b"a: 1".to_vec()),
        ("manifests/b.bin", vec![0, 255]),
    ]
    .map(|(path, bytes)| (path.to_owned(), bytes))
    .into();
    assert_eq!(found.files, expected);
}

#[test]
fn digest_depends_on_files_and_not_on_the_config_maps_that_they_come_from() {
    let digest = |maps: &[(&str, &[&str], ConfigMap)]| {
        let collected = collect(maps, Limits::default()).unwrap();
        collected.index.digest()
    };
    let together = map(&[("a", "1"), ("b", "2")]);
    let one = digest(&[("x", &["m"], together.clone())]);
    let split = [
        ("y", &["m"][..], map(&[("b", "2")])),
        ("z", &["m"][..], map(&[("a", "1")])),
    ];
    assert_eq!(one, digest(&split));
    assert_ne!(one, digest(&[("x", &["n"], together)]));
    assert_ne!(
        one,
        digest(&[("x", &["m"], map(&[("a", "1"), ("b", "3")]))])
    );
}

#[test]
fn rejects_paths_that_several_config_maps_have() {
    let maps = [
        ("b", &["manifests"][..], map(&[("x.yaml", "1")])),
        ("a", &["manifests"][..], map(&[("x.yaml", "1")])),
    ];
    assert_eq!(
        refused(&maps),
        r#"source bundle content: duplicate path "manifests/x.yaml" found in configmaps [a b]"#
    );
}

#[test]
fn first_duplicate_path_ends_the_reading_of_entries() {
    let mut collected = CollectedFiles::new(InMemory::default(), Limits::default());
    let folders: BTreeSet<&str> = ["m"].into();
    let same = map(&[("x", "1"), ("y", "2")]);
    collected.add("a", &folders, &same).unwrap();
    let error = collected.add("b", &folders, &same).unwrap_err();
    assert!(matches!(error, ConfigMapsError::Duplicates(_)), "{error:?}");
}

#[test]
fn rejects_paths_that_are_not_allowed_in_bundles() {
    let deep = ["a"; 40].join("/");
    for (folder, key, part) in [
        ("manifests", "..", "`..`"),
        ("manifests", "../x", "invalid key"),
        ("", "/etc/passwd", "invalid key"),
        ("", "a/b", "invalid key"),
        ("manifests", ".", "`.`"),
        ("manifests", "", "empty component"),
        ("a\\b", "x", "backslash"),
        ("a\nb", "x", "control character"),
        ("../a", "x", "`..`"),
        ("/a", "x", "absolute"),
        ("c:", "x", "absolute"),
        (&deep, "x", "too many folders"),
    ] {
        let told = refused(&[("one", &[folder], map(&[(key, "1")]))]);
        assert!(told.contains(part), "{folder:?} {key:?}: {told}");
    }
    for (path, part) in UNSAFE_PATHS {
        let (folder, key) = path.rsplit_once('/').unwrap_or(("", path));
        let told = refused(&[("one", &[folder], map(&[(key, "1")]))]);
        assert!(told.contains(part), "{path:?}: {told}");
    }
    let both = [
        ("one", &[""][..], map(&[("manifests", "1")])),
        ("two", &["manifests"][..], map(&[("x.yaml", "1")])),
    ];
    assert!(refused(&both).contains("inside of a path that is a file"));
}

#[test]
fn accepts_at_most_one_mebibyte_in_sum() {
    let half = "x".repeat(512 << 10);
    let more = format!("{half}x");
    let (one, two) = ([("a.yaml", half.as_str())], [("b.yaml", half.as_str())]);
    let large = [("b.yaml", more.as_str())];
    let fits = collect(
        &[("one", &[""], map(&one)), ("two", &[""], map(&two))],
        limits(),
    );
    assert_eq!(fits.unwrap().files.len(), 2);
    // The files of a ConfigMap in two folders count twice towards the limits.
    for maps in [
        vec![
            ("one", &[""][..], map(&one)),
            ("two", &[""][..], map(&large)),
        ],
        vec![("one", &["", "c", "d"][..], map(&one))],
    ] {
        let error = collect(&maps, limits()).err().unwrap();
        assert_eq!(
            error.to_string(),
            "source bundle content: the configmaps have files of more than 1 MiB"
        );
        assert_eq!(error.failure(), SourceFailure::Content);
    }
}

#[test]
fn rejects_files_above_the_limits_of_bundles() {
    let limits = Limits {
        file: 4,
        total: 8,
        entries: 3,
        ..Limits::default()
    };
    let many = ["a", "b", "c", "d"].map(|key| (key, ""));
    for (entries, part) in [
        (&[("a", "12345")][..], "a file \"a\" of more than"),
        (
            &[("a", "1234"), ("b", "1234"), ("c", "1")],
            "files of more than",
        ),
        (&many, "more than 3 files"),
    ] {
        let error = collect(&[("one", &[""], map(entries))], limits)
            .err()
            .unwrap();
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(error.finding().code, codes::install::SOURCE_FILES);
    }
    let folder = "f".repeat(1000);
    let keys: Vec<String> = (0..600).map(|number| format!("k{number}")).collect();
    let entries: Vec<_> = keys.iter().map(|key| (key.as_str(), "")).collect();
    let error = collect(&[("one", &[&folder], map(&entries))], Limits::default());
    assert!(error.err().unwrap().to_string().contains("512 KiB"));
}

/// Runs `work` with a source of these ConfigMaps (name, path), and returns its result. The API
/// server must get requests for the ConfigMaps in `answers` in this order, and sends these
/// responses.
async fn served<T>(
    parts: &[(&str, &str)],
    answers: Vec<(&'static str, StatusCode, Value)>,
    work: impl AsyncFnOnce(ConfigMapsSource) -> T,
) -> T {
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let serving = tokio::spawn(async move {
        for (name, status, body) in answers {
            let (request, reply) = server.next_request().await.unwrap();
            let path = format!("/api/v1/namespaces/sys/configmaps/{name}");
            assert_eq!(
                (request.uri().path(), request.uri().query()),
                (path.as_str(), None)
            );
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            reply.send_response(Response::builder().status(status).body(body).unwrap());
        }
    });
    let parts = parts.iter().map(|(name, path)| ConfigMapFiles {
        name: name.parse().unwrap(),
        path: (*path).to_owned(),
    });
    let source = ConfigMapsSource {
        api: Api::namespaced(kube::Client::new(service, "sys"), "sys"),
        namespace: "sys".to_owned(),
        parts: parts.collect(),
    };
    let done = work(source).await;
    serving.await.unwrap();
    done
}

fn stored(name: &str, immutable: Option<bool>, text: &str) -> (StatusCode, Value) {
    let body =
        json!({"metadata": {"name": name}, "immutable": immutable, "data": {"a.yaml": text}});
    (StatusCode::OK, body)
}

fn with(
    name: &'static str,
    (status, body): (StatusCode, Value),
) -> (&'static str, StatusCode, Value) {
    (name, status, body)
}

#[tokio::test]
async fn each_config_map_is_read_once_for_any_number_of_references() {
    let answers = vec![with("one", stored("one", Some(true), "1"))];
    let parts = [("one", "manifests"), ("one", "manifests"), ("one", "more")];
    let read = async |source: ConfigMapsSource| source.read(InMemory::default(), limits()).await;
    let collected = served(&parts, answers, read).await.unwrap();
    let paths: Vec<_> = collected.files.keys().map(String::as_str).collect();
    assert_eq!(paths, ["manifests/a.yaml", "more/a.yaml"]);
}

#[tokio::test]
async fn rejects_missing_and_mutable_config_maps() {
    let failure = |code: u16, reason: &str| json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "not allowed"});
    for (answer, code, told) in [
        (
            (StatusCode::NOT_FOUND, failure(404, "NotFound")),
            codes::install::CONFIGMAP_MISSING,
            r#"source bundle content: get configmap sys/one: ConfigMap "one" not found"#,
        ),
        (
            stored("one", None, "1"),
            codes::review::CONFIGMAP_MUTABLE,
            r#"source bundle content: configmap "one" is not immutable"#,
        ),
        (
            stored("one", Some(false), "1"),
            codes::review::CONFIGMAP_MUTABLE,
            r#"source bundle content: configmap "one" is not immutable"#,
        ),
        (
            (StatusCode::FORBIDDEN, failure(403, "Forbidden")),
            codes::cluster::UNREACHABLE,
            "source bundle content: get configmap sys/one: not allowed",
        ),
    ] {
        let resolve = async |source: ConfigMapsSource| source.resolve().await;
        let result = served(&[("one", "")], vec![with("one", answer)], resolve).await;
        let Err(SourceError::ConfigMaps(error)) = result else {
            panic!("{told}");
        };
        let finding = error.finding();
        assert_eq!((finding.code, finding.message.as_str()), (code, told));
    }
}

#[tokio::test]
async fn rejects_config_maps_that_were_created_again_with_other_data() {
    let answers = ["1", "1", "2", "2"];
    let answers = answers.map(|text| with("one", stored("one", Some(true), text)));
    let check = async |source: ConfigMapsSource| {
        let id = source.resolve().await.unwrap();
        source.fetch(&id, InMemory::default()).await.unwrap();
        let changed = source.fetch(&id, InMemory::default()).await.err().unwrap();
        let now = source.changed(&id).await.unwrap().unwrap();
        (id, changed, now)
    };
    let (id, changed, now) = served(&[("one", "")], answers.into(), check).await;
    let SourceError::ConfigMaps(error) = changed else {
        panic!("{changed}");
    };
    assert_eq!(error.finding().code, codes::install::CONTENT_CHANGED);
    let told = error.to_string();
    assert!(told.contains(id.digest().as_str()) && told.contains(now.digest().as_str()));
}
