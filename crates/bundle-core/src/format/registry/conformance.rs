//! Rules of operator-framework's validation (`operator-sdk bundle validate`) whose violation does
//! not prevent an installation. The module `validation` has the other rules. The messages are those
//! of operator-framework.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Files, Operator,
    csv::Csv,
    parts,
    validation::{api_text, at, crds},
};
use crate::{
    diagnostic::{Finding, Findings, codes},
    object::{self, Manifest},
    yaml::Allowance,
};

/// Maximum length of the value of a label, in bytes.
const LABEL_VALUE: usize = 63;
/// Annotations with examples of custom resources. Only the first existing annotation is checked.
const EXAMPLES: [&str; 2] = ["alm-examples", "olm.examples"];
/// Annotations of the Operator Lifecycle Manager whose names contain upper-case letters.
const ANNOTATIONS: [&str; 5] = [
    "olm.operatorGroup",
    "olm.operatorNamespace",
    "olm.providedAPIs",
    "olm.skipRange",
    "olm.targetNamespaces",
];
/// API group of `SecurityContextConstraints`.
const SCC_GROUP: &str = "security.openshift.io";
/// `SecurityContextConstraints` that every OpenShift cluster has.
const DEFAULT_SCCS: [&str; 8] = [
    "anyuid",
    "hostaccess",
    "hostmount-anyuid",
    "hostnetwork",
    "node-exporter",
    "nonroot",
    "privileged",
    "restricted",
];

/// Function that reports a warning about the ClusterServiceVersion. The arguments are the field,
/// the message and the hint.
type Warn<'a> = &'a mut dyn FnMut(&str, String, &str);

/// Returns a warning for each violated rule. Returns no warnings for files that cannot be parsed,
/// because rendering reports the errors.
pub fn conformance_warnings(files: &Files) -> Findings {
    let mut findings = Findings::default();
    let parsed = parts(files, &mut Allowance::default(), &mut Findings::default());
    let Some((Operator { csv, .. }, others)) = parsed else {
        return findings;
    };
    let mut warn = |field: &str, message: String, hint: &str| {
        let finding = Finding::warning(codes::check::OPERATOR, message);
        findings.push(at(&csv, finding).at_field(field).hint(hint));
    };
    names(&csv, &mut warn);
    fields(&csv, &mut warn);
    annotations(&csv, &mut warn);
    examples(&csv, &mut warn);
    owned_definitions(&csv, &others, &mut warn);
    for other in &others {
        let found = object_violation(&csv, other);
        findings.extend(found.map(|(field, message, hint)| {
            Finding::warning(codes::check::OPERATOR, message)
                .in_file(&other.file)
                .at_line(other.line)
                .about(other.id.to_string())
                .at_field(field)
                .hint(hint)
        }));
    }
    findings
}

/// Checks the name of the ClusterServiceVersion, and the name of the ClusterServiceVersion that it
/// replaces.
fn names(csv: &Csv, warn: Warn<'_>) {
    let replaces = csv.spec.replaces.as_str().unwrap_or_default();
    for (field, name) in [
        ("metadata.name", csv.name.as_str()),
        ("spec.replaces", replaces),
    ] {
        let is_label = object::is_dns_subdomain(name) && name.len() <= LABEL_VALUE;
        if !name.is_empty() && !is_label {
            warn(
                field,
                format!("{name:?} is invalid"),
                "use at most 63 lower-case letters, digits, `-` and `.`: the name is also the value of a label",
            );
        }
    }
}

/// Checks fields that must exist, and the version of Kubernetes.
fn fields(csv: &Csv, warn: Warn<'_>) {
    for (field, is_missing) in [
        ("spec.displayName", csv.display_name().is_empty()),
        (
            "spec.install.spec.deployments",
            csv.spec.install.spec.deployments.is_empty(),
        ),
    ] {
        if is_missing {
            warn(
                field,
                "the mandatory field is missing".to_owned(),
                "`operator-sdk bundle validate` requires the field",
            );
        }
    }
    let minimum = csv.min_kubernetes();
    if !minimum.trim().is_empty() && semver::Version::parse(minimum).is_err() {
        warn(
            "spec.minKubeVersion",
            format!("csv.Spec.MinKubeVersion has an invalid value: {minimum}"),
            "use three numbers, for example `1.31.0`",
        );
    }
}

/// Checks the names of annotations.
fn annotations(csv: &Csv, warn: Warn<'_>) {
    for key in csv.annotations.keys() {
        let mut known = ANNOTATIONS.iter();
        let known = known.find(|known| known.eq_ignore_ascii_case(key));
        if let Some(known) = known.filter(|known| *known != key) {
            warn(
                &format!("metadata.annotations[{key}]"),
                format!("provided annotation {key} uses wrong case and should be {known} instead"),
                "rename the annotation",
            );
        }
    }
}

