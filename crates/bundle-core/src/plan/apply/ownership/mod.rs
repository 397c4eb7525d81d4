//! Changes to `metadata.managedFields` before an apply. If the content no longer contains a field,
//! server-side apply keeps the field while another manager owns the field. These changes move the
//! ownership to this project, so that the apply removes the field. `webhook::reconcile::apply`
//! sends the changes.

use serde_json::{Map, Value, json};

use crate::object::ObjectId;

/// Managers whose fields this project takes over when it adopts an object, with the operations of
/// their entries. These are the default names of `kubectl apply`, `kubectl apply --server-side` and
/// helm.
pub const FORMER_MANAGERS: [(&str, &[&str]); 3] = [
    ("kubectl-client-side-apply", &["Update"]),
    ("kubectl", &["Apply"]),
    ("helm", &["Update", "Apply"]),
];

/// Maximum number of lists that are read from one error response.
const MAX_LISTS: usize = 20;

/// Change of field owners before an apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnershipChange {
    /// True if the object is adopted: fields of [`FORMER_MANAGERS`] become owned by this project.
    pub takes_over: bool,
    /// True for a Secret: fields that an earlier apply of this project owns as `stringData` become
    /// owned as `data`.
    pub folds_string_data: bool,
    /// Lists that become owned by this project, regardless of their owners.
    pub lists: Vec<ListPath>,
}

/// Path of a list in an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPath(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Field(String),
    /// Items of a list that this project owns. Other items are not selected.
    OwnItems,
}

impl ListPath {
    /// Returns the innermost list in the field path of an error, such as `spec.ports[1].name`.
    /// Returns `None` if the path contains no list.
    fn parse(field: &str) -> Option<Self> {
        let mut segments = Vec::new();
        let mut list = None;
        for part in field.split('.') {
            let (name, indices) = part
                .split_once('[')
                .map_or((part, None), |(name, rest)| (name, Some(rest)));
            if name.is_empty() {
                return None;
            }
            segments.push(Segment::Field(name.to_owned()));
            if let Some(indices) = indices {
                let index = indices.strip_suffix(']')?;
                // Only a list index is accepted. Other text in brackets is a key of a map. Items of
                // nested lists (`[0][1]`) have no keys.
                index.parse::<u32>().ok()?;
                list = Some(segments.len());
                segments.push(Segment::OwnItems);
            }
        }
        segments.truncate(list?);
        Some(Self(segments))
    }
}

/// Returns the lists into which the API server cannot merge an apply. In such a list, the items of
/// this project and the items of other managers are invalid together. `causes` contains the reason
/// and field of each cause in the `Status` of a 422 response.
///
/// The usual reason is `FieldValueDuplicate`. A Service differs: in a Service with several ports,
/// each port needs a name. If another actor changed the number or protocol of a port without a
/// name, the merged list has two ports. The API server then answers `FieldValueRequired`.
pub fn contested_lists<'a>(
    id: &ObjectId,
    causes: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<ListPath> {
    let is_service = id.group.is_empty() && id.kind == "Service";
    let mut lists = Vec::new();
    for (reason, field) in causes.into_iter().take(MAX_LISTS) {
        let is_contested = match reason {
            "FieldValueDuplicate" => true,
            "FieldValueRequired" => {
                is_service && field.starts_with("spec.ports[") && field.ends_with("].name")
            }
            _ => false,
        };
        let list = is_contested.then(|| ListPath::parse(field)).flatten();
        lists.extend(list.filter(|list| !lists.contains(list)));
    }
    lists
}

impl OwnershipChange {
    /// Returns true if there is no change to make.
    pub fn is_empty(&self) -> bool {
        !self.takes_over && !self.folds_string_data && self.lists.is_empty()
    }

