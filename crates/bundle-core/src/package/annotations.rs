//! Writes and parses the annotations of the OCI manifest that describe the package. Clients can
//! read these annotations without pulling a layer.

use std::collections::BTreeMap;

use serde::{Serialize, de::DeserializeOwned};

use super::{Format, Link, MAX_NAME, Maintainer, Package, Requires, Security, Upgrades};
use crate::{
    diagnostic::{Finding, codes},
    object::is_dns_label,
    version::{Kubernetes, ServerVersion, fits_named},
};

/// Keys of the annotations.
pub mod keys {
    /// Format of the content: `plain+v0`. Only bundles of this project have this annotation.
    pub const FORMAT: &str = "io.rukpak.core.bundle.format";
    /// Kubernetes versions, as compact JSON of the field `kubernetes`.
    pub const KUBERNETES: &str = "io.rukpak.core.bundle.kubernetes";
    /// Requirements, as compact JSON of the field `requires`.
    pub const REQUIRES: &str = "io.rukpak.core.bundle.requires";
    /// Upgrades, as compact JSON of the field `upgrades`.
    pub const UPGRADES: &str = "io.rukpak.core.bundle.upgrades";
    /// Data for security scanners, as compact JSON of the field `security`.
    pub const SECURITY: &str = "io.rukpak.core.bundle.security";
    /// Maintainers: `Name <address>`, comma-separated.
    pub const AUTHORS: &str = "org.opencontainers.image.authors";
    /// URL of the documentation.
    pub const DOCUMENTATION: &str = "org.opencontainers.image.documentation";
    /// Name of the package.
    pub const TITLE: &str = "org.opencontainers.image.title";
    /// Version of the package.
    pub const VERSION: &str = "org.opencontainers.image.version";
    /// Description, in one line.
    pub const DESCRIPTION: &str = "org.opencontainers.image.description";
    /// URL of the source code.
    pub const SOURCE: &str = "org.opencontainers.image.source";
    /// Commit of the source code.
    pub const REVISION: &str = "org.opencontainers.image.revision";
    /// Licences of the package, as an SPDX expression.
    pub const LICENSES: &str = "org.opencontainers.image.licenses";
    /// URL of more information.
    pub const URL: &str = "org.opencontainers.image.url";
    /// Layer annotation with the name of a resource. A layer with this annotation contains the
    /// resource, and no Kubernetes objects.
    pub const RESOURCE_NAME: &str = "io.rukpak.core.bundle.resource.name";
    /// Layer annotation with the type of the resource that the layer contains.
    pub const RESOURCE_TYPE: &str = "io.rukpak.core.bundle.resource.type";
}

/// Returns the annotations of the OCI manifest of a package. The annotations depend only on the
/// package.
pub fn annotations(package: &Package) -> BTreeMap<String, String> {
    let texts = [
        (keys::TITLE, Some(package.name.clone())),
        (keys::VERSION, Some(package.version.to_string())),
        (keys::FORMAT, Some(package.format.to_string())),
        (keys::DESCRIPTION, package.description.clone()),
        (keys::SOURCE, package.about.source.clone()),
        (keys::REVISION, package.about.revision.clone()),
        (keys::LICENSES, package.about.licenses.clone()),
        (keys::URL, package.about.url.clone()),
        (keys::KUBERNETES, package.kubernetes.as_ref().and_then(json)),
        (keys::REQUIRES, package.requires.as_ref().and_then(json)),
        (keys::UPGRADES, package.upgrades.as_ref().and_then(json)),
        (
            keys::SECURITY,
            package.about.security.as_ref().and_then(json),
        ),
        (keys::AUTHORS, authors(&package.about.maintainers)),
        (keys::DOCUMENTATION, documentation(&package.about.links)),
    ];
    texts
        .into_iter()
        .filter_map(|(key, text)| Some((key.to_owned(), text?)))
        .collect()
}

/// Maximum size of all annotations, in bytes. Registries accept manifests of 4 MiB. The annotation
/// `core.rukpak.io/proof` of an object can contain the manifest, and must stay much smaller.
pub(super) const MAX_BYTES: usize = 128 << 10;

