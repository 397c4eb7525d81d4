//! Checks of the CustomResourceDefinitions: they must exist, be served, and be equal to the
//! definitions in the plugin.

use std::collections::{BTreeMap, BTreeSet};

use bundle_api::names::{API_VERSION, VERSION};
use serde_json::{Map, Value};

use super::{CheckResult, Observed};
use crate::diagnostic::{Finding, codes};
use crate::text::some_of;

const CHECK: &str = "definitions";
/// Maximum number of fields that a message names.
const NAMED: usize = 5;
const INSTALL: &str =
    "install bundle-webhook, or apply its definitions: kubectl apply --server-side -f crds/";
/// Keywords that contain other schemas.
const NESTED: [&str; 3] = ["properties", "items", "additionalProperties"];
/// Greatest depth of a schema that is compared.
const DEPTH: usize = 32;

/// A CustomResourceDefinition of the plugin, and the CustomResourceDefinition of the same name in
/// the cluster.
#[derive(Debug, Clone)]
pub struct Definition<'a> {
    /// The definition that the plugin contains.
    pub expected: &'a Value,
    /// The definition in the cluster.
    pub found: Observed<Value>,
}

/// Compares the definitions. If all definitions are equal, returns one result. Otherwise returns
/// one result for each definition that differs. `served` has the kinds that the API server serves.
/// It is used if the caller has no permission to read the definitions.
pub fn definitions(
    definitions: Vec<Definition<'_>>,
    served: &Observed<Vec<String>>,
) -> Vec<CheckResult> {
    let count = definitions.len();
    let results: Vec<CheckResult> = definitions
        .into_iter()
        .filter_map(|definition| one(definition, served))
        .collect();
    if results.is_empty() {
        let message = format!("{count} definitions have the schema of this version");
        return vec![CheckResult::ok(CHECK, API_VERSION, message)];
    }
    results
}

/// Returns the result for one definition; `None` if the cluster has an equal definition.
fn one(definition: Definition<'_>, served: &Observed<Vec<String>>) -> Option<CheckResult> {
    let expected = definition.expected;
    let name = expected["metadata"]["name"].as_str().unwrap_or_default();
    let subject = format!("customresourcedefinition {name}");
    let kind = expected["spec"]["names"]["kind"]
        .as_str()
        .unwrap_or_default();
    let problem = |message: String, hint: &str| {
        let finding = Finding::error(codes::doctor::DEFINITION_DIFFERS, message);
        CheckResult::of(CHECK, finding.about(subject.as_str()).hint(hint))
    };
    match definition.found {
        Observed::Found(found) => {
            let finding = difference(expected, &found)?;
            Some(CheckResult::of(CHECK, finding.about(subject)))
        }
        Observed::Missing => Some(problem("it does not exist".to_owned(), INSTALL)),
        Observed::Failed(message) => Some(CheckResult::no_response(CHECK, subject, message)),
        // Every user can discover the served kinds.
        Observed::Forbidden(message) => Some(match served {
            Observed::Found(kinds) if kinds.iter().any(|served| served == kind) => {
                let message = format!("{kind} is served; its schema is unknown: {message}");
                CheckResult::forbidden(CHECK, subject, message)
            }
            Observed::Found(_) | Observed::Missing => problem(
                format!("the API server does not serve {kind} of {API_VERSION}"),
                INSTALL,
            ),
            _ => CheckResult::forbidden(CHECK, subject, message),
        }),
    }
}

/// Returns the difference of two definitions; `None` if they are equal.
fn difference(expected: &Value, found: &Value) -> Option<Finding> {
    let code = codes::doctor::DEFINITION_DIFFERS;
    let upgrade = "upgrade the definitions: helm upgrade, or kubectl apply --server-side -f crds/";
    let Some(version) = version(found).filter(|version| version["served"] == true) else {
        let message = format!("it does not serve version {VERSION}");
        return Some(Finding::error(code, message).hint(upgrade));
    };
    let conditions = found["status"]["conditions"].as_array();
    let is_established = conditions.is_some_and(|conditions| {
        let mut conditions = conditions.iter();
        conditions.any(|one| one["type"] == "Established" && one["status"] == "True")
    });
    if !is_established {
        let message = "the API server has not established it";
        let hint = "its conditions name the reason: kubectl describe crd";
        return Some(Finding::error(code, message).hint(hint));
    }
    let schema = |version: Option<&Value>| {
        let mut nodes = BTreeMap::new();
        let root = version.map_or(
            &Value::Null,
            |version| &version["schema"]["openAPIV3Schema"],
        );
        collect(root, "", DEPTH, &mut nodes);
        nodes
    };
    let (expected, found) = (schema(self::version(expected)), schema(Some(version)));
    let fields =
        |nodes: &BTreeMap<String, Value>| -> BTreeSet<String> { nodes.keys().cloned().collect() };
    let (expected_fields, found_fields) = (fields(&expected), fields(&found));
    let list = |fields: Vec<&String>| some_of(&fields, NAMED);
    let missing: Vec<&String> = expected_fields.difference(&found_fields).collect();
    if !missing.is_empty() {
        let message = format!("it is older than this program and lacks {}", list(missing));
        return Some(Finding::error(code, message).hint(upgrade));
    }
    let extra: Vec<&String> = found_fields.difference(&expected_fields).collect();
    if !extra.is_empty() {
        let message = format!("it is newer than this program and also has {}", list(extra));
        return Some(Finding::warning(code, message).hint("upgrade the plugin"));
    }
    let changed: Vec<&String> = expected
        .iter()
        .filter(|(field, node)| found.get(*field) != Some(node))
        .map(|(field, _)| field)
        .collect();
    if changed.is_empty() {
        return None;
    }
    let message = format!(
        "its schema differs from the schema of this program in {}",
        list(changed)
    );
    Some(Finding::warning(code, message).hint(upgrade))
}

