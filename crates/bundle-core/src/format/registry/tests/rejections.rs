//! Bundles that operator-framework's validation rejects. The expected messages are the messages of
//! operator-framework and RukPak.

use super::*;

const WHY: &str = "convert registry+v1 bundle to plain+v0 bundle";
const PLACE: &str = "manifests/csv.yaml:2: ClusterServiceVersion/cache-operator.v0.3.0";

/// Returns the bundle with `to` instead of `from` in its ClusterServiceVersion.
fn changed(from: &str, to: &str) -> Files {
    assert!(CSV.contains(from), "{from}");
    bundle(&CSV.replace(from, to), &[])
}

/// Returns the messages about the ClusterServiceVersion without its location and RukPak's prefix.
fn rejections(files: &Files) -> Vec<String> {
    let messages = messages_of(files);
    let messages = messages.iter().map(|message| {
        let message = message.strip_prefix(PLACE).unwrap_or(message);
        message
            .trim_start_matches(": ")
            .replace(&format!("{WHY}: "), "")
    });
    messages.collect()
}

#[test]
fn features_that_are_not_supported_are_rejected_by_name() {
    let csv = CSV
        .replace(
            "type: AllNamespaces, supported: true",
            "type: AllNamespaces, supported: false",
        )
        .replace(
            "  install:\n",
            "  apiservicedefinitions: {owned: [{name: x}]}\n  install:\n",
        )
        .replace("strategy: deployment", "strategy: pods");
    assert_eq!(
        messages_of(&bundle(&csv, &[])),
        [
            format!("{PLACE}: spec.installModes: {WHY}: AllNamespace install mode must be enabled"),
            format!(
                "{PLACE}: spec.apiservicedefinitions.owned: {WHY}: apiServiceDefintions are not supported"
            ),
            format!(
                "{PLACE}: spec.install.strategy: {WHY}: install strategy \"pods\" is not supported"
            ),
        ]
    );
}

#[test]
fn invalid_deployments_and_definitions_are_rejected() {
    let deployment = "      - name: cache-operator\n";
    let twice = format!(
        "      - {{name: cache-operator, spec: {{}}}}\n      - {{name: Cache_, spec: {{}}}}\n{deployment}"
    );
    assert_eq!(
        rejections(&changed(deployment, &twice)),
        [
            "spec.install.spec.deployments[1].name: invalid cluster service version strategy deployment name 'Cache_'",
            "spec.install.spec.deployments[2].name: cluster service version contains duplicate strategy deployment spec 'cache-operator'",
        ]
    );
    assert_eq!(
        rejections(&changed(
            deployment,
            &deployment.replace("cache-operator", &"c".repeat(254))
        )),
        [format!(
            "spec.install.spec.deployments[0].name: invalid cluster service version strategy deployment name '{}'",
            "c".repeat(254)
        )]
    );
    assert_eq!(
        rejections(&changed("    strategy: deployment\n", "")),
        ["spec.install.strategy: the install strategy is missing"]
    );
    assert_eq!(
        rejections(&changed(
            "    required: ",
            "    owned: [{name: caches.cache.example.com}, {name: other.example.com}]\n    required: "
        )),
        [
            "spec.customresourcedefinitions.owned[1].name: cluster service definition references owned custom resource definition 'other.example.com' not found in bundle"
        ]
    );
    let crd_twice = bundle(CSV, &[("manifests/zcrd.yaml", CRD)]);
    assert_eq!(
        messages_of(&crd_twice),
        [
            "manifests/zcrd.yaml:1: CustomResourceDefinition.apiextensions.k8s.io/caches.cache.example.com: the same object is at manifests/crd.yaml:1 already"
        ]
    );
    let package = META.replace("package.v1: cache", "package.v1: Cache_");
    let mut files = bundle(CSV, &[]);
    files.insert(ANNOTATIONS.to_owned(), package.into_bytes());
    assert!(messages_of(&files)[0].contains("\"Cache_\" is not a valid package name"));
}

const WEBHOOK: &str = "{type: ValidatingAdmissionWebhook, generateName: vcache.example.com, deploymentName: cache-operator, sideEffects: None, admissionReviewVersions: [v1]";
const CONVERSION: &str = "{type: ConversionWebhook, generateName: ccache.example.com, deploymentName: cache-operator, admissionReviewVersions: [v1]";

/// Returns the ClusterServiceVersion with these webhooks and with an owned definition.
fn with_webhooks(webhooks: &[String]) -> String {
    CSV.replace(
        "    required: ",
        "    owned: [{name: caches.cache.example.com}]\n    required: ",
    )
    .replace(
        "  install:\n",
        &format!(
            "  webhookdefinitions:\n  - {}\n  install:\n",
            webhooks.join("\n  - ")
        ),
    )
}

#[test]
fn each_list_of_a_rule_is_read_once() {
    // A comparison of each group with each resource would take minutes.
    let list = |text: &str| vec![text; 50_000].join(", ");
    let rules = format!(
        "{WEBHOOK}, rules: [{{apiGroups: [{}], resources: [{}]}}]}}",
        list("admissionregistration.k8s.io"),
        list("a")
    );
    let files = bundle(&with_webhooks(&[rules]), &[]);
    format::read(&files).unwrap();
}

