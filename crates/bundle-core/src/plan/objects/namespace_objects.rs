//! Objects in a namespace that an installation created or adopted: the rule that decides whether
//! the namespace can be deleted with the installation.

use std::collections::BTreeSet;

use crate::plan::conditions::some_of;

/// Maximum number of kinds in a message.
const NAMED: usize = 5;

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
    /// True if an owner reference names an object that [`is_counted_owner`] accepts. Such an owner
    /// is in the same namespace. The owner, and not this object, can prevent the deletion of the
    /// namespace. If the owner does not exist, garbage collection deletes this object.
    pub is_dependent: bool,
}

/// Returns true for Events, Endpoints of Services, and Leases of leader elections. Programs create
/// and replace these objects, and their deletion destroys no data of users. Such objects do not
/// prevent the deletion of a namespace.
pub fn is_transient(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("" | "events.k8s.io", "Event") | ("", "Endpoints") | ("coordination.k8s.io", "Lease")
    )
}

impl NamespaceObject<'_> {
    /// Returns true if the namespace must not be deleted while it contains this object.
    pub fn keeps_namespace(&self) -> bool {
        !(is_of_every_namespace(self.group, self.kind, self.name)
            || is_transient(self.group, self.kind)
            || self.is_recorded
            || self.is_leaving
            || self.is_dependent)
    }
}

/// Returns the reason why a namespace is not deleted: the kinds of its objects, and the kinds that
/// could not be listed. `None` if the namespace is empty. The names of the objects are omitted,
/// because readers of a BundleDeployment may have no permission to list them.
pub fn in_use(kinds: &BTreeSet<String>, unlisted: &[String]) -> Option<String> {
    let mut parts = Vec::new();
    if !kinds.is_empty() {
        let kinds: Vec<String> = kinds.iter().cloned().collect();
        parts.push(format!(
            "it contains objects that this BundleDeployment did not install (kinds: {})",
            some_of(&kinds, NAMED)
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

/// Returns true if an owner of this kind and name can prevent the deletion of its namespace. The
/// objects with such an owner do not prevent the deletion themselves. `is_listed` is true if the
/// objects of the owner's kind can be listed.
pub fn is_counted_owner(group: &str, kind: &str, name: &str, is_listed: bool) -> bool {
    is_listed && !is_transient(group, kind) && !is_of_every_namespace(group, kind, name)
}

fn is_of_every_namespace(group: &str, kind: &str, name: &str) -> bool {
    matches!(
        (group, kind, name),
        ("", "ConfigMap", "kube-root-ca.crt") | ("", "ServiceAccount", "default")
    )
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
    fn message_has_some_kinds_and_kinds_that_could_not_be_listed() {
        let kinds = |kinds: &[&str]| kinds.iter().map(|&kind| kind.to_owned()).collect();
        assert_eq!(in_use(&BTreeSet::new(), &[]), None);
        let unlisted = ["secrets: forbidden".to_owned()];
        let message = in_use(&kinds(&["A", "B", "C", "D", "E", "F"]), &unlisted).unwrap();
        assert!(
            message.contains("(kinds: A, B, C, D, E and 1 more); these kinds"),
            "{message}"
        );
        assert!(message.ends_with("secrets: forbidden"), "{message}");
    }

    #[test]
    fn owner_that_does_not_count_does_not_replace_its_objects() {
        for (group, kind, name, is_listed, expected) in [
            ("apps", "ReplicaSet", "x", true, true),
            ("example.com", "Widget", "x", false, false),
            ("coordination.k8s.io", "Lease", "x", true, false),
            ("", "ServiceAccount", "default", true, false),
            ("", "ServiceAccount", "x", true, true),
            ("", "ConfigMap", "kube-root-ca.crt", true, false),
        ] {
            let is_counted = is_counted_owner(group, kind, name, is_listed);
            assert_eq!(is_counted, expected, "{group} {kind} {name} {is_listed}");
        }
    }
}
