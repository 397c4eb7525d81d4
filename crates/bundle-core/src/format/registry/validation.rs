//! Rules for a bundle of an operator, with the messages of the Operator Lifecycle Manager.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    csv::{Csv, WebhookDefinition, WebhookKind},
    install_modes::SupportedModes,
    refused,
};
use crate::{
    diagnostic::{Finding, Findings},
    object::{self, Manifest},
};

/// Maximum total size of the ClusterServiceVersion's annotations on all deployments, in bytes. The
/// API server accepts 256 KiB on one object.
const MAX_COPIED_ANNOTATIONS: usize = 4 << 20;
/// Memory of an annotation without its texts, in bytes.
const ANNOTATION: usize = 100;
/// API groups that rules of webhooks cannot name: all groups (`*`), and the groups of the programs
/// that install the operator.
const FORBIDDEN_GROUPS: [&str; 3] = ["*", "olm.operatorframework.io", "core.rukpak.io"];
/// API group of webhook configurations.
const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";
/// Resources of [`ADMISSION_GROUP`] that rules of webhooks cannot name, in lower case.
const FORBIDDEN_RESOURCES: [&str; 5] = [
    "*",
    "mutatingwebhookconfiguration",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfiguration",
    "validatingwebhookconfigurations",
];

/// Findings about fields of one ClusterServiceVersion.
struct CsvFindings<'a> {
    csv: &'a Csv,
    findings: Findings,
}

impl CsvFindings<'_> {
    fn refuse(&mut self, field: &str, why: impl std::fmt::Display, hint: &str) {
        let finding = at(self.csv, refused(why));
        self.findings.push(finding.at_field(field).hint(hint));
    }
}

/// Adds the location of the ClusterServiceVersion to `finding`.
pub(super) fn at(csv: &Csv, finding: Finding) -> Finding {
    finding
        .in_file(&csv.place.0)
        .at_line(csv.place.1)
        .about(format!("ClusterServiceVersion/{}", csv.name))
}

/// Returns the errors of the ClusterServiceVersion, and of its references to the other objects of
/// the bundle.
pub(super) fn check(csv: &Csv, others: &[Manifest]) -> Findings {
    let mut found = CsvFindings {
        csv,
        findings: Findings::default(),
    };
    install_strategy(&mut found);
    deployments(&mut found);
    definitions(&mut found, others);
    if !csv.spec.webhookdefinitions.is_empty() {
        webhooks(&mut found);
        conversions(&mut found, others);
    }
    found.findings
}

fn install_strategy(found: &mut CsvFindings<'_>) {
    let spec = &found.csv.spec;
    if SupportedModes::new(&spec.install_modes).is_empty() {
        found.refuse(
            "spec.installModes",
            "AllNamespace install mode must be enabled",
            "set `supported: true` for at least one of AllNamespaces, OwnNamespace, SingleNamespace and MultiNamespace",
        );
    }
    if !spec.apiservicedefinitions.owned.is_empty() {
        found.refuse(
            "spec.apiservicedefinitions.owned",
            "apiServiceDefintions are not supported",
            "use CustomResourceDefinitions instead, or plain manifests with an APIService",
        );
    }
    match spec.install.strategy.as_str() {
        "deployment" => {}
        "" => found.refuse(
            "spec.install.strategy",
            "the install strategy is missing",
            "add `strategy: deployment`",
        ),
        strategy => found.refuse(
            "spec.install.strategy",
            format!("install strategy {strategy:?} is not supported"),
            "the only supported strategy is `deployment`",
        ),
    }
}

fn deployments(found: &mut CsvFindings<'_>) {
    let deployments = &found.csv.spec.install.spec.deployments;
    let annotations = found.csv.annotations.iter();
    let copied = annotations
        .map(|(key, value)| key.len() + value.len() + ANNOTATION)
        .sum::<usize>()
        .saturating_mul(deployments.len());
    if copied > MAX_COPIED_ANNOTATIONS {
        found.refuse(
            "metadata.annotations",
            format!(
                "the annotations of the ClusterServiceVersion have {copied} bytes on all {} deployments together, more than the limit of {MAX_COPIED_ANNOTATIONS} (4 MiB)",
                deployments.len()
            ),
            "shorten the annotations: each deployment gets a copy of them",
        );
    }
    let mut names = BTreeSet::new();
    for (index, deployment) in deployments.iter().enumerate() {
        let field = format!("spec.install.spec.deployments[{index}]");
        let name = &deployment.name;
        if !deployment.spec.is_object() {
            found.refuse(
                &format!("{field}.spec"),
                format!("deployment {name:?} has no spec"),
                "`operator-sdk bundle validate` shows the errors",
            );
        }
        if !object::is_dns_subdomain(name) {
            found.refuse(
                &format!("{field}.name"),
                format!("invalid cluster service version strategy deployment name '{name}'"),
                "use at most 253 lower-case letters, digits, `-` and `.`",
            );
        }
        if !names.insert(name) {
            found.refuse(
                &format!("{field}.name"),
                format!(
                    "cluster service version contains duplicate strategy deployment spec '{name}'"
                ),
                "remove or rename one of the deployments",
            );
        }
    }
}

