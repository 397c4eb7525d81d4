//! Tests of content with a small text. The rendered objects and findings must not need much more
//! memory than the text.

use serde_json::{Value, json};

use super::*;
use crate::diagnostic::codes;

const KIB: usize = 1 << 10;

fn content(list: &[(&str, String)]) -> (Files, usize) {
    let files: Files = list
        .iter()
        .map(|(path, text)| ((*path).to_owned(), text.clone().into_bytes()))
        .collect();
    let size = files.values().map(Vec::len).sum();
    (files, size)
}

fn size_of_objects(objects: &[Manifest]) -> usize {
    let size = |object: &Manifest| object.value.to_string().len() + object.id.to_string().len();
    objects.iter().map(size).sum()
}

fn size_of_findings(findings: &Findings) -> usize {
    findings.iter().map(|one| format!("{one:?}").len()).sum()
}

/// Returns the size of the rendered objects in bytes, or the size and text of the findings.
fn rendered(files: &Files) -> Result<usize, (usize, String)> {
    match read(files) {
        Ok(content) => Ok(size_of_objects(&content.objects)),
        Err(findings) => Err((size_of_findings(&findings), findings.to_string())),
    }
}

#[test]
fn findings_never_multiply_the_name_of_their_object() {
    let labels: Value = (0..300).map(|n| (format!("k{n}"), json!(1))).collect();
    for (kind, name) in [
        ("ConfigMap".to_owned(), "x".repeat(64 * KIB)),
        ("K".repeat(64 * KIB), "a".to_owned()),
    ] {
        let metadata = json!({"name": name, "labels": labels});
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
        let (files, size) = content(&[("manifests/a.json", object.to_string())]);
        let (found, _) = rendered(&files).unwrap_err();
        assert!(found < 6 * size, "{found} bytes from {size}");
    }
}

#[test]
fn findings_of_many_files_are_bounded_together() {
    let files: Vec<(String, String)> = (0..300)
        .map(|n| (format!("manifests/f{n}.yaml"), "a: [".to_owned()))
        .collect();
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.clone()))
        .collect();
    let findings = read(&content(&files).0).unwrap_err();
    assert_eq!(findings.errors().count(), 101);
}

fn operator(metadata: &Value, deployments: &[Value], permissions: &[Value]) -> (Files, usize) {
    let annotations = "annotations:\n  operators.operatorframework.io.bundle.mediatype.v1: registry+v1\n  operators.operatorframework.io.bundle.package.v1: op\n";
    let csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": metadata,
        "spec": {
            "version": "1.0.0",
            "installModes": [{"type": "AllNamespaces", "supported": true}],
            "install": {"strategy": "deployment", "spec": {
                "deployments": deployments,
                "clusterPermissions": permissions,
            }},
        },
    });
    content(&[
        ("metadata/annotations.yaml", annotations.to_owned()),
        ("manifests/csv.json", csv.to_string()),
    ])
}

fn deployments(count: usize, spec: &Value) -> Vec<Value> {
    (0..count)
        .map(|n| json!({"name": format!("d{n}"), "spec": spec}))
        .collect()
}

#[test]
fn annotations_of_an_operator_are_not_copied_to_any_number_of_deployments() {
    let long = json!({"a": "x".repeat(256 * KIB)});
    let many: Value = (0..5_000).map(|n| (format!("k{n}"), json!(""))).collect();
    for annotations in [long, many] {
        let metadata = json!({"name": "op.v1.0.0", "annotations": annotations});
        let (files, _) = operator(&metadata, &deployments(100, &json!({})), &[]);
        let (found, why) = rendered(&files).unwrap_err();
        assert!(found < 4 * KIB, "{found}");
        assert!(why.contains("annotations"), "{why}");
        let (files, _) = operator(&metadata, &deployments(2, &json!({})), &[]);
        assert!(rendered(&files).is_ok());
    }
}

#[test]
fn name_and_namespace_of_an_operator_are_not_copied_to_any_number_of_objects() {
    let long = "x".repeat(64 * KIB);
    let permissions: Vec<Value> = (0..300)
        .map(|n| json!({"serviceAccountName": format!("a{n}"), "rules": []}))
        .collect();
    let suggested = json!({"operatorframework.io/suggested-namespace": long});
    for metadata in [
        json!({"name": long}),
        json!({"name": "op.v1.0.0", "annotations": suggested}),
    ] {
        for spec in [json!({}), Value::Null] {
            let (files, size) = operator(&metadata, &deployments(300, &spec), &permissions);
            let mut findings = Findings::default();
            let target = RenderTarget::default();
            let input = RenderInput {
                files: &files,
                target: &target,
                output: CommandOutput::Missing,
            };
            let objects = renderer(Format::RegistryV1).render(
                &input,
                None,
                &mut Allowance::default(),
                &mut findings,
            );
            assert!(findings.has_errors());
            let found = size_of_objects(&objects) + size_of_findings(&findings);
            assert!(found < 8 * size, "{found} bytes from {size}");
        }
    }
}

const LOCK: &str = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: ImageLock\nimages:";

fn pod(args: usize, image: impl Fn(usize) -> String) -> String {
    let args: Vec<String> = (0..args)
        .map(|n| format!("--sidecar-image={}", image(n)))
        .collect();
    let container = json!({"name": "a", "image": "a.example.com/a:v1", "args": args});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}})
        .to_string()
}

