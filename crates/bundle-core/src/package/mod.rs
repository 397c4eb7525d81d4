//! Package: the content of `bundle.yaml`, the annotations of the OCI manifest, and parsers for
//! both.

mod annotations;
mod fields;
mod parse;
pub mod probe;
mod schema;
mod shape;
mod suggest;
mod texts;
mod write;

#[cfg(test)]
mod tests;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::{Finding, codes},
    reference::Digest,
    version::{Kubernetes, Range},
};

pub use annotations::{PackageDescription, annotations, keys};
pub use parse::parse;
pub use probe::{Assertion, Probe, ProbeSelector};
pub use schema::{SCHEMA_ID, schema};
pub(crate) use suggest::nearest;

/// `apiVersion` of a package.
pub const API_VERSION: &str = "bundle.core.rukpak.io/v1alpha1";
/// `kind` of a package.
pub const KIND: &str = "Package";

/// Name of the file at the root of a bundle's folder.
pub const FILE: &str = "bundle.yaml";

/// Maximum length of a package name, in bytes. It equals the maximum length of the name of a
/// BundleDeployment.
pub const MAX_NAME: usize = 45;

/// Format of the content of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Plain manifests in `manifests/`.
    PlainV0,
    /// A bundle of the Operator Lifecycle Manager: `manifests/` with a ClusterServiceVersion, and
    /// `metadata/annotations.yaml`.
    RegistryV1,
    /// A Helm chart.
    HelmV3,
}

/// Type of a resource that contains default custom resources.
const DEFAULT_RESOURCE: &str = "default-cr";
/// Names of all formats.
const FORMATS: &[&str] = &["plain+v0", "registry+v1", "helm+v3"];

impl Format {
    /// Returns the name of the format as in `bundle.yaml`: `plain+v0`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PlainV0 => "plain+v0",
            Self::RegistryV1 => "registry+v1",
            Self::HelmV3 => "helm+v3",
        }
    }
}

impl FromStr for Format {
    type Err = Finding;

    fn from_str(text: &str) -> Result<Self, Finding> {
        match text {
            "plain+v0" => Ok(Self::PlainV0),
            "registry+v1" => Ok(Self::RegistryV1),
            "helm+v3" => Ok(Self::HelmV3),
            other => {
                let shown: String = other.chars().take(80).collect();
                let finding = Finding::error(
                    codes::format::UNSUPPORTED_FORMAT,
                    format!("detected unsupported bundle format {shown:?}"),
                );
                Err(match suggest::nearest(other, FORMATS) {
                    Some(meant) => finding.hint(format!("did you mean `{meant}`?")),
                    None => finding.hint(format!("the formats are {}", FORMATS.join(", "))),
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

/// Content of `bundle.yaml`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Package {
    /// Name, a DNS label of at most 45 characters.
    pub name: String,
    /// Version of the package.
    pub version: semver::Version,
    /// Format of the content.
    pub format: Format,
    /// Description in one line, shown by `inspect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Supported versions of Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    /// Requirements on the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires: Option<Requires>,
    /// Installed versions that this version can replace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrades: Option<Upgrades>,
    /// Images that the manifests do not contain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Schema and default of the configuration, as paths within the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Config>,
    /// Additional content that is not installed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// Assertions that objects must meet to be healthy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
    /// Information for users and tools.
    #[serde(flatten)]
    pub about: PackageInfo,
}

/// Information about a package for users and tools. This information has no effect in a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PackageInfo {
    /// Maintainers of the package.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub maintainers: Vec<Maintainer>,
    /// Named links to more information.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Icon: a path within the bundle, or an https URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// Keywords for searches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// Data for security scanners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<Security>,
    /// URL of the source code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Commit of the source code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Licences, as an SPDX expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub licenses: Option<String>,
    /// URL of the home page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// A person or team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Maintainer {
    /// Name of the person or team.
    pub name: String,
    /// Email address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// URL of a homepage or profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Link to more information.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Title of the link.
    pub name: String,
    /// URL of the link.
    pub url: String,
}

/// Setting for security scanners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scan {
    /// Scan the bundle.
    Enabled,
    /// Do not scan the bundle.
    Disabled,
}

/// Data for security scanners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Security {
    /// Setting for security scanners.
    pub scan: Scan,
    /// Programming languages of the source code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub languages: Vec<String>,
    /// Paths of the source code that are excluded from the scan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Images that are scanned. Default: all images of the bundle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// Branch that is scanned during development.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Tag that is scanned before a release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<String>,
}

impl Package {
    /// Returns the paths of files that the package refers to. Resources are not included, because
    /// they are separate layers.
    pub fn named_paths(&self) -> Vec<&str> {
        let config = self.config.as_ref();
        let icon = self.about.icon.as_deref();
        [
            config.and_then(|config| config.schema.as_deref()),
            config.and_then(|config| config.default.as_deref()),
            icon.filter(|icon| !icon.starts_with("https://")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns the configuration if it has patches.
    pub fn patching_config(&self) -> Option<&Config> {
        let config = self.config.as_ref();
        config.filter(|config| !config.patches.is_empty())
    }

    /// Returns the resources with default custom resources.
    pub fn default_resources(&self) -> impl Iterator<Item = &Resource> {
        self.resources
            .iter()
            .filter(|resource| resource.kind == DEFAULT_RESOURCE)
    }

    /// Returns the name of the package for messages: `bundle web 1.4.0`.
    pub fn title(&self) -> String {
        format!("bundle {} {}", self.name, self.version)
    }
}

/// Requirements on the cluster.
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
    /// Range of the accepted versions.
    pub version: Range,
    /// Required digest of the content; `None` accepts each digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// Installed versions that a package can replace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upgrades {
    /// Range of the installed versions; `None` accepts each version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Range>,
    /// Lowest installed version from which an upgrade is possible; `None` sets no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<semver::Version>,
}

/// Image that the manifests do not contain.
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
    /// Fields of objects that receive values of the configuration (plain+v0).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<ConfigPatch>,
}

/// Field of an object that receives a value of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigPatch {
    /// Kind of the object, with its group: `Deployment.apps`.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object. It is required only if several objects have this kind and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// JSON pointer (RFC 6901) of the field in the object.
    pub path: String,
    /// JSON pointer of the value in the configuration.
    pub value: String,
}

/// Additional content of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Name within the bundle.
    pub name: String,
    /// Type of the resource. Programs that read the resource define the names of types.
    #[serde(rename = "type")]
    pub kind: String,
    /// Path within the bundle. The path of a folder ends with `/`.
    pub path: String,
}
