//! Checks that the API server would accept a new CustomResourceDefinition
//! (apiextensions.k8s.io/v1). The cost estimate of CEL rules is not checked, because only the API
//! server computes this estimate.

mod branches;
mod fields;
mod rules;
mod schema;
mod shape;

use serde_json::Value;

use super::cel::Rules;
use crate::object::{Manifest, is_dns_subdomain};
use crate::structural::{Problem, compare, flag, item, text, unknown_fields};

/// Returns `true` if the object is a CRD.
pub(super) fn is_one(object: &Manifest) -> bool {
    object.gvk() == ("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
}

/// Returns the reasons why the API server would reject the CRD.
pub(super) fn check(object: &Manifest, rules: &mut Rules) -> Vec<Problem> {
    let mut check = Check {
        problems: Vec::new(),
        rules,
    };
    for key in object
        .value
        .as_object()
        .into_iter()
        .flat_map(|map| map.keys())
    {
        if !["apiVersion", "kind", "metadata", "spec", "status"].contains(&key.as_str()) {
            check.report(key, "unknown field");
        }
    }
    match object.value.get("spec") {
        Some(spec @ Value::Object(_)) => check.spec(object, spec),
        _ => check.report("spec", "the field is required"),
    }
    check.problems
}

/// State of the check of one CRD.
struct Check<'a> {
    problems: Vec<Problem>,
    rules: &'a mut Rules,
}