/// Checks that the bundle contains the definitions that the operator owns, and that two definitions
/// do not have the same kind. Otherwise the API server does not establish the second definition.
fn definitions(found: &mut CsvFindings<'_>, others: &[Manifest]) {
    let mut names_by_kind = BTreeMap::new();
    for crd in crds(others) {
        let spec = &crd.value["spec"];
        let group = spec["group"].as_str().unwrap_or_default();
        let Some(kind) = spec["names"]["kind"].as_str() else {
            continue;
        };
        let name = crd.id.name.as_str();
        let first = *names_by_kind.entry((group, kind)).or_insert(name);
        if first != name {
            let version = spec["versions"][0]["name"].as_str().unwrap_or_default();
            let (api, bundle) = (api_text(group, version, kind), &found.csv.name);
            let refusal = refused(format!("duplicate CRD {api:?} in bundle {bundle:?}"));
            found.findings.push(
                refusal
                    .in_file(&crd.file)
                    .at_line(crd.line)
                    .about(crd.id.to_string())
                    .at_field("spec.names.kind")
                    .hint(format!(
                        "{first} has the same kind: remove or rename one of them"
                    )),
            );
        }
    }
    let in_bundle: BTreeSet<&str> = crds(others).map(|crd| crd.id.name.as_str()).collect();
    for (index, name) in found.csv.owned_crds().enumerate() {
        if !in_bundle.contains(name) {
            found.refuse(
                &format!("spec.customresourcedefinitions.owned[{index}].name"),
                format!(
                    "cluster service definition references owned custom resource definition '{name}' not found in bundle"
                ),
                "add its manifest to manifests/, or list it under `required`",
            );
        }
    }
}

/// Returns the text of an API as Go prints it.
pub(super) fn api_text(group: &str, version: &str, kind: &str) -> String {
    format!("{group}/{version}, Kind={kind}")
}

/// Returns the CustomResourceDefinitions among the objects.
pub(super) fn crds(others: &[Manifest]) -> impl Iterator<Item = &Manifest> {
    others
        .iter()
        .filter(|object| object.id.kind == "CustomResourceDefinition")
}

fn webhooks(found: &mut CsvFindings<'_>) {
    let spec = &found.csv.spec;
    let deployments = spec.install.spec.deployments.iter();
    let deployments: BTreeSet<&str> = deployments.map(|one| one.name.as_str()).collect();
    let mut names = BTreeSet::new();
    for (index, webhook) in spec.webhookdefinitions.iter().enumerate() {
        let field = |name: &str| format!("spec.webhookdefinitions[{index}].{name}");
        let WebhookDefinition {
            type_,
            generate_name: name,
            deployment_name: deployment,
            ..
        } = webhook;
        let Some(kind) = webhook.kind() else {
            found.refuse(
                &field("type"),
                format!("webhook of type '{type_}' with name '{name}' is not supported"),
                "use ValidatingAdmissionWebhook, MutatingAdmissionWebhook or ConversionWebhook",
            );
            continue;
        };
        if !deployments.contains(deployment.as_str()) {
            found.refuse(
                &field("deploymentName"),
                format!(
                    "webhook of type '{type_}' with name '{name}' references non-existent deployment '{deployment}'"
                ),
                "name one of spec.install.spec.deployments",
            );
        }
        if !object::is_dns_subdomain(name) {
            found.refuse(
                &field("generateName"),
                format!("webhook of type '{type_}' has invalid name '{name}'"),
                "use at most 253 lower-case letters, digits, `-` and `.`",
            );
        }
        if !names.insert((type_, name)) {
            found.refuse(
                &field("generateName"),
                format!("duplicate webhook '{name}' of type '{type_}'"),
                "rename one of the webhooks",
            );
        }
        if webhook.admission_review_versions.is_empty() {
            found.refuse(
                &field("admissionReviewVersions"),
                format!("webhook '{name}' has no admissionReviewVersions"),
                "add `admissionReviewVersions: [v1]`",
            );
        }
        if kind != WebhookKind::Conversion {
            rules(found, webhook, &field("rules"));
        }
    }
}