    /// Returns the `managedFields` to write before `manager` applies with `api_version`; `None` if
    /// no change is needed.
    ///
    /// Entries of other API versions cannot be compared with `api_version`. Therefore a former
    /// manager loses all fields of such an entry, as with `kubectl apply --server-side`.
    pub fn applied(
        &self,
        entries: &[Value],
        manager: &str,
        api_version: &str,
    ) -> Option<Vec<Value>> {
        let mut changed = entries.to_vec();
        if self.takes_over {
            take_over(&mut changed, manager, api_version);
        }
        if self.folds_string_data {
            fold_string_data(&mut changed, manager);
        }
        for list in &self.lists {
            take_list(&mut changed, (manager, api_version), list);
        }
        (changed != entries).then_some(changed)
    }
}

fn is_by(entry: &Value, manager: &str, operation: &str) -> bool {
    let subresource = entry["subresource"].as_str().unwrap_or_default();
    entry["manager"] == manager && entry["operation"] == operation && subresource.is_empty()
}

fn is_former(entry: &Value) -> bool {
    FORMER_MANAGERS.iter().any(|(manager, operations)| {
        let mut operations = operations.iter();
        operations.any(|operation| is_by(entry, manager, operation))
    })
}

fn take_over(entries: &mut Vec<Value>, manager: &str, api_version: &str) {
    let (former, mut others): (Vec<Value>, Vec<Value>) =
        std::mem::take(entries).into_iter().partition(is_former);
    if !former.is_empty() {
        let own = own_entry(&mut others, manager, api_version);
        for entry in former {
            if entry["apiVersion"] == own["apiVersion"]
                && let Value::Object(fields) = &entry["fieldsV1"]
            {
                add(&mut own["fieldsV1"], fields.clone());
            }
        }
    }
    *entries = others;
}

fn fold_string_data(entries: &mut [Value], manager: &str) {
    let own = entries.iter_mut();
    for entry in own.filter(|entry| is_by(entry, manager, "Apply")) {
        if let Value::Object(fields) = &mut entry["fieldsV1"]
            && let Some(folded) = fields.remove("f:stringData")
        {
            union(fields, Map::from_iter([("f:data".to_owned(), folded)]));
        }
    }
}

/// Removes the fields from `object` that only [`FORMER_MANAGERS`] own.
///
/// An adoption removes these fields. `object` is the result of a dry run that did not change the
/// field owners, so `object` still contains these fields.
pub fn remove_former_fields(object: &mut Value) {
    let api_version = object["apiVersion"].clone();
    let entries = object["metadata"]["managedFields"].as_array().cloned();
    let (former, others): (Vec<Value>, Vec<Value>) =
        entries.unwrap_or_default().into_iter().partition(is_former);
    let fields = |entries: Vec<Value>| {
        let mut fields = Map::new();
        for mut entry in entries {
            if let Value::Object(owned) = entry["fieldsV1"].take() {
                union(&mut fields, owned);
            }
        }
        fields
    };
    let is_comparable = |entry: &Value| entry["apiVersion"] == api_version;
    let former = fields(former.into_iter().filter(is_comparable).collect());
    remove_unowned(object, &former, &fields(others));
}

