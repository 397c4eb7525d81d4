//! Memory estimates of objects before the objects are stored. The same estimate limits responses,
//! so that each admitted object can be read later. The limits per kind are in
//! `bundle_core::review::size`.

use std::io::{self, Write};

use bundle_core::review::size::{ObjectWeight, WeightLimits};
use serde::Serialize;
use serde_json::Value;

use super::OWN_LIMIT;
use super::reduce::{ObjectRules, Reducer, ResponseKind};

/// Largest weight that a review admits: half of the limit for reads, so that the status and further
/// entries of `managedFields` also fit.
pub const WEIGHT_LIMITS: WeightLimits = WeightLimits {
    metadata: OWN_LIMIT / 4,
    whole: OWN_LIMIT / 2,
};

/// Returns the weight of an object of this project's kinds in a list.
pub fn weigh(object: &Value) -> ObjectWeight {
    let mut metadata = Scale::new();
    metadata.push(br#"{"metadata":{"#);
    for (key, value) in object["metadata"].as_object().into_iter().flatten() {
        match value {
            Value::Array(entries) if key == "managedFields" => metadata.managed_fields(entries),
            value => metadata.entry(key, value),
        }
    }
    metadata.push(b"}}");
    let mut content = Scale::new();
    content.push(b"{");
    for (key, value) in object.as_object().into_iter().flatten() {
        if key != "metadata" && key != "status" {
            content.entry(key, value);
        }
    }
    content.push(b"}");
    ObjectWeight {
        is_too_deep: metadata.is_too_deep() || content.is_too_deep(),
        metadata: metadata.weight,
        content: content.weight,
    }
}

/// Computes the weight of one object in a list from its text, without storing the text.
struct Scale {
    reducer: Reducer,
    weight: usize,
}

impl Scale {
    fn new() -> Self {
        let rules = ObjectRules {
            keeps_fields: false,
            ..ObjectRules::TIMES_ONLY
        };
        let mut scale = Self {
            reducer: Reducer::new(ResponseKind::List, rules),
            weight: 0,
        };
        scale.push(br#"{"items":["#);
        scale
    }

    fn push(&mut self, bytes: &[u8]) {
        // The text of a serialized value is always valid JSON.
        if self.reducer.push(bytes).is_ok() {
            self.weight = self.weight.saturating_add(self.reducer.weight());
            self.reducer.take();
        }
    }

    /// Writes a value as JSON.
    fn value(&mut self, value: &impl Serialize) {
        // Writing to memory does not fail.
        let _written = serde_json::to_writer(&mut *self, value);
    }

    /// Writes an entry of a map, with an optional comma after it.
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

impl Write for Scale {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            match byte {
                // API servers write each of these characters as an escape sequence of six bytes.
                b'<' | b'>' | b'&' => self.push(br"\u0000"),
                byte => self.push(&[byte]),
            }
        }
        Ok(bytes.len())
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
            let all = weight.metadata + weight.content;
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
        assert!(weigh(&object).metadata < 5000);
        object["metadata"]["managedFields"] = entry(FIELD_MANAGER);
        assert!(weigh(&object).metadata > 100_000);
    }

    #[test]
    fn characters_that_api_servers_escape_count_as_escaped() {
        let plain = weigh(&deployment(&json!({"a": "x".repeat(100)}), &json!({})));
        let escaped = weigh(&deployment(&json!({"a": "<&>".repeat(100)}), &json!({})));
        assert_eq!(escaped.content - plain.content, 300 * 6 - 100);
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