impl Check<'_> {
    fn report(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(path, message));
    }

    fn required<'v>(&mut self, parent: &'v Value, key: &str, path: &str) -> Option<&'v str> {
        let value = text(parent, key).filter(|value| !value.is_empty());
        if value.is_none() {
            self.report(&format!("{path}.{key}"), "the field is required");
        }
        value
    }

    fn spec(&mut self, object: &Manifest, spec: &Value) {
        unknown_fields(&shape::SPEC, spec, "spec", false, &mut self.problems);
        let wrong = compare(&shape::SPEC, spec, "spec");
        let stop = !wrong.is_empty();
        self.problems.extend(wrong);
        if stop {
            return;
        }
        let group = self.required(spec, "group", "spec");
        if let Some(group) = group {
            if !is_dns_subdomain(group) || !group.contains('.') {
                self.report(
                    "spec.group",
                    format!("`{group}` must be a domain with at least one dot"),
                );
            }
            self.approval(object, group);
        }
        match text(spec, "scope") {
            Some("Cluster" | "Namespaced") => {}
            Some(other) if !other.is_empty() => {
                self.report(
                    "spec.scope",
                    format!("`{other}` is neither Cluster nor Namespaced"),
                );
            }
            _ => self.report("spec.scope", "the field is required"),
        }
        let names = spec.get("names").unwrap_or(&Value::Null);
        self.names(names);
        if let (Some(group), Some(plural)) = (group, text(names, "plural")) {
            let expected = format!("{plural}.{group}");
            if object.id.name != expected {
                self.report(
                    "metadata.name",
                    format!(
                        "`{}` must be `{expected}`: spec.names.plural, a dot and spec.group",
                        object.id.name
                    ),
                );
            }
        }
        if flag(spec, "preserveUnknownFields") {
            self.report(
                "spec.preserveUnknownFields",
                "it must be false; use x-kubernetes-preserve-unknown-fields in the schema",
            );
        }
        self.versions(spec);
        if let Some(conversion) = spec.get("conversion").filter(|value| !value.is_null()) {
            self.conversion(conversion);
        }
    }

    /// Checks the annotation `api-approved.kubernetes.io`. The API groups of the Kubernetes
    /// community, such as `k8s.io`, require this annotation.
    fn approval(&mut self, object: &Manifest, group: &str) {
        let protected = ["k8s.io", "kubernetes.io"]
            .iter()
            .any(|own| group == *own || group.ends_with(&format!(".{own}")));
        let approval = object
            .value
            .pointer("/metadata/annotations/api-approved.kubernetes.io")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let fine = approval.starts_with("unapproved")
            || approval
                .split_once("://")
                .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty());
        if protected && !fine {
            self.report(
                "metadata.annotations[api-approved.kubernetes.io]",
                format!("the group {group} is the Kubernetes community's: a URL of the approval is required, or `unapproved` with a reason"),
            );
        }
    }

    fn names(&mut self, names: &Value) {
        for (key, mixed, needed) in [
            ("plural", false, true),
            ("singular", false, false),
            ("kind", true, true),
            ("listKind", true, false),
        ] {
            let path = format!("spec.names.{key}");
            let value = if needed {
                self.required(names, key, "spec.names")
            } else {
                text(names, key).filter(|value| !value.is_empty())
            };
            let Some(value) = value else {
                continue;
            };
            let label = if mixed {
                value.to_lowercase()
            } else {
                value.to_owned()
            };
            self.label(&label, value, &path);
        }
        if text(names, "kind").is_some() && text(names, "kind") == text(names, "listKind") {
            self.report("spec.names.listKind", "it must not be the same as kind");
        }
        for key in ["shortNames", "categories"] {
            let path = format!("spec.names.{key}");
            let list = names.get(key).and_then(Value::as_array);
            for (index, value) in list.into_iter().flatten().enumerate() {
                let value = value.as_str().unwrap_or_default();
                self.label(value, value, &item(&path, index));
            }
        }
    }

    fn label(&mut self, label: &str, value: &str, path: &str) {
        if !is_label(label) {
            self.report(
                path,
                format!("`{value}` must be lower-case letters, digits and `-`, start with a letter and not end with `-`, in at most 63 characters"),
            );
        }
    }

    fn versions(&mut self, spec: &Value) {
        let versions = spec.get("versions").and_then(Value::as_array);
        let versions = versions.map(Vec::as_slice).unwrap_or_default();
        if versions.is_empty() {
            self.report("spec.versions", "the field is required");
            return;
        }
        let stored = versions
            .iter()
            .filter(|version| flag(version, "storage"))
            .count();
        if stored != 1 {
            self.report(
                "spec.versions",
                format!("exactly one version must have `storage: true`, and {stored} have"),
            );
        }
        let mut seen = std::collections::BTreeSet::new();
        for (index, version) in versions.iter().enumerate() {
            let path = item("spec.versions", index);
            for key in ["served", "storage"] {
                if version.get(key).is_none_or(Value::is_null) {
                    self.report(&format!("{path}.{key}"), "the field is required");
                }
            }
            let name = text(version, "name").unwrap_or_default();
            self.label(name, name, &format!("{path}.name"));
            if !seen.insert(name) {
                self.report(
                    &format!("{path}.name"),
                    format!("version `{name}` appears twice"),
                );
            }
            self.version(version, &path);
        }
    }

    fn version(&mut self, version: &Value, path: &str) {
        self.deprecation(version, path);
        let status = version
            .pointer("/subresources/status")
            .is_some_and(|status| !status.is_null());
        let at = format!("{path}.schema.openAPIV3Schema");
        match version.pointer("/schema/openAPIV3Schema") {
            Some(root @ Value::Object(_)) => {
                let problems = schema::check(root, &at, status, self.rules);
                let sound = problems.is_empty();
                self.problems.extend(problems);
                if sound {
                    self.selectable(version, root, path);
                }
            }
            _ => self.report(&at, "the field is required"),
        }
        let columns = version
            .get("additionalPrinterColumns")
            .and_then(Value::as_array);
        for (index, column) in columns.into_iter().flatten().enumerate() {
            self.column(
                column,
                &item(&format!("{path}.additionalPrinterColumns"), index),
            );
        }
        if let Some(scale) = version
            .pointer("/subresources/scale")
            .filter(|scale| !scale.is_null())
        {
            self.scale(scale, &format!("{path}.subresources.scale"));
        }
    }
}

/// Returns `true` for a DNS label by RFC 1035, which starts with a letter.
fn is_label(text: &str) -> bool {
    crate::object::is_dns_label(text)
        && text.starts_with(|letter: char| letter.is_ascii_lowercase())
}