/// Checks that the examples are custom resources of the owned definitions.
fn examples(csv: &Csv, warn: Warn<'_>) {
    let existing = EXAMPLES.iter().find_map(|key| {
        let text = csv.annotations.get(*key)?;
        Some((format!("metadata.annotations[{key}]"), text.trim()))
    });
    let Some((field, text)) = existing.filter(|(_, text)| !text.is_empty()) else {
        return;
    };
    let hint = "the annotation is a JSON list of custom resources of the owned definitions";
    let examples: Vec<Value> = match serde_json::from_str(text) {
        Ok(examples) => examples,
        Err(error) => {
            warn(&field, format!("invalid example: {error}"), hint);
            return;
        }
    };
    let provided: BTreeSet<String> = owned_apis(csv).collect();
    let examples: BTreeSet<String> = examples.iter().map(api_of).collect();
    for example in examples.difference(&provided) {
        warn(
            &field,
            format!("example must have a provided API: {example:?}"),
            hint,
        );
    }
}

/// Checks versions and kinds of the owned definitions.
fn owned_definitions(csv: &Csv, others: &[Manifest], warn: Warn<'_>) {
    let in_bundle: BTreeSet<String> = crds(others).flat_map(apis_of_crd).collect();
    for (index, api) in owned_apis(csv).enumerate() {
        if !in_bundle.contains(&api) {
            warn(
                &format!("spec.customresourcedefinitions.owned[{index}]"),
                format!("owned CRD {api:?} not found in bundle {:?}", csv.name),
                "correct version and kind, or add the version to the definition",
            );
        }
    }
}

/// Returns field, message and hint of the first violation in an object other than the
/// ClusterServiceVersion; `None` if there is no violation.
fn object_violation(csv: &Csv, object: &Manifest) -> Option<(&'static str, String, &'static str)> {
    let spec = &object.value["spec"];
    let (field, message, hint) = match object.id.kind.as_str() {
        "CustomResourceDefinition" if !csv.owned_crds().any(|name| name == object.id.name) => {
            return Some((
                "metadata.name",
                format!(
                    "CRD {:?} is present in bundle {:?} but not defined in CSV",
                    object.id.name, csv.name
                ),
                "add it to spec.customresourcedefinitions.owned of the ClusterServiceVersion",
            ));
        }
        "PodDisruptionBudget" if is_zero(&spec["maxUnavailable"]) => (
            "spec.maxUnavailable",
            "maxUnavailable field cannot be set to 0 or 0%",
            "allow at least one pod, because the nodes of its pods cannot be drained otherwise",
        ),
        "PodDisruptionBudget" if spec["minAvailable"].as_str() == Some("100%") => (
            "spec.minAvailable",
            "minAvailable field cannot be set to 100%",
            "use a lower value, because the nodes of its pods cannot be drained otherwise",
        ),
        "PriorityClass" if object.value["globalDefault"].as_bool() == Some(true) => (
            "globalDefault",
            "globalDefault field cannot be set to true",
            "remove the field, because it changes the priority of the pods of other users",
        ),
        "Role" | "ClusterRole" if changes_default_sccs(&object.value["rules"]) => (
            "rules",
            "RBAC includes permission to modify default securitycontextconstraints, which could impact cluster stability",
            "name only SecurityContextConstraints of the operator in resourceNames",
        ),
        _ => return None,
    };
    Some((field, message.to_owned(), hint))
}

fn is_zero(value: &Value) -> bool {
    value.as_u64() == Some(0) || value.as_str() == Some("0%")
}

/// Returns `true` if a rule permits changes of default `SecurityContextConstraints`.
fn changes_default_sccs(rules: &Value) -> bool {
    let has = |list: &Value, texts: &[&str]| {
        let mut listed = list.as_array().into_iter().flatten();
        listed.any(|text| text.as_str().is_some_and(|text| texts.contains(&text)))
    };
    let mut rules = rules.as_array().into_iter().flatten();
    rules.any(|rule| {
        has(&rule["apiGroups"], &[SCC_GROUP])
            && has(&rule["resources"], &["securitycontextconstraints"])
            && has(&rule["verbs"], &["*", "delete", "patch", "update"])
            && has(&rule["resourceNames"], &DEFAULT_SCCS)
    })
}

/// Returns the APIs of the owned definitions, in the order of the list.
fn owned_apis(csv: &Csv) -> impl Iterator<Item = String> {
    let owned = csv.spec.customresourcedefinitions.owned.iter();
    owned.map(|one| {
        let text = |field: &str| one[field].as_str().unwrap_or_default();
        let name = text("name");
        let group = name.split_once('.').map_or(name, |(_, group)| group);
        api_text(group, text("version"), text("kind"))
    })
}

/// Returns the API of each version of a definition.
fn apis_of_crd(crd: &Manifest) -> Vec<String> {
    let spec = &crd.value["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
    let versions = spec["versions"].as_array().into_iter().flatten();
    versions
        .map(|version| api_text(&group, &text(&version["name"]), &kind))
        .collect()
}

/// Returns the API of a custom resource.
fn api_of(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let version = text("apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    api_text(group, version, text("kind"))
}
