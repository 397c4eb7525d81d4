//! `x-kubernetes-validations` of a schema: message and rule texts, and the fields that the
//! expressions refer to.

use serde_json::{Map, Value};

use super::schema::SchemaCheck;
use crate::{
    check::cel::{Compiled, escaped},
    structural::{Problem, child, flag, item, text},
};

/// Allowed values of `reason` in a rule.
const REASONS: &[&str] = &[
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

impl SchemaCheck<'_> {
    pub(super) fn texts_of_rules(&mut self, schema: &Value, path: &str) {
        let rules = schema
            .get("x-kubernetes-validations")
            .and_then(Value::as_array);
        for (index, rule) in rules.into_iter().flatten().enumerate() {
            let at = item(&child(path, "x-kubernetes-validations"), index);
            let lines = |key: &str| {
                text(rule, key).is_some_and(|value| value.trim().contains(['\n', '\r']))
            };
            let blank = |key: &str| {
                text(rule, key).is_some_and(|value| !value.is_empty() && value.trim().is_empty())
            };
            let message = text(rule, "message").is_some_and(|message| !message.trim().is_empty());
            if text(rule, "rule").is_none_or(|rule| rule.trim().is_empty()) {
                self.report(&child(&at, "rule"), "the field is required");
            } else if lines("rule") && !message {
                self.report(
                    &child(&at, "message"),
                    "a rule of several lines requires a message",
                );
            }
            if lines("message") {
                self.report(&child(&at, "message"), "it must be one line");
            }
            for key in ["message", "messageExpression", "fieldPath"] {
                if blank(key) {
                    self.report(&child(&at, key), "it must not be blank");
                }
            }
            if let Some(reason) = text(rule, "reason")
                && !REASONS.contains(&reason)
            {
                self.report(
                    &child(&at, "reason"),
                    format!("`{reason}` is not one of {}", REASONS.join(", ")),
                );
            }
            if let Some(field) = text(rule, "fieldPath").filter(|field| !field.trim().is_empty()) {
                self.field_path(schema, field, &child(&at, "fieldPath"));
            }
        }
    }

    /// Checks a field path such as `.spec.replicas`. Paths with brackets are not checked.
    fn field_path(&mut self, schema: &Value, field: &str, at: &str) {
        if field.contains(['[', '\'', '"']) {
            return;
        }
        let found = field.strip_prefix('.').and_then(|fields| {
            fields.split('.').try_fold(schema, |schema, key| {
                crate::structural::of_field(schema, key)
            })
        });
        if found.is_none() {
            self.report(
                at,
                format!("`{field}` must be a path of a field, such as `.spec.replicas`"),
            );
        }
    }

    /// Compiles the rules of a structural schema. `atomic` is the path of the outermost enclosing
    /// map of type `atomic`, or of the outermost enclosing list whose type is not `map`. The API
    /// server cannot match the old and the new values in such a map or list, so the rules inside
    /// must not use `oldSelf`.
    pub(super) fn compile_rules(&mut self, schema: &Value, path: &str, atomic: Option<&str>) {
        let rules = schema
            .get("x-kubernetes-validations")
            .and_then(Value::as_array);
        for (index, rule) in rules.into_iter().flatten().enumerate() {
            let at = item(&child(path, "x-kubernetes-validations"), index);
            self.compile_rule(schema, rule, &at, atomic);
        }
        let inner = match text(schema, "x-kubernetes-map-type") {
            Some("atomic") => atomic.or(Some(path)),
            _ => atomic,
        };
        for (key, field) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            self.compile_rules(field, &child(&child(path, "properties"), key), inner);
        }
        if let Some(others @ Value::Object(_)) = schema.get("additionalProperties") {
            self.compile_rules(others, &child(path, "additionalProperties"), atomic);
        }
        if let Some(items @ Value::Object(_)) = schema.get("items") {
            let inner = match text(schema, "x-kubernetes-list-type") {
                Some("map") => atomic,
                _ => atomic.or(Some(path)),
            };
            self.compile_rules(items, &child(path, "items"), inner);
        }
    }

    fn compile_rule(&mut self, schema: &Value, rule: &Value, at: &str, atomic: Option<&str>) {
        let whole = at.contains("openAPIV3Schema.x-kubernetes-validations")
            || flag(schema, "x-kubernetes-embedded-resource");
        for key in ["rule", "messageExpression"] {
            let Some(source) = text(rule, key).filter(|source| !source.trim().is_empty()) else {
                continue;
            };
            let at = child(at, key);
            let problem = match self.rules.compile(source) {
                Compiled::Bad(why) => Some(Problem::new(&at, format!("`{source}`: {why}"))),
                Compiled::Unknown(why) => Some(Problem::unchecked(
                    &at,
                    format!("the rule `{source}`, because {why}"),
                )),
                Compiled::Ready(_, facts) => {
                    let missing = facts
                        .paths
                        .iter()
                        .find_map(|fields| missing(schema, fields, whole));
                    match (missing, atomic) {
                        (Some(field), _) => Some(Problem::new(
                            &at,
                            format!("`{source}`: the schema has no field `{field}`"),
                        )),
                        (None, Some(list)) if key == "rule" && facts.old_self => {
                            Some(Problem::new(
                                &at,
                                format!(
                                    "`{source}`: oldSelf cannot be used within {list}, whose old and new items cannot be matched"
                                ),
                            ))
                        }
                        (None, _)
                            if key == "rule"
                                && !facts.old_self
                                && rule.get("optionalOldSelf").is_some_and(Value::is_boolean) =>
                        {
                            Some(Problem::new(
                                &at,
                                "optionalOldSelf is allowed only for rules with oldSelf",
                            ))
                        }
                        _ => None,
                    }
                }
            };
            self.problems.extend(problem);
        }
    }
}

/// Returns the first field in the path `fields` that the schema does not specify; `None` if the
/// schema specifies all fields. `whole` is `true` if the path begins at the root of an object:
/// there, `apiVersion`, `kind` and `metadata` need no schema.
fn missing(schema: &Value, fields: &[String], mut whole: bool) -> Option<String> {
    let mut schema = schema;
    for field in fields {
        let implied = whole && matches!(field.as_str(), "apiVersion" | "kind" | "metadata");
        whole = false;
        if schema.get("additionalProperties").is_some() {
            return None;
        }
        let described: &Map<String, Value> = schema.get("properties")?.as_object()?;
        match described.iter().find(|(key, _)| escaped(key) == *field) {
            Some((_, inner)) => schema = inner,
            None if implied => return None,
            None => return Some(field.clone()),
        }
    }
    None
}
