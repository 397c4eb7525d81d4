//! The target namespace that is created with the content: when it becomes one of its objects, and when it is empty enough to be deleted with them.
//! Not here: reading the cluster, or what is recorded of the namespace (inventory).

use serde_json::json;

use super::conditions::some_of;
use crate::object::{Manifest, ObjectId};

/// Most objects that a message names.
const NAMED: usize = 3;

/// The target namespace as the cluster has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceState {
    /// There is none of this name.
    Absent,
    /// It is the one that is recorded, or that we created and did not record yet.
    Ours,
    /// Somebody else created it.
    Foreign,
}

/// Returns the target namespace as an object of the content, or `None` if it is not one: nobody asks for that, the content has it itself, or it exists and
/// is somebody else's.
pub fn created_namespace(
    target: Option<&str>,
    is_asked: bool,
    objects: &[Manifest],
    state: NamespaceState,
) -> Option<Manifest> {
    let target = target.filter(|_| is_asked)?;
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

/// Returns whether the content has the namespace `name` itself.
pub fn has_namespace(objects: &[Manifest], name: &str) -> bool {
    let mut ids = objects.iter().map(|object| &object.id);
    ids.any(|id| id.group.is_empty() && id.kind == "Namespace" && id.name == name)
}

/// The id of the namespace `name`.
pub fn namespace_id(name: &str) -> ObjectId {
    ObjectId {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        namespace: None,
        name: name.to_owned(),
    }
}

/// The next step for a person, if `message` of the API server is about the missing namespace `target`.
pub fn missing_namespace_hint(message: &str, target: &str) -> Option<String> {
    message
        .contains(&format!("namespaces \"{target}\" not found"))
        .then(|| {
            format!(
                "create namespace {target}, or let it be created with spec.createNamespace: true (deploy --create-namespace)"
            )
        })
}

/// An object in a namespace.
#[derive(Debug, Clone, Copy)]
pub struct Occupant<'a> {
    /// API group of its kind.
    pub group: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
    /// True if the inventory records just this object.
    pub is_recorded: bool,
    /// True if it is being deleted.
    pub is_leaving: bool,
    /// True if one of its owners is of a namespaced kind, and so in the same namespace: that owner counts instead, or garbage collection takes this object.
    pub is_dependent: bool,
}

/// Returns whether all objects of a kind come and go by themselves, so that they need not be listed: Events, and the Endpoints that controllers keep for Services.
pub fn is_transient(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("" | "events.k8s.io", "Event") | ("", "Endpoints")
    )
}

impl Occupant<'_> {
    /// Returns whether the namespace must not be deleted while this object is in it.
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

/// The reason why a namespace stays: the objects in it, and why it could not be listed completely. `None` if it is empty.
pub fn in_use(objects: &[String], unlisted: &[String]) -> Option<String> {
    let mut parts = Vec::new();
    if !objects.is_empty() {
        parts.push(format!(
            "objects that were not installed by this deployment are in it: {}",
            some_of(objects, NAMED)
        ));
    }
    if !unlisted.is_empty() {
        parts.push(format!(
            "it is not known whether anything else is in it: {}",
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
    fn namespace_is_part_of_content_only_if_asked_for_and_not_of_others() {
        use NamespaceState::{Absent, Foreign, Ours};
        let own = vec![manifest(namespace_id("web"))];
        let other = vec![manifest(namespace_id("other"))];
        for (target, is_asked, objects, state, expected) in [
            (Some("web"), true, &other, Absent, true),
            (Some("web"), true, &other, Ours, true),
            (Some("web"), true, &other, Foreign, false),
            (Some("web"), true, &own, Absent, false),
            (Some("web"), true, &own, Ours, false),
            (Some("web"), false, &other, Absent, false),
            (Some("web"), false, &other, Ours, false),
            (None, true, &other, Absent, false),
        ] {
            let created = created_namespace(target, is_asked, objects, state);
            let context = format!("{target:?} {is_asked} {state:?}");
            assert_eq!(created.is_some(), expected, "{context}");
            if let Some(created) = created {
                assert_eq!(created.id.to_string(), "Namespace/web");
            }
        }
    }

    #[test]
    fn object_keeps_its_namespace_unless_it_goes_by_itself() {
        let none = Occupant {
            group: "",
            kind: "ConfigMap",
            name: "x",
            is_recorded: false,
            is_leaving: false,
            is_dependent: false,
        };
        let of = |group, kind, name| Occupant {
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
                Occupant {
                    is_recorded: true,
                    ..none
                },
                false,
            ),
            (
                Occupant {
                    is_leaving: true,
                    ..none
                },
                false,
            ),
            (
                Occupant {
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
    fn message_names_some_objects_and_what_could_not_be_listed() {
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
            message.contains("in it: a, b, c and 1 more; it is not known"),
            "{message}"
        );
        assert!(message.ends_with("secrets: forbidden"), "{message}");
    }

    #[test]
    fn hint_is_given_for_the_missing_target_alone() {
        let message = "ConfigMap/web/x: namespaces \"web\" not found";
        assert!(missing_namespace_hint(message, "web").is_some());
        assert_eq!(missing_namespace_hint(message, "other"), None);
    }
}
