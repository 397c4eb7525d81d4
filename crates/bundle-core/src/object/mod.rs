//! Objects of a bundle: identity, and the rules for each object.

mod check;
mod custom_kind;
mod decoded;
mod group_kind;
mod list;
pub mod rejection;
mod scope;
mod size;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::names::{is_dns_label, is_dns_subdomain};
pub use check::{distinct, read};
pub use custom_kind::CustomKind;
pub use decoded::{MAPS, normalize};
pub use group_kind::GroupKind;
pub use list::unrolled;
pub use scope::drop_namespaces;
pub use size::{MAX_OBJECT_JSON, check_sizes};

/// Identity of an object in a cluster. Two IDs that differ only in the version name the same
/// object: see [`ObjectId::identity`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId {
    /// API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// API version: `v1`.
    pub version: String,
    /// Kind: `Deployment`.
    pub kind: String,
    /// Namespace as written; `None` for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
}

impl ObjectId {
    /// Returns true if the object is a Namespace of the core group.
    pub fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.kind == "Namespace"
    }

    /// Returns true if the object is a CustomResourceDefinition.
    pub fn is_definition(&self) -> bool {
        self.group == "apiextensions.k8s.io" && self.kind == "CustomResourceDefinition"
    }

    /// Returns the `apiVersion`: `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns group, kind, namespace and name. The result is equal for the same object in two API
    /// versions.
    pub fn identity(&self) -> (&str, &str, Option<&str>, &str) {
        (
            &self.group,
            &self.kind,
            self.namespace.as_deref(),
            &self.name,
        )
    }

    /// Returns group, version and kind.
    pub fn gvk(&self) -> (&str, &str, &str) {
        (&self.group, &self.version, &self.kind)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, "/{namespace}")?;
        }
        write!(f, "/{}", self.name)
    }
}

/// Object of a bundle, with its location.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Identity of the object.
    pub id: ObjectId,
    /// Complete object.
    pub value: Value,
    /// Path of the file in the bundle.
    pub file: String,
    /// First line of the object, from 1.
    pub line: usize,
}

impl Manifest {
    /// Returns group, version and kind.
    pub fn gvk(&self) -> (&str, &str, &str) {
        self.id.gvk()
    }
}