/// Removes the fields of `former` from `target`, except the fields in `kept`. A field with nested
/// fields is removed only if it is empty afterwards.
fn remove_unowned(target: &mut Value, former: &Map<String, Value>, kept: &Map<String, Value>) {
    let none = Map::new();
    for (key, inner) in former {
        let inner = inner.as_object().unwrap_or(&none);
        let below = match kept.get(key) {
            None => &none,
            // Another manager owns the whole field, so the field is kept.
            Some(owned) => match owned.as_object() {
                Some(owned) if !owned.is_empty() => owned,
                _ => continue,
            },
        };
        let is_unowned = !kept.contains_key(key);
        match (key.split_once(':'), &mut *target) {
            (Some(("f", name)), Value::Object(object)) => {
                let Some(value) = object.get_mut(name) else {
                    continue;
                };
                remove_unowned(value, inner, below);
                if is_unowned && (inner.is_empty() || is_empty(value)) {
                    object.remove(name);
                }
            }
            (Some(("k", identity)), Value::Array(items)) => {
                let Ok(Value::Object(identity)) = serde_json::from_str(identity) else {
                    continue;
                };
                let is_meant = |item: &Value| {
                    let mut fields = identity.iter();
                    fields.all(|(name, value)| item.get(name) == Some(value))
                };
                if is_unowned && inner.contains_key(".") {
                    items.retain(|item| !is_meant(item));
                }
                for item in items.iter_mut().filter(|item| is_meant(item)) {
                    remove_unowned(item, inner, below);
                }
            }
            (Some(("v", member)), Value::Array(items)) if is_unowned => {
                if let Ok(member) = serde_json::from_str::<Value>(member) {
                    items.retain(|item| *item != member);
                }
            }
            _ => {}
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn take_list(entries: &mut Vec<Value>, (manager, api_version): (&str, &str), list: &ListPath) {
    let mut taken = Map::new();
    // The fields are moved, and not copied for each list: they can have a hundred thousand nodes.
    let index = entries
        .iter()
        .position(|entry| is_own(entry, manager, api_version));
    let fields_of = |entry: &mut Value| entry.get_mut("fieldsV1").map(Value::take);
    let own = index.and_then(|index| fields_of(&mut entries[index]));
    for entry in entries.iter_mut() {
        let is_of_object = entry["subresource"].as_str().is_none_or(str::is_empty);
        if is_own(entry, manager, api_version)
            || !is_of_object
            || entry["apiVersion"] != api_version
        {
            continue;
        }
        if let Value::Object(fields) = &mut entry["fieldsV1"] {
            union(&mut taken, take(fields, own.as_ref(), &list.0));
        }
    }
    if let (Some(index), Some(own)) = (index, own) {
        entries[index]["fieldsV1"] = own;
    }
    if taken.is_empty() {
        return;
    }
    entries.retain(|entry| {
        let fields = entry["fieldsV1"].as_object();
        fields.is_none_or(|fields| !fields.is_empty())
    });
    let own = own_entry(entries, manager, api_version);
    add(&mut own["fieldsV1"], taken);
}

fn is_own(entry: &Value, manager: &str, api_version: &str) -> bool {
    is_by(entry, manager, "Apply") && entry["apiVersion"] == api_version
}

/// Returns the entry of `manager`. Creates the entry if it does not exist.
fn own_entry<'e>(entries: &'e mut Vec<Value>, manager: &str, api_version: &str) -> &'e mut Value {
    let found = entries
        .iter()
        .position(|entry| is_own(entry, manager, api_version));
    let index = found.unwrap_or_else(|| {
        entries.push(json!({
            "manager": manager,
            "operation": "Apply",
            "apiVersion": api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": {},
        }));
        entries.len() - 1
    });
    &mut entries[index]
}

/// Removes the fields at `path` from a set of fields, and returns the removed fields with their
/// path. `own` contains the fields that this project owns. [`Segment::OwnItems`] selects only items
/// in `own`.
fn take(
    fields: &mut Map<String, Value>,
    own: Option<&Value>,
    path: &[Segment],
) -> Map<String, Value> {
    let Some((segment, rest)) = path.split_first() else {
        return std::mem::take(fields);
    };
    let keys: Vec<String> = match segment {
        Segment::Field(name) => vec![format!("f:{name}")],
        Segment::OwnItems => {
            let is_own = |key: &&String| own.is_some_and(|own| own.get(key.as_str()).is_some());
            let items = fields.keys().filter(|key| key.starts_with("k:"));
            items.filter(is_own).cloned().collect()
        }
    };
    let mut taken = Map::new();
    for key in keys {
        let Some(Value::Object(inner)) = fields.get_mut(&key) else {
            continue;
        };
        let own = own.and_then(|own| own.get(key.as_str()));
        let part = take(inner, own, rest);
        if !part.is_empty() {
            if inner.is_empty() {
                fields.remove(&key);
            }
            taken.insert(key, Value::Object(part));
        }
    }
    taken
}

/// Adds the set of fields `from` to the set `into`.
fn union(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(into)), Value::Object(from)) => union(into, from),
            (Some(_), _) => {}
            (None, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Adds a set of fields to the fields of an entry.
fn add(to: &mut Value, fields: Map<String, Value>) {
    match to {
        Value::Object(into) => union(into, fields),
        other => *other = Value::Object(fields),
    }
}

#[cfg(test)]
mod tests;
