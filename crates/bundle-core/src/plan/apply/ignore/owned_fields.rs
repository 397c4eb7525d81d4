//! Fields that field managers own according to `managedFields`, and the removal of these fields
//! from an object. Users determine the size of `managedFields`, rules and content. To limit the
//! cost, each field and each list item is visited once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::count;

/// Maximum number of different sets of key fields that identify the items of one list. The schema
/// of a list defines only one set of key fields.
const KEY_SETS: usize = 4;
/// Maximum number of fields that identify an item.
const KEY_FIELDS: usize = 8;

/// Fields that one or more entries of `managedFields` own, by their keys in `fieldsV1`.
#[derive(Debug, Default)]
pub(super) struct OwnedFields<'f> {
    /// True if an entry of `managedFields` contains the field itself, without nested fields.
    is_whole: bool,
    below: BTreeMap<&'f str, Self>,
}

impl<'f> OwnedFields<'f> {
    /// Adds the fields of the `fieldsV1` of one entry.
    pub(super) fn add(&mut self, fields: &'f Value) {
        count();
        match fields.as_object().filter(|fields| !fields.is_empty()) {
            Some(fields) => {
                for (key, inner) in fields {
                    self.below.entry(key).or_default().add(inner);
                }
            }
            None => self.is_whole = true,
        }
    }

    /// Removes each owned field from `target`. Fields that identify a list item are not removed.
    pub(super) fn remove_from(&self, target: &mut Value) {
        self.remove_except(&[], target);
    }

    /// Like [`Self::remove_from`], but keeps the fields with these names.
    fn remove_except(&self, kept: &[String], target: &mut Value) {
        match target {
            Value::Object(object) => {
                for (key, inner) in &self.below {
                    count();
                    if let Some(name) = key.strip_prefix("f:")
                        && !matches!(name, "apiVersion" | "kind")
                        && !kept.iter().any(|kept| kept == name)
                    {
                        inner.remove_field(name, object);
                    }
                }
            }
            Value::Array(items) => self.remove_from_items(items),
            _ => {}
        }
    }

    fn remove_field(&self, name: &str, object: &mut Map<String, Value>) {
        if self.is_whole {
            object.remove(name);
        } else if let Some(value) = object.get_mut(name) {
            self.remove_from(value);
            if value.as_object().is_some_and(Map::is_empty) {
                object.remove(name);
            }
        }
    }

    fn remove_from_items(&self, items: &mut Vec<Value>) {
        let members: BTreeSet<String> = self.below.keys().filter_map(|key| member(key)).collect();
        if !members.is_empty() {
            items.retain(|item| {
                count();
                !members.contains(&item.to_string())
            });
        }
        let mut identified = BTreeMap::<Vec<String>, BTreeMap<String, &Self>>::new();
        for (key, inner) in &self.below {
            count();
            if let Some((names, values)) = identity(key) {
                identified.entry(names).or_default().insert(values, inner);
            }
        }
        for item in items {
            for (names, owned) in identified.iter_mut().take(KEY_SETS) {
                count();
                let values = names.iter().map(|name| item.get(name));
                let values: Option<Vec<&Value>> = values.collect();
                // An entry can be removed after its first match: the API server rejects a second
                // item with equal key values.
                let inner = values.and_then(|values| owned.remove(&text(&values)));
                if let Some(inner) = inner {
                    inner.remove_except(names, item);
                }
            }
        }
    }
}

/// Returns the item of a set as JSON text, from its key `v:…` in `fieldsV1`. Returns `None` for
/// other keys.
fn member(key: &str) -> Option<String> {
    let value: Value = serde_json::from_str(key.strip_prefix("v:")?).ok()?;
    Some(value.to_string())
}

/// Returns the names and values of the fields that identify a list item, from its key `k:…` in
/// `fieldsV1`. Returns `None` for other keys.
fn identity(key: &str) -> Option<(Vec<String>, String)> {
    let fields: Map<String, Value> = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
    if fields.is_empty() || fields.len() > KEY_FIELDS {
        return None;
    }
    let values: Vec<&Value> = fields.values().collect();
    let values = text(&values);
    Some((fields.into_iter().map(|(name, _)| name).collect(), values))
}

fn text(values: &[&Value]) -> String {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    texts.join(",")
}
