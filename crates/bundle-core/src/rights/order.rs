//! Finds objects that the API server can check only after other objects of the same content exist.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::object::CustomKind;
use crate::object::ObjectId;

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Objects of the content that other objects can depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentDependencies {
    kinds: BTreeSet<(String, String)>,
    /// Group, kind, namespace and name of each object.
    objects: BTreeSet<(String, String, String, String)>,
}

impl ContentDependencies {
    /// Collects the objects of a content that other objects can depend on.
    pub fn by<'a>(objects: impl IntoIterator<Item = (&'a ObjectId, &'a Value)>) -> Self {
        let mut provided = Self::default();
        for (id, value) in objects {
            let custom = (id.group == "apiextensions.k8s.io"
                && id.kind == "CustomResourceDefinition")
                .then(|| CustomKind::of(value))
                .flatten();
            if let Some(custom) = custom {
                provided.kinds.insert((custom.group, custom.kind));
            }
            if is_named_by_others(id) {
                let namespace = id.namespace.clone().unwrap_or_default();
                let key = (
                    id.group.clone(),
                    id.kind.clone(),
                    namespace,
                    id.name.clone(),
                );
                provided.objects.insert(key);
            }
        }
        provided
    }

    /// Returns `true` if this object depends on another object of the content. The other object can
    /// be its CRD, the role or policy that it binds, or an object that a Pod refers to. Namespaces
    /// are not considered, because the API server reports missing namespaces.
    pub fn depends_on_content(&self, id: &ObjectId, value: &Value) -> bool {
        if self.kinds.contains(&(id.group.clone(), id.kind.clone())) {
            return true;
        }
        let namespace = id.namespace.as_deref().unwrap_or_default();
        let has = |group: &str, kind: &str, namespace: &str, name: &Value| {
            let name = name.as_str().unwrap_or_default();
            self.objects.contains(&(
                group.to_owned(),
                kind.to_owned(),
                namespace.to_owned(),
                name.to_owned(),
            ))
        };
        match (id.group.as_str(), id.kind.as_str()) {
            (RBAC, "RoleBinding" | "ClusterRoleBinding") => {
                let role = &value["roleRef"];
                has(RBAC, "Role", namespace, &role["name"])
                    || has(RBAC, "ClusterRole", "", &role["name"])
            }
            (ADMISSION, "ValidatingAdmissionPolicyBinding") => has(
                ADMISSION,
                "ValidatingAdmissionPolicy",
                "",
                &value["spec"]["policyName"],
            ),
            (ADMISSION, "MutatingAdmissionPolicyBinding") => has(
                ADMISSION,
                "MutatingAdmissionPolicy",
                "",
                &value["spec"]["policyName"],
            ),
            ("", "Pod") => {
                let spec = &value["spec"];
                has("", "ServiceAccount", namespace, &spec["serviceAccountName"])
                    || has("", "ServiceAccount", namespace, &spec["serviceAccount"])
                    || has(
                        "scheduling.k8s.io",
                        "PriorityClass",
                        "",
                        &spec["priorityClassName"],
                    )
                    || has("node.k8s.io", "RuntimeClass", "", &spec["runtimeClassName"])
            }
            _ => false,
        }
    }
}

fn is_named_by_others(id: &ObjectId) -> bool {
    matches!(
        (id.group.as_str(), id.kind.as_str()),
        (RBAC, "Role" | "ClusterRole")
            | (
                ADMISSION,
                "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy"
            )
            | ("", "ServiceAccount")
            | ("scheduling.k8s.io", "PriorityClass")
            | ("node.k8s.io", "RuntimeClass")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(
        group: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        value: Value,
    ) -> (ObjectId, Value) {
        let id = ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            name: name.to_owned(),
        };
        (id, value)
    }

    #[test]
    fn objects_wait_for_kinds_roles_policies_and_accounts_of_the_same_content() {
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "scope": "Cluster", "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{"name": "v1", "served": true, "storage": true}]},
        });
        let content = [
            object(
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                "",
                "widgets.example.com",
                crd,
            ),
            object(RBAC, "Role", "a", "reader", Value::Null),
            object(RBAC, "ClusterRole", "", "viewer", Value::Null),
            object(
                ADMISSION,
                "ValidatingAdmissionPolicy",
                "",
                "guard",
                Value::Null,
            ),
            object("", "ServiceAccount", "a", "runner", Value::Null),
        ];
        let provided = ContentDependencies::by(content.iter().map(|(id, value)| (id, value)));
        let table = [
            (object("example.com", "Widget", "", "w", json!({})), true),
            (object("example.com", "Gadget", "", "w", json!({})), false),
            (
                object(
                    RBAC,
                    "RoleBinding",
                    "a",
                    "b",
                    json!({"roleRef": {"kind": "Role", "name": "reader"}}),
                ),
                true,
            ),
            (
                object(
                    RBAC,
                    "RoleBinding",
                    "other",
                    "b",
                    json!({"roleRef": {"kind": "Role", "name": "reader"}}),
                ),
                false,
            ),
            (
                object(
                    RBAC,
                    "RoleBinding",
                    "other",
                    "b",
                    json!({"roleRef": {"kind": "ClusterRole", "name": "viewer"}}),
                ),
                true,
            ),
            (
                object(RBAC, "ClusterRoleBinding", "", "b", json!({})),
                false,
            ),
            (
                object(
                    ADMISSION,
                    "ValidatingAdmissionPolicyBinding",
                    "",
                    "b",
                    json!({"spec": {"policyName": "guard"}}),
                ),
                true,
            ),
            (
                object(
                    "",
                    "Pod",
                    "a",
                    "p",
                    json!({"spec": {"serviceAccountName": "runner"}}),
                ),
                true,
            ),
            (
                object(
                    "",
                    "Pod",
                    "b",
                    "p",
                    json!({"spec": {"serviceAccountName": "runner"}}),
                ),
                false,
            ),
            (object("", "ConfigMap", "a", "c", json!({})), false),
        ];
        for ((id, value), expected) in table {
            assert_eq!(provided.depends_on_content(&id, &value), expected, "{id}");
        }
    }
}
