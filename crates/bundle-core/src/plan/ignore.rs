//! Fields that a deployment leaves to others: what of an object is not applied, because a person said whose it is.
//! Not here: reading these rules from a spec (review), or the live object.

use serde_json::{Map, Value};

use crate::object::ObjectId;

use super::{applyset::GroupKind, drift::Entry};

/// One rule of `spec.drift.ignore`. A part that is not given fits everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// The kind of the objects.
    pub kind: Option<GroupKind>,
    /// Their namespace.
    pub namespace: Option<String>,
    /// Their name.
    pub name: Option<String>,
    /// Fields, as JSON pointers, that keep the value which they have on the cluster.
    pub fields: Vec<String>,
    /// A field manager that keeps every field which it has.
    pub manager: Option<String>,
}

impl Rule {
    /// Whether it is about this object. None is about roles and bindings: what the requester may hand on was asked of what the content says, so it is the
    /// content that has to be applied, and not the rules or the role that stand on the cluster.
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

/// Changes `desired` so that applying it leaves to others what the rules give them, given the object as it is on the cluster.
pub fn leave(desired: &mut Value, live: &Value, entries: &[Entry<'_>], rules: &[&Rule]) {
    for rule in rules {
        for pointer in &rule.fields {
            match live.pointer(pointer) {
                Some(value) => set(desired, pointer, value),
                None => remove(desired, pointer),
            }
        }
        if let Some(manager) = &rule.manager {
            for entry in entries.iter().filter(|entry| entry.manager == manager) {
                drop_fields(desired, entry.fields);
            }
        }
    }
}

/// Returns the reasons for which parts of `rules`, in the order of `spec.drift.ignore`, have no effect on these objects of a content: one line for each.
pub fn without_effect(rules: &[Rule], objects: &[(&ObjectId, &Value)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("spec.drift.ignore[{index}]");
        let fitting: Vec<&Value> = objects
            .iter()
            .filter(|(id, _)| rule.fits(id))
            .map(|(_, value)| *value)
            .collect();
        if fitting.is_empty() {
            lines.push(format!(
                "{path} fits no object of the content, or only roles and bindings, of which nothing is left to others"
            ));
            continue;
        }
        for pointer in &rule.fields {
            let is_set = fitting.iter().any(|value| value.pointer(pointer).is_some());
            if !is_set {
                lines.push(format!(
                    "{path} names {pointer}, which no object that it fits sets"
                ));
            }
        }
    }
    lines
}

fn parts(pointer: &str) -> impl Iterator<Item = String> {
    pointer
        .split('/')
        .skip(1)
        .map(|part| part.replace("~1", "/").replace("~0", "~"))
}

fn set(target: &mut Value, pointer: &str, value: &Value) {
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
        fields.remove(&last.replace("~1", "/").replace("~0", "~"));
    }
}

/// Takes from `target` each leaf that `fields`, a `fieldsV1`, names. Names and what identifies a list entry stay.
fn drop_fields(target: &mut Value, fields: &Value) {
    let Some(fields) = fields.as_object() else {
        return;
    };
    for (key, inner) in fields {
        let leaf = inner.as_object().is_none_or(Map::is_empty);
        if let Some(name) = key.strip_prefix("f:") {
            if matches!(name, "apiVersion" | "kind") {
                continue;
            }
            if let Value::Object(object) = target {
                if leaf {
                    object.remove(name);
                } else if let Some(value) = object.get_mut(name) {
                    drop_fields(value, inner);
                    if value.as_object().is_some_and(Map::is_empty) {
                        object.remove(name);
                    }
                }
            }
        } else if let Some(identity) = key
            .strip_prefix("k:")
            .and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok())
            && let Value::Array(items) = target
        {
            for item in items.iter_mut().filter(|item| {
                identity
                    .iter()
                    .all(|(name, value)| item.get(name) == Some(value))
            }) {
                let mut inner = inner.clone();
                if let Some(inner) = inner.as_object_mut() {
                    inner.retain(|name, _| {
                        name != "." && !identity.contains_key(name.trim_start_matches("f:"))
                    });
                }
                drop_fields(item, &inner);
            }
        } else if let Some(member) = key
            .strip_prefix("v:")
            .and_then(|text| serde_json::from_str::<Value>(text).ok())
            && let Value::Array(items) = target
        {
            items.retain(|item| *item != member);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id() -> ObjectId {
        ObjectId {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: None,
            name: "web".to_owned(),
        }
    }

    #[test]
    fn a_rule_is_about_what_it_names() {
        let rule = Rule {
            kind: Some(GroupKind::parse("Deployment.apps")),
            name: Some("web".to_owned()),
            ..Rule::default()
        };
        assert!(rule.fits(&id()));
        assert!(Rule::default().fits(&id()));
        // Whoever binds a role shall bind the one that they brought.
        assert!(!Rule::default().fits(&ObjectId {
            group: "rbac.authorization.k8s.io".to_owned(),
            kind: "RoleBinding".to_owned(),
            ..id()
        }));
        assert!(!rule.fits(&ObjectId {
            name: "other".to_owned(),
            ..id()
        }));
        assert!(!rule.fits(&ObjectId {
            group: String::new(),
            ..id()
        }));
    }

    #[test]
    fn a_field_keeps_its_live_value() {
        let rule = Rule {
            fields: vec![
                "/spec/replicas".to_owned(),
                "/metadata/annotations/a~1b".to_owned(),
            ],
            ..Rule::default()
        };
        let mut desired =
            json!({ "metadata": { "annotations": { "a/b": "x" } }, "spec": { "replicas": 1 } });
        leave(
            &mut desired,
            &json!({ "spec": { "replicas": 7 } }),
            &[],
            &[&rule],
        );
        assert_eq!(
            desired,
            json!({ "metadata": { "annotations": {} }, "spec": { "replicas": 7 } })
        );
    }

    #[test]
    fn what_a_manager_has_is_not_applied() {
        let rule = Rule {
            manager: Some("keda".to_owned()),
            ..Rule::default()
        };
        let fields = json!({
            "f:spec": { "f:replicas": {}, "f:template": { "f:containers": { "k:{\"name\":\"c\"}": { ".": {}, "f:name": {}, "f:image": {} } } } },
            "f:metadata": { "f:finalizers": { "v:\"x\"": {} } },
        });
        let mut desired = json!({
            "metadata": { "finalizers": ["x", "y"] },
            "spec": { "replicas": 1, "template": { "containers": [{ "name": "c", "image": "i", "tty": true }, { "name": "d", "image": "j" }] } },
        });
        let entry = Entry {
            manager: "keda",
            operation: "Update",
            subresource: "",
            api_version: "v1",
            time: None,
            fields: &fields,
        };
        leave(&mut desired, &Value::Null, &[entry], &[&rule]);
        assert_eq!(
            desired,
            json!({
                "metadata": { "finalizers": ["y"] },
                "spec": { "template": { "containers": [{ "name": "c", "tty": true }, { "name": "d", "image": "j" }] } },
            })
        );
    }

    #[test]
    fn rules_without_effect_are_named() {
        let id = |group: &str, kind: &str| ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: Some("n".to_owned()),
            name: "web".to_owned(),
        };
        let deployment = (
            id("apps", "Deployment"),
            json!({ "spec": { "replicas": 2 } }),
        );
        let binding = (id("rbac.authorization.k8s.io", "Role"), json!({}));
        let objects = [deployment, binding];
        let rule = |kind: &str, fields: &[&str]| Rule {
            kind: Some(GroupKind::parse(kind)),
            fields: fields.iter().map(|&field| field.to_owned()).collect(),
            ..Rule::default()
        };
        let fits_none = "spec.drift.ignore[0] fits no object of the content, or only roles and bindings, of which nothing is left to others";
        for (rule, expected) in [
            (rule("Deployment.apps", &["/spec/replicas"]), vec![]),
            (rule("Deployment.apps", &[]), vec![]),
            (
                rule("Deployment.apps", &["/spec/replicas", "/spec/paused"]),
                vec!["spec.drift.ignore[0] names /spec/paused, which no object that it fits sets"],
            ),
            (rule("StatefulSet.apps", &[]), vec![fits_none]),
            (rule("Role.rbac.authorization.k8s.io", &[]), vec![fits_none]),
        ] {
            let objects: Vec<_> = objects.iter().map(|(id, value)| (id, value)).collect();
            assert_eq!(without_effect(&[rule], &objects), expected);
        }
    }
}
