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
    insta::assert_snapshot!(output, @r"
    error: web/manifests/web.yaml:1: expected a Kubernetes object, found a list [BUNDLE-FORMAT-007]
      hint: manifests/ must contain only manifests: each document has apiVersion, kind and metadata
    error: web/manifests/web.yaml:3: ConfigMap/Web: metadata.name: `Web` is not a valid name: a name has lower-case letters, digits, dashes and dots; each part begins and ends with a letter or digit [BUNDLE-FORMAT-011]
      hint: choose a name that the API server accepts
    error: web/manifests/web.yaml:7: ConfigMap/labels: metadata.labels[release]: expected a string, found the number 1.4 [BUNDLE-FORMAT-020]
      hint: put the value in quotes
    error: web/manifests/web.yaml:11: ConfigMap/copied: metadata.uid: the object was copied from a cluster, and API servers reject this field [BUNDLE-FORMAT-021]
      hint: remove metadata.uid, resourceVersion, managedFields, creationTimestamp, generation, and status
    ");
}

#[test]
fn reports_files_above_the_size_limit() {
    let large = format!("# {}\n{CONFIG_MAP}", "x".repeat(10 << 20));
    let output = build(&[("bundle.yaml", PACKAGE), ("manifests/web.yaml", &large)]);
    insta::assert_snapshot!(output, @r"
    error: web/manifests/web.yaml: `manifests/web.yaml` has 10 MiB, and the limit for a file of a bundle is 8 MiB [BUNDLE-REGISTRY-005]
      hint: Kubernetes cannot store objects over 1.5 MiB: split the file, or move the data to a separate artifact
    ");
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
    insta::assert_snapshot!(output, @r"
    error: web/bundle.yaml:4: version: `v1.4` is not a semantic version: unexpected character 'v' while parsing major version number [BUNDLE-FORMAT-016]
      hint: did you mean `1.4.0`?
    error: web/bundle.yaml:7: kubernetes.supported: invalid version range `=>1.31`: unknown operator `=>` [BUNDLE-FORMAT-017]
      hint: write a range like `>=1.31 <1.38`, `~1.31`, `1.31.x` or `1.29 - 1.31 || 1.33`
    ");
}

#[test]
fn reports_content_that_does_not_match_its_format() {
    let chart = PACKAGE.replace("plain+v0", "helm+v3");
    let output = build(&[("bundle.yaml", &chart), ("manifests/web.yaml", CONFIG_MAP)]);
    insta::assert_snapshot!(output, @r"
    error: Chart.yaml file is missing [BUNDLE-FORMAT-024]
      hint: a helm+v3 bundle is a chart: put Chart.yaml next to bundle.yaml
    ");
    let operator = PACKAGE.replace("plain+v0", "registry+v1");
    let output = build(&[
        ("bundle.yaml", &operator),
        ("manifests/web.yaml", CONFIG_MAP),
    ]);
    insta::assert_snapshot!(output, @r"
    error: convert registry+v1 bundle to plain+v0 bundle: open metadata/annotations.yaml: file does not exist [BUNDLE-FORMAT-022]
      hint: a registry+v1 bundle requires manifests/, and metadata/annotations.yaml with the name of the package
    ");
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
    insta::assert_snapshot!(output, @r"
    error: web/manifests/web.yaml:1: ValidatingAdmissionPolicy.admissionregistration.k8s.io/web: admissionregistration.k8s.io/v1beta1/ValidatingAdmissionPolicy is not served since Kubernetes 1.34, and the bundle supports >=1.31 <1.38 [BUNDLE-CHECK-001]
      hint: use admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy
    warning: web/manifests/web.yaml:5: Deploymnet.apps/default/web: no version of Kubernetes up to 1.36 has apps/v1/Deploymnet [BUNDLE-CHECK-003]
      hint: did you mean kind `Deployment`?
    warning: web/manifests/web.yaml:9: ConfigMap/other/web: metadata.namespace: the bundle does not create namespace `other` [BUNDLE-CHECK-011]
      hint: create the namespace before the installation, add it to the manifests, or use `kubectl bundle deploy -n other --create-namespace`
    error: web/manifests/web.yaml:13: ConfigMap/default/filled: status: unknown field [BUNDLE-CHECK-013]
      hint: `kubectl explain configmap --api-version=v1 --recursive` shows the fields
    warning: web/manifests/web.yaml:13: ConfigMap/default/filled: status: a manifest must not set the status, which controllers write [BUNDLE-CHECK-012]
      hint: remove status
    ");
}

/// Returns a CustomResourceDefinition of kind Queue with this schema of `spec`.
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
    insta::assert_snapshot!(output, @r#"
    error: web/manifests/web.yaml:14: Queue.shop.example.com/default/orders: spec.size: "many" is of type string, but must be integer [BUNDLE-CHECK-005]
      hint: the schema is in the CustomResourceDefinition of the bundle; after the installation, `kubectl explain` shows the schema
    "#);
    let invalid = definition("{type: object, properties: {size: {type: number-of-items}}}");
    let output = build(&[("bundle.yaml", PACKAGE), ("manifests/web.yaml", &invalid)]);
    insta::assert_snapshot!(output, @r"
    error: web/manifests/web.yaml:1: CustomResourceDefinition.apiextensions.k8s.io/queues.shop.example.com: spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.size.type: `number-of-items` is not one of array, boolean, integer, number, object, string [BUNDLE-CHECK-004]
      hint: the API server would reject it: see the Kubernetes reference of CustomResourceDefinition
    ");
    let sorted = "!has(self.sizes) || self.sizes.sortBy(g, g).size() > 0";
    let unchecked = definition(&format!(
        "{{type: object, properties: {{size: {{type: string}}, sizes: {{type: array, maxItems: 9, items: {{type: string}}}}}}, x-kubernetes-validations: [{{rule: '{sorted}'}}]}}"
    ));
    let output = build(&[("bundle.yaml", PACKAGE), ("manifests/web.yaml", &unchecked)]);
    insta::assert_snapshot!(output, @r"
    warning: web/manifests/web.yaml:1: CustomResourceDefinition.apiextensions.k8s.io/queues.shop.example.com: spec.versions[0].schema.openAPIV3Schema.properties.spec.x-kubernetes-validations[0].rule: not checked: the rule `!has(self.sizes) || self.sizes.sortBy(g, g).size() > 0`, because it uses `sortBy` [BUNDLE-CHECK-007]
      hint: `kubectl apply --dry-run=server` checks it
    warning: web/manifests/web.yaml:14: Queue.shop.example.com/default/orders: spec: not checked: the rule `!has(self.sizes) || self.sizes.sortBy(g, g).size() > 0`, because it uses `sortBy` [BUNDLE-CHECK-007]
      hint: `kubectl apply --dry-run=server` checks it
    ");
}

#[test]
fn reports_default_resources_without_definition() {
    let default = "apiVersion: shop.example.com/v1\nkind: Queue\nmetadata: {name: orders}\n";
    let resources = "resources:\n- {name: default, type: default-cr, path: default.yaml}\n";
    let output = build_with(resources, &[("default.yaml", default)]);
    insta::assert_snapshot!(output, @r"
    error: web/default.yaml:1: Queue.shop.example.com/orders: the bundle defines no kind Queue in group shop.example.com [BUNDLE-CHECK-006]
      hint: add its CustomResourceDefinition to manifests/
    ");
}

#[test]
fn reports_default_resources_with_invalid_fields() {
    let definition = definition("{type: object, properties: {size: {type: integer}}}");
    let default = definition.rsplit("---\n").next().unwrap();
    let valid = definition.replace("size: many", "size: 3");
    let resources = "resources:\n- {name: default, type: default-cr, path: default.yaml}\n";
    let files = [
        ("manifests/queue.yaml", valid.as_str()),
        ("default.yaml", default),
    ];
    insta::assert_snapshot!(build_with(resources, &files), @r#"
    error: web/default.yaml:1: Queue.shop.example.com/default/orders: spec.size: "many" is of type string, but must be integer [BUNDLE-CHECK-005]
      hint: the schema is in the CustomResourceDefinition of the bundle; after the installation, `kubectl explain` shows the schema
    "#);
}

#[test]
fn reports_apis_that_few_servers_serve() {
    let policy = "\
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: MutatingAdmissionPolicy
metadata: {name: web}
";
    let package = PACKAGE.replace(">=1.31 <1.38", ">=1.33 <1.38");
    let output = build(&[("bundle.yaml", &package), ("manifests/web.yaml", policy)]);
    insta::assert_snapshot!(output, @r"
    warning: web/manifests/web.yaml:1: MutatingAdmissionPolicy.admissionregistration.k8s.io/web: admissionregistration.k8s.io/v1alpha1/MutatingAdmissionPolicy is an alpha API, which API servers serve only if an administrator has enabled it [BUNDLE-CHECK-002]
      hint: list the API in requires.apis of bundle.yaml: the installation then checks that the cluster serves the API
    ");
}

#[test]
fn reports_configuration_that_does_not_match_its_schema() {
    let config = "config: {schema: config.schema.json, default: config.yaml}\n";
    let default = ("config.yaml", "replicas: many\n");
    let schema = "{\"type\": \"object\", \"properties\": {\"replicas\": {\"type\": \"integer\"}}}";
    let output = build_with(config, &[("config.schema.json", schema), default]);
    insta::assert_snapshot!(output, @r#"
    error: web/config.yaml: replicas: "many" is not of type "integer" [BUNDLE-CHECK-009]
      hint: change the default, or the schema in config.schema
    "#);
    let invalid = ("config.schema.json", "{\"type\": \"everything\"}");
    let output = build_with(config, &[invalid, default]);
    insta::assert_snapshot!(output, @r#"
    error: web/config.schema.json: invalid JSON Schema: "everything" is not valid under any of the schemas listed in the 'anyOf' keyword [BUNDLE-CHECK-008]
      hint: write a complete JSON Schema: `$ref` refers only to `#/...`
    "#);
}

#[test]
fn reports_an_invalid_lock() {
    let lock = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Images\nimages: []\n";
    let output = build_with("", &[("images.lock.yaml", lock)]);
    insta::assert_snapshot!(output, @r"
    error: web/images.lock.yaml: kind and apiVersion are Images and bundle.core.rukpak.io/v1alpha1, but must be ImageLock and bundle.core.rukpak.io/v1alpha1 [BUNDLE-IMAGE-004]
      hint: run `kubectl bundle build --lock`, and review the changes
    ");
}
