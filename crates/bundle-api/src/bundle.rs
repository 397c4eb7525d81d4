//! `Bundle`: content that is pulled, checked and kept, and never changes.
//! Not here: its source (source) or who installs it (deployment).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{admission_status::AdmissionStatus, names, source::BundleSource};

/// What to unpack, and for which class of provisioner. It does not change once it is admitted.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource,
)]
#[kube(
    group = "core.rukpak.io",
    version = "v1alpha1",
    kind = "Bundle",
    plural = "bundles",
    status = "BundleStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Bundle is content that is pulled from its source, verified, and kept under a digest. Its spec is immutable: to have other content, create another Bundle. Most Bundles are made from the template of a BundleDeployment.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.source.type"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Provisioner",
        type_ = "string",
        json_path = ".spec.provisionerClassName",
        priority = 1
    ),
    printcolumn(
        name = "Resolved Source",
        type_ = "string",
        json_path = ".status.resolvedSource",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BundleSpec {
    /// Name of the ProvisionerClass that this Bundle is for. Whoever creates it needs verb `use` on that class. A class that does not exist, or that
    /// names somebody else's provisioner, is admitted with a warning and left alone.
    #[schemars(regex(pattern = names::LABEL_PATTERN), length(max = names::LABEL_LIMIT))]
    pub provisioner_class_name: String,
    /// Where the content comes from.
    pub source: BundleSource,
}

/// What became of a Bundle.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleStatus {
    /// Who asked for this generation, as the pod sealed it. Objects without a seal were written while admission was off: nothing is done with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionStatus>,
    /// `Pending`, `Unpacking`, `Failing` or `Unpacked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The source, pinned to what was unpacked: a digest for an image, a commit for git. Empty unless the phase is `Unpacked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_source: Option<BundleSource>,
    /// Where the unpacked content can be fetched inside the cluster. Empty unless the phase is `Unpacked`.
    #[serde(
        default,
        rename = "contentURL",
        skip_serializing_if = "Option::is_none"
    )]
    pub content_url: Option<String>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What was first unpacked. Nothing else is ever accepted under this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<BundleContent>,
    /// Who signed the content, as policies found it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub signed_by: Vec<SignedBy>,
    /// `Unpacked`, `Verified`, `Compatible` and `SourceMoved`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What was first unpacked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleContent {
    /// Digest of the content: of the OCI manifest for an image, of the files otherwise.
    pub digest: String,
    /// Digest of the Bundle's spec when it was unpacked.
    pub spec_digest: String,
    /// Format of the content: `plain+v0`, `registry+v1` or `helm+v3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Name of the package, from its bundle.yaml.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Version of the package, from its bundle.yaml.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How many objects it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Size of its files in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Digest, version and spec digest under a MAC with a key that only the pod has. Content without a valid one counts for nothing: it is unpacked anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// One authority whose signature was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignedBy {
    /// The SignaturePolicy.
    pub policy: String,
    /// The authority in that policy.
    pub authority: String,
    /// The identity in the certificate, for keyless signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Who vouched for that identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// When the pod verified it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_at: Option<Time>,
}
