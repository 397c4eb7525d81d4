//! Rules of `spec.drift.ignore`: fields that the reconciler does not apply, because other field
//! managers own these fields. `crate::review` parses the rules.

mod owned_fields;

use std::collections::{BTreeMap, HashSet};
use std::ptr;

use serde_json::{Map, Value};

use owned_fields::OwnedFields;

use crate::field_path::pointer_key;
use crate::object::ObjectId;

use crate::plan::drift::FieldsEntry;
pub use crate::review::deployment::IgnoreRule as Rule;

impl Rule {
    /// Returns true if the rule applies to this object. No rule applies to roles and role bindings:
    /// permissions were checked for the roles in the content, so these roles are applied without
    /// changes.
    pub fn fits(&self, id: &ObjectId) -> bool {
        id.group != "rbac.authorization.k8s.io"
            && self
                .kind
                .as_ref()
                .is_none_or(|kind| kind.group == id.group && kind.kind == id.kind)
            && self
                .namespace
                .as_ref()
                .is_none_or(|namespace| Some(namespace) == id.namespace.as_ref())
            && self.name.as_ref().is_none_or(|name| *name == id.name)
    }
}

/// Maximum number of comparisons in [`without_effect`].
const COMPARISONS: usize = 10_000_000;

/// Applies `rules` to `desired`. Each field that a rule names by path gets its value from `live`,
/// the object on the cluster. If `live` does not have the field, the field is removed. Afterwards,
/// each field that a field manager in the rules owns according to `entries` is removed. The order
/// of the rules has no effect.
pub fn apply_rules(
    desired: &mut Value,
    live: &Value,
    entries: &[FieldsEntry<'_>],
    rules: &[&Rule],
) {
    keep_live_fields(desired, live, rules);
    let managers: HashSet<&str> = rules
        .iter()
        .filter_map(|rule| rule.manager.as_deref())
        .collect();
    let mut owned = OwnedFields::default();
    for entry in entries {
        count();
        if managers.contains(entry.manager) {
            owned.add(entry.fields);
        }
    }
    owned.remove_from(desired);
}

/// Sets or removes the fields that the rules name by path. Each value is copied only once, even if
/// several pointers name the value or a value that contains it.
fn keep_live_fields(desired: &mut Value, live: &Value, rules: &[&Rule]) {
    let mut found = BTreeMap::<*const Value, (&str, &Value)>::new();
    for pointer in rules.iter().flat_map(|rule| &rule.fields) {
        match find(live, pointer, |_| {}) {
            Some(value) => {
                found.insert(ptr::from_ref(value), (pointer, value));
            }
            None => remove(desired, pointer),
        }
    }
    for (pointer, value) in found.values() {
        let mut is_inside = false;
        find(live, pointer, |above| {
            is_inside |= found.contains_key(&ptr::from_ref(above));
        });
        if !is_inside {
            set(desired, pointer, value);
        }
    }
}

/// Returns the value at `pointer`; `None` if no such value exists. Calls `above` for each value
/// that contains the value at `pointer`.
fn find<'v>(
    value: &'v Value,
    pointer: &str,
    mut above: impl FnMut(&'v Value),
) -> Option<&'v Value> {
    let mut here = value;
    for part in parts(pointer) {
        count();
        above(here);
        here = match here {
            Value::Object(fields) => fields.get(&part)?,
            Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(here)
}

/// Returns a message for each rule, and each part of a rule, that has no effect on these objects.
/// The messages are in the order of `spec.drift.ignore`. If the maximum number of comparisons is
/// reached, the last message reports that the check is not complete.
pub fn without_effect(rules: &[Rule], objects: &[(&ObjectId, &Value)]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut left = COMPARISONS;
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("spec.drift.ignore[{index}]");
        left = left.saturating_sub(objects.len());
        let fitting: Vec<&Value> = objects
            .iter()
            .filter(|(id, _)| rule.fits(id))
            .map(|(_, value)| *value)
            .collect();
        if fitting.is_empty() {
            lines.push(format!(
                "{path} matches no object of the content, or only roles and bindings, to which no rule applies"
            ));
        } else {
            for pointer in &rule.fields {
                let is_set = fitting.iter().any(|value| {
                    left = left.saturating_sub(pointer.len());
                    left == 0 || find(value, pointer, |_| {}).is_some()
                });
                if !is_set {
                    lines.push(format!("{path}: no matching object sets {pointer}"));
                }
            }
        }
        if left == 0 {
            lines.push(format!(
                "{path} and the rules after it are not compared with all objects of the content, because the number of comparisons is limited"
            ));
            break;
        }
    }
    lines
}

fn parts(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(pointer_key)
}

fn set(target: &mut Value, pointer: &str, value: &Value) {
    count_copy();
    let mut here = target;
    for part in parts(pointer) {
        here = match here {
            Value::Array(items) => match part
                .parse::<usize>()
                .ok()
                .and_then(|index| items.get_mut(index))
            {
                Some(item) => item,
                None => return,
            },
            Value::Object(fields) => fields.entry(part).or_insert(Value::Null),
            other => {
                *other = Value::Object(Map::new());
                match other {
                    Value::Object(fields) => fields.entry(part).or_insert(Value::Null),
                    _ => return,
                }
            }
        };
    }
    *here = value.clone();
}

fn remove(target: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        return;
    };
    if let Some(Value::Object(fields)) = target.pointer_mut(parent) {
        fields.remove(&pointer_key(last));
    }
}

/// Counts one step of the work in test builds. In other builds, this function does nothing.
#[cfg(not(test))]
fn count() {}

/// Counts one copy of a value in test builds. In other builds, this function does nothing.
#[cfg(not(test))]
fn count_copy() {}

#[cfg(test)]
use tests::{count, count_copy};

#[cfg(test)]
mod tests;