#[test]
fn invalid_webhooks_are_rejected() {
    let webhook = |more: &str| format!("{WEBHOOK}{more}}}");
    let rule = |rule: &str| webhook(&format!(", rules: [{rule}]"));
    let conversion = |more: &str| format!("{CONVERSION}{more}}}");
    let forbidden = "spec.webhookdefinitions[0].rules[0].apiGroups: webhook \"vcache.example.com\" contains forbidden rule: admission webhook rules cannot reference API group";
    let first =
        |field: &str, message: &str| format!("spec.webhookdefinitions[0].{field}: {message}");
    let cases: [(&[String], &[String]); 13] = [
        (&[webhook("")], &[]),
        (
            &[webhook("").replace("ValidatingAdmission", "Other")],
            &[first(
                "type",
                "webhook of type 'OtherWebhook' with name 'vcache.example.com' is not supported",
            )],
        ),
        (
            &[webhook("").replace("cache-operator", "other")],
            &[first(
                "deploymentName",
                "webhook of type 'ValidatingAdmissionWebhook' with name 'vcache.example.com' references non-existent deployment 'other'",
            )],
        ),
        (
            &[webhook("").replace("vcache.example", "V_")],
            &[first(
                "generateName",
                "webhook of type 'ValidatingAdmissionWebhook' has invalid name 'V_.com'",
            )],
        ),
        (
            &[webhook("").replace("[v1]", "[]")],
            &[first(
                "admissionReviewVersions",
                "webhook 'vcache.example.com' has no admissionReviewVersions",
            )],
        ),
        // A validating and a mutating webhook can have the same name.
        (
            &[
                webhook(""),
                webhook("").replace("Validating", "Mutating"),
                webhook(""),
            ],
            &["spec.webhookdefinitions[2].generateName: duplicate webhook 'vcache.example.com' of type 'ValidatingAdmissionWebhook'".to_owned()],
        ),
        (
            &[rule("{apiGroups: ['*'], resources: [a]}")],
            &[format!("{forbidden} \"*\"")],
        ),
        (
            &[rule("{apiGroups: [olm.operatorframework.io, core.rukpak.io], resources: [a]}")],
            &[
                format!("{forbidden} \"olm.operatorframework.io\""),
                format!("{forbidden} \"core.rukpak.io\""),
            ],
        ),
        (
            &[rule(
                "{apiGroups: [admissionregistration.k8s.io], resources: [MutatingWebhookConfigurations, other]}",
            )],
            &[first(
                "rules[0].resources",
                "webhook \"vcache.example.com\" contains forbidden rule: admission webhook rules cannot reference resource \"MutatingWebhookConfigurations\" for API group \"admissionregistration.k8s.io\"",
            )],
        ),
        (&[conversion(", conversionCRDs: [caches.cache.example.com]")], &[]),
        (
            &[conversion(", conversionCRDs: [other.example.com]")],
            &[first(
                "conversionCRDs",
                "conversion webhook 'ccache.example.com' references custom resource definition 'other.example.com' not owned bundle",
            )],
        ),
        (
            &[
                conversion(", conversionCRDs: [caches.cache.example.com]"),
                conversion(", conversionCRDs: [caches.cache.example.com]").replace("ccache", "dcache"),
            ],
            &["spec.webhookdefinitions[1].conversionCRDs: conversion webhooks [ccache.example.com,dcache.example.com] reference same custom resource definition 'caches.cache.example.com'".to_owned()],
        ),
        (&[rule("{apiGroups: [admissionregistration.k8s.io], resources: [validatingadmissionpolicies]}")], &[]),
    ];
    for (webhooks, expected) in cases {
        let files = bundle(&with_webhooks(webhooks), &[]);
        let found = match format::read(&files) {
            Ok(_) => Vec::new(),
            Err(_) => rejections(&files),
        };
        assert_eq!(found, expected, "{webhooks:?}");
    }
}

#[test]
fn conversion_webhooks_need_all_namespaces_and_pruned_definitions() {
    let webhooks = [format!(
        "{CONVERSION}, conversionCRDs: [caches.cache.example.com]}}"
    )];
    let csv = with_webhooks(&webhooks);
    let own = csv.replace(
        "type: OwnNamespace, supported: false",
        "type: OwnNamespace, supported: true",
    );
    assert_eq!(
        rejections(&bundle(&own, &[])),
        [
            "spec.webhookdefinitions[0].type: bundle contains conversion webhook \"ccache.example.com\" and supports install modes [AllNamespaces OwnNamespace] - conversion webhooks are only supported for bundles that only support AllNamespaces install mode"
        ]
    );
    let mut files = bundle(&csv, &[]);
    let crd = format!("{CRD}spec: {{preserveUnknownFields: true}}\n");
    files.insert("manifests/crd.yaml".to_owned(), crd.into_bytes());
    assert_eq!(
        messages_of(&files),
        [format!(
            "manifests/crd.yaml:1: CustomResourceDefinition.apiextensions.k8s.io/caches.cache.example.com: spec.preserveUnknownFields: {WHY}: custom resource definition 'caches.cache.example.com' must have .spec.preserveUnknownFields set to false to let API Server call webhook to do the conversion"
        )]
    );
}
