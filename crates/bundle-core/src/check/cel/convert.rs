//! Conversion of JSON into CEL values, with the types of the schema.

use std::{collections::HashMap, sync::Arc};

use base64::Engine as _;
use kube_cel::cel::{
    Context, Program, Value as Cel,
    objects::{Key, Map},
};
use serde_json::Value;

use crate::structural::{flag, of_field, text};

/// Reserved words of CEL. If a field has such a name, rules write `__` before and after the name.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Returns the name of a field with the escapes that Kubernetes requires in rules.
pub(in super::super) fn escaped(field: &str) -> String {
    if RESERVED.contains(&field) {
        return format!("__{field}__");
    }
    field
        .replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

/// Converts a JSON value to the CEL type that `schema` specifies.
pub(super) fn value(schema: &Value, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            // In rules, each value of type `number` is a float. This includes whole numbers.
            Some(whole) if text(schema, "type") != Some("number") => Cel::Int(whole),
            _ => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(value) => string(schema, value),
        Value::Array(items) => {
            let schema = schema.get("items").unwrap_or(&Value::Null);
            Cel::List(Arc::new(
                items.iter().map(|item| self::value(schema, item)).collect(),
            ))
        }
        Value::Object(fields) => {
            // The keys of a map are data and stay unchanged. Only names of fields are escaped.
            let is_map = schema
                .get("additionalProperties")
                .is_some_and(|others| *others != Value::Bool(false));
            let entries = fields.iter().map(|(key, field)| {
                let schema = of_field(schema, key).unwrap_or(&Value::Null);
                let key = if is_map { key.clone() } else { escaped(key) };
                (Key::String(Arc::new(key)), value_of(schema, field))
            });
            Cel::Map(Map {
                map: Arc::new(entries.collect::<HashMap<_, _>>()),
            })
        }
    }
}

fn value_of(schema: &Value, field: &Value) -> Cel {
    value(schema, field)
}

fn string(schema: &Value, value: &str) -> Cel {
    let plain = || Cel::String(Arc::new(value.to_owned()));
    if flag(schema, "x-kubernetes-int-or-string") {
        return plain();
    }
    match text(schema, "format") {
        Some("date-time") => made("timestamp(v)", plain()).unwrap_or_else(plain),
        Some("date") => {
            let midnight = Cel::String(Arc::new(format!("{value}T00:00:00Z")));
            made("timestamp(v)", midnight).unwrap_or_else(plain)
        }
        Some("duration") => made("duration(v)", plain()).unwrap_or_else(plain),
        Some("byte") => crate::base64_go::GO_BASE64
            .decode(value)
            .map_or_else(|_| plain(), |bytes| Cel::Bytes(Arc::new(bytes))),
        _ => plain(),
    }
}

/// Returns `optional.none()`: the value of `oldSelf` in a rule with `optionalOldSelf` when an
/// object is created.
pub(super) fn nothing() -> Option<Cel> {
    made("optional.none()", Cel::Null)
}

/// Evaluates `expression` with `value` as the variable `v`. Returns `None` if the evaluation fails.
fn made(expression: &str, value: Cel) -> Option<Cel> {
    let program = Program::compile(expression).ok()?;
    let mut context = Context::default();
    context.add_variable_from_value("v", value);
    program.execute(&context).ok()
}

/// Returns the number of JSON values in `value`, itself included.
pub(super) fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(size).sum::<usize>(),
        _ => 1,
    }
}
