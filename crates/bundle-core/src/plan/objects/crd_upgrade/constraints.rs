//! Checks of the keywords of one field. A value that the old schema allows must stay valid, and the
//! meaning of stored objects must not change.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::CrdCheck;
use super::values::{enum_text, json_text, order, same};

/// Maximum number of listed values in the text of a change. Longer texts are truncated anyway.
const MAX_LISTED: usize = 512;

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
    if before == after {
        return None;
    }
    // A definition can list many thousands of values. Therefore references are sorted, and only the
    // values in the message are written as text.
    let mut allowed: Vec<&Value> = after.iter().collect();
    allowed.sort_unstable_by(|a, b| order(a, b));
    let is_removed = |value: &&Value| {
        let found = allowed.binary_search_by(|allowed| order(allowed, value));
        found.is_err()
    };
    let mut removed: Vec<&Value> = before.iter().filter(is_removed).collect();
    removed.sort_unstable_by(|a, b| order(a, b));
    removed.dedup_by(|a, b| order(a, b).is_eq());
    let texts = removed.into_iter().take(MAX_LISTED).map(enum_text);
    let texts: BTreeSet<String> = texts.collect();
    (!texts.is_empty()).then(|| format!("enum values removed: {}", list(&texts)))
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
    let values: Vec<&str> = values.iter().take(MAX_LISTED).map(AsRef::as_ref).collect();
    format!("[{}]", values.join(" "))
}

fn limit((old, new): Pair<'_>, name: &str, is_maximum: bool) -> Option<String> {
    let after = new?;
    let Some(before) = old else {
        return Some(format!(
            "{name} constraint added when one did not exist previously: {}",
            json_text(after)
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
    (!is_looser).then(|| {
        let (before, after) = (json_text(before), json_text(after));
        format!("{name} constraint {direction} from {before} to {after}")
    })
}

fn default((old, new): Pair<'_>) -> Option<String> {
    match (old, new) {
        (None, Some(added)) => Some(format!(
            "default value {:?} added when there was no default previously",
            json_text(added)
        )),
        (Some(removed), None) => Some(format!("default value {:?} removed", json_text(removed))),
        (before, after) if same(before, after) => None,
        (before, after) => {
            let text = |value: Option<&Value>| value.map(json_text).unwrap_or_default();
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
