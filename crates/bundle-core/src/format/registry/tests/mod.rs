//! Conversion of operators.

mod configuration;
mod conformance;
mod olm;
mod rejections;

use serde_json::Value;

use super::*;
use crate::format::{self, CommandOutput, Content, RenderTarget};

const META: &str = "annotations:\n  operators.operatorframework.io.bundle.mediatype.v1: registry+v1\n  operators.operatorframework.io.bundle.package.v1: cache\n";
const CSV: &str = r#"
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: cache-operator.v0.3.0
  annotations: {alm-examples: "[]", kept: csv, both: csv}
spec:
  displayName: Cache
  version: 0.3.0
  minKubeVersion: 1.29.0
  keywords: null
  links: [{name: Cache, url: https://cache.example.com}]
  installModes:
  - {type: OwnNamespace, supported: false}
  - {type: AllNamespaces, supported: true}
  customresourcedefinitions:
    required: [{name: certificates.cert-manager.io, version: v1, kind: Certificate}]
  install:
    strategy: deployment
    spec:
      permissions:
      - serviceAccountName: cache
        rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, create]}]
      clusterPermissions:
      - serviceAccountName: cache
        rules: [{apiGroups: [cache.example.com], resources: [caches], verbs: ["*"]}]
      - serviceAccountName: cache
        rules: [{apiGroups: [cache.example.com], resources: [caches], verbs: ["*"]}]
      - rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
      deployments:
      - name: cache-operator
        label: {app: cache}
        spec:
          replicas: 1
          selector: {matchLabels: {app: cache}}
          template:
            metadata: {labels: {app: cache}, annotations: {both: pod}}
            spec:
              serviceAccountName: cache
              containers: [{name: manager, image: "registry.example.com/cache-operator:0.3.0", env: null}]
"#;
const CRD: &str = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: caches.cache.example.com}\n";
const SERVICE: &str =
    "apiVersion: v1\nkind: Service\nmetadata: {name: metrics, namespace: elsewhere}\n";

fn bundle(csv: &str, more: &[(&str, &str)]) -> Files {
    [
        (ANNOTATIONS, META),
        ("manifests/csv.yaml", csv),
        ("manifests/crd.yaml", CRD),
    ]
    .iter()
    .chain(more)
    .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
    .collect()
}

fn content(files: &Files) -> Content {
    format::read(files).unwrap_or_else(|findings| panic!("{findings}"))
}

fn messages_of(files: &Files) -> Vec<String> {
    let findings = format::read(files).unwrap_err();
    assert!(findings.iter().all(|finding| finding.hint.is_some()));
    findings.iter().map(ToString::to_string).collect()
}

fn find<'a>(content: &'a Content, id: &str) -> &'a Value {
    let object = content
        .objects
        .iter()
        .find(|object| object.id.to_string() == id);
    &object.unwrap_or_else(|| panic!("no {id}")).value
}

#[test]
fn converts_operator_to_plain_objects() {
    let content = content(&bundle(CSV, &[("manifests/service.yaml", SERVICE)]));
    assert_eq!(
        (content.format, content.package.is_none()),
        (Format::RegistryV1, true)
    );
    let ids: Vec<String> = content
        .objects
        .iter()
        .map(|object| object.id.to_string())
        .collect();
    assert_eq!(
        ids,
        [
            "Namespace/cache-system",
            "ServiceAccount/cache-system/cache",
            "ClusterRole.rbac.authorization.k8s.io/cache-operator.v0.3.0-cache-77dcad4479",
            "ClusterRole.rbac.authorization.k8s.io/cache-operator.v0.3.0-cache-95a26a4762",
            "ClusterRole.rbac.authorization.k8s.io/cache-operator.v0.3.0-default-4c8805e170",
            "ClusterRoleBinding.rbac.authorization.k8s.io/cache-operator.v0.3.0-cache-77dcad4479",
            "ClusterRoleBinding.rbac.authorization.k8s.io/cache-operator.v0.3.0-cache-95a26a4762",
            "ClusterRoleBinding.rbac.authorization.k8s.io/cache-operator.v0.3.0-default-4c8805e170",
            "CustomResourceDefinition.apiextensions.k8s.io/caches.cache.example.com",
            "Service/cache-system/metrics",
            "Deployment.apps/cache-system/cache-operator",
        ]
    );
    let deployment = find(&content, "Deployment.apps/cache-system/cache-operator");
    let template = &deployment["spec"]["template"];
    assert_eq!(
        template["metadata"]["annotations"],
        serde_json::json!({"alm-examples": "[]", "kept": "csv", "both": "pod", "olm.targetNamespaces": ""})
    );
    assert_eq!(template["metadata"]["labels"]["app"], "cache");
    assert!(template["spec"]["containers"][0].get("env").is_none());
    let promoted: Vec<&Value> = content
        .objects
        .iter()
        .filter(|object| object.id.kind == "ClusterRole")
        .map(|object| &object.value["rules"])
        .filter(|rules| rules[0]["resources"][0] == "configmaps")
        .collect();
    assert_eq!(promoted.len(), 1);
    assert_eq!(promoted[0][1]["resources"][0], "namespaces");
}

