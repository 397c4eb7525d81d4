//! Whether an object on a cluster is still as our last apply left it, told from its metadata alone.
//! Not here: watching, or applying again.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::reference::Digest;

/// What we keep of an object that we applied: a hash of our own entry in `managedFields` and of our labels.
///
/// With server-side apply a field of ours that anybody else changes or removes leaves our entry; status updates and fields of others do not touch it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(u128);

/// One entry of `managedFields`, as far as it counts here.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Its field manager.
    pub manager: &'a str,
    /// `Apply` or `Update`.
    pub operation: &'a str,
    /// The subresource it was written through; empty for the object itself.
    pub subresource: &'a str,
    /// The fields that it owns.
    pub fields: &'a Value,
}

impl Fingerprint {
    /// Of an object's metadata; none where `manager` has no entry, as after its fields were all taken or on a server that keeps none.
    pub fn of<'a>(
        manager: &str,
        entries: impl IntoIterator<Item = Entry<'a>>,
        labels: &BTreeMap<String, String>,
        ours: &[&str],
    ) -> Option<Self> {
        let entry = entries.into_iter().find(|entry| {
            entry.manager == manager && entry.operation == "Apply" && entry.subresource.is_empty()
        })?;
        let mut hash = Sha256::new();
        hash.update(entry.fields.to_string());
        for label in ours {
            hash.update([0]);
            hash.update(labels.get(*label).map_or("", String::as_str));
        }
        let mut first = [0; 16];
        first.copy_from_slice(&hash.finalize()[..16]);
        Some(Self(u128::from_be_bytes(first)))
    }
}

/// One digest over the fingerprints of many objects, whatever order they come in: what a status keeps, so that after a restart one comparison tells
/// whether all is in place.
pub fn combined(objects: impl IntoIterator<Item = (String, Fingerprint)>) -> Digest {
    let sorted: BTreeMap<String, Fingerprint> = objects.into_iter().collect();
    let mut hash = Sha256::new();
    for (key, fingerprint) in sorted {
        hash.update(key);
        hash.update([0]);
        hash.update(fingerprint.0.to_be_bytes());
    }
    Digest::from_hash(&hash.finalize())
}

/// What a look at the metadata says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// As we left it.
    InPlace,
    /// Somebody has a field or label that we set.
    Drifted,
    /// It is not there, or no longer carries our label.
    Gone,
    /// The server keeps no `managedFields` for it: only reading the object tells.
    MustRead,
}

/// Compares what our last apply left with what is seen now. `seen`: the object if it is there, and its fingerprint if it has one.
pub fn standing(expected: Option<Fingerprint>, seen: Option<Option<Fingerprint>>) -> Standing {
    match (expected, seen) {
        (_, None) => Standing::Gone,
        (None, Some(None)) => Standing::MustRead,
        (Some(expected), Some(Some(seen))) if expected == seen => Standing::InPlace,
        _ => Standing::Drifted,
    }
}

/// Whether `live` has everything that `desired` says: for objects without `managedFields`.
pub fn covers(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (_, Value::Null) => true,
        (Value::Object(live), Value::Object(desired)) => {
            desired.iter().all(|(key, wanted)| match live.get(key) {
                Some(value) => covers(value, wanted),
                None => wanted.is_null(),
            })
        }
        (Value::Array(live), Value::Array(desired)) => {
            live.len() == desired.len()
                && live
                    .iter()
                    .zip(desired)
                    .all(|(live, desired)| covers(live, desired))
        }
        (live, desired) => live == desired,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn print(manager: &str, fields: &Value, owner: &str) -> Option<Fingerprint> {
        let labels = [("owner".to_owned(), owner.to_owned())].into();
        let entries = [
            Entry {
                manager: "kubectl",
                operation: "Update",
                subresource: "",
                fields: &json!({ "f:x": {} }),
            },
            Entry {
                manager,
                operation: "Apply",
                subresource: "",
                fields,
            },
        ];
        Fingerprint::of("ours", entries, &labels, &["owner"])
    }

    #[test]
    fn our_entry_and_our_labels_count_and_nothing_else() {
        let fields = json!({ "f:data": { "f:a": {} } });
        let expected = print("ours", &fields, "web").unwrap();
        assert_eq!(print("ours", &fields, "web"), Some(expected));
        assert_ne!(
            print("ours", &json!({ "f:data": {} }), "web"),
            Some(expected)
        );
        assert_ne!(print("ours", &fields, "other"), Some(expected));
        assert_eq!(print("theirs", &fields, "web"), None);
    }

    #[test]
    fn status_and_updates_under_our_name_are_not_our_entry() {
        let fields = json!({});
        for (operation, subresource) in [("Update", ""), ("Apply", "status")] {
            let entry = Entry {
                manager: "ours",
                operation,
                subresource,
                fields: &fields,
            };
            assert_eq!(
                Fingerprint::of("ours", [entry], &BTreeMap::new(), &[]),
                None
            );
        }
    }

    #[test]
    fn every_way_to_stand() {
        let a = print("ours", &json!({ "f:a": {} }), "web");
        let b = print("ours", &json!({ "f:b": {} }), "web");
        for (expected, seen, standing_is) in [
            (a, Some(a), Standing::InPlace),
            (a, Some(b), Standing::Drifted),
            (a, Some(None), Standing::Drifted),
            (a, None, Standing::Gone),
            (None, Some(None), Standing::MustRead),
            (None, Some(a), Standing::Drifted),
            (None, None, Standing::Gone),
        ] {
            assert_eq!(
                standing(expected, seen),
                standing_is,
                "{expected:?} {seen:?}"
            );
        }
    }

    #[test]
    fn one_digest_for_any_order_and_another_for_any_change() {
        let a = print("ours", &json!({ "f:a": {} }), "web").unwrap();
        let b = print("ours", &json!({ "f:b": {} }), "web").unwrap();
        let one = combined([("x".to_owned(), a), ("y".to_owned(), b)]);
        assert_eq!(one, combined([("y".to_owned(), b), ("x".to_owned(), a)]));
        assert_ne!(one, combined([("y".to_owned(), a), ("x".to_owned(), b)]));
        assert_ne!(one, combined([("x".to_owned(), a)]));
    }

    #[test]
    fn a_live_object_may_have_more_but_not_less() {
        let live =
            json!({ "data": { "a": "1", "b": "2" }, "list": [{ "name": "x", "default": 1 }] });
        for (desired, covered) in [
            (json!({ "data": { "a": "1" } }), true),
            (
                json!({ "data": { "a": "1" }, "list": [{ "name": "x" }] }),
                true,
            ),
            (json!({ "data": { "c": null } }), true),
            (json!({ "data": { "a": "2" } }), false),
            (json!({ "data": { "c": "1" } }), false),
            (json!({ "list": [] }), false),
        ] {
            assert_eq!(covers(&live, &desired), covered, "{desired}");
        }
    }
}
