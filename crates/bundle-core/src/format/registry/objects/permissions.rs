//! ServiceAccounts of an operator, and the roles that are bound to them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    additions::{Additions, CREATED},
    names,
};
use crate::{
    format::registry::{
        csv::{Deployment, Permission},
        install_modes::TargetNamespaces,
    },
    json,
};

/// ServiceAccount that exists in every namespace.
const DEFAULT: &str = "default";
/// API group of roles.
const GROUP: &str = "rbac.authorization.k8s.io";

fn account(name: &str) -> &str {
    if name.is_empty() { DEFAULT } else { name }
}

/// Returns the ServiceAccounts to create, each once: the ServiceAccounts that workloads run as, and
/// the ServiceAccounts with permissions.
pub(in crate::format::registry) fn accounts<'a>(
    permissions: &'a Permissions,
    deployments: &'a [Deployment],
) -> BTreeSet<&'a str> {
    let running = deployments.iter().map(|deployment| {
        account(
            deployment.spec["template"]["spec"]["serviceAccountName"]
                .as_str()
                .unwrap_or_default(),
        )
    });
    let permitted = permissions
        .namespaced
        .iter()
        .chain(&permissions.cluster)
        .map(|permission| account(&permission.service_account_name));
    running
        .chain(permitted)
        .filter(|name| *name != DEFAULT)
        .collect()
}

/// Permissions of an operator.
pub(in crate::format::registry) struct Permissions {
    /// Permissions in the watched namespaces.
    pub(in crate::format::registry) namespaced: Vec<Permission>,
    /// Permissions in the cluster.
    pub(in crate::format::registry) cluster: Vec<Permission>,
}

impl Permissions {
    /// Returns the roles and then their bindings, for ServiceAccounts in `namespace`. If the
    /// operator watches all namespaces, it gets its namespaced permissions in every namespace, and
    /// may read and list namespaces. Otherwise it gets the namespaced permissions as Roles in each
    /// of its target namespaces.
    pub(in crate::format::registry) fn roles(
        self,
        csv: &str,
        namespace: &str,
        targets: &TargetNamespaces,
        additions: &mut Additions,
    ) -> Vec<Value> {
        let (mut roles, mut bindings) = (Vec::new(), Vec::new());
        let mut cluster = self.cluster;
        match targets {
            TargetNamespaces::All => {
                cluster.extend(self.namespaced.into_iter().map(with_namespaces));
            }
            TargetNamespaces::Listed(targets) => {
                for (name, permission) in by_name(csv, self.namespaced) {
                    let account = account(&permission.service_account_name);
                    for target in targets {
                        // Above this limit the conversion fails, so the remaining roles are not
                        // needed.
                        if additions.exceed_limit() {
                            return roles;
                        }
                        let copied = additions.copies(&permission.rules);
                        let made = RoleOf {
                            name: &name,
                            account,
                            namespace,
                        };
                        let (role, binding) = made.role(Some(target), copied);
                        additions.add(CREATED / 2);
                        roles.push(role);
                        bindings.push(binding);
                    }
                }
            }
        }
        for (name, permission) in by_name(csv, cluster) {
            let made = RoleOf {
                name: &name,
                account: account(&permission.service_account_name),
                namespace,
            };
            let (role, binding) = made.role(None, permission.rules);
            roles.push(role);
            bindings.push(binding);
        }
        roles.append(&mut bindings);
        roles
    }
}

/// Role of one ServiceAccount.
struct RoleOf<'a> {
    name: &'a str,
    account: &'a str,
    /// Namespace of the ServiceAccount.
    namespace: &'a str,
}

impl RoleOf<'_> {
    /// Returns role and binding, in the namespace `target` or in the cluster.
    fn role(&self, target: Option<&str>, rules: Vec<Value>) -> (Value, Value) {
        let version = format!("{GROUP}/v1");
        let name = self.name;
        let (kind, binding_kind) = match target {
            Some(_) => ("Role", "RoleBinding"),
            None => ("ClusterRole", "ClusterRoleBinding"),
        };
        let metadata = match target {
            Some(target) => json!({"name": name, "namespace": target}),
            None => json!({"name": name}),
        };
        let mut role = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
        role["rules"] = Value::Array(rules);
        let binding = json!({
            "apiVersion": version,
            "kind": binding_kind,
            "metadata": metadata,
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
            "subjects": [{
                "kind": "ServiceAccount",
                "namespace": self.namespace,
                "name": self.account,
            }],
        });
        (role, binding)
    }
}

fn with_namespaces(mut permission: Permission) -> Permission {
    permission.rules.push(json!({
        "apiGroups": [""],
        "resources": ["namespaces"],
        "verbs": ["get", "list", "watch"],
    }));
    permission
}

/// Returns the permissions by the names of their roles. Equal permissions have the same role.
fn by_name(csv: &str, permissions: Vec<Permission>) -> BTreeMap<String, Permission> {
    permissions
        .into_iter()
        .map(|permission| (role_name(csv, &permission), permission))
        .collect()
}

/// Returns the name of a role, `<csv>-<account>-<hash>`. Different permissions have different
/// names, so an upgrade never extends an existing role.
fn role_name(csv: &str, permission: &Permission) -> String {
    let account = account(&permission.service_account_name);
    let hash = hash(csv, account, &permission.rules);
    names::with_suffix(&format!("{csv}-{account}"), &hash[..10])
}

/// Returns the hash of `[csv, account, rules]` as JSON, in hexadecimal.
fn hash(csv: &str, account: &str, rules: &[Value]) -> String {
    hex::encode(json::sha256(&(csv, account, rules)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the check of the limit for each role, this test would create a million objects.
    #[test]
    fn roles_above_the_limit_are_not_created() {
        let namespaced = |count: u32| -> Permissions {
            let namespaced = (0..count).map(|number| Permission {
                service_account_name: format!("account-{number}"),
                rules: vec![json!({"verbs": ["get"]})],
            });
            Permissions {
                namespaced: namespaced.collect(),
                cluster: Vec::new(),
            }
        };
        let targets = (0..100).map(|number| format!("n{number}"));
        let targets = TargetNamespaces::Listed(targets.collect());
        for (count, expected) in [(1, Some(200)), (5_000, None)] {
            let mut additions = Additions::default();
            let roles = namespaced(count).roles("web", "own", &targets, &mut additions);
            let made = roles.len();
            assert_eq!((!additions.exceed_limit()).then_some(made), expected);
            assert!(made < 1_000, "{made}");
        }
    }
}
