//! All checks on complete bundles, and helpers for the tests of single checks. `e2e` compares the
//! results with real API servers.

use std::fmt::Write as _;

use serde_json::Value;

use super::*;
use crate::{diagnostic::Severity, format, version::Minor};

/// Set of schemas that contains no schema.
struct NoSchemas;

impl KubernetesSchemas for NoSchemas {
    fn versions(&self) -> &[Minor] {
        &[]
    }

    fn schema(&self, _: Minor, _: &str, _: &str, _: &str) -> Option<&Value> {
        None
    }
}

/// Returns the findings of a bundle with this Kubernetes range. An empty text means that the bundle
/// has no range.
pub(super) fn messages_of(kubernetes: &str, manifests: &[(&str, &str)]) -> Vec<String> {
    with_schemas(kubernetes, manifests, &NoSchemas)
}

/// Like [`messages_of`], with schemas of built-in kinds.
pub(super) fn with_schemas(
    kubernetes: &str,
    manifests: &[(&str, &str)],
    schemas: &dyn KubernetesSchemas,
) -> Vec<String> {
    let kubernetes = if kubernetes.is_empty() {
        String::new()
    } else {
        format!("kubernetes: {{supported: \"{kubernetes}\"}}\n")
    };
    checked(&format!("{PACKAGE}{kubernetes}"), manifests, schemas)
}

/// Like [`messages_of`], with this `bundle.yaml`.
pub(super) fn told(package: &str, files: &[(&str, &str)]) -> Vec<String> {
    checked(package, files, &NoSchemas)
}

/// Like [`messages_of`], for content that a BundleDeployment with these settings installs.
pub(super) fn with_installation(
    manifests: &[(&str, &str)],
    installation: &Installation<'_>,
) -> Vec<String> {
    let files = files(PACKAGE, manifests);
    let content = format::read(&files).unwrap();
    let findings = installed(&content, &files, &NoSchemas, installation);
    findings.iter().map(line).collect()
}

fn checked(
    package: &str,
    manifests: &[(&str, &str)],
    schemas: &dyn KubernetesSchemas,
) -> Vec<String> {
    let files = files(package, manifests);
    let content = format::read(&files).unwrap();
    let findings = all(&content, &files, schemas);
    findings.iter().map(line).collect()
}

pub(super) fn files(package: &str, files: &[(&str, &str)]) -> Files {
    files
        .iter()
        .chain(&[(crate::package::FILE, package)])
        .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
        .collect()
}

fn line(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let hint = finding.hint.as_deref().unwrap();
    format!("{severity}: {finding} ({hint})")
}

const PACKAGE: &str = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\n";

const SHOP: &str = r#"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: shops, kind: Shop}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, maximum: 5}
              goods: {type: array, items: {type: string}}
            x-kubernetes-validations:
            - {rule: "self.size != 3", message: "three is taken"}
            - {rule: "!has(self.goods) || self.goods.sortBy(g, g).size() > 0"}
  - {name: v1beta1, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}
"#;

