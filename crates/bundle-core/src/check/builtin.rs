//! Checks objects of built-in kinds with the schemas of the supported Kubernetes versions, as
//! server-side apply does. `definition` checks CustomResourceDefinitions. The caller passes the
//! schemas.

use serde_json::Value;

use super::{apis::Supported, custom::finding};
use crate::{
    diagnostic::{Findings, codes},
    format::Content,
    object::Manifest,
    structural::{Problem, compare, fill, unknown_fields},
    version::Minor,
};

/// Maximum number of reported problems of one object.
const REPORTED: usize = 100;

/// Schemas of the built-in kinds.
pub trait KubernetesSchemas {
    /// Returns the minor versions that have schemas, oldest first.
    fn versions(&self) -> &[Minor];

    /// Returns the schema of a kind in a minor version; `None` if that version does not have the
    /// kind. `group` is empty for the core group. The references in the schema are resolved. If two
    /// versions have the same schema, equal values are returned for both.
    fn schema(&self, version: Minor, group: &str, api: &str, kind: &str) -> Option<&Value>;
}

/// Result of validating an object with one schema: the schema, the Kubernetes versions that have
/// this schema, and the problems that the validation found.
struct Compared<'a> {
    schema: &'a Value,
    versions: Vec<Minor>,
    problems: Vec<Problem>,
}

pub(super) fn check(content: &Content, schemas: &dyn KubernetesSchemas, findings: &mut Findings) {
    let package = content.package.as_ref();
    let supported = Supported::new(package.and_then(|package| package.kubernetes.as_ref()));
    let mut versions: Vec<Minor> = schemas
        .versions()
        .iter()
        .filter(|version| supported.has(**version))
        .copied()
        .collect();
    // For supported versions that are newer than all schemas, the newest schema is used.
    if versions.is_empty() && supported.is_beyond() {
        versions.extend(schemas.versions().last());
    }
    for object in &content.objects {
        one(object, schemas, &versions, findings);
    }
}

fn one(
    object: &Manifest,
    schemas: &dyn KubernetesSchemas,
    versions: &[Minor],
    findings: &mut Findings,
) {
    let (group, api, kind) = object.gvk();
    let mut compared: Vec<Compared<'_>> = Vec::new();
    let mut value = None;
    for version in versions {
        let Some(schema) = schemas.schema(*version, group, api, kind) else {
            continue;
        };
        if let Some(same) = compared
            .iter_mut()
            .find(|other| std::ptr::eq(other.schema, schema))
        {
            same.versions.push(*version);
            continue;
        }
        let value = value.get_or_insert_with(|| normalized(&object.value));
        compared.push(Compared {
            schema,
            versions: vec![*version],
            problems: problems(schema, value.clone()),
        });
    }
    let all: usize = compared.iter().map(|one| one.versions.len()).sum();
    for (problem, versions) in merged(compared).into_iter().take(REPORTED) {
        let mut problem = problem;
        if versions.len() < all {
            let versions: Vec<String> = versions.iter().map(ToString::to_string).collect();
            problem.message = format!(
                "{} (in Kubernetes {})",
                problem.message,
                versions.join(", ")
            );
        }
        findings.push(finding(
            object,
            codes::check::BAD_OBJECT,
            problem,
            &format!(
                "`kubectl explain {} --api-version={} --recursive` shows the fields",
                kind.to_lowercase(),
                object.id.api_version()
            ),
        ));
    }
}

/// Returns each distinct problem, and the Kubernetes versions whose schemas report it.
fn merged(compared: Vec<Compared<'_>>) -> Vec<(Problem, Vec<Minor>)> {
    let mut merged: Vec<(Problem, Vec<Minor>)> = Vec::new();
    for Compared {
        versions, problems, ..
    } in compared
    {
        for problem in problems.into_iter().take(REPORTED) {
            match merged.iter_mut().find(|(known, _)| *known == problem) {
                Some((_, known)) => known.extend(&versions),
                None => merged.push((problem, versions.clone())),
            }
        }
    }
    merged
}

/// Returns the errors that server-side apply would return.
fn problems(schema: &Value, mut object: Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    unknown_fields(schema, &object, "", true, &mut problems);
    fill(schema, &mut object);
    // The fields of the status were checked above. The API server drops the status before it checks
    // required fields.
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    problems.extend(compare(schema, &object, ""));
    problems
}

