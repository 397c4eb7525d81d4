//! Types, limits, enumerations, required fields, `allOf`, `anyOf`, `oneOf` and `not`.

use std::collections::HashMap;

use serde_json::{Number, Value};

use super::{Pattern, PatternError, Problem, brief, child, flag, formats, item, of_field, text};

/// Keyword for formats of built-in kinds that the API server checks when it decodes an object:
/// `quantity`, `base64`. Schemas in CRDs do not have this keyword.
const FORMAT: &str = "x-bundle-format";

/// State of one validation.
pub(super) struct Walk {
    problems: Vec<Problem>,
    left: usize,
    patterns: HashMap<String, Result<Pattern, PatternError>>,
}

impl Walk {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            problems: Vec::new(),
            left: steps,
            patterns: HashMap::new(),
        }
    }

    pub(super) fn finish(mut self, path: &str) -> Vec<Problem> {
        if self.left == 0 {
            self.problems.push(Problem::unchecked(
                path,
                "the object and its schema are too large for a complete validation",
            ));
        }
        self.problems
    }

    fn report(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(path, message));
    }

    /// Validates a value with a schema, or with a branch of a schema.
    pub(super) fn value(&mut self, schema: &Value, value: &Value, path: &str) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        if !self.has_type(schema, value, path) {
            return;
        }
        if let Some(Value::Array(allowed)) = schema.get("enum")
            && !allowed.iter().any(|one| same(one, value))
        {
            // An empty string counts as absent.
            let shown = allowed.iter().filter(|one| one.as_str() != Some(""));
            let allowed: Vec<String> = shown.take(20).map(brief).collect();
            self.report(
                path,
                format!("{} is not one of {}", brief(value), allowed.join(", ")),
            );
        }
        match value {
            Value::String(value) => self.string(schema, value, path),
            Value::Number(value) => self.number(schema, value, path),
            Value::Array(items) => {
                self.count(schema, "maxItems", "minItems", items.len(), "items", path);
                if let Some(schema) = schema.get("items") {
                    for (index, value) in items.iter().enumerate() {
                        self.value(schema, value, &item(path, index));
                    }
                }
            }
            Value::Object(map) => {
                self.count(
                    schema,
                    "maxProperties",
                    "minProperties",
                    map.len(),
                    "fields",
                    path,
                );
                if let Some(Value::Array(required)) = schema.get("required") {
                    for key in required.iter().filter_map(Value::as_str) {
                        if !map.contains_key(key) {
                            self.report(&child(path, key), "the field is required");
                        }
                    }
                }
                for (key, value) in map {
                    if let Some(field) = of_field(schema, key) {
                        self.value(field, value, &child(path, key));
                    }
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
        self.alternatives(schema, value, path);
    }

    fn has_type(&mut self, schema: &Value, value: &Value, path: &str) -> bool {
        if value.is_null() && flag(schema, "nullable") {
            // If the schema has an `enum`, the `enum` must contain null too.
            let listed = schema.get("enum").and_then(Value::as_array);
            return listed.is_some_and(|listed| !listed.contains(value));
        }
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if is_whole(number) => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let (fits, wanted) = if flag(schema, "x-kubernetes-int-or-string") {
            (matches!(kind, "integer" | "string"), "integer or string")
        } else if text(schema, FORMAT) == Some("quantity") {
            (
                matches!(kind, "integer" | "number" | "string"),
                "a quantity",
            )
        } else {
            match text(schema, "type") {
                None | Some("") => (true, ""),
                Some("number") => (matches!(kind, "integer" | "number"), "number"),
                Some(wanted) => (kind == wanted, wanted),
            }
        };
        if !fits {
            self.report(
                path,
                format!("{} is of type {kind}, but must be {wanted}", brief(value)),
            );
        }
        fits
    }

    fn string(&mut self, schema: &Value, value: &str, path: &str) {
        let length = value.chars().count();
        self.count(schema, "maxLength", "minLength", length, "characters", path);
        if let Some(pattern) = text(schema, "pattern") {
            let compiled = self
                .patterns
                .entry(pattern.to_owned())
                .or_insert_with(|| Pattern::new(pattern));
            let problem = match compiled {
                Ok(compiled) if compiled.matches(value) => None,
                Ok(_) => Some(Problem::new(
                    path,
                    format!("{} does not match `{pattern}`", brief(&value.into())),
                )),
                // The check of the CRD reports the invalid pattern.
                Err(PatternError::Bad(_)) => None,
                Err(PatternError::Unknown(why)) => Some(Problem::unchecked(
                    path,
                    format!("the pattern `{pattern}`: {why}"),
                )),
            };
            self.problems.extend(problem);
        }
        match text(schema, FORMAT) {
            Some("quantity") if !formats::is_quantity(value) => self.report(
                path,
                format!(
                    "{} is not a quantity, such as 100m, 1.5 or 2Gi",
                    brief(&value.into())
                ),
            ),
            Some("base64") if !formats::is_base64(value) => {
                self.report(path, format!("{} is not base64", brief(&value.into())));
            }
            _ => {}
        }
        if let Some(format) = text(schema, "format")
            && matches!(text(schema, "type"), None | Some("" | "string"))
        {
            match formats::holds(format, value) {
                Some(true) => {}
                Some(false) => self.report(
                    path,
                    format!("{} is not of the format {format}", brief(&value.into())),
                ),
                None => self
                    .problems
                    .push(Problem::unchecked(path, format!("the format {format}"))),
            }
        }
    }

    fn number(&mut self, schema: &Value, value: &Number, path: &str) {
        let number = value.as_f64().unwrap_or(f64::NAN);
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        if let Some(most) = bound("maximum") {
            let strict = flag(schema, "exclusiveMaximum");
            if number > most || (strict && number >= most) {
                let than = if strict { "not less than" } else { "more than" };
                self.report(path, format!("{value} is {than} {most}"));
            }
        }
        if let Some(least) = bound("minimum") {
            let strict = flag(schema, "exclusiveMinimum");
            if number < least || (strict && number <= least) {
                let than = if strict { "not more than" } else { "less than" };
                self.report(path, format!("{value} is {than} {least}"));
            }
        }
        if let Some(factor) = bound("multipleOf").filter(|factor| *factor > 0.0) {
            let times = number / factor;
            if (times - times.round()).abs() > 1e-9 {
                self.report(path, format!("{value} is not a multiple of {factor}"));
            }
        }
        if text(schema, "type") == Some("integer")
            && text(schema, "format") == Some("int32")
            && value
                .as_i64()
                .is_none_or(|whole| i32::try_from(whole).is_err())
        {
            self.report(path, format!("{value} does not fit into 32 bits"));
        }
    }

    fn count(
        &mut self,
        schema: &Value,
        most: &str,
        least: &str,
        count: usize,
        what: &str,
        path: &str,
    ) {
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let count = count as u64;
        if let Some(most) = bound(most).filter(|most| count > *most) {
            self.report(path, format!("{count} {what} exceed the limit of {most}"));
        }
        if let Some(least) = bound(least).filter(|least| count < *least) {
            self.report(
                path,
                format!("{count} {what} are fewer than the required {least}"),
            );
        }
    }

    fn alternatives(&mut self, schema: &Value, value: &Value, path: &str) {
        let branches = |key: &str| schema.get(key).and_then(Value::as_array);
        for branch in branches("allOf").into_iter().flatten() {
            self.value(branch, value, path);
        }
        if let Some(any) = branches("anyOf")
            && self.holding(any, value, path) == 0
        {
            self.report(
                path,
                format!("{} matches none of the alternatives (anyOf)", brief(value)),
            );
        }
        if let Some(one) = branches("oneOf") {
            let holding = self.holding(one, value, path);
            if holding != 1 {
                self.report(
                    path,
                    format!(
                        "{} matches {holding} of the alternatives, but must match exactly one (oneOf)",
                        brief(value)
                    ),
                );
            }
        }
        if let Some(not) = schema.get("not")
            && self.holding(std::slice::from_ref(not), value, path) == 1
        {
            self.report(
                path,
                format!(
                    "{} matches the schema that is forbidden (not)",
                    brief(value)
                ),
            );
        }
    }

    /// Returns the number of branches that `value` satisfies.
    fn holding(&mut self, branches: &[Value], value: &Value, path: &str) -> usize {
        let before = self.problems.len();
        let mut holding = 0;
        for branch in branches {
            self.value(branch, value, path);
            holding += usize::from(self.problems.len() == before);
            self.problems.truncate(before);
        }
        holding
    }
}

fn is_whole(number: &Number) -> bool {
    number.is_i64() || number.is_u64()
}

/// Returns `true` if two JSON values are equal. `1` and `1.0` are equal.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::compare, Walk};

    fn messages_of(schema: &serde_json::Value, value: &serde_json::Value) -> Vec<String> {
        compare(schema, value, "spec")
            .iter()
            .map(|problem| format!("{}: {}", problem.path, problem.message))
            .collect()
    }

    #[test]
    fn reports_all_problems_with_paths() {
        let schema = json!({"type": "object", "required": ["name", "size"], "properties": {
            "name": {"type": "string", "maxLength": 3, "pattern": "^[a-z]+$"},
            "size": {"type": "integer", "minimum": 1, "format": "int32"},
            "mode": {"type": "string", "enum": ["a", "b"]},
            "ports": {"type": "array", "minItems": 1, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "either": {"x-kubernetes-int-or-string": true},
            "one": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }});
        let value = json!({"name": "ABCD", "mode": "c", "ports": [{"n": 1}, {"n": 1}], "tags": ["x", "x"], "either": true,
            "one": {"a": "x", "b": "y"}, "labels": {"a.b/c": 1}});
        assert_eq!(
            messages_of(&schema, &value),
            [
                "spec.size: the field is required",
                "spec.either: true is of type boolean, but must be integer or string",
                "spec.labels[a.b/c]: 1 is of type integer, but must be string",
                "spec.mode: \"c\" is not one of \"a\", \"b\"",
                "spec.name: 4 characters exceed the limit of 3",
                "spec.name: \"ABCD\" does not match `^[a-z]+$`",
                "spec.one: {\"a\":\"x\",\"b\":\"y\"} matches 2 of the alternatives, but must match exactly one (oneOf)",
                "spec.ports[1]: an item with the key {\"n\":1} appears twice",
                "spec.tags[1]: the item \"x\" appears twice",
            ]
        );
    }

    #[test]
    fn nested_alternatives_stop_at_the_step_limit() {
        let branch = json!({"anyOf": vec![json!({"pattern": "x"}); 300]});
        let schema = json!({"type": "array", "items": {"type": "string", "allOf": [branch]}});
        let mut walk = Walk::new(10_000);
        walk.value(&schema, &json!(vec!["y"; 300]), "spec");
        let problems = walk.finish("spec");
        assert!(problems.last().unwrap().unchecked, "{problems:?}");
    }
}
