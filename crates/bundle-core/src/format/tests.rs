use super::*;

const WEB: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: a}\n";
const PACKAGE: &str = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\n";

fn files(files: &[(&str, &str)]) -> Files {
    files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
        .collect()
}

fn messages_of(list: &[(&str, &str)]) -> Vec<String> {
    let findings = read(&files(list)).unwrap_err();
    assert!(
        findings.iter().all(|finding| finding.hint.is_some()),
        "{findings:?}"
    );
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn reads_objects_in_order_and_the_package() {
    let content = read(&files(&[
        ("bundle.yaml", PACKAGE),
        ("README.md", "# not a manifest"),
        (
            "manifests/b.json",
            r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#,
        ),
        ("manifests/a.yaml", &format!("---\n{WEB}---\n# end\n")),
    ]))
    .unwrap();
    let ids: Vec<_> = content
        .objects
        .iter()
        .map(|object| object.id.to_string())
        .collect();
    assert_eq!(ids, ["ConfigMap/a/web", "Namespace/a"]);
    assert_eq!(content.package.unwrap().title(), "bundle web 1.4.0");
    assert_eq!(content.warnings, Findings::default());
}

#[test]
fn images_of_the_lock_are_deployed_with_their_digests() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: 'nginx:1.25'}, {name: b, image: 'nginx:1.26'}]}\n";
    let digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let lock = format!(
        "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: ImageLock\nimages:\n- image: nginx:1.25\n  resolved: docker.io/library/nginx:1.25@{digest}\n  digest: {digest}\n  mediaType: m\n"
    );
    let read_with = |lock: &str| {
        read(&files(&[
            ("bundle.yaml", PACKAGE),
            ("images.lock.yaml", lock),
            ("manifests/a.yaml", pod),
        ]))
    };
    let content = read_with(&lock).unwrap();
    let containers = &content.objects[0].value["spec"]["containers"];
    assert_eq!(containers[0]["image"], format!("nginx:1.25@{digest}"));
    assert_eq!(containers[1]["image"], "nginx:1.26");
    assert_eq!(content.images[0].image, "nginx:1.25", "as it is written");
    assert!(!content.warnings.has_errors());
    assert!(
        content
            .warnings
            .to_string()
            .contains("no digest for `nginx:1.26`")
    );
    let said = read_with(&lock.replace("library/nginx", "evil/nginx")).unwrap_err();
    assert!(said.to_string().contains("but must have"), "{said}");
}

/// Renders the files for a class that supports no format, and returns the finding.
fn rejected(list: &[(&str, &str)]) -> String {
    let files = files(list);
    let target = RenderTarget::default();
    let input = RenderInput {
        files: &files,
        target: &target,
        output: CommandOutput::Missing,
    };
    let reject = |format: Format, _: bool| {
        let format = format.to_string();
        Err(Finding::error(
            crate::diagnostic::codes::format::WRONG_CLASS,
            format,
        ))
    };
    let rejected = render_objects(&input, reject, &Cancellation::default());
    rejected.unwrap_err().to_string()
}

#[test]
fn format_is_checked_before_objects_are_parsed() {
    let invalid = ("manifests/a.yaml", "kind: [");
    let chart = ("Chart.yaml", "name: web\n");
    assert_eq!(rejected(&[invalid]), "plain+v0");
    assert_eq!(rejected(&[chart]), "helm+v3");
    for (package, expected) in [(PACKAGE, "plain+v0"), ("name: [", "helm+v3")] {
        assert_eq!(rejected(&[chart, ("bundle.yaml", package)]), expected);
    }
}

#[test]
fn cancelled_rendering_returns_no_content() {
    let files = files(&[("manifests/a.yaml", WEB)]);
    let target = RenderTarget::default();
    let input = RenderInput {
        files: &files,
        target: &target,
        output: CommandOutput::Missing,
    };
    let cancellation = Cancellation::default();
    assert!(render_objects(&input, |found, _| Ok(found), &cancellation).is_ok());
    let cancel = |found, _| {
        cancellation.cancel();
        Ok(found)
    };
    let findings = render_objects(&input, cancel, &cancellation).unwrap_err();
    let codes: Vec<_> = findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [crate::diagnostic::codes::format::CANCELLED]);
}

#[test]
fn a_bundle_without_package_file_is_plain() {
    let content = read(&files(&[("manifests/a.yaml", WEB)])).unwrap();
    assert_eq!((content.package, content.format), (None, Format::PlainV0));
}

