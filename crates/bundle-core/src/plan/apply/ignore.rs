//! Rules of `spec.drift.ignore`: fields that a BundleDeployment does not apply because another
//! manager owns them. `review` parses the rules.

use serde_json::{Map, Value};

use crate::object::ObjectId;

use crate::plan::drift::FieldsEntry;
pub use crate::review::deployment::IgnoreRule as Rule;

impl Rule {
    /// Returns true if the rule applies to this object. No rule applies to roles and bindings:
    /// permissions were checked for the rules in the content, so these must be applied, and not the
    /// rules on the cluster.
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

/// Removes from `desired` all fields that the rules exclude, or sets them to their value in `live`,
/// the object on the cluster.
pub fn leave(desired: &mut Value, live: &Value, entries: &[FieldsEntry<'_>], rules: &[&Rule]) {
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

/// Returns a message for each part of `rules`, in the order of `spec.drift.ignore`, that has no
/// effect on these objects.
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
                "{path} matches no object of the content, or only roles and bindings, to which no rule applies"
            ));
            continue;
        }
        for pointer in &rule.fields {
            let is_set = fitting.iter().any(|value| value.pointer(pointer).is_some());
            if !is_set {
                lines.push(format!("{path}: no matching object sets {pointer}"));
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

/// Removes from `target` each leaf that `fields`, a `fieldsV1`, contains. Names and keys of list
/// items stay.
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
    use crate::object::GroupKind;

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
    fn rule_matches_kind_namespace_and_name() {
        let rule = Rule {
            kind: Some(GroupKind::parse("Deployment.apps")),
            name: Some("web".to_owned()),
            ..Rule::default()
        };
        assert!(rule.fits(&id()));
        assert!(Rule::default().fits(&id()));
        // A binding must refer to the role of the content, which was authorized.
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
    fn ignored_field_keeps_its_live_value() {
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
    fn fields_of_an_ignored_manager_are_not_applied() {
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
        let entry = FieldsEntry {
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
    fn returns_rules_without_effect() {
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
        let fits_none = "spec.drift.ignore[0] matches no object of the content, or only roles and bindings, to which no rule applies";
        for (rule, expected) in [
            (rule("Deployment.apps", &["/spec/replicas"]), vec![]),
            (rule("Deployment.apps", &[]), vec![]),
            (
                rule("Deployment.apps", &["/spec/replicas", "/spec/paused"]),
                vec!["spec.drift.ignore[0]: no matching object sets /spec/paused"],
            ),
            (rule("StatefulSet.apps", &[]), vec![fits_none]),
            (rule("Role.rbac.authorization.k8s.io", &[]), vec![fits_none]),
        ] {
            let objects: Vec<_> = objects.iter().map(|(id, value)| (id, value)).collect();
            assert_eq!(without_effect(&[rule], &objects), expected);
        }
    }
}
