//! Comparison of two schemas, field by field. A field that only the new schema has is safe.

use std::{collections::BTreeSet, fmt, sync::LazyLock};

use serde_json::{Map, Value};

use super::steps::{ComparisonSteps, TooManySteps};
use super::{CrdCheck, constraints, values::same};

/// Change of one field.
pub(super) enum Change {
    /// The new schema does not have the field.
    Removed,
    /// Unsafe change: the check that found the change, and the text of the check.
    Unsafe(CrdCheck, String),
}

/// Step from a schema to one of its children.
#[derive(Debug, Clone, Copy)]
enum Step<'v> {
    Property(&'v str),
    /// All items of a list, or all values of a map.
    Any,
}

/// Path of a field, with `^` as the root.
pub(super) struct Path<'p, 'v>(&'p [Step<'v>]);

impl fmt::Display for Path<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("^")?;
        for step in self.0 {
            match step {
                Step::Property(name) => write!(f, ".{name}")?,
                Step::Any => f.write_str("[*]")?,
            }
        }
        Ok(())
    }
}

/// Keywords for documentation. A change of these keywords has no effect.
const DOCUMENTATION: &[&str] = &["description", "title", "example", "externalDocs"];
/// Keywords that contain the schemas of children.
const CHILDREN: &[&str] = &["properties", "items", "additionalProperties"];

/// Schema without keywords, used in place of an absent schema.
static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// Calls `found` for each unsafe change from the `old` to the `new` schema, in the order of fields.
/// Returns an error, without a comparison, if fewer than the necessary `steps` remain.
pub(super) fn compare(
    (old, new): (&Value, &Value),
    steps: &mut ComparisonSteps,
    found: &mut dyn FnMut(&Path<'_, '_>, Change),
) -> Result<(), TooManySteps> {
    steps.subtract((old, new))?;
    let path = &mut Vec::new();
    node((old, new), path, found);
    Ok(())
}

/// Compares two schemas and the schemas of their children. The recursion is limited, because the
/// nesting of parsed JSON is limited.
fn node<'v>(
    (old, new): (&'v Value, &'v Value),
    path: &mut Vec<Step<'v>>,
    found: &mut dyn FnMut(&Path<'_, '_>, Change),
) {
    let empty = &*EMPTY;
    let (before, after) = match (old, new) {
        (Value::Object(before), Value::Object(after)) => (before, after),
        (Value::Object(before), Value::Null) => (before, empty),
        (Value::Null, Value::Object(after)) => (empty, after),
        (Value::Null, Value::Null) => return,
        _ if old == new => return,
        _ => return found(&Path(path), unknown(&["schema"])),
    };
    let mut unsafe_change = |check, text| found(&Path(path), Change::Unsafe(check, text));
    constraints::compare(before, after, &mut unsafe_change);
    let mut changed = unhandled(before, after);
    let [properties, items, others] = CHILDREN else {
        return;
    };
    for key in [items, others] {
        if let (Some(old), Some(new)) = (child(before, key), child(after, key))
            && old.is_object()
            && new.is_object()
        {
            path.push(Step::Any);
            node((old, new), path, found);
            path.pop();
        } else if !same(child(before, key), child(after, key)) {
            changed.push(key);
        }
    }
    if !changed.is_empty() {
        changed.sort_unstable();
        found(&Path(path), unknown(&changed));
    }
    let new_fields = after.get(*properties).and_then(Value::as_object);
    let old_fields = before.get(*properties).and_then(Value::as_object);
    let names: BTreeSet<&String> = old_fields.into_iter().flat_map(Map::keys).collect();
    for name in names {
        let field = |fields: Option<&'v Map<String, Value>>| fields.and_then(|all| all.get(name));
        path.push(Step::Property(name));
        match (field(old_fields), field(new_fields)) {
            (Some(old), Some(new)) => node((old, new), path, found),
            _ => found(&Path(path), Change::Removed),
        }
        path.pop();
    }
}

/// Returns the schema of a child; `None` if the keyword is absent. An absent `additionalProperties`
/// differs from `additionalProperties: false`.
fn child<'v>(schema: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    schema.get(key).filter(|value| !value.is_null())
}

/// Returns the keywords that differ and that no check covers.
fn unhandled<'v>(old: &'v Map<String, Value>, new: &'v Map<String, Value>) -> Vec<&'v str> {
    let all: BTreeSet<&str> = old.keys().chain(new.keys()).map(String::as_str).collect();
    let is_handled = |key: &&str| {
        DOCUMENTATION.contains(key) || CHILDREN.contains(key) || constraints::is_handled(key)
    };
    all.into_iter()
        .filter(|key| !is_handled(key))
        .filter(|key| !same(keyword(old, key), keyword(new, key)))
        .collect()
}

/// Returns the value of a keyword; `None` if the keyword is absent. An empty or false value counts
/// as absent, because the API server drops such values.
fn keyword<'v>(schema: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    schema.get(key).filter(|value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    })
}

fn unknown(keywords: &[&str]) -> Change {
    let text = format!(
        "has unknown change, refusing to determine that change is safe (changed: {})",
        keywords.join(", ")
    );
    Change::Unsafe(CrdCheck::UnknownChange, text)
}
