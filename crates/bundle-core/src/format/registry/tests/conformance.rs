//! One operator for each rule of operator-framework's validation (`pkg/validation/internal` of its
//! repository `api`), and the finding about this operator. Errors are reported by the format,
//! warnings by the checks. `check::definition` has the rules for CustomResourceDefinitions, and
//! `rejections` has the rules of operator-controller.

use super::*;
use crate::diagnostic::{Severity, rendered};

const RECORDED: &str = include_str!("messages.txt");

const OWNED: &str = "    owned: [{name: caches.cache.example.com, version: v1, kind: Cache}]\n";
const REQUIRED: &str = "    required: ";
const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: caches.cache.example.com}
spec:
  group: cache.example.com
  names: {kind: Cache, plural: caches}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";
const MODES: &str = "  installModes:
  - {type: OwnNamespace, supported: false}
  - {type: AllNamespaces, supported: true}
";
const CONVERSION: &str = "  webhookdefinitions:
  - {type: ConversionWebhook, generateName: ccache.example.com, deploymentName: cache-operator, sideEffects: None, admissionReviewVersions: [v1], conversionCRDs: [caches.cache.example.com]}
  install:
";

/// A change of the ClusterServiceVersion: text, and its replacement.
type Change<'a> = (&'a str, &'a str);

