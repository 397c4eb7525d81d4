//! Messages about packages and their objects.

use super::diagnostics;
use crate::context::{CONFIG_MAP, Context, PACKAGE};

/// Returns the diagnostics of `build` for a package with these files.
fn build(files: &[(&str, &str)]) -> String {
    let context = Context::new();
    for (path, text) in files {
        context.write(&format!("web/{path}"), text);
    }
    diagnostics(&context.run(&["build", "web", "--dry-run"]))
}

fn build_with(bundle: &str, more: &[(&str, &str)]) -> String {
    let package = format!("{PACKAGE}{bundle}");
    let mut files = vec![
        ("bundle.yaml", package.as_str()),
        ("manifests/web.yaml", CONFIG_MAP),
    ];
    files.extend(more);
    build(&files)
}

#[test]
fn reports_invalid_fields_of_objects() {
    let objects = "\
- a list
---
apiVersion: v1
kind: ConfigMap
metadata: {name: Web, namespace: default}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: labels, namespace: default, labels: {release: 1.4}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: copied, namespace: default, uid: 5f0c}
";
    let output = build(&[("bundle.yaml", PACKAGE), ("manifests/web.yaml", objects)]);
    insta::assert_snapshot!(output, @"");
}

#[test]
fn reports_files_above_the_size_limit() {
    let large = format!("# {}\n{CONFIG_MAP}", "x".repeat(10 << 20));
    let output = build(&[("bundle.yaml", PACKAGE), ("manifests/web.yaml", &large)]);
    insta::assert_snapshot!(output, @"");
}

#[test]
fn reports_invalid_versions_and_ranges_of_packages() {
    let package = PACKAGE
        .replace("version: 1.4.0", "version: v1.4")
        .replace(">=1.31 <1.38", "=>1.31");
    let output = build(&[
        ("bundle.yaml", &package),
        ("manifests/web.yaml", CONFIG_MAP),
    ]);
    insta::assert_snapshot!(output, @"");
}

#[test]
fn reports_content_that_does_not_match_its_format() {
    let chart = PACKAGE.replace("plain+v0", "helm+v3");
    let output = build(&[("bundle.yaml", &chart), ("manifests/web.yaml", CONFIG_MAP)]);
    insta::assert_snapshot!(output, @"");
    let operator = PACKAGE.replace("plain+v0", "registry+v1");
    let output = build(&[
        ("bundle.yaml", &operator),
        ("manifests/web.yaml", CONFIG_MAP),
    ]);
    insta::assert_snapshot!(output, @"");
}

#[test]
fn reports_problems_of_apis_namespaces_and_status() {
    let objects = "\
apiVersion: admissionregistration.k8s.io/v1beta1
kind: ValidatingAdmissionPolicy
metadata: {name: web}
---
apiVersion: apps/v1
kind: Deploymnet
metadata: {name: web, namespace: default}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: other}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: filled, namespace: default}
status: {phase: Ready}
";
    let output = build(&[("bundle.yaml", PACKAGE), ("manifests/web.yaml", objects)]);
    insta::assert_snapshot!(output, @"");
}

/// Returns a definition of kind Queue with this schema of `spec`.
fn definition(spec: &str) -> String {
    format!(
        "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: queues.shop.example.com}}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {{kind: Queue, plural: queues}}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {spec}}}}}}}
---
apiVersion: shop.example.com/v1
kind: Queue
metadata: {{name: orders, namespace: default}}
spec: {{size: many}}
"
    )
}

#[test]
fn reports_problems_of_custom_resources() {
    let valid = definition("{type: object, properties: {size: {type: integer}}}");
    let output = build(&[("bundle.yaml", PACKAGE), ("manifests/web.yaml", &valid)]);
    insta::assert_snapshot!(output, @"");
    let invalid = definition("{type: object, properties: {size: {type: number-of-items}}}");
    let output = build(&[("bundle.yaml", PACKAGE), ("manifests/web.yaml", &invalid)]);
    insta::assert_snapshot!(output, @"");
    let unchecked =
        definition("{type: object, properties: {size: {type: string, pattern: '^(?=.*a)many$'}}}");
    let output = build(&[("bundle.yaml", PACKAGE), ("manifests/web.yaml", &unchecked)]);
    insta::assert_snapshot!(output, @"");
}

#[test]
fn reports_default_resources_without_definition() {
    let default = "apiVersion: shop.example.com/v1\nkind: Queue\nmetadata: {name: orders}\n";
    let output = build_with(
        "resources:\n- {name: default, type: default-cr, path: default.yaml}\n",
        &[("default.yaml", default)],
    );
    insta::assert_snapshot!(output, @"");
}

#[test]
fn reports_configuration_that_does_not_match_its_schema() {
    let config = "config: {schema: config.schema.json, default: config.yaml}\n";
    let default = ("config.yaml", "replicas: many\n");
    let schema = "{\"type\": \"object\", \"properties\": {\"replicas\": {\"type\": \"integer\"}}}";
    let output = build_with(config, &[("config.schema.json", schema), default]);
    insta::assert_snapshot!(output, @"");
    let invalid = ("config.schema.json", "{\"type\": \"everything\"}");
    let output = build_with(config, &[invalid, default]);
    insta::assert_snapshot!(output, @"");
}

#[test]
fn reports_an_invalid_lock() {
    let lock = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Images\nimages: []\n";
    let output = build_with("", &[("images.lock.yaml", lock)]);
    insta::assert_snapshot!(output, @"");
}
