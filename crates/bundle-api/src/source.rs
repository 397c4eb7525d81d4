//! Where a bundle's content comes from: `spec.source` and `status.resolvedSource`.
//! Not here: whether a source makes sense (bundle_core::review::source) or how it is fetched (webhook).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names;

/// Where the content comes from. Exactly one of the members beside `type` is set, the one that `type` names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleSource {
    /// Kind of the source: `image`, `git`, `configMaps`, `http` or `upload`.
    #[serde(rename = "type")]
    pub kind: String,
    /// An image in a registry whose file system is the content. The only source that can be signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSource>,
    /// A directory of a git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// ConfigMaps of the system namespace whose entries are the files. Each must have `immutable: true`, and whoever asks for the content needs verb `get` on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub config_maps: Option<Vec<ConfigMapSource>>,
    /// A gzipped tar archive behind a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSource>,
    /// Content that is uploaded to the pod after the Bundle was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<UploadSource>,
}

/// An image in a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSource {
    /// Reference of the image, `REGISTRY/REPOSITORY@sha256:…` or `REGISTRY/REPOSITORY:TAG`. A digest is what it is for ever; what a tag names
    /// when the Bundle is first unpacked is kept, even when the tag moves later.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Name of a Secret of type `kubernetes.io/dockerconfigjson` in the system namespace, for a registry that wants credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = names::OPTIONAL_SUBDOMAIN_PATTERN), length(max = names::SUBDOMAIN_LIMIT))]
    pub pull_secret: Option<String>,
}

/// A directory of a git repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSource {
    /// URL of the repository.
    pub repository: String,
    /// Directory of the manifests in the repository. It may not lead out of it. Default: `./manifests`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// What to check out: exactly one of `branch`, `tag` and `commit`.
    #[serde(rename = "ref")]
    pub reference: GitRef,
    /// Credentials and TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Authorization>,
}

/// What to check out: exactly one of the three.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRef {
    /// A branch. What it names when the Bundle is first unpacked is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// A tag. What it names when the Bundle is first unpacked is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// A commit, as 40 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// Files from one ConfigMap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSource {
    /// The ConfigMap, in the system namespace.
    pub config_map: LocalName,
    /// Directory inside the bundle that the entries become files of. It may not lead out of the bundle. Default: its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A gzipped tar archive behind a URL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpSource {
    /// URL of the archive, `http` or `https`.
    pub url: String,
    /// Credentials and TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Authorization>,
}

/// Content that is uploaded after the Bundle was created; there is nothing to say about it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UploadSource {}

/// Credentials and TLS of a git or http source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// A Secret in the system namespace: `username` and `password`, or for git over SSH `ssh-privatekey` and `ssh-knownhosts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<LocalName>,
    /// Accept any TLS certificate or host key. What comes over such a connection can be anybody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}

/// The name of an object in the system namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalName {
    /// Name of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = names::OPTIONAL_SUBDOMAIN_PATTERN), length(max = names::SUBDOMAIN_LIMIT))]
    pub name: String,
}
