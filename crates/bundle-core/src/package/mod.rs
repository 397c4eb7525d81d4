//! The package: what `bundle.yaml` says, what of it stands in annotations of the OCI manifest, and how to read both.
//! Not here: the manifests beside it (format).

mod annotations;
mod fields;
mod parse;
mod suggest;

#[cfg(test)]
mod tests;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::{Finding, codes},
    version::{Kubernetes, Range},
};

pub use annotations::{Facts, annotations, keys};
pub use parse::{API_VERSION, KIND, parse};
pub(crate) use suggest::nearest;

/// Name of the file at the root of a bundle's folder.
pub const FILE: &str = "bundle.yaml";

/// The longest name of a package, in bytes: that of a BundleDeployment.
pub const MAX_NAME: usize = 45;

/// How the content of a bundle is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Plain manifests in `manifests/`.
    PlainV0,
}

impl Format {
    /// Its name, as in `bundle.yaml`: `plain+v0`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PlainV0 => "plain+v0",
        }
    }
}

impl FromStr for Format {
    type Err = Finding;

    fn from_str(text: &str) -> Result<Self, Finding> {
        match text {
            "plain+v0" => Ok(Self::PlainV0),
            other => {
                let finding = Finding::error(
                    codes::format::UNSUPPORTED_FORMAT,
                    format!("detected unsupported bundle format {other:?}"),
                );
                Err(match other {
                    "registry+v1" | "helm+v3" => finding.hint(format!(
                        "this version of kubectl-bundle cannot read {other} yet; it reads plain+v0"
                    )),
                    _ => finding.hint("the format that this version reads is plain+v0"),
                })
            }
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Format {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// What `bundle.yaml` says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Package {
    /// Name, a DNS label of at most 45 characters.
    pub name: String,
    /// Version of the package.
    pub version: semver::Version,
    /// How its content is laid out.
    pub format: Format,
    /// One line that `inspect` shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The versions of Kubernetes that it is made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    /// What must be in the cluster already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires: Option<Requires>,
    /// Which installed versions it can replace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrades: Option<Upgrades>,
    /// Images that no manifest shows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Schema and default of the configuration, as paths within the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Config>,
    /// Further content that is not for Kubernetes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// Where its source is, as a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Revision of the source that it was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Licences, as an SPDX expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub licenses: Option<String>,
    /// Where to read more, as a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl Package {
    /// How messages name it: `bundle web 1.4.0`.
    pub fn title(&self) -> String {
        format!("bundle {} {}", self.name, self.version)
    }
}

/// What must be in the cluster already.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Requires {
    /// APIs, as `group/version/Kind`, or `version/Kind` for the core group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apis: Vec<String>,
    /// Packages that must be installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<Requirement>,
}

/// A package that must be installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// Name of the package.
    pub name: String,
    /// Versions of it that will do.
    pub version: Range,
}

/// Which installed versions a package can replace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upgrades {
    /// The range of them.
    pub from: Range,
}

/// An image that no manifest shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Name within the bundle.
    pub name: String,
    /// Reference of the image.
    pub image: String,
}

/// Schema and default of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Path of a JSON schema within the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Path of the default values within the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// Further content of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Name within the bundle.
    pub name: String,
    /// What it is, for the tool that looks for it.
    #[serde(rename = "type")]
    pub kind: String,
    /// Path within the bundle; a folder ends in `/`.
    pub path: String,
}
