//! User who sent a request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Requester, as authenticated by the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Requester {
    /// Name of the user.
    pub user: String,
    /// Uid. The text is empty if the authenticator sets no uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Groups of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Extra attributes from the authenticator, such as the scopes of a token. Authorizers may use
    /// these attributes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Requester {
    /// Returns true if `other` has the same name and uid. Groups and extra attributes of a user can
    /// differ between two requests.
    pub fn is_same_user(&self, other: &Self) -> bool {
        self.user == other.user && self.uid == other.uid
    }

    /// Returns name and uid of the user, without groups and extra attributes.
    #[must_use]
    pub fn identity(&self) -> Self {
        Self {
            user: self.user.clone(),
            uid: self.uid.clone(),
            ..Self::default()
        }
    }

    /// Returns namespace and name of a ServiceAccount; `None` for other users.
    pub fn service_account(&self) -> Option<(&str, &str)> {
        service_account(&self.user)
    }
}

/// Returns namespace and name of the ServiceAccount with this user name; `None` for other users.
pub fn service_account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix("system:serviceaccount:")?.split_once(':')
}