/// Returns the size of the package's annotations in bytes.
pub(super) fn size(package: &Package) -> usize {
    annotations(package)
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum()
}

fn authors(maintainers: &[Maintainer]) -> Option<String> {
    let authors: Vec<String> = maintainers
        .iter()
        .map(|one| match one.email.as_ref().or(one.url.as_ref()) {
            Some(address) => format!("{} <{address}>", one.name),
            None => one.name.clone(),
        })
        .collect();
    (!authors.is_empty()).then(|| authors.join(", "))
}

fn documentation(links: &[Link]) -> Option<String> {
    let known = ["documentation", "docs", "manual"];
    links
        .iter()
        .find(|link| known.contains(&link.name.to_lowercase().as_str()))
        .map(|link| link.url.clone())
}

/// Serializes a value; `None` if this fails. Types with only text and numbers cannot fail to
/// serialize.
fn json<T: Serialize>(value: &T) -> Option<String> {
    serde_json::to_string(value).ok()
}

/// Description of a bundle from its OCI manifest. All fields are optional, because an image may
/// have been built by another program.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageDescription {
    /// Name of the package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Version of the package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<semver::Version>,
    /// Format of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Supported versions of Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    /// Requirements on the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires: Option<Requires>,
    /// Installed versions that this version can replace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrades: Option<Upgrades>,
    /// Data for security scanners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<Security>,
}

impl PackageDescription {
    /// Parses annotations. For an image without [`keys::FORMAT`] all fields of the result are
    /// empty, because the title and version of such an image can have any meaning.
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Result<Self, Finding> {
        let Some(format) = annotations.get(keys::FORMAT) else {
            return Ok(Self::default());
        };
        let version = annotations.get(keys::VERSION).map(|text| {
            semver::Version::parse(text)
                .map_err(|error| unreadable(keys::VERSION, format_args!("`{text}`: {error}")))
        });
        let name = annotations.get(keys::TITLE);
        if name.is_some_and(|name| !is_dns_label(name) || name.len() > MAX_NAME) {
            return Err(unreadable(
                keys::TITLE,
                format_args!("invalid package name"),
            ));
        }
        Ok(Self {
            name: name.cloned(),
            version: version.transpose()?,
            format: Some(format.parse()?),
            kubernetes: field(annotations, keys::KUBERNETES)?,
            requires: field(annotations, keys::REQUIRES)?,
            upgrades: field(annotations, keys::UPGRADES)?,
            security: field(annotations, keys::SECURITY)?,
        })
    }

    /// Returns the name of the bundle for messages: `bundle web 1.4.0`, or `this bundle`.
    pub fn title(&self) -> String {
        match (&self.name, &self.version) {
            (Some(name), Some(version)) => format!("bundle {name} {version}"),
            (Some(name), None) => format!("bundle {name}"),
            (None, _) => "this bundle".to_owned(),
        }
    }

    /// Returns a warning or an error if the server's version is not supported. Otherwise returns
    /// `None`.
    pub fn fits(&self, server: &ServerVersion) -> Option<Finding> {
        fits_named(&self.title(), self.kubernetes.as_ref()?, server)
    }
}

fn field<T: DeserializeOwned>(
    annotations: &BTreeMap<String, String>,
    key: &str,
) -> Result<Option<T>, Finding> {
    annotations
        .get(key)
        .map(|text| {
            if text.len() > MAX_BYTES {
                return Err(unreadable(
                    key,
                    format_args!("it has more than {MAX_BYTES} bytes"),
                ));
            }
            serde_json::from_str(text).map_err(|error| unreadable(key, format_args!("{error}")))
        })
        .transpose()
}

fn unreadable(key: &str, why: std::fmt::Arguments<'_>) -> Finding {
    Finding::error(
        codes::format::BAD_ANNOTATION,
        format!("invalid annotation of the OCI manifest: {why}"),
    )
    .at_field(format!("annotations[{key}]"))
    .hint("build the bundle again with `kubectl bundle build`, then push it")
}