#[test]
fn keeps_messages_of_rukpak() {
    assert_eq!(
        messages_of(&[("README.md", "")]),
        ["get objects from bundle manifests: readdir manifests: file does not exist"]
    );
    let zero = "invalid bundle: found zero objects: plain+v0 bundles are required to contain at least one object";
    assert_eq!(messages_of(&[("manifests/", "")]), [zero]);
    assert_eq!(
        messages_of(&[("manifests/a.yaml", "# nothing\n")]),
        ["manifests/a.yaml: the file has no document", zero]
    );
    assert_eq!(
        messages_of(&[
            ("manifests/x/a.yaml", WEB),
            ("manifests/x/b.yaml", WEB),
            ("manifests/a.yaml", WEB)
        ]),
        [
            "get objects from bundle manifests: subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: found \"manifests/x\""
        ]
    );
    assert_eq!(
        messages_of(&[
            ("bundle.yaml", &PACKAGE.replace("plain+v0", "tar+v9")),
            ("manifests/a.yaml", WEB)
        ]),
        ["bundle.yaml:5: format: detected unsupported bundle format \"tar+v9\""]
    );
}

#[test]
fn skips_files_with_comments_only_and_rejects_subfolders_with_hint() {
    let content = read(&files(&[
        ("manifests/a.yaml", WEB),
        ("manifests/b.yaml", "# nothing yet\n---\n"),
    ]))
    .unwrap();
    assert_eq!(content.objects.len(), 1);
    assert_eq!(
        content.warnings.to_string(),
        "manifests/b.yaml: the file has no document"
    );
    let hint = |path: &str| {
        let found = read(&files(&[("manifests/a.yaml", WEB), (path, WEB)])).unwrap_err();
        found.first().unwrap().hint.clone().unwrap()
    };
    assert_eq!(
        hint("manifests/x/y/b.yaml"),
        "move and rename the files, for example `mv manifests/x/y/b.yaml manifests/x-y-b.yaml`, or move the folder out of manifests/"
    );
    assert_eq!(hint("manifests/x/"), "remove the empty folder");
}

#[test]
fn reports_kustomization_file_once_by_name() {
    let found = messages_of(&[
        ("manifests/a.yaml", WEB),
        ("manifests/kustomization.yaml", "resources: [a.yaml]\n"),
    ]);
    assert_eq!(
        found,
        [
            "manifests/kustomization.yaml:1: it is a kustomization, which must be built before the installation"
        ]
    );
    // Flux has a kind that is also named Kustomization.
    let flux = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: web, namespace: a}\n";
    let content = read(&files(&[("manifests/kustomization.yaml", flux)])).unwrap();
    assert_eq!(content.objects.len(), 1);
}

#[test]
fn unrolls_lists_and_drops_namespaces_of_cluster_scoped_objects() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a, namespace: b}}\n\
                - {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: c}, spec: {group: example.com, scope: Cluster, names: {kind: Shop}}}\n\
                - {apiVersion: example.com/v1, kind: Shop, metadata: {name: d, namespace: e}}\n";
    let content = read(&files(&[("manifests/a.yaml", text)])).unwrap();
    let ids: Vec<String> = content
        .objects
        .iter()
        .map(|one| one.id.to_string())
        .collect();
    assert_eq!(
        ids,
        [
            "Namespace/a",
            "CustomResourceDefinition.apiextensions.k8s.io/c",
            "Shop.example.com/d"
        ]
    );
    assert!(content.objects[2].value["metadata"]["namespace"].is_null());
    let said: Vec<String> = content.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "manifests/a.yaml:1: Namespace/a: metadata.namespace: Namespace is cluster-scoped: namespace `b` is ignored, as the API server ignores it",
            "manifests/a.yaml:1: Shop.example.com/d: metadata.namespace: Shop is cluster-scoped: namespace `e` is ignored, as the API server ignores it",
        ]
    );
    let twice = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, namespace: b}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a, namespace: c}\n";
    let found = read(&files(&[("manifests/a.yaml", twice)])).unwrap_err();
    assert!(
        found.to_string().contains("the same object is at"),
        "{found}"
    );
}

#[test]
fn reports_all_problems_together() {
    let said = messages_of(&[
        ("bundle.yaml", "name: web\n"),
        ("manifests/a.yaml", "kind: [\n"),
        ("manifests/b.yaml", "kind: ConfigMap\n"),
        ("manifests/c.yaml", WEB),
        ("manifests/d.yaml", &format!("# again\n{WEB}")),
    ])
    .join("\n");
    for part in [
        "bundle.yaml: version: ",
        "manifests/a.yaml:1: invalid YAML",
        "manifests/b.yaml:1: apiVersion: ",
        "manifests/d.yaml:2: ConfigMap/a/web: the same object is at manifests/c.yaml:1 already",
    ] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
}
