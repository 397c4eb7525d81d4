//! Target namespace that `spec.createNamespace` creates: the rule that decides whether the
//! namespace is an object of the installation.

use serde_json::json;

use crate::object::{Manifest, ObjectId};

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
    ids.any(|id| id.is_namespace() && id.name == name)
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

/// Returns the next step for the user if `message` of the API server reports that the namespace
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
    fn hint_requires_the_message_about_the_missing_target() {
        let message = "ConfigMap/web/x: namespaces \"web\" not found";
        assert!(missing_namespace_hint(message, "web").is_some());
        assert_eq!(missing_namespace_hint(message, "other"), None);
    }
}
