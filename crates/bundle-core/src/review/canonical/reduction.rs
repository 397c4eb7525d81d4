//! Reference implementation of the equality and the digests of specs, for tests. The implementation
//! copies a spec without its empty values. The digests and comparisons of the parent module must
//! agree with this implementation for every value. The digests in existing objects were computed
//! with this implementation.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{
    EMPTY_IS_NOT_ABSENT, Node, OFF, USER_VALUE_FIELDS, bytes, node_digest, same, same_member,
    spec_digest,
};
use crate::reference::Digest;

/// Returns the value without empty parts; `None` if the result is empty.
pub(super) fn reduced(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => Some(
            items
                .iter()
                .map(|item| reduced(item).unwrap_or_default())
                .collect(),
        ),
        Value::Object(members) => {
            let left: Map<String, Value> = members
                .iter()
                .filter_map(|(key, value)| {
                    let value = if USER_VALUE_FIELDS.contains(&key.as_str()) {
                        opaque(value)
                    } else if OFF.contains(&key.as_str()) && *value == Value::Bool(false) {
                        None
                    } else if EMPTY_IS_NOT_ABSENT.contains(&key.as_str()) && value.is_array() {
                        Some(reduced(value).unwrap_or_else(|| value.clone()))
                    } else {
                        reduced(value)
                    };
                    Some((key.clone(), value?))
                })
                .collect();
            (!left.is_empty()).then_some(Value::Object(left))
        }
        other => Some(other.clone()),
    }
}

fn opaque(value: &Value) -> Option<Value> {
    let is_empty = match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    (!is_empty).then(|| value.clone())
}

fn reference_digest(spec: &Value) -> Digest {
    Digest::of(sorted_text(&reduced(spec).unwrap_or_default()).as_bytes())
}

fn sorted_text(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            let texts = sorted
                .into_iter()
                .map(|(key, value)| format!("{}:{}", json!(key), sorted_text(value)));
            format!("{{{}}}", texts.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            let texts: Vec<_> = items.iter().map(sorted_text).collect();
            format!("[{}]", texts.join(","))
        }
        other => other.to_string(),
    }
}

/// Generates values with few names and many empty values, so that all combinations of the rules
/// occur.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![
        json!(null),
        json!(false),
        json!(true),
        json!(""),
        json!("a\"\n\u{1}é"),
        json!(0),
        json!(-1.5),
        json!(1e300),
        json!([]),
        json!({}),
    ]);
    let names = prop::sample::select(vec![
        "annotations",
        "config",
        "labels",
        "hosts",
        "namespaces",
        "types",
        "createNamespace",
        "a",
        "b\"c",
        "é",
        "",
    ]);
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn digests_are_those_of_the_reduced_value(value in values()) {
        prop_assert_eq!(spec_digest(&value), reference_digest(&value), "{}", &value);
        prop_assert_eq!(bytes(&value), sorted_text(&value));
    }

    #[test]
    fn comparisons_are_those_of_the_reduced_values(left in values(), right in values()) {
        prop_assert_eq!(same(&left, &right), reduced(&left) == reduced(&right), "{} and {}", &left, &right);
        // Random values are rarely equal, so the value is compared with its own reduced form.
        let equal = reduced(&left).unwrap_or_default();
        prop_assert!(same(&left, &equal), "{} and {}", &left, &equal);
    }

    #[test]
    fn members_are_compared_and_digested_like_objects_of_one_member(left in values(), right in values()) {
        for name in ["config", "template", "types", "createNamespace"] {
            let (one, other) = (json!({ name: &left }), json!({ name: &right }));
            prop_assert_eq!(same_member(name, &left, &right), reduced(&one) == reduced(&other), "{} and {}", &one, &other);
            let member = [(name, Node::Value(&left))];
            prop_assert_eq!(node_digest(Node::Members(&member)), reference_digest(&one));
        }
    }
}
