//! Checks of the keywords of one field. A value that the old schema allows must stay valid, and the
//! meaning of stored objects must not change.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

use super::{CrdCheck, values::same};

/// Limit of a field: keyword, check, name in messages, and true if the limit is a maximum.
type Limit = (&'static str, CrdCheck, &'static str, bool);

const LIMITS: [Limit; 8] = [
    ("maximum", CrdCheck::Maximum, "maximum", true),
    ("maxItems", CrdCheck::MaxItems, "maximum items", true),
    ("maxLength", CrdCheck::MaxLength, "maximum length", true),
    (
        "maxProperties",
        CrdCheck::MaxProperties,
        "maximum properties",
        true,
    ),
    ("minimum", CrdCheck::Minimum, "minimum", false),
    ("minItems", CrdCheck::MinItems, "minimum items", false),
    ("minLength", CrdCheck::MinLength, "minimum length", false),
    (
        "minProperties",
        CrdCheck::MinProperties,
        "minimum properties",
        false,
    ),
];

/// Returns true if a check covers changes of this keyword.
pub(super) fn is_handled(key: &str) -> bool {
    matches!(key, "enum" | "required" | "default" | "type")
        || LIMITS.iter().any(|(keyword, ..)| *keyword == key)
}

/// Calls `found` for each unsafe change of a keyword that a check covers.
pub(super) fn compare(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    found: &mut dyn FnMut(CrdCheck, String),
) {
    let mut add = |check, text: Option<String>| {
        if let Some(text) = text {
            found(check, text);
        }
    };
    let pair = |key: &str| (set(old, key), set(new, key));
    add(CrdCheck::Enum, enumeration(pair("enum")));
    add(CrdCheck::Required, required(pair("required")));
    for (key, check, name, is_maximum) in LIMITS {
        add(check, limit(pair(key), name, is_maximum));
    }
    add(CrdCheck::Default, default(pair("default")));
    add(CrdCheck::Type, kind(pair("type")));
}

type Pair<'v> = (Option<&'v Value>, Option<&'v Value>);

fn set<'v>(schema: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    schema.get(key).filter(|value| !value.is_null())
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn enumeration((old, new): Pair<'_>) -> Option<String> {
    let (before, after) = (items(old), items(new));
    if before.is_empty() {
        let added = !after.is_empty();
        return added.then(|| "enums added when there were no enum restrictions previously".into());
    }
    if after.is_empty() {
        return None;
    }
    // Sets are faster than lists here, and a definition can list many thousands of values.
    let texts = |values: &[Value]| values.iter().map(text).collect::<BTreeSet<String>>();
    let allowed = texts(after);
    let removed: BTreeSet<String> = texts(before).difference(&allowed).cloned().collect();
    (!removed.is_empty()).then(|| format!("enum values removed: {}", list(&removed)))
}

/// Returns the JSON text of a value. The text of 1.0 is `1`, because the API server stores the
/// number 1.0 as 1.
fn text(value: &Value) -> String {
    let number = value.as_number().filter(|number| number.is_f64());
    number
        .and_then(Number::as_f64)
        .map_or_else(|| value.to_string(), |number| number.to_string())
}

fn required((old, new): Pair<'_>) -> Option<String> {
    let names = |value| -> BTreeSet<&str> {
        let names = items(value).iter();
        names.filter_map(Value::as_str).collect()
    };
    let before = names(old);
    let added: BTreeSet<&str> = names(new).difference(&before).copied().collect();
    (!added.is_empty()).then(|| format!("new required fields added: {}", list(&added)))
}

fn list<T: AsRef<str>>(values: &BTreeSet<T>) -> String {
    let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
    format!("[{}]", values.join(" "))
}

fn limit((old, new): Pair<'_>, name: &str, is_maximum: bool) -> Option<String> {
    let after = new?;
    let Some(before) = old else {
        return Some(format!(
            "{name} constraint added when one did not exist previously: {after}"
        ));
    };
    if same(Some(before), Some(after)) {
        return None;
    }
    let numbers = before.as_f64().zip(after.as_f64());
    let (direction, is_looser) = if is_maximum {
        let is_looser = numbers.is_some_and(|(before, after)| after >= before);
        ("decreased", is_looser)
    } else {
        let is_looser = numbers.is_some_and(|(before, after)| after <= before);
        ("increased", is_looser)
    };
    (!is_looser).then(|| format!("{name} constraint {direction} from {before} to {after}"))
}

fn default((old, new): Pair<'_>) -> Option<String> {
    match (old, new) {
        (None, Some(added)) => Some(format!(
            "default value {:?} added when there was no default previously",
            added.to_string()
        )),
        (Some(removed), None) => Some(format!("default value {:?} removed", removed.to_string())),
        (before, after) if same(before, after) => None,
        (before, after) => {
            let text = |value: Option<&Value>| value.map(Value::to_string).unwrap_or_default();
            Some(format!(
                "default value changed from {:?} to {:?}",
                text(before),
                text(after)
            ))
        }
    }
}

fn kind((old, new): Pair<'_>) -> Option<String> {
    let name = |value: Option<&Value>| match value {
        None => String::new(),
        Some(Value::String(name)) => name.clone(),
        Some(other) => other.to_string(),
    };
    let (before, after) = (name(old), name(new));
    (before != after).then(|| format!("type changed from {before:?} to {after:?}"))
}
