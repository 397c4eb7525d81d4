//! When two specs mean the same: absent, null and empty are equal, `createNamespace: false` is absent, and the order of keys does not matter. Digests and hashes follow from that.
//! Not here: what a spec means (source, deployment).

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::reference::Digest;

/// Members whose values are the user's own: inside of them an empty text or list is not the same as none.
const OPAQUE: [&str; 3] = ["annotations", "config", "labels"];

/// Members that say something even when they are empty: an allowlist without items allows nothing.
const PRESENT: [&str; 3] = ["hosts", "namespaces", "types"];

/// Members for which `false` says nothing. What somebody approves covers this one, so that writing out its default must not ask for another approval. Other
/// switches are not here: the digests of specs that have them written out are recorded in stamps and names of Bundles, and stay what they are.
const OFF: [&str; 1] = ["createNamespace"];

/// Whether two specs mean the same. The parsers of Bundles, BundleDeployments, BundleApprovals and ProvisionerClasses read what is left of a spec by
/// the same reduction, so that specs which mean the same are read as the same. SignaturePolicies are never compared in this way: their parser refuses
/// fields that it does not know, also empty ones.
pub fn same(left: &Value, right: &Value) -> bool {
    reduced(left) == reduced(right)
}

/// The digest of what a spec means. Specs that mean the same have the same digest.
pub fn spec_digest(spec: &Value) -> Digest {
    Digest::of(bytes(&reduced(spec).unwrap_or_default()).as_bytes())
}

/// The digest of a spec as it is written, whatever it means.
pub fn written_digest(spec: &Value) -> Digest {
    Digest::of(bytes(spec).as_bytes())
}

/// Whether two values of the member `name` of a spec mean the same.
pub(super) fn same_member(name: &str, left: &Value, right: &Value) -> bool {
    same(&json!({ name: left }), &json!({ name: right }))
}

/// Names the Bundle of a template: six hexadecimal digits over what `spec.template` means. Templates that mean the same have the same hash, in every
/// version of this program.
pub fn template_hash(template: &Value) -> String {
    spec_digest(template).hex()[..6].to_owned()
}

/// The spec without what says nothing; null if nothing is left. This is what parsers read.
pub(super) fn meaning(spec: &Value) -> Value {
    reduced(spec).unwrap_or_default()
}

/// The value without what says nothing; `None` if nothing is left.
fn reduced(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) if items.is_empty() => None,
        // The position of an item counts, so none is dropped.
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
                    let value = if OPAQUE.contains(&key.as_str()) {
                        opaque(value)
                    } else if OFF.contains(&key.as_str()) && *value == Value::Bool(false) {
                        None
                    } else if PRESENT.contains(&key.as_str()) && value.is_array() {
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
    let says_nothing = match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    (!says_nothing).then(|| value.clone())
}

/// Compact JSON with sorted keys, whatever order a value was built in.
pub(super) fn bytes(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value);
    text
}

fn write(text: &mut String, value: &Value) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            text.push('{');
            for (index, (key, value)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                let _ = write!(text, "{}:", Value::from(key.as_str()));
                write(text, value);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(text, item);
            }
            text.push(']');
        }
        other => {
            let _ = write!(text, "{other}");
        }
    }
}

#[cfg(test)]
mod agreement;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_null_and_empty_mean_the_same() {
        let plain =
            json!({"source": {"type": "git", "git": {"repository": "r", "ref": {"branch": "b"}}}});
        for same_thing in [
            json!({"source": {"git": {"ref": {"branch": "b"}, "repository": "r"}, "type": "git"}}),
            json!({"source": {"type": "git", "image": null, "git": {"repository": "r", "ref": {"branch": "b", "tag": ""}}}}),
            json!({"source": {"type": "git", "configMaps": [], "git": {"repository": "r", "directory": "", "ref": {"branch": "b"}, "auth": {"secret": {}}}}}),
        ] {
            assert!(same(&plain, &same_thing), "{same_thing}");
            assert_eq!(spec_digest(&plain), spec_digest(&same_thing));
        }
        for other in [
            json!({"source": {"type": "git", "git": {"repository": "r", "ref": {"branch": "c"}}}}),
            json!({"source": {"type": "git", "git": {"repository": "r", "ref": {"tag": "b"}}}}),
            json!({}),
            Value::Null,
        ] {
            assert!(!same(&plain, &other), "{other}");
            assert_ne!(spec_digest(&plain), spec_digest(&other));
        }
        assert!(same(&json!({}), &Value::Null));
    }

    #[test]
    fn the_users_own_values_are_left_alone() {
        let spec = |config: Value| json!({"config": config, "template": {"metadata": {}}});
        assert!(same(&spec(json!({})), &spec(Value::Null)));
        assert!(!same(&spec(json!({"a": ""})), &spec(json!({}))));
        assert!(!same(&spec(json!({"a": null})), &spec(json!({"a": ""}))));
        let labels = |labels: Value| json!({"metadata": {"labels": labels}});
        assert!(!same(&labels(json!({"a": ""})), &labels(json!({}))));
    }

    #[test]
    fn namespace_that_is_not_created_means_the_same_as_absent() {
        let spec = |value: Value| json!({"targetNamespace": "a", "createNamespace": value});
        let absent = json!({"targetNamespace": "a"});
        assert_eq!(
            spec_digest(&absent).hex()[..12],
            *"1fd62eda706c",
            "objects that exist keep their digest"
        );
        for nothing in [json!(false), Value::Null] {
            assert!(same(&absent, &spec(nothing.clone())), "{nothing}");
            assert_eq!(spec_digest(&absent), spec_digest(&spec(nothing)));
        }
        assert!(!same(&absent, &spec(json!(true))));
        // Other switches, and what is the user's own, stay as they are.
        assert!(!same(&json!({"paused": false}), &json!({})));
        let config = |value: Value| json!({"config": value});
        assert!(!same(
            &config(json!({"createNamespace": false})),
            &config(json!({}))
        ));
    }

    #[test]
    fn items_keep_their_places() {
        assert!(!same(&json!([{}, {"a": 1}]), &json!([{"a": 1}, {}])));
        assert!(same(&json!([{"b": ""}, {"a": 1}]), &json!([{}, {"a": 1}])));
    }

    #[test]
    fn the_hash_of_a_template_is_fixed() {
        let template = json!({"spec": {"provisionerClassName": "core-rukpak-io-plain", "source": {"type": "image", "image": {"ref": "registry.example.com/web:1"}}}});
        assert_eq!(template_hash(&template), "e673a6");
        let mut same_thing = template.clone();
        same_thing["metadata"] = json!({"labels": {}});
        assert_eq!(template_hash(&template), template_hash(&same_thing));
        same_thing["metadata"] = json!({"labels": {"a": "b"}});
        assert_ne!(template_hash(&template), template_hash(&same_thing));
    }
}
