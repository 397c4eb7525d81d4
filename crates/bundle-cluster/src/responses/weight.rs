//! Memory estimates of objects before the objects are stored. The same estimate limits responses,
//! so that each admitted object can be read later. The limits of the parts of an object are in
//! `bundle_core::review::size`.

use std::io::{self, Write};

use bundle_core::cancellation::Cancellation;
use bundle_core::review::size::{MAX_WEIGHT, ObjectPart, ObjectWeight};
use serde::Serialize;
use serde_json::{Map, Value};

use super::OWN_LIMIT;
use super::reduce::{ObjectRules, Reducer, ResponseKind};

const _: () = assert!(
    MAX_WEIGHT <= OWN_LIMIT / 4 * 3,
    "a quarter of the limit for reads must remain for the status"
);

/// Number of bytes of an object after which the estimate checks whether it is cancelled.
const CHECK_INTERVAL: usize = 64 << 10;

/// API servers write some characters as an escape sequence of six bytes.
const ESCAPE_SEQUENCE: &[u8] = br"\u0000";

/// Returns the weight that `object`, of a kind of this project, has in a list response, for each
/// [`ObjectPart`]. The sum of all parts is at least the weight of the whole object without its
/// status. The time is linear in the length of the object. Returns `None` if `cancellation` is set
/// before the end.
pub fn weigh(object: &Value, cancellation: &Cancellation) -> Option<ObjectWeight> {
    let mut weight = ObjectWeight::default();
    for (part, sum) in ObjectPart::ALL.into_iter().zip(&mut weight.parts) {
        let mut scale = Scale::new(cancellation);
        scale.part(object, part);
        if scale.is_cancelled {
            return None;
        }
        weight.is_too_deep |= scale.is_too_deep();
        *sum = scale.weight();
    }
    Some(weight)
}

/// Computes the weight of one object in a list from its text, without storing the text.
struct Scale<'a> {
    reducer: Reducer,
    cancellation: &'a Cancellation,
    is_cancelled: bool,
    /// Number of bytes until the next check of `cancellation`.
    until_check: usize,
}

