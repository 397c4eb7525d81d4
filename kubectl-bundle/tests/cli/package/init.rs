//! `init`: `build` accepts all files that `init` writes.

use crate::context::{CONFIG_MAP, Context, PACKAGE};
use crate::kb_snapshot;

const CHART: &str = "apiVersion: v2\nname: web\nversion: 1.4.0\ndescription: A page\nhome: https://example.com\nmaintainers: [{name: Ana}]\n";
pub(crate) const ANNOTATIONS: &str = "annotations:\n  operators.operatorframework.io.bundle.mediatype.v1: registry+v1\n  operators.operatorframework.io.bundle.package.v1: cache\n";
pub(crate) const CSV: &str = "apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata: {name: cache.v0.3.0}\nspec:\n  version: 0.3.0\n  minKubeVersion: 1.31.0\n  installModes: [{type: AllNamespaces, supported: true}]\n  install: {strategy: deployment}\n";

#[test]
fn example_of_init_can_be_built() {
    let context = Context::new();
    kb_snapshot!(context, ["init", "web"], @r"
    exit code: 0
    ----- stdout -----
    web/bundle.yaml
    web/manifests/web.yaml
    web/config.schema.json
    web/config.yaml
    ----- stderr -----
    example of bundle web 0.1.0
    next: kubectl bundle build web
    ");
    let built = context.run(&["build", "web"]);
    assert!(built.starts_with("exit code: 0\n"), "{built}");
    kb_snapshot!(context, ["init", "web"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: web/bundle.yaml: the file already exists [BUNDLE-USAGE-003]
      hint: nothing was written; --force overwrites it
    ");
}

#[test]
fn writes_nothing_if_one_file_exists() {
    let context = Context::new();
    context.write("web/web.yaml", CONFIG_MAP);
    let said = context.run(&["init", "web", "--dry-run"]);
    assert!(
        said.contains("the manifests are not in a folder `manifests`"),
        "{said}"
    );
    context.write("page/config.schema.json", "mine");
    let said = context.run(&["init", "page"]);
    assert!(
        said.contains("page/config.schema.json: the file already exists"),
        "{said}"
    );
    assert!(!context.path().join("page/bundle.yaml").exists());
    assert!(!context.path().join("page/manifests").exists());
}

#[test]
fn detects_the_content_of_a_folder() {
    let context = Context::new();
    context.write("My Page/manifests/web.yaml", format!("{CONFIG_MAP}---\napiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {{name: web, namespace: default, labels: {{app.kubernetes.io/version: 2.1.0}}}}\n---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: web, namespace: default}}\n"));
    context.stdout(&["init", "My Page"]);
    let written = std::fs::read_to_string(context.path().join("My Page/bundle.yaml")).unwrap();
    insta::assert_snapshot!(written, @r#"
    # yaml-language-server: $schema=https://bundle.core.rukpak.io/v1alpha1/package.schema.json
    apiVersion: bundle.core.rukpak.io/v1alpha1
    kind: Package
    name: my-page
    version: "2.1.0"
    format: plain+v0
    requires:
      apis:
      - gateway.networking.k8s.io/v1/HTTPRoute
      - monitoring.coreos.com/v1/ServiceMonitor
    security:
      scan: enabled
    "#);
    let built = context.run(&["build", "My Page", "--dry-run"]);
    assert!(built.starts_with("exit code: 0\n"), "{built}");

    context.write("cache/metadata/annotations.yaml", ANNOTATIONS);
    context.write("cache/manifests/csv.yaml", CSV);
    context.stdout(&["init", "cache"]);
    kb_snapshot!(context, ["build", "cache", "--dry-run"], @r"
    exit code: 0
    ----- stdout -----
    sha256:d8629b04...
    ----- stderr -----
    warning: cache/manifests/csv.yaml:1: ClusterServiceVersion/cache.v0.3.0: spec.displayName: the mandatory field is missing [BUNDLE-CHECK-015]
      hint: `operator-sdk bundle validate` requires the field
    warning: cache/manifests/csv.yaml:1: ClusterServiceVersion/cache.v0.3.0: spec.install.spec.deployments: the mandatory field is missing [BUNDLE-CHECK-015]
      hint: `operator-sdk bundle validate` requires the field
    cache 0.3.0: 1 object, 1324 bytes, nothing written
    ");

    context.write("chart/Chart.yaml", CHART);
    context.write("chart/templates/web.yaml", CONFIG_MAP);
    context.stdout(&["init", "chart"]);
    // The name of the chart differs from the name of its folder.
    let written = std::fs::read_to_string(context.path().join("chart/bundle.yaml")).unwrap();
    assert!(written.contains("\nname: web\n"), "{written}");
    assert!(written.contains("\nformat: helm+v3\n"), "{written}");
    // PATH is empty in this test, so helm is not found.
    kb_snapshot!(context, ["build", "chart"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: `helm` is required for this content and was not found on PATH [BUNDLE-USAGE-008]
      hint: install helm 3 or later from https://helm.sh, or render the chart elsewhere and build the result as plain+v0
    ");
}

#[test]
fn name_and_version_come_from_flags_or_from_the_file() {
    let context = Context::new();
    context.write("bare/manifests/web.yaml", CONFIG_MAP);
    let built = context.run(&[
        "build",
        "bare",
        "--name",
        "bare",
        "--version",
        "2.0.0",
        "--dry-run",
    ]);
    assert!(built.contains("bare 2.0.0: 1 object"), "{built}");
    context.write("web/bundle.yaml", PACKAGE);
    context.write("web/manifests/web.yaml", CONFIG_MAP);
    kb_snapshot!(context, ["build", "web", "--version", "2.0.0"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --version: bundle.yaml has 1.4.0, but the flag has 2.0.0 [BUNDLE-USAGE-001]
      hint: change bundle.yaml, or omit the flag: the flag is for content without a bundle.yaml
    ");
    let built = context.run(&["build", "bare", "--name", "bare", "--version", "2.0"]);
    assert!(built.contains("did you mean `2.0.0`?"), "{built}");
}

#[test]
fn derives_the_name_from_most_objects_or_from_the_folder() {
    let context = Context::new();
    let object = |name: &str, part_of: &str| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: a, labels: {{app.kubernetes.io/name: {name}, app.kubernetes.io/part-of: {part_of}}}}}\n"
        )
    };
    let told = |folder: &str, objects: &[String]| {
        context.write(&format!("{folder}/manifests/all.yaml"), objects.concat());
        context.run(&["init", folder, "--dry-run"])
    };
    // The first object belongs to a dependency.
    let most = told(
        "manifests-of-argo",
        &[
            object("redis", "redis"),
            object("server", "argocd"),
            object("repo", "argocd"),
        ],
    );
    assert!(most.contains("bundle argocd 0.1.0"), "{most}");
    let mixed = told(
        "stack",
        &[object("redis", "redis"), object("server", "argocd")],
    );
    assert!(mixed.contains("bundle stack 0.1.0"), "{mixed}");
    context.write("named/kustomization.yaml", "metadata: {name: my-stack}\n");
    let named = told("named", &[object("server", "argocd")]);
    assert!(named.contains("bundle my-stack 0.1.0"), "{named}");
}
