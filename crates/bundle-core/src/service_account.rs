//! Names of ServiceAccounts.

use crate::names::{KubeName, NameError, NameKind};

/// ServiceAccount. This type does not implement `Display`, because a ServiceAccount has two text
/// forms: the user name in RBAC, and the path in messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceAccount {
    /// Namespace of the ServiceAccount.
    pub namespace: KubeName,
    /// Name of the ServiceAccount.
    pub name: KubeName,
}

impl ServiceAccount {
    /// Parses namespace and name.
    pub fn parse(namespace: &str, name: &str) -> Result<Self, NameError> {
        Ok(Self {
            namespace: KubeName::parse(NameKind::Label, namespace)?,
            name: KubeName::parse(NameKind::Subdomain, name)?,
        })
    }

    /// Returns the user name, as in RBAC subjects and audit logs:
    /// `system:serviceaccount:team-a:deployer`.
    pub fn user_name(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// Returns namespace and name, such as `team-a/deployer`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_accounts_whose_names_add_to_a_header_or_url() {
        for (namespace, name) in [
            ("team-a", "deployer\r\nImpersonate-Group: system:masters"),
            ("team-a", "../secrets"),
            ("team.a", "deployer"),
            ("", "deployer"),
        ] {
            assert!(ServiceAccount::parse(namespace, name).is_err());
        }
    }
}
