//! Validation of an object against a structural schema, in the same way as in the API server:
//! unknown fields, defaults, types, limits, lists.

mod defaults;
mod formats;
mod lists;
mod pattern;
mod unknown;
mod values;

use serde_json::Value;

pub(super) use crate::field_path::{child, item};
pub(super) use defaults::fill;
pub(super) use pattern::{Pattern, PatternError};
pub(super) use unknown::{find as unknown_fields, prune};

/// Maximum number of steps of a comparison. Schemas with alternatives multiply the steps, and an
/// attacker could write such schemas.
const STEPS: usize = 1_000_000;

/// Problem with a field of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// Path of the field, in the form of Kubernetes messages.
    pub(super) path: String,
    /// Message, without the path.
    pub(super) message: String,
    /// `true` if the field could not be checked.
    pub(super) unchecked: bool,
}

impl Problem {
    pub(super) fn new(path: &str, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            message: message.into(),
            unchecked: false,
        }
    }

    pub(super) fn unchecked(path: &str, message: impl Into<String>) -> Self {
        Self {
            unchecked: true,
            ..Self::new(path, message)
        }
    }
}

/// Returns all violations of the schema by a defaulted value, except CEL rules.
pub(super) fn compare(schema: &Value, value: &Value, path: &str) -> Vec<Problem> {
    let mut walk = values::Walk::new(STEPS);
    walk.value(schema, value, path);
    let mut problems = walk.finish(path);
    lists::find(schema, value, path, &mut problems);
    problems
}

/// Returns a text field of a schema; `None` if the field is absent or not a text.
pub(super) fn text<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    schema.get(key).and_then(Value::as_str)
}

/// Returns a boolean field of a schema; `false` if it is absent.
pub(super) fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or_default()
}

/// Returns the schema of a field, from `properties` or `additionalProperties`; `None` if there is
/// no schema for the field.
pub(super) fn of_field<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let own = schema.get("properties").and_then(|fields| fields.get(key));
    own.or_else(|| {
        schema
            .get("additionalProperties")
            .filter(|all| all.is_object())
    })
}

/// Returns a short text that describes a value, for messages.
pub(super) fn brief(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    let short: String = text.chars().take(57).collect();
    format!("{short}...")
}