#[test]
fn uses_suggested_namespace_without_target_namespace() {
    let csv = CSV.replace(
        "kept: csv",
        "operatorframework.io/suggested-namespace: caches",
    );
    let content = content(&bundle(&csv, &[]));
    assert_eq!(content.objects[0].id.to_string(), "Namespace/caches");
}

#[test]
fn target_namespace_overrides_the_suggested_one() {
    let csv = CSV.replace(
        "kept: csv",
        "operatorframework.io/suggested-namespace: caches",
    );
    let files = bundle(&csv, &[("manifests/service.yaml", SERVICE)]);
    let input = RenderInput {
        files: &files,
        target: &RenderTarget::in_namespace(Some("team-a")),
        output: CommandOutput::Missing,
    };
    let content = format::render(&input).unwrap();
    let ids: Vec<String> = content
        .objects
        .iter()
        .filter(|object| !object.id.group.contains('.'))
        .map(|object| object.id.to_string())
        .collect();
    assert_eq!(
        ids,
        [
            "ServiceAccount/team-a/cache",
            "Service/team-a/metrics",
            "Deployment.apps/team-a/cache-operator",
        ],
        "the namespace is not of the content"
    );
    let bindings: Vec<&Value> = content
        .objects
        .iter()
        .filter(|object| object.id.kind == "ClusterRoleBinding")
        .map(|object| &object.value["subjects"][0]["namespace"])
        .collect();
    assert_eq!(bindings, ["team-a", "team-a", "team-a"]);
    // The operator still watches all namespaces.
    let deployment = find(&content, "Deployment.apps/team-a/cache-operator");
    let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["olm.targetNamespaces"], "");
}

#[test]
fn generated_names_are_short_and_unique() {
    let csv = CSV.replace(
        "cache-operator.v0.3.0",
        &format!("{}.v0.3.0", "c".repeat(90)),
    );
    let content = content(&bundle(&csv, &[]));
    let names: Vec<&str> = content
        .objects
        .iter()
        .filter(|object| object.id.kind == "ClusterRole")
        .map(|object| object.id.name.as_str())
        .collect();
    assert_eq!(names.len(), 3);
    assert!(names.iter().all(|name| name.len() == 63), "{names:?}");
}

#[test]
fn rejects_files_that_are_no_registry_v1_bundle() {
    let why = "convert registry+v1 bundle to plain+v0 bundle";
    let package = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: cache\nversion: 0.3.0\nformat: registry+v1\n";
    let mut files = bundle(CSV, &[("bundle.yaml", package)]);
    assert_eq!(content(&files).package.unwrap().format, Format::RegistryV1);
    files.remove(ANNOTATIONS);
    assert_eq!(
        messages_of(&files),
        [format!(
            "{why}: open metadata/annotations.yaml: file does not exist"
        )]
    );
    files.insert(ANNOTATIONS.to_owned(), b"annotations: {a: 1}\n".to_vec());
    assert!(messages_of(&files)[0].contains("invalid annotations"));
    files.insert(
        ANNOTATIONS.to_owned(),
        b"annotations: {operators.operatorframework.io.bundle.mediatype.v1: helm}\n".to_vec(),
    );
    assert_eq!(messages_of(&files).len(), 2);
    let two = bundle(
        CSV,
        &[("manifests/zcsv.yaml", &CSV.replace("v0.3.0", "v0.4.0"))],
    );
    assert!(
        messages_of(&two)[0].contains(
            "there is a second ClusterServiceVersion; the first is at manifests/csv.yaml:2"
        )
    );
    let none = bundle(CRD, &[]);
    assert!(messages_of(&none)[0].ends_with("manifests/ has no ClusterServiceVersion"));
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n";
    assert_eq!(
        messages_of(&bundle(CSV, &[("manifests/pod.yaml", pod)])),
        [format!(
            "manifests/pod.yaml:1: Pod/p: {why}: bundle contains unsupported resource: Name: p, Kind: Pod"
        )]
    );
    let broken = CSV.replace("installModes:\n", "installModes: 5\n  other:\n");
    assert!(messages_of(&bundle(&broken, &[]))[0].contains("invalid ClusterServiceVersion"));
}

#[test]
fn describes_package_from_csv_and_annotations() {
    let operator = operator(&bundle(CSV, &[])).unwrap();
    assert_eq!(operator.package, "cache");
    assert_eq!(operator.csv.version(), "0.3.0");
    assert_eq!(operator.csv.min_kubernetes(), "1.29.0");
    assert_eq!(
        operator.csv.required_apis(),
        ["cert-manager.io/v1/Certificate"]
    );
    let package = operator.describe().unwrap();
    assert_eq!(package.title(), "bundle cache 0.3.0");
    assert_eq!(package.kubernetes.unwrap().to_string(), ">=1.29.0");
    assert_eq!(package.about.links[0].url, "https://cache.example.com");
}
