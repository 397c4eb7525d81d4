//! Objects of a bundle: what identifies one, and the rules that each must meet before anything is done with it.
//! Not here: where they come from (format) and what happens to them (plan).

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    diagnostic::{Finding, Findings, codes},
    yaml::Document,
};

/// What names one object in a cluster.
///
/// Two of them mean the same object if all but the version agree: see [`ObjectId::identity`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId {
    /// API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// API version: `v1`.
    pub version: String,
    /// Kind: `Deployment`.
    pub kind: String,
    /// Namespace as written; none for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ObjectId {
    /// The `apiVersion` as it stands in a manifest: `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Group, kind, namespace and name: equal for two ids of the same object, whatever version they speak.
    pub fn identity(&self) -> (&str, &str, Option<&str>, &str) {
        (
            &self.group,
            &self.kind,
            self.namespace.as_deref(),
            &self.name,
        )
    }

    /// Group, version and kind.
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

/// One object of a bundle, with the place where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// What names it.
    pub id: ObjectId,
    /// The whole object.
    pub value: Value,
    /// Path of the file within the bundle.
    pub file: String,
    /// Line on which it starts, from 1.
    pub line: usize,
}

impl Manifest {
    /// Group, version and kind.
    pub fn gvk(&self) -> (&str, &str, &str) {
        self.id.gvk()
    }
}

/// Reads one document as an object; what is wrong is added to `findings`.
pub fn read(document: Document, file: &str, findings: &mut Findings) -> Option<Manifest> {
    let Document { value, line } = document;
    let text = |pointer: &str| {
        value
            .pointer(pointer)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let (Some(api_version), Some(kind), Some(name)) =
        (text("/apiVersion"), text("/kind"), text("/metadata/name"))
    else {
        findings.push(
            Finding::error(
                codes::format::MISSING_FIELD,
                "apiVersion, kind or metadata.name is missing",
            )
            .in_file(file)
            .at_line(line),
        );
        return None;
    };
    let (group, version) = match api_version.split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), api_version),
    };
    let id = ObjectId {
        group,
        version,
        kind,
        namespace: text("/metadata/namespace"),
        name,
    };
    Some(Manifest {
        id,
        value,
        file: file.to_owned(),
        line,
    })
}

/// Adds a finding for each object that is there already.
pub fn distinct(objects: &[Manifest], findings: &mut Findings) {
    let mut seen: BTreeMap<_, &Manifest> = BTreeMap::new();
    for object in objects {
        if let Some(first) = seen.insert(object.id.identity(), object) {
            findings.push(
                Finding::error(
                    codes::format::DUPLICATE_OBJECT,
                    format!(
                        "the object is there twice: also in {}:{}",
                        first.file, first.line
                    ),
                )
                .in_file(&object.file)
                .at_line(object.line)
                .about(object.id.to_string()),
            );
        }
    }
}