/// Returns the object as decoded by the API server: null fields are absent, and `3.0` is an
/// integer.
fn normalized(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                fields
                    .map(|(key, value)| (key.clone(), normalized(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(normalized).collect()),
        Value::Number(number) if number.is_f64() => whole(value),
        other => other.clone(),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "only whole numbers that 64 bits hold exactly are converted"
)]
fn whole(value: &Value) -> Value {
    /// 2⁵³. Up to this value, each integer is exact as a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value.as_f64() {
        Some(number) if number.fract() == 0.0 && number.abs() <= EXACT => (number as i64).into(),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::tests::with_schemas;

    /// Schemas of ConfigMap in two versions, for tests.
    struct Table(Value, Value);

    impl KubernetesSchemas for Table {
        fn versions(&self) -> &[Minor] {
            &[Minor(1, 35), Minor(1, 36)]
        }

        fn schema(&self, version: Minor, group: &str, _: &str, kind: &str) -> Option<&Value> {
            ((group, kind) == ("", "ConfigMap")).then_some(if version == Minor(1, 35) {
                &self.0
            } else {
                &self.1
            })
        }
    }

    fn table() -> Table {
        let old = json!({"type": "object", "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "size": {"type": "integer", "format": "int32"},
            "limit": {"x-bundle-format": "quantity"},
            "secret": {"type": "string", "x-bundle-format": "base64"},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"], "items": {
                "type": "object", "required": ["port"], "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP", "enum": ["TCP", "UDP", ""]}}}},
        }});
        let mut new = old.clone();
        new["properties"]["fresh"] = json!({"type": "string"});
        // The API server checks no required fields in a status.
        new["properties"]["status"] = json!({"type": "object", "default": {}, "required": ["a"], "properties": {"a": {"type": "string"}}});
        Table(old, new)
    }

    fn messages_of(kubernetes: &str, fields: &str) -> Vec<String> {
        let object = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: default}}\n{fields}\n"
        );
        with_schemas(kubernetes, &[("manifests/a.yaml", &object)], &table())
            .into_iter()
            .map(|line| {
                let line = line.rsplit_once(" (`kubectl explain configmap").unwrap().0;
                line.replace("error: manifests/a.yaml:1: ConfigMap/default/a: ", "")
            })
            .collect()
    }

    #[test]
    fn reports_unknown_fields_types_required_fields_and_duplicate_keys_with_paths() {
        assert_eq!(
            messages_of(
                "",
                "sise: 1\nsize: one\nports: [{port: 1}, {port: 1, protocol: TCP}, {protocol: SCTP}]\nlimit: 1x\nsecret: '?'"
            ),
            [
                "sise: unknown field; did you mean `size`?",
                "limit: \"1x\" is not a quantity, such as 100m, 1.5 or 2Gi",
                "ports[2].port: the field is required",
                "ports[2].protocol: \"SCTP\" is not one of \"TCP\", \"UDP\"",
                "secret: \"?\" is not base64",
                "size: \"one\" is of type string, but must be integer",
                "ports[1]: an item with the key {\"port\":1,\"protocol\":\"TCP\"} appears twice",
            ]
        );
    }

    #[test]
    fn accepts_nulls_whole_floats_quantities_and_base64_with_line_breaks() {
        assert_eq!(
            messages_of(
                "",
                "size: 3.0\nlimit: 0.5\nports: null\nsecret: \"YWJj\\nZGVm\"\nfresh: null"
            ),
            [""; 0]
        );
    }

    #[test]
    fn names_the_kubernetes_versions_with_a_problem() {
        assert_eq!(
            messages_of("", "fresh: x"),
            [""; 0],
            "only the newest counts"
        );
        assert_eq!(messages_of(">=1.36 <1.37", "fresh: x"), [""; 0]);
        assert_eq!(
            messages_of(">=1.35 <1.37", "fresh: x\nsise: 1"),
            [
                "fresh: unknown field (in Kubernetes 1.35)",
                "sise: unknown field; did you mean `size`?",
            ]
        );
        assert_eq!(
            messages_of("<1.30", "sise: 1"),
            [""; 0],
            "no schema of these"
        );
        assert_eq!(
            messages_of(">=1.90", "fresh: x\nsise: 1"),
            ["sise: unknown field; did you mean `size`?"],
            "the newest is the nearest"
        );
    }
}