impl<'a> Scale<'a> {
    fn new(cancellation: &'a Cancellation) -> Self {
        let rules = ObjectRules {
            keeps_fields: false,
            ..ObjectRules::TIMES_ONLY
        };
        let mut scale = Self {
            reducer: Reducer::without_output(ResponseKind::List, rules),
            cancellation,
            is_cancelled: cancellation.is_cancelled_now(),
            until_check: CHECK_INTERVAL,
        };
        scale.push(br#"{"items":["#);
        scale
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.until_check < bytes.len() {
            self.until_check = CHECK_INTERVAL;
            self.is_cancelled |= self.cancellation.is_cancelled_now();
        }
        self.until_check = self.until_check.saturating_sub(bytes.len());
        if self.is_cancelled {
            return;
        }
        // The text of a serialized value is always valid JSON.
        let _read = self.reducer.push(bytes);
    }

    fn weight(&self) -> usize {
        self.reducer.weight()
    }

    /// Writes an object that contains only the fields of `part`.
    fn part(&mut self, object: &Value, part: ObjectPart) {
        self.push(b"{");
        if part == ObjectPart::Content {
            let members = object.as_object().into_iter().flatten();
            for (key, value) in members.filter(|(key, _)| *key != "metadata" && *key != "status") {
                self.entry(key, value);
            }
        } else {
            self.push(br#""metadata":{"#);
            for (key, value) in object["metadata"].as_object().into_iter().flatten() {
                match value {
                    Value::Object(annotations) if key == "annotations" => {
                        self.annotations(annotations, part);
                    }
                    _ if ObjectPart::of_field(key) != part => {}
                    Value::Array(entries) if key == "managedFields" => self.managed_fields(entries),
                    value => self.entry(key, value),
                }
            }
            self.push(b"}");
        }
        self.push(b"}");
    }

    /// Writes the annotations of `part`.
    fn annotations(&mut self, annotations: &Map<String, Value>, part: ObjectPart) {
        self.push(br#""annotations":{"#);
        let annotations = annotations.iter();
        for (key, value) in annotations.filter(|(key, _)| ObjectPart::of_annotation(key) == part) {
            self.entry(key, value);
        }
        self.push(b"},");
    }

    /// Writes a value as JSON.
    fn value(&mut self, value: &impl Serialize) {
        // Writing to memory does not fail.
        let _written = serde_json::to_writer(&mut *self, value);
    }

    /// Writes an entry of a map, and a comma. The reducer accepts a comma after the last entry.
    fn entry(&mut self, key: &str, value: &Value) {
        self.value(&key);
        self.push(b":");
        self.value(value);
        self.push(b",");
    }

    /// Writes `managedFields` with the manager of each entry first. In metadata-only responses, the
    /// reducer removes the fields of all other managers, so the reducer must read the manager
    /// before the fields.
    fn managed_fields(&mut self, entries: &[Value]) {
        self.push(br#""managedFields":["#);
        for entry in entries {
            self.push(b"{");
            if let Some(manager) = entry.get("manager") {
                self.entry("manager", manager);
            }
            let fields = entry.as_object().into_iter().flatten();
            for (key, value) in fields.filter(|(key, _)| *key != "manager") {
                self.entry(key, value);
            }
            self.push(b"},");
        }
        self.push(b"],");
    }

    fn is_too_deep(&self) -> bool {
        self.reducer.is_too_deep()
    }
}

impl Write for Scale<'_> {
    /// Counts the text of an object. `serde_json` writes each character with one call. The error
    /// ends the serialization of an object whose estimate is cancelled.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        loop {
            if self.is_cancelled {
                return Err(io::Error::other("the estimate is cancelled"));
            }
            rest = match rest {
                // The bytes E2 80 A8 and E2 80 A9 are U+2028 and U+2029.
                [b'<' | b'>' | b'&', next @ ..] | [0xE2, 0x80, 0xA8 | 0xA9, next @ ..] => {
                    self.push(ESCAPE_SEQUENCE);
                    next
                }
                [byte, next @ ..] => {
                    self.push(&[*byte]);
                    next
                }
                [] => return Ok(bytes.len()),
            };
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bundle_api::names::FIELD_MANAGER;
    use serde_json::json;

    use super::*;

    fn weigh(object: &Value) -> ObjectWeight {
        super::weigh(object, &Cancellation::default()).unwrap()
    }

    /// Returns the weight of `object` as an item of a list.
    fn weight_in_list(object: &Value) -> usize {
        let rules = ObjectRules {
            keeps_fields: false,
            ..ObjectRules::TIMES_ONLY
        };
        let mut reducer = Reducer::new(ResponseKind::List, rules);
        let list = json!({"items": [object]}).to_string();
        reducer.push(list.as_bytes()).unwrap();
        reducer.weight()
    }

    fn deployment(spec: &Value, metadata: &Value) -> Value {
        json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment", "metadata": metadata, "spec": spec})
    }

    #[test]
    fn weight_is_that_of_the_object_in_an_answer() {
        let labels: serde_json::Map<String, Value> = (0..100)
            .map(|n| (format!("label-{n}"), json!("x")))
            .collect();
        let finalizers: Vec<_> = (0..1000).map(|n| format!("a/{n}")).collect();
        let maps = vec![json!({"a": {"b": 1}}); 1000];
        let entry = |manager| json!({"manager": manager, "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:a": {"f:b": {}}}});
        for (spec, metadata) in [
            (json!({"config": maps}), json!({"name": "web"})),
            (
                json!({}),
                json!({"labels": labels, "finalizers": finalizers}),
            ),
            (
                json!({"a": "x".repeat(1000)}),
                json!({"managedFields": vec![entry("x"); 100]}),
            ),
            (
                json!({"a": []}),
                json!({"managedFields": vec![entry(FIELD_MANAGER); 100]}),
            ),
        ] {
            let object = deployment(&spec, &metadata);
            let weight = weigh(&object);
            let all: usize = weight.parts.iter().sum();
            let expected = weight_in_list(&object);
            assert!(all >= expected, "{all} {expected}");
            // Responses with whole objects also omit `fieldsV1` of this project's manager.
            assert!(all < expected * 6 + 5000, "{all} {expected}");
            assert!(!weight.is_too_deep);
        }
    }

    #[test]
    fn status_and_fields_of_other_managers_count_for_nothing() {
        let heavy = json!({"f:a": vec![json!({"a": {}}); 1000]});
        let entry = |manager| json!([{"manager": manager, "fieldsV1": heavy}]);
        let mut object = deployment(&json!({}), &json!({"managedFields": entry("x")}));
        object["status"] = heavy.clone();
        assert!(weigh(&object).of(ObjectPart::ManagedFields) < 5000);
        object["metadata"]["managedFields"] = entry(FIELD_MANAGER);
        assert!(weigh(&object).of(ObjectPart::ManagedFields) > 100_000);
        let parts = ObjectPart::ALL.into_iter();
        for part in parts.filter(|part| *part != ObjectPart::ManagedFields) {
            assert!(weigh(&object).of(part) < 5000, "{part:?}");
        }
    }

    #[test]
    fn each_value_counts_for_one_part() {
        let long = "x".repeat(20_000);
        for (field, part) in [
            ("/spec/a", ObjectPart::Content),
            ("/metadata/labels/a", ObjectPart::Metadata),
            ("/metadata/annotations/a", ObjectPart::Metadata),
            ("/metadata/finalizers/0", ObjectPart::Metadata),
            ("/metadata/ownerReferences/0/name", ObjectPart::Metadata),
            (
                "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
                ObjectPart::LastApplied,
            ),
            (
                "/metadata/annotations/core.rukpak.io~1proof",
                ObjectPart::Proof,
            ),
            (
                "/metadata/annotations/core.rukpak.io~1stamp",
                ObjectPart::System,
            ),
            (
                "/metadata/annotations/core.rukpak.io~1admit",
                ObjectPart::System,
            ),
            (
                "/metadata/annotations/applyset.kubernetes.io~1tooling",
                ObjectPart::System,
            ),
            ("/metadata/uid", ObjectPart::System),
            (
                "/metadata/managedFields/0/manager",
                ObjectPart::ManagedFields,
            ),
        ] {
            let mut object = deployment(
                &json!({"a": ""}),
                &json!({
                    "uid": "",
                    "labels": {"a": ""},
                    "annotations": {
                        "a": "",
                        "kubectl.kubernetes.io/last-applied-configuration": "",
                        "core.rukpak.io/proof": "",
                        "core.rukpak.io/stamp": "",
                        "core.rukpak.io/admit": "",
                        "applyset.kubernetes.io/tooling": "",
                    },
                    "finalizers": [""],
                    "ownerReferences": [{"name": ""}],
                    "managedFields": [{"manager": ""}],
                }),
            );
            let before = weigh(&object);
            *object.pointer_mut(field).unwrap() = json!(long);
            let after = weigh(&object);
            for one in ObjectPart::ALL {
                let growth = if one == part { long.len() } else { 0 };
                assert_eq!(after.of(one), before.of(one) + growth, "{field} {one:?}");
            }
        }
    }

    #[test]
    fn characters_that_api_servers_escape_count_as_escaped() {
        let plain = weigh(&deployment(&json!({"a": "x".repeat(100)}), &json!({})));
        let escaped = weigh(&deployment(&json!({"a": "<&>".repeat(100)}), &json!({})));
        let [plain, escaped] = [plain, escaped].map(|weight| weight.of(ObjectPart::Content));
        assert_eq!(escaped - plain, 300 * 6 - 100);
        let content = |text: &str| {
            let object = deployment(&json!({"a": text}), &json!({}));
            weigh(&object).of(ObjectPart::Content)
        };
        for (character, bytes) in [("\u{2028}", 6), ("\u{2029}", 6), ("\u{2027}", 3)] {
            let weight = content(&character.repeat(100));
            assert_eq!(weight - content(""), 100 * bytes, "{character:?}");
        }
    }

    #[test]
    fn weight_of_a_long_time_grows_with_its_length() {
        let weight = |length: usize| {
            let entries = json!([{"manager": "x", "time": "1".repeat(length)}]);
            let object = deployment(&json!({}), &json!({"managedFields": entries}));
            weigh(&object).of(ObjectPart::ManagedFields)
        };
        assert_eq!(weight(4 << 20) - weight(2 << 20), 2 << 20);
    }

    #[test]
    fn cancelled_estimate_ends_within_its_check_interval() {
        let object = deployment(&json!({"a": "x".repeat(1 << 20)}), &json!({}));
        let cancellation = Cancellation::default();
        let mut scale = Scale::new(&cancellation);
        cancellation.cancel();
        scale.part(&object, ObjectPart::Content);
        assert!(scale.is_cancelled);
        assert!(scale.weight() < 2 * CHECK_INTERVAL, "{}", scale.weight());
        assert!(super::weigh(&object, &cancellation).is_none());
    }

    #[test]
    fn object_that_is_nested_deeper_than_a_list_is_read_is_too_deep() {
        let nested = |levels: usize| {
            let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            deployment(&serde_json::from_str(&text).unwrap(), &json!({}))
        };
        assert!(!weigh(&nested(90)).is_too_deep);
        assert!(weigh(&nested(98)).is_too_deep);
    }
}