/// Checks the rules of an admission webhook. A rule must not match webhook configurations, objects
/// of this project, or objects of the Operator Lifecycle Manager.
fn rules(found: &mut CsvFindings<'_>, webhook: &WebhookDefinition, field: &str) {
    let name = &webhook.generate_name;
    let hint = "limit the rule to the API groups and resources of the operator";
    for (index, rule) in webhook.rules.as_array().into_iter().flatten().enumerate() {
        // The lists can be long, so each list is read once.
        let texts = |key: &str| {
            let listed = rule[key].as_array().into_iter().flatten();
            listed.filter_map(Value::as_str)
        };
        for group in texts("apiGroups") {
            if FORBIDDEN_GROUPS.contains(&group) {
                found.refuse(
                    &format!("{field}[{index}].apiGroups"),
                    format!(
                        "webhook {name:?} contains forbidden rule: admission webhook rules cannot reference API group {group:?}"
                    ),
                    hint,
                );
            }
        }
        if !texts("apiGroups").any(|group| group == ADMISSION_GROUP) {
            continue;
        }
        for resource in texts("resources") {
            if FORBIDDEN_RESOURCES.contains(&resource.to_lowercase().as_str()) {
                found.refuse(
                    &format!("{field}[{index}].resources"),
                    format!(
                        "webhook {name:?} contains forbidden rule: admission webhook rules cannot reference resource {resource:?} for API group {ADMISSION_GROUP:?}"
                    ),
                    hint,
                );
            }
        }
    }
}

fn conversions(found: &mut CsvFindings<'_>, others: &[Manifest]) {
    let csv = found.csv;
    let modes = SupportedModes::new(&csv.spec.install_modes);
    let owned: BTreeSet<&str> = csv.owned_crds().collect();
    let mut webhooks_by_crd = BTreeMap::<&str, &str>::new();
    let conversions = csv.spec.webhookdefinitions.iter().enumerate();
    for (index, webhook) in
        conversions.filter(|(_, webhook)| webhook.kind() == Some(WebhookKind::Conversion))
    {
        let name = webhook.generate_name.as_str();
        let field = format!("spec.webhookdefinitions[{index}]");
        if !modes.is_all_namespaces_only() {
            found.refuse(
                &format!("{field}.type"),
                format!(
                    "bundle contains conversion webhook {name:?} and supports install modes {} - conversion webhooks are only supported for bundles that only support AllNamespaces install mode",
                    modes.listed()
                ),
                "set `supported: false` for all install modes but AllNamespaces",
            );
        }
        for crd in &webhook.conversion_crds {
            let field = format!("{field}.conversionCRDs");
            if !owned.contains(crd.as_str()) {
                found.refuse(
                    &field,
                    format!(
                        "conversion webhook '{name}' references custom resource definition '{crd}' not owned bundle"
                    ),
                    "add the definition to spec.customresourcedefinitions.owned",
                );
            }
            if let Some(first) = webhooks_by_crd.insert(crd, name) {
                found.refuse(
                    &field,
                    format!(
                        "conversion webhooks [{first},{name}] reference same custom resource definition '{crd}'"
                    ),
                    "keep one of them",
                );
            }
        }
    }
    for crd in crds(others) {
        let is_preserving = crd.value["spec"]["preserveUnknownFields"] == Value::Bool(true);
        if is_preserving && webhooks_by_crd.contains_key(crd.id.name.as_str()) {
            found.findings.push(
                refused(format!(
                    "custom resource definition '{}' must have .spec.preserveUnknownFields set to false to let API Server call webhook to do the conversion",
                    crd.id.name
                ))
                .in_file(&crd.file)
                .at_line(crd.line)
                .about(crd.id.to_string())
                .at_field("spec.preserveUnknownFields")
                .hint("remove the field"),
            );
        }
    }
}
