//! Source of a bundle's content: `spec.source` and `status.resolvedSource`.
//! `bundle_core::review::source` validates the source.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names;

/// Source of the content. In addition to `type`, set exactly one field: the field that `type`
/// names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleSource {
    /// Type of the source: `image`, `git`, `configMaps`, `http` or `upload`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Image in a registry. The file system of the image is the content. An image is the only
    /// source that can be signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSource>,
    /// Directory of a git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// ConfigMaps of the system namespace. Their entries are the files of the content. Each
    /// ConfigMap must have `immutable: true`. The requester needs verb `get` on each ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub config_maps: Option<Vec<ConfigMapSource>>,
    /// Gzipped tar archive at a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSource>,
    /// Content that is uploaded to the pod after the Bundle is created: `PUT /uploads/NAME.tgz`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<UploadSource>,
}

/// Image in a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSource {
    /// Reference of the image, `REGISTRY/REPOSITORY@sha256:…` or `REGISTRY/REPOSITORY:TAG`. A tag
    /// is resolved when the Bundle is first unpacked. Later moves of the tag are ignored.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Name of a Secret of type `kubernetes.io/dockerconfigjson` in the system namespace, for a
    /// registry that requires credentials. The requester needs verb `get` on the Secret. Default:
    /// the pull secrets of the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = names::OPTIONAL_SUBDOMAIN_PATTERN), length(max = names::SUBDOMAIN_LIMIT))]
    pub pull_secret: Option<String>,
}

/// Directory of a git repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSource {
    /// URL of the repository: `https://…`, `ssh://…` or `user@host:path`, without credentials.
    pub repository: String,
    /// Root of the bundle: the directory in the repository that contains the folder `manifests`.
    /// The default `./manifests` selects the root of the repository. A path outside of the
    /// repository is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Revision to check out: exactly one of `branch`, `tag` and `commit`.
    #[serde(rename = "ref")]
    pub reference: GitRef,
    /// Credentials and TLS settings for the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Authorization>,
}

/// Revision to check out: exactly one of `branch`, `tag` and `commit`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRef {
    /// Branch. The branch is resolved when the Bundle is first unpacked. Later commits are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Tag. The tag is resolved when the Bundle is first unpacked. Later moves of the tag are
    /// ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Commit, as 40 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// Files from one ConfigMap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSource {
    /// ConfigMap in the system namespace.
    pub config_map: LocalName,
    /// Directory in the bundle for the files of this ConfigMap. A path outside of the bundle is
    /// rejected. Default: the root of the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Gzipped tar archive at a URL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpSource {
    /// URL of the archive, `http` or `https`.
    pub url: String,
    /// Credentials and TLS settings for the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Authorization>,
}

/// Content that is uploaded after the Bundle is created. This source has no fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UploadSource {}

/// Credentials and TLS of a git or http source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// Secret in the system namespace with the credentials. Its keys are `username` and `password`,
    /// or `token` (only http), or `ssh-privatekey` and `ssh-knownhosts` (only git over SSH). The
    /// requester needs verb `get` on this Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<LocalName>,
    /// Accept any TLS certificate or host key. With `true`, anyone on the network path can replace
    /// the content. Requires a class that lists the host in `spec.sources.insecureHosts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}

/// Name of an object in the system namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalName {
    /// Name of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = names::OPTIONAL_SUBDOMAIN_PATTERN), length(max = names::SUBDOMAIN_LIMIT))]
    pub name: String,
}