/// Returns a valid operator with these changes and more files.
fn operator(changes: &[Change<'_>], more: &[(&str, &str)]) -> Files {
    let mut csv = CSV.replace(REQUIRED, &format!("{OWNED}{REQUIRED}"));
    for (from, to) in changes {
        assert!(csv.contains(from), "{from}");
        csv = csv.replace(from, to);
    }
    let mut files = bundle(&csv, more);
    let definition = DEFINITION.as_bytes().to_vec();
    files.insert("manifests/crd.yaml".to_owned(), definition);
    files
}

/// Returns the errors of the format, or the warnings of the checks.
fn findings(files: &Files) -> Findings {
    match format::read(files) {
        Ok(_) => conformance_warnings(files),
        Err(errors) => errors,
    }
}

/// Checks that the operator has exactly this finding.
fn check(files: &Files, severity: Severity, expected: &str) {
    let found = findings(files);
    let text = found.first().map(ToString::to_string).unwrap_or_default();
    assert!(text.contains(expected), "{expected}: {found:?}");
    assert_eq!(found.len(), 1, "{expected}: {found:?}");
    let first = found.first().unwrap();
    assert_eq!(first.severity, severity, "{expected}");
    assert!(first.hint.is_some(), "{expected}");
}

#[test]
fn operator_without_violations_has_no_findings() {
    let examples = r#"alm-examples: '[{"apiVersion": "cache.example.com/v1", "kind": "Cache"}]'"#;
    let empty = "alm-examples: ''";
    for changes in [
        vec![],
        vec![(r#"alm-examples: "[]""#, examples)],
        vec![(r#"alm-examples: "[]""#, empty)],
        vec![(
            "  version: 0.3.0\n",
            "  version: 0.3.0\n  replaces: cache-operator.v0.2.0\n",
        )],
    ] {
        let found = findings(&operator(&changes, &[]));
        assert!(found.is_empty(), "{changes:?}: {found:?}");
    }
}

#[test]
fn each_rule_about_the_cluster_service_version_has_its_finding() {
    use Severity::{Error, Warning};
    let long = format!("name: {}.v0.3.0", "c".repeat(64));
    let deployments = &CSV[CSV.find("      deployments:\n").unwrap()..];
    let examples = r#"alm-examples: "[]""#;
    let other = r#"alm-examples: '[{"apiVersion": "cache.example.com/v1", "kind": "Other"}]'"#;
    let unsupported = MODES.replace("supported: true", "supported: false");
    let own = (
        "OwnNamespace, supported: false",
        "OwnNamespace, supported: true",
    );
    let rows: [(&[Change<'_>], Severity, &str); 17] = [
        (
            &[("name: cache-operator.v0.3.0", long.as_str())],
            Warning,
            "ccc.v0.3.0\" is invalid",
        ),
        (
            &[(
                "  version: 0.3.0\n",
                "  version: 0.3.0\n  replaces: Cache_\n",
            )],
            Warning,
            "spec.replaces: \"Cache_\" is invalid",
        ),
        (
            &[(examples, r#"alm-examples: "[{]""#)],
            Warning,
            "metadata.annotations[alm-examples]: invalid example: ",
        ),
        (
            &[(examples, other)],
            Warning,
            "example must have a provided API: \"cache.example.com/v1, Kind=Other\"",
        ),
        (
            &[(MODES, "")],
            Error,
            "AllNamespace install mode must be enabled",
        ),
        (
            &[(MODES, unsupported.as_str())],
            Error,
            "AllNamespace install mode must be enabled",
        ),
        (
            &[("  install:\n", CONVERSION), own],
            Error,
            "conversion webhooks are only supported for bundles that only support AllNamespaces install mode",
        ),
        (
            &[("minKubeVersion: 1.29.0", "minKubeVersion: '1.29'")],
            Warning,
            "spec.minKubeVersion: csv.Spec.MinKubeVersion has an invalid value: 1.29",
        ),
        (
            &[("  displayName: Cache\n", "")],
            Warning,
            "spec.displayName: the mandatory field is missing",
        ),
        (
            &[(deployments, "")],
            Warning,
            "spec.install.spec.deployments: the mandatory field is missing",
        ),
        (
            &[("    strategy: deployment\n", "")],
            Error,
            "the install strategy is missing",
        ),
        (
            &[("kept: csv", "olm.skiprange: csv")],
            Warning,
            "provided annotation olm.skiprange uses wrong case and should be olm.skipRange instead",
        ),
        (
            &[("apiVersion: operators.coreos.com/v1alpha1\n", "")],
            Error,
            "apiVersion: the field is missing",
        ),
        (
            &[("kind: ClusterServiceVersion\n", "")],
            Error,
            "kind: the field is missing",
        ),
        (
            &[("{name: caches.cache", "{name: others.cache")],
            Error,
            "owned custom resource definition 'others.cache.example.com' not found in bundle",
        ),
        (
            &[("version: v1, kind: Cache}", "version: v2, kind: Cache}")],
            Warning,
            "owned CRD \"cache.example.com/v2, Kind=Cache\" not found in bundle \"cache-operator.v0.3.0\"",
        ),
        (
            &[(OWNED, "")],
            Warning,
            "CRD \"caches.cache.example.com\" is present in bundle \"cache-operator.v0.3.0\" but not defined in CSV",
        ),
    ];
    for (changes, severity, expected) in rows {
        check(&operator(changes, &[]), severity, expected);
    }
}

#[test]
fn each_rule_about_other_objects_has_its_finding() {
    use Severity::{Error, Warning};
    let budget = |spec: &str| {
        format!(
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: a}}\nspec: {spec}\n"
        )
    };
    let scc = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\nrules: [{apiGroups: [security.openshift.io], resources: [securitycontextconstraints], verbs: [update], resourceNames: [restricted]}]\n";
    let same_kind = DEFINITION.replace("name: caches.", "name: stores.");
    for (object, severity, expected) in [
        (
            same_kind.as_str(),
            Error,
            "duplicate CRD \"cache.example.com/v1, Kind=Cache\" in bundle \"cache-operator.v0.3.0\"",
        ),
        (
            DEFINITION,
            Error,
            "the same object is at manifests/crd.yaml:1 already",
        ),
        (
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: cache}\n",
            Error,
            "the same object is at manifests/csv.yaml:2 already",
        ),
        (
            budget("{maxUnavailable: 0}").as_str(),
            Warning,
            "spec.maxUnavailable: maxUnavailable field cannot be set to 0 or 0%",
        ),
        (
            budget("{maxUnavailable: 0%}").as_str(),
            Warning,
            "spec.maxUnavailable: maxUnavailable field cannot be set to 0 or 0%",
        ),
        (
            budget("{minAvailable: 100%}").as_str(),
            Warning,
            "spec.minAvailable: minAvailable field cannot be set to 100%",
        ),
        (
            "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: a}\nglobalDefault: true\nvalue: 1\n",
            Warning,
            "globalDefault field cannot be set to true",
        ),
        (
            scc,
            Warning,
            "RBAC includes permission to modify default securitycontextconstraints",
        ),
    ] {
        let files = operator(&[], &[("manifests/more.yaml", object)]);
        check(&files, severity, expected);
    }
    for valid in [
        budget("{maxUnavailable: 50%}"),
        budget("{minAvailable: 1}"),
        scc.replace("[update]", "[use]"),
        scc.replace("[restricted]", "[cache]"),
    ] {
        let found = findings(&operator(&[], &[("manifests/more.yaml", &valid)]));
        assert!(found.is_empty(), "{valid}: {found:?}");
    }
}

#[test]
fn message_is_recorded() {
    let found = findings(&operator(&[("  displayName: Cache\n", "")], &[]));
    let text = rendered(&found);
    assert_eq!(text, RECORDED, "copy the left side to messages.txt");
}