#[test]
fn reports_all_problems_with_file_and_line() {
    let shops = "apiVersion: example.com/v1\nkind: Shop\nmetadata: {name: a}\nspec: {sise: 9}\n---\n\
                 apiVersion: example.com/v1\nkind: Shop\nmetadata: {name: b, namespace: x}\nspec: {size: 3}\n---\n\
                 apiVersion: example.com/v1beta1\nkind: Shop\nmetadata: {name: c}\n";
    let broken = SHOP
        .replace("example.com", "example.org")
        .replace("scope: Cluster", "scope: World");
    let package = format!(
        "{PACKAGE}resources:\n- {{name: first, type: default-cr, path: default.yaml}}\n- {{name: second, type: default-cr, path: other.yaml}}\n"
    );
    let said = told(
        &package,
        &[
            ("manifests/1.yaml", SHOP),
            ("manifests/2.yaml", shops),
            ("manifests/3.yaml", &broken),
            (
                "default.yaml",
                "apiVersion: example.com/v1\nkind: Shop\nmetadata: {name: d}\nspec: {size: 6}\n",
            ),
            (
                "other.yaml",
                "apiVersion: example.net/v1\nkind: Bank\nmetadata: {name: e}\n",
            ),
        ],
    );
    let short: Vec<&str> = said
        .iter()
        .map(|line| line.rsplit_once(" (").unwrap().0)
        .collect();
    assert_eq!(
        short,
        [
            "error: default.yaml:1: Shop.example.com/d: spec.size: 6 is more than 5",
            "warning: manifests/1.yaml:1: CustomResourceDefinition.apiextensions.k8s.io/shops.example.com: spec.versions[0].schema.openAPIV3Schema.properties.spec.x-kubernetes-validations[1].rule: not checked: the rule `!has(self.goods) || self.goods.sortBy(g, g).size() > 0`, because it uses `sortBy`",
            "error: manifests/2.yaml:1: Shop.example.com/a: spec.sise: unknown field; did you mean `size`?",
            "error: manifests/2.yaml:1: Shop.example.com/a: spec.size: the field is required",
            "error: manifests/2.yaml:6: Shop.example.com/b: spec: three is taken",
            "warning: manifests/2.yaml:6: Shop.example.com/b: spec: not checked: the rule `!has(self.goods) || self.goods.sortBy(g, g).size() > 0`, because it uses `sortBy`",
            "error: manifests/2.yaml:11: Shop.example.com/c: the bundle's CustomResourceDefinition of Shop does not serve example.com/v1beta1",
            "error: manifests/3.yaml:1: CustomResourceDefinition.apiextensions.k8s.io/shops.example.org: spec.scope: `World` is neither Cluster nor Namespaced",
            "warning: manifests/3.yaml:1: CustomResourceDefinition.apiextensions.k8s.io/shops.example.org: spec.versions[0].schema.openAPIV3Schema.properties.spec.x-kubernetes-validations[1].rule: not checked: the rule `!has(self.goods) || self.goods.sortBy(g, g).size() > 0`, because it uses `sortBy`",
            "error: other.yaml:1: Bank.example.net/e: the bundle defines no kind Bank in group example.net",
        ]
    );
}

#[test]
fn own_crds_have_no_findings() {
    let mut files = Files::from([(crate::package::FILE.to_owned(), PACKAGE.as_bytes().to_vec())]);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crds");
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        files.insert(
            format!("manifests/{name}"),
            std::fs::read(entry.path()).unwrap(),
        );
    }
    assert!(files.len() > 4, "{:?}", files.keys());
    let content = format::read(&files).unwrap();
    let said: Vec<String> = all(&content, &files, &NoSchemas).iter().map(line).collect();
    assert_eq!(said, [""; 0]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "measures the rule")]
fn checks_many_objects_quickly() {
    let mut text = String::new();
    for number in 0..2500 {
        let _ = write!(
            text,
            "apiVersion: example.com/v1\nkind: Shop\nmetadata: {{name: s{number}}}\nspec: {{size: 1, goods: [a]}}\n---\n\
             apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{number}, namespace: default}}\n---\n"
        );
    }
    let definition = SHOP.replace(".sortBy(g, g)", "");
    let files: Files = [
        (crate::package::FILE, PACKAGE),
        ("manifests/1.yaml", &definition),
        ("manifests/2.yaml", &text),
    ]
    .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
    .into();
    let content = format::read(&files).unwrap();
    let began = std::time::Instant::now();
    assert_eq!(all(&content, &files, &NoSchemas), Findings::default());
    let took = began.elapsed();
    println!("5000 objects: {took:?}");
    // Without compiler optimisation, the checks take about a tenth of this limit. A scan of all
    // objects for each object would take minutes.
    assert!(took.as_secs() < 20, "{took:?}");
}
