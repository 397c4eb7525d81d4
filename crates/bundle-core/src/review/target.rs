//! Namespaces of the webhook, in which content is never installed.

use crate::object::ObjectId;

/// Target namespace that belongs to the webhook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("content cannot be installed in namespace {0}, which is reserved for bundle-webhook")]
pub struct ReservedNamespace(String);

/// Checks that `target` is neither the `system` nor the `state` namespace of the webhook. A Pod in
/// these namespaces could mount the keys and all pull secrets.
pub fn check_target(
    target: Option<&str>,
    system: &str,
    state: &str,
) -> Result<(), ReservedNamespace> {
    match target {
        Some(target) if target == system || target == state => {
            Err(ReservedNamespace(target.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Returns the objects in the `system` or `state` namespace of the webhook, and these Namespaces
/// themselves. `allowed` contains the namespaces of a class. Objects are not returned if `allowed`
/// contains the exact name of their namespace. A pattern is not sufficient.
///
/// A package can contain a part of the webhook itself. The class for such a package must name the
/// namespace. A Namespace is returned too, because its deletion would delete all objects in it.
pub fn in_reserved_namespaces<'a>(
    objects: impl IntoIterator<Item = &'a ObjectId>,
    allowed: &[String],
    system: &str,
    state: &str,
) -> Vec<&'a ObjectId> {
    objects
        .into_iter()
        .filter(|id| {
            affected_namespace(id).is_some_and(|namespace| {
                (namespace == system || namespace == state) && !allowed.contains(namespace)
            })
        })
        .collect()
}

/// Returns the namespace of the object. For a Namespace, returns its own name. For other
/// cluster-scoped objects, returns `None`.
fn affected_namespace(id: &ObjectId) -> Option<&String> {
    id.namespace
        .as_ref()
        .or_else(|| id.is_namespace().then_some(&id.name))
}

/// Returns the default state namespace of a webhook.
pub fn default_state_namespace(system: &str) -> String {
    format!("{system}-state")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_in_a_namespace_of_the_webhook_need_a_class_that_names_it() {
        let object = |namespace: Option<&str>| ObjectId {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: namespace.map(str::to_owned),
            name: "a".to_owned(),
        };
        let objects = [Some("sys"), Some("sys-state"), Some("team-a"), None].map(object);
        let reserved = |allowed: &[&str]| {
            let allowed: Vec<_> = allowed.iter().map(|&name| name.to_owned()).collect();
            in_reserved_namespaces(&objects, &allowed, "sys", "sys-state")
                .into_iter()
                .filter_map(|id| id.namespace.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(reserved(&["*"]), ["sys", "sys-state"]);
        assert_eq!(reserved(&["*", "sys"]), ["sys-state"]);
        assert_eq!(reserved(&["sys*", "sys-state"]), ["sys"]);
        assert_eq!(reserved(&["sys", "sys-state"]), [""; 0]);
    }

    #[test]
    fn namespace_of_the_webhook_counts_as_an_object_in_it() {
        let object = |group: &str, kind: &str, name: &str| ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: name.to_owned(),
        };
        let objects = [
            object("", "Namespace", "sys"),
            object("", "Namespace", "sys-state"),
            object("", "Namespace", "team-a"),
            object("", "PersistentVolume", "sys"),
            object("example.com", "Namespace", "sys"),
        ];
        let reserved = |allowed: &[String]| {
            let found = in_reserved_namespaces(&objects, allowed, "sys", "sys-state");
            found.len()
        };
        assert_eq!(reserved(&[]), 2);
        assert_eq!(reserved(&["sys".to_owned()]), 1);
    }

    #[test]
    fn rejects_both_namespaces_of_the_webhook() {
        for (target, is_free) in [
            (None, true),
            (Some("team-a"), true),
            (Some("sys"), false),
            (Some("sys-state"), false),
            (Some("sys-stat"), true),
        ] {
            assert_eq!(
                check_target(target, "sys", "sys-state").is_ok(),
                is_free,
                "{target:?}"
            );
        }
    }
}
