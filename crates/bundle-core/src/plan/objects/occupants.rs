//! Objects in a namespace that an installation created or adopted: the rule that decides whether the
//! namespace can be deleted with the installation.

use crate::object::ObjectId;
use crate::plan::conditions::some_of;

/// Largest number of objects in a message.
const NAMED: usize = 3;

/// Returns true if the object is a Namespace of the core group.
pub fn is_namespace(id: &ObjectId) -> bool {
    id.group.is_empty() && id.kind == "Namespace"
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

/// Returns true if programs create and replace all objects of this kind, and no user loses data with
/// them: Events, Endpoints of Services, and Leases of leader elections. Such objects do not prevent
/// the deletion of a namespace.
pub fn is_transient(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("" | "events.k8s.io", "Event") | ("", "Endpoints") | ("coordination.k8s.io", "Lease")
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
            (of("coordination.k8s.io", "Lease", "x"), false),
            (of("example.com", "Lease", "x"), true),
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
}