#[test]
fn images_below_long_paths_are_rejected_where_a_lock_needs_them() {
    let images: Vec<Value> = (0..1_000)
        .map(|n| json!({"image": format!("a.example.com/b:v{n}")}))
        .collect();
    let spec = (0..50).fold(json!(images), |inner, _| json!({"k".repeat(500): inner}));
    let object = json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a"}, "spec": spec});
    let manifest = ("manifests/a.json", object.to_string());
    let (files, _) = content(&[
        manifest.clone(),
        ("images.lock.yaml", format!("{LOCK} []\n")),
    ]);
    let (_, why) = rendered(&files).unwrap_err();
    assert!(why.contains("images"), "{why}");
    // Without a lock, the reconciler does not search for images.
    let (files, _) = content(&[manifest]);
    let target = RenderTarget::default();
    let input = RenderInput {
        files: &files,
        target: &target,
        output: CommandOutput::Missing,
    };
    let content = render_objects(&input, |found, _| Ok(found), &Cancellation::default()).unwrap();
    assert_eq!((content.objects.len(), content.images.len()), (1, 0));
}

#[test]
fn search_for_images_stops_at_a_number_of_arguments() {
    let text = pod(60_000, |n| format!("a/b:v{n}"));
    let (files, _) = content(&[("manifests/a.json", text)]);
    let (_, why) = rendered(&files).unwrap_err();
    assert!(why.contains("images"), "{why}");
}

#[test]
fn listed_places_of_a_lock_are_found_without_reading_the_list_for_each_argument() {
    let digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let places: Vec<_> = (0..60_000)
        .map(|n| format!("  - object: Pod/a\n    field: 'f{n}'\n"))
        .collect();
    let places = places.concat();
    let lock = format!(
        "{LOCK}\n- image: a/b:v1\n  resolved: docker.io/a/b:v1@{digest}\n  digest: {digest}\n  mediaType: m\n  foundIn:\n{places}"
    );
    let (files, _) = content(&[
        ("manifests/a.json", pod(6_000, |_| "a/b:v1".to_owned())),
        ("images.lock.yaml", lock),
    ]);
    assert_eq!(rendered(&files).map(|size| size > 0), Ok(true));
}

/// Returns a ConfigMap with this number of equal values. Each value consists of control characters.
/// The text contains one of the values, and aliases repeat this value.
fn control_characters(values: usize) -> String {
    let text = "\\x07".repeat(60_000);
    let aliases: Vec<String> = (1..values).map(|n| format!("  k{n}: *a\n")).collect();
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: large}}\ndata:\n  k0: &a \"{text}\"\n{}",
        aliases.concat()
    )
}

/// Returns the number of rendered objects, or the errors.
fn rendered_with_output(files: &Files, output: &str) -> Result<usize, Findings> {
    let input = RenderInput {
        files,
        target: &RenderTarget::default(),
        output: CommandOutput::Text(output.as_bytes()),
    };
    render(&input).map(|content| content.objects.len())
}

#[test]
fn object_whose_json_is_too_long_is_rejected_in_each_format() {
    let chart = "apiVersion: v2\nname: web\nversion: 1.4.0\n".to_owned();
    let bundles = |values: usize| {
        let text = control_characters(values);
        let (plain, _) = content(&[("manifests/large.yaml", text.clone())]);
        let metadata = json!({"name": "op.v1.0.0"});
        let (mut operator, _) = operator(&metadata, &deployments(1, &json!({})), &[]);
        operator.insert("manifests/large.yaml".to_owned(), text.clone().into_bytes());
        let (chart, _) = content(&[("Chart.yaml", chart.clone())]);
        [
            (
                plain,
                String::new(),
                "manifests/large.yaml:1: ConfigMap/large: ",
            ),
            (
                operator,
                String::new(),
                "manifests/large.yaml:1: ConfigMap/op-system/large: ",
            ),
            (chart, text, "helm template:1: ConfigMap/large: "),
        ]
    };
    // One value has 360,000 bytes as JSON, and the limit is 3 MiB.
    for (files, output, place) in bundles(8) {
        let objects = rendered_with_output(&files, &output);
        assert!(objects.is_ok_and(|objects| objects > 0), "{place}");
    }
    for (files, output, place) in bundles(9) {
        let findings = rendered_with_output(&files, &output).unwrap_err();
        let found: Vec<_> = findings.errors().map(|finding| finding.code).collect();
        assert_eq!(found, [codes::format::OBJECT_TOO_LARGE], "{findings}");
        let message = findings.to_string();
        assert!(message.contains(place), "{message}");
        assert!(message.contains("the object has 3240"), "{message}");
        assert!(
            message.contains("more than the limit of 3145728"),
            "{message}"
        );
    }
}

#[test]
fn digests_of_a_lock_count_for_the_size_of_an_object() {
    let digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let lock = format!(
        "{LOCK}\n- image: a/b:v1\n  resolved: docker.io/a/b:v1@{digest}\n  digest: {digest}\n  mediaType: m\n"
    );
    let pod = |padding: usize| {
        let metadata = json!({"name": "a", "annotations": {"padding": "x".repeat(padding)}});
        let spec = json!({"containers": [{"name": "a", "image": "a/b:v1"}]});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string()
    };
    let padding = object::MAX_OBJECT_JSON - pod(0).len();
    let manifest = ("manifests/a.json", pod(padding));
    let (files, _) = content(std::slice::from_ref(&manifest));
    assert!(read(&files).is_ok());
    let (files, _) = content(&[manifest, ("images.lock.yaml", lock)]);
    let findings = read(&files).unwrap_err();
    let found: Vec<_> = findings.errors().map(|finding| finding.code).collect();
    assert_eq!(found, [codes::format::OBJECT_TOO_LARGE], "{findings}");
}
