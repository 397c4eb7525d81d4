//! Names of ServiceAccounts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names;

/// ServiceAccount, in any namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ServiceAccountName {
    /// Namespace of the ServiceAccount.
    #[schemars(regex(pattern = names::LABEL_PATTERN), length(max = names::LABEL_LIMIT))]
    pub namespace: String,
    /// Name of the ServiceAccount.
    #[schemars(regex(pattern = names::SUBDOMAIN_PATTERN), length(max = names::SUBDOMAIN_LIMIT))]
    pub name: String,
}
