//! Target namespace that `spec.createNamespace` creates. The rules decide whether the namespace is
//! an object of the installation, and whether it is empty and can be deleted.

use serde_json::json;

use crate::object::{Manifest, ObjectId};
use crate::plan::conditions::some_of;

/// Largest number of objects in a message.
const NAMED: usize = 3;

/// State of the target namespace on the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceState {
    /// The namespace does not exist.
    Absent,
    /// The namespace is recorded, or was created by this project and not recorded yet.
    Ours,
    /// Another client created the namespace.
    Foreign,
}

/// Returns the target namespace as an object to install. Returns `None` if its creation is not
/// requested, if the content contains it, or if another client created it.
pub fn created_namespace(
    target: Option<&str>,
    is_requested: bool,
    objects: &[Manifest],
    state: NamespaceState,
) -> Option<Manifest> {
    let target = target.filter(|_| is_requested)?;
    if state == NamespaceState::Foreign || has_namespace(objects, target) {
        return None;
    }
    Some(Manifest {
        id: namespace_id(target),
        value: json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": target}}),
        file: String::new(),
        line: 0,
    })
}

/// Returns true if the content contains the namespace `name`.
pub fn has_namespace(objects: &[Manifest], name: &str) -> bool {
    let mut ids = objects.iter().map(|object| &object.id);
    ids.any(|id| id.group.is_empty() && id.kind == "Namespace" && id.name == name)
}

/// Returns the id of the namespace `name`.
pub fn namespace_id(name: &str) -> ObjectId {
    ObjectId {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        namespace: None,
        name: name.to_owned(),
    }
}

/// Returns the next step for the user if `message` of the API server says that the namespace
/// `target` is missing.
pub fn missing_namespace_hint(message: &str, target: &str) -> Option<String> {
    message
        .contains(&format!("namespaces \"{target}\" not found"))
        .then(|| {
            format!(
                "create namespace {target}, or set spec.createNamespace: true (deploy --create-namespace)"
            )
        })
}

/// Object in a namespace.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceObject<'a> {
    /// API group of the object; empty for the core group.
    pub group: &'a str,
    /// Kind of the object.
    pub kind: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// True if the inventory records this object.
    pub is_recorded: bool,
    /// True if the object is being deleted.
    pub is_leaving: bool,
    /// True if an owner reference names a namespaced kind. Such an owner is in the same namespace,
    /// and is counted instead of this object. If the owner does not exist, garbage collection
    /// deletes this object.
    pub is_dependent: bool,
}

/// Returns true if controllers create and delete all objects of this kind: Events, and Endpoints of
/// Services. Such objects do not prevent the deletion of a namespace.
pub fn is_transient(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("" | "events.k8s.io", "Event") | ("", "Endpoints")
    )
}

impl NamespaceObject<'_> {
    /// Returns true if the namespace must not be deleted while it contains this object.
    pub fn keeps_namespace(&self) -> bool {
        let is_of_every_namespace = matches!(
            (self.group, self.kind, self.name),
            ("", "ConfigMap", "kube-root-ca.crt") | ("", "ServiceAccount", "default")
        );
        !(is_of_every_namespace
            || is_transient(self.group, self.kind)
            || self.is_recorded
            || self.is_leaving
            || self.is_dependent)
    }
}

/// Returns the reason why a namespace is not deleted: its objects, and the kinds that could not be
/// listed. `None` if the namespace is empty.
pub fn in_use(objects: &[String], unlisted: &[String]) -> Option<String> {
    let mut parts = Vec::new();
    if !objects.is_empty() {
        parts.push(format!(
            "it contains objects that this deployment did not install: {}",
            some_of(objects, NAMED)
        ));
    }
    if !unlisted.is_empty() {
        parts.push(format!(
            "these kinds could not be listed in it: {}",
            some_of(unlisted, NAMED)
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(id: ObjectId) -> Manifest {
        Manifest {
            id,
            value: json!({}),
            file: String::new(),
            line: 1,
        }
    }

    #[test]
    fn namespace_is_installed_only_if_requested_and_not_foreign() {
        use NamespaceState::{Absent, Foreign, Ours};
        let own = vec![manifest(namespace_id("web"))];
        let other = vec![manifest(namespace_id("other"))];
        for (target, is_requested, objects, state, expected) in [
            (Some("web"), true, &other, Absent, true),
            (Some("web"), true, &other, Ours, true),
            (Some("web"), true, &other, Foreign, false),
            (Some("web"), true, &own, Absent, false),
            (Some("web"), true, &own, Ours, false),
            (Some("web"), false, &other, Absent, false),
            (Some("web"), false, &other, Ours, false),
            (None, true, &other, Absent, false),
        ] {
            let created = created_namespace(target, is_requested, objects, state);
            let context = format!("{target:?} {is_requested} {state:?}");
            assert_eq!(created.is_some(), expected, "{context}");
            if let Some(created) = created {
                assert_eq!(created.id.to_string(), "Namespace/web");
            }
        }
    }

    #[test]
    fn object_keeps_its_namespace_unless_it_is_recorded_or_removed_by_controllers() {
        let none = NamespaceObject {
            group: "",
            kind: "ConfigMap",
            name: "x",
            is_recorded: false,
            is_leaving: false,
            is_dependent: false,
        };
        let of = |group, kind, name| NamespaceObject {
            group,
            kind,
            name,
            ..none
        };
        for (occupant, expected) in [
            (none, true),
            (of("", "ConfigMap", "kube-root-ca.crt"), false),
            (of("", "Secret", "kube-root-ca.crt"), true),
            (of("", "ServiceAccount", "default"), false),
            (of("", "ServiceAccount", "other"), true),
            (of("example.com", "ServiceAccount", "default"), true),
            (of("", "Event", "x"), false),
            (of("events.k8s.io", "Event", "x"), false),
            (of("example.com", "Event", "x"), true),
            (of("", "Endpoints", "x"), false),
            (of("", "PersistentVolumeClaim", "x"), true),
            (
                NamespaceObject {
                    is_recorded: true,
                    ..none
                },
                false,
            ),
            (
                NamespaceObject {
                    is_leaving: true,
                    ..none
                },
                false,
            ),
            (
                NamespaceObject {
                    is_dependent: true,
                    ..none
                },
                false,
            ),
        ] {
            assert_eq!(occupant.keeps_namespace(), expected, "{occupant:?}");
        }
    }

    #[test]
    fn message_has_some_objects_and_kinds_that_could_not_be_listed() {
        let texts = |texts: &[&str]| {
            texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(in_use(&[], &[]), None);
        let objects = texts(&["a", "b", "c", "d"]);
        let message = in_use(&objects, &texts(&["secrets: forbidden"])).unwrap();
        assert!(
            message.contains("did not install: a, b, c and 1 more; these kinds"),
            "{message}"
        );
        assert!(message.ends_with("secrets: forbidden"), "{message}");
    }

    #[test]
    fn hint_requires_the_message_about_the_missing_target() {
        let message = "ConfigMap/web/x: namespaces \"web\" not found";
        assert!(missing_namespace_hint(message, "web").is_some());
        assert_eq!(missing_namespace_hint(message, "other"), None);
    }
}
