//! Permissions that roles and bindings grant: the access reviews of the API server's escalation
//! check. The module `role_rules` expands the rules of roles.

use serde_json::Value;

use crate::object::{GroupKind, ObjectId};

use super::AccessReview;

/// API group of roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Rule of a Role or ClusterRole.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Rule {
    /// Allowed verbs, such as `get`.
    pub verbs: Vec<String>,
    /// API groups; an empty text is the core group.
    #[serde(rename = "apiGroups", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Plural names of the resources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Names of objects. An empty list means all objects.
    #[serde(rename = "resourceNames", skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Paths of non-resource URLs.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// Returns the permission that the requester needs for objects that record their creator and act
/// with the permissions of the creator. `account` (namespace and name) is the ServiceAccount that
/// applies the objects. The permission is verb `impersonate` on this ServiceAccount. Returns `None`
/// if there are no such objects.
pub fn creator_permission<'a>(
    objects: impl IntoIterator<Item = &'a ObjectId>,
    account: (&str, &str),
) -> Option<AccessReview> {
    let mut objects = objects.into_iter();
    objects
        .any(|id| records_creator(&id.group, &id.kind))
        .then(|| AccessReview::impersonation(account.0, account.1))
}

/// Returns true if objects of this kind record their creator and act with the permissions of the
/// creator.
fn records_creator(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        (
            "core.rukpak.io",
            "Bundle" | "BundleDeployment" | "BundleApproval"
        ) | ("certificates.k8s.io", "CertificateSigningRequest")
    )
}

/// Returns true if objects of this kind require no permissions other than [`super::VERBS`] on the
/// objects: they are no roles or bindings, and [`creator_permission`] requires no permission for
/// them.
pub fn needs_only_verbs(kind: &GroupKind) -> bool {
    kind.group != GROUP && !records_creator(&kind.group, &kind.kind)
}

/// Role of a binding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// Name of the role.
    pub name: String,
    /// Namespace of a Role; `None` for a ClusterRole.
    pub namespace: Option<String>,
}

/// Permissions that an object grants. The requester needs these permissions, or the verb of
/// `shortcut`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Access review for verb `escalate` on a role, or `bind` on the role of a binding. If the API
    /// server allows this review, the requester needs no other permission.
    pub shortcut: AccessReview,
    /// Role whose rules are checked if `shortcut` is denied. The rules are checked in the namespace
    /// of the object, or for the whole cluster if the object has no namespace.
    pub role: RoleRef,
    /// `true` for a binding, `false` for the role itself.
    pub is_binding: bool,
}

/// Returns the permissions that object `id` grants; `None` if the object is neither a role nor a
/// binding. `role_ref` is the role that a binding names.
pub fn grant(id: &ObjectId, role_ref: &Value) -> Option<Grant> {
    if id.group != GROUP {
        return None;
    }
    let (verb, role, is_binding) = match id.kind.as_str() {
        "Role" | "ClusterRole" => {
            let role = RoleRef {
                kind: id.kind.clone(),
                name: id.name.clone(),
                namespace: id.namespace.clone(),
            };
            ("escalate", role, false)
        }
        "RoleBinding" | "ClusterRoleBinding" => {
            let text = |key: &str| role_ref[key].as_str().unwrap_or_default().to_owned();
            let kind = text("kind");
            let role = RoleRef {
                namespace: id.namespace.clone().filter(|_| kind == "Role"),
                kind,
                name: text("name"),
            };
            ("bind", role, true)
        }
        _ => return None,
    };
    let plural = if role.kind == "ClusterRole" {
        "clusterroles"
    } else {
        "roles"
    };
    let namespace = id.namespace.as_deref();
    Some(Grant {
        shortcut: AccessReview::resource(verb, GROUP, plural, namespace, Some(&role.name)),
        role,
        is_binding,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(kind: &str, namespace: Option<&str>) -> ObjectId {
        ObjectId {
            group: "rbac.authorization.k8s.io".to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: "x".to_owned(),
        }
    }

    #[test]
    fn binding_is_checked_with_its_role_and_namespace() {
        let binding = id("RoleBinding", Some("team-a"));
        let cluster = grant(&binding, &json!({ "kind": "ClusterRole", "name": "admin" })).unwrap();
        assert_eq!(
            cluster.shortcut,
            AccessReview::resource(
                "bind",
                "rbac.authorization.k8s.io",
                "clusterroles",
                Some("team-a"),
                Some("admin")
            )
        );
        assert!(cluster.is_binding);
        assert_eq!(cluster.role.namespace, None);
        let own = grant(&binding, &json!({ "kind": "Role", "name": "r" })).unwrap();
        assert_eq!(own.role.namespace.as_deref(), Some("team-a"));
    }

    #[test]
    fn role_is_checked_for_escalate() {
        let found = grant(&id("Role", Some("team-a")), &Value::Null).unwrap();
        assert_eq!(
            found.shortcut,
            AccessReview::resource(
                "escalate",
                "rbac.authorization.k8s.io",
                "roles",
                Some("team-a"),
                Some("x")
            )
        );
        assert!(!found.is_binding);
        assert_eq!(found.role.namespace.as_deref(), Some("team-a"));
    }

    #[test]
    fn objects_that_record_their_creator_need_impersonate() {
        let id = |group: &str, kind: &str| ObjectId {
            group: group.to_owned(),
            ..id(kind, None)
        };
        let installer = ("bundle-system", "installer");
        let asked = creator_permission(
            &[
                id("", "ConfigMap"),
                id("core.rukpak.io", "BundleDeployment"),
            ],
            installer,
        );
        assert_eq!(
            asked,
            Some(AccessReview::resource(
                "impersonate",
                "",
                "serviceaccounts",
                Some("bundle-system"),
                Some("installer")
            ))
        );
        for harmless in [
            id("", "ConfigMap"),
            id("example.com", "Bundle"),
            id("core.rukpak.io", "ProvisionerClass"),
        ] {
            assert_eq!(creator_permission(&[harmless], installer), None);
        }
    }

    #[test]
    fn other_objects_grant_no_permissions() {
        let mut other = id("Role", None);
        other.group = "example.com".to_owned();
        assert_eq!(grant(&other, &Value::Null), None);
    }
}