/// Returns the entry of `spec.versions` for the API version of this project; `None` if the
/// definition does not have this version.
fn version(definition: &Value) -> Option<&Value> {
    let versions = definition["spec"]["versions"].as_array()?;
    versions.iter().find(|version| version["name"] == VERSION)
}

/// Adds the schema rules of each field to `nodes`, by the path of the field. Descriptions are not
/// compared.
fn collect(schema: &Value, path: &str, depth: usize, nodes: &mut BTreeMap<String, Value>) {
    let Some(fields) = schema.as_object().filter(|_| depth > 0) else {
        return;
    };
    let rules: Map<String, Value> = fields
        .iter()
        .filter(|(name, _)| {
            !NESTED.contains(&name.as_str()) && *name != "description" && *name != "title"
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let name = if path.is_empty() { "the object" } else { path };
    nodes.insert(name.to_owned(), Value::Object(rules));
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        let separator = if path.is_empty() { "" } else { "." };
        collect(
            schema,
            &format!("{path}{separator}{field}"),
            depth - 1,
            nodes,
        );
    }
    collect(&schema["items"], &format!("{path}[]"), depth - 1, nodes);
    collect(
        &schema["additionalProperties"],
        &format!("{path}.*"),
        depth - 1,
        nodes,
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::CheckState::{self, Ok as Passed, Problem, Unknown, Warning};

    fn definition() -> Value {
        json!({
            "metadata": {"name": "bundles.core.rukpak.io"},
            "spec": {"names": {"kind": "Bundle"}, "versions": [{
                "name": "v1alpha1", "served": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "description": "a", "properties": {
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                        "names": {"type": "array", "items": {"type": "string", "maxLength": 5}},
                    }},
                }}},
            }]},
        })
    }

    fn checked(found: Observed<Value>) -> (CheckState, String) {
        let expected = definition();
        let served = Observed::Found(vec!["Bundle".to_owned()]);
        let definitions = vec![Definition {
            expected: &expected,
            found,
        }];
        let mut results = super::definitions(definitions, &served);
        assert_eq!(results.len(), 1, "{results:?}");
        let result = results.remove(0);
        (result.state, result.message)
    }

    /// Returns the result for an altered definition in the cluster.
    fn altered(alter: impl Fn(&mut Value)) -> (CheckState, String) {
        let mut found = definition();
        found["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
        alter(&mut found);
        checked(Observed::Found(found))
    }

    const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";

    #[test]
    fn definition_of_the_same_version_passes_whatever_its_description() {
        for alter in [
            (|_| {}) as fn(&mut Value),
            |found| found["spec"]["conversion"] = json!({"strategy": "None"}),
            |found| found.pointer_mut(SPEC).unwrap()["description"] = "b".into(),
        ] {
            assert_eq!(altered(alter).0, Passed);
        }
    }

    #[test]
    fn definition_of_another_version_is_named_with_its_fields() {
        let remove = |path: &'static str, field: &'static str| {
            altered(move |found| {
                let parent = found.pointer_mut(path).unwrap();
                parent.as_object_mut().unwrap().remove(field);
            })
        };
        let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        for ((state, message), expected, part) in [
            (
                remove(properties, "names"),
                Problem,
                "lacks spec.names, spec.names[]",
            ),
            (
                altered(|found| {
                    found.pointer_mut(SPEC).unwrap()["properties"]["new"] = json!({});
                }),
                Warning,
                "newer than this program and also has spec.new",
            ),
            (
                altered(|found| {
                    found.pointer_mut(SPEC).unwrap()["properties"]["names"]["items"]["maxLength"] =
                        9.into();
                }),
                Warning,
                "differs from the schema of this program in spec.names[]",
            ),
            (
                altered(|found| found["spec"]["versions"][0]["served"] = false.into()),
                Problem,
                "does not serve version v1alpha1",
            ),
            (
                altered(|found| found["status"] = Value::Null),
                Problem,
                "not established",
            ),
            (checked(Observed::Missing), Problem, "does not exist"),
            (checked(Observed::Failed("late".into())), Unknown, "late"),
        ] {
            assert_eq!(state, expected, "{message}");
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn caller_without_permission_learns_only_that_the_kind_is_served() {
        let (state, message) = checked(Observed::Forbidden("no".into()));
        assert_eq!(state, Unknown);
        assert!(message.contains("Bundle is served"), "{message}");
        let expected = definition();
        let unserved = vec![Definition {
            expected: &expected,
            found: Observed::Forbidden("no".into()),
        }];
        let results = definitions(unserved, &Observed::Found(vec![]));
        assert_eq!(results[0].state, Problem, "{results:?}");
    }
}
