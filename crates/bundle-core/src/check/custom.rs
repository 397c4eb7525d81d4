//! Checks the custom resources of the bundle with the CRDs in the bundle. This includes custom
//! resources in resources of type default-cr. `apis` checks custom resources of other CRDs.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{cel::Rules, error, warning};
use crate::{
    diagnostic::{Code, Findings, codes},
    format::{Content, Files},
    object::{self, Manifest},
    package::Package,
    structural::{Problem, compare, fill, flag, prune, text, unknown_fields},
    yaml,
};

/// CustomResourceDefinitions by the group and kind of their objects.
type Definitions<'a> = BTreeMap<(&'a str, &'a str), &'a Value>;

/// Checks every object whose CRD is valid.
pub(super) fn check(
    content: &Content,
    files: &Files,
    sound: &[&Manifest],
    rules: &mut Rules,
    findings: &mut Findings,
) {
    let definitions: Definitions<'_> = sound.iter().filter_map(|object| entry(object)).collect();
    for object in &content.objects {
        let (group, _, kind) = object.gvk();
        if let Some(spec) = definitions.get(&(group, kind)) {
            one(object, spec, rules, findings);
        }
    }
    let all: Definitions<'_> = content.objects.iter().filter_map(entry).collect();
    for object in defaults(content, files, findings) {
        let (group, _, kind) = object.gvk();
        if !all.contains_key(&(group, kind)) {
            findings.push(
                error(
                    &object,
                    codes::check::NO_CRD,
                    format!("the bundle defines no kind {kind} in group {group}"),
                )
                .hint("add its CustomResourceDefinition to manifests/"),
            );
        } else if let Some(spec) = definitions.get(&(group, kind)) {
            one(&object, spec, rules, findings);
        }
    }
}

fn entry(object: &Manifest) -> Option<((&str, &str), &Value)> {
    if !super::definition::is_one(object) {
        return None;
    }
    let spec = object.value.get("spec")?;
    let kind = spec.get("names")?.get("kind")?.as_str()?;
    Some(((spec.get("group")?.as_str()?, kind), spec))
}

/// Returns the objects in resources of type default-cr.
fn defaults(content: &Content, files: &Files, findings: &mut Findings) -> Vec<Manifest> {
    let package = content.package.iter();
    let mut objects = Vec::new();
    for resource in package.flat_map(Package::default_resources) {
        let within = |path: &str| {
            path == resource.path
                || (resource.path.ends_with('/') && path.starts_with(&resource.path))
        };
        for (path, text) in files
            .iter()
            .filter(|(path, _)| within(path) && !path.ends_with('/'))
        {
            match yaml::documents(text, path) {
                Ok(documents) => {
                    for document in documents {
                        for document in object::unrolled(document, path, findings) {
                            objects.extend(object::read(document, path, findings));
                        }
                    }
                }
                Err(errors) => findings.extend(errors),
            }
        }
    }
    objects
}

fn one(object: &Manifest, spec: &Value, rules: &mut Rules, findings: &mut Findings) {
    let (group, version, kind) = object.gvk();
    let versions = spec.get("versions").and_then(Value::as_array);
    let versions = versions.map(Vec::as_slice).unwrap_or_default();
    let named = versions
        .iter()
        .find(|one| text(one, "name") == Some(version));
    let Some(named) = named.filter(|one| flag(one, "served")) else {
        let served: Vec<&str> = versions
            .iter()
            .filter(|one| flag(one, "served"))
            .filter_map(|one| text(one, "name"))
            .collect();
        findings.push(
            error(
                object,
                codes::check::API_NOT_SERVED,
                format!("the bundle's CustomResourceDefinition of {kind} does not serve {group}/{version}"),
            )
            .hint(format!("it serves {}", served.join(", "))),
        );
        return;
    };
    let Some(schema) = named.pointer("/schema/openAPIV3Schema") else {
        return;
    };
    // If the CRD has a status subresource, the API server drops the status of a new object.
    let status = named
        .pointer("/subresources/status")
        .is_some_and(Value::is_object);
    for problem in problems(schema, &object.value, status, rules) {
        findings.push(finding(
            object,
            codes::check::BAD_CUSTOM_RESOURCE,
            problem,
            "the schema is in the CustomResourceDefinition of the bundle; after the installation, `kubectl explain` shows the schema",
        ));
    }
}

/// Returns the problems that the API server would report for the object.
fn problems(schema: &Value, object: &Value, status: bool, rules: &mut Rules) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut object = object.clone();
    if status && let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    unknown_fields(schema, &object, "", true, &mut problems);
    prune(schema, &mut object, true);
    fill(schema, &mut object);
    let wrong = compare(schema, &object, "");
    let broken = wrong.iter().any(|problem| !problem.unchecked);
    problems.extend(wrong);
    embedded(schema, &object, "", &mut problems);
    // CEL rules are evaluated only if all values have the right types.
    if !broken {
        rules.evaluate(schema, &object, "", &mut problems);
    }
    problems
}

/// Checks that each embedded object has apiVersion and kind.
fn embedded(schema: &Value, value: &Value, path: &str, problems: &mut Vec<Problem>) {
    use crate::structural::{child, item, of_field};
    match value {
        Value::Object(map) => {
            if flag(schema, "x-kubernetes-embedded-resource") {
                for key in ["apiVersion", "kind"] {
                    if text(value, key).is_none_or(str::is_empty) {
                        problems.push(Problem::new(
                            &child(path, key),
                            "embedded objects require the field",
                        ));
                    }
                }
            }
            for (key, value) in map {
                if let Some(field) = of_field(schema, key) {
                    embedded(field, value, &child(path, key), problems);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (index, value) in items.iter().enumerate() {
                    embedded(schema, value, &item(path, index), problems);
                }
            }
        }
        _ => {}
    }
}

/// Converts a problem to a finding. The finding is a warning if the field could not be checked, and
/// otherwise an error.
pub(super) fn finding(
    object: &Manifest,
    code: Code,
    problem: Problem,
    hint: &str,
) -> crate::diagnostic::Finding {
    let finding = if problem.unchecked {
        warning(
            object,
            codes::check::NOT_CHECKED,
            format!("not checked: {}", problem.message),
        )
        .hint("`kubectl apply --dry-run=server` checks it")
    } else {
        error(object, code, problem.message).hint(hint)
    };
    if problem.path.is_empty() {
        finding
    } else {
        finding.at_field(problem.path)
    }
}
