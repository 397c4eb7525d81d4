//! `Bundle`: immutable content that is pulled, verified and cached.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
#[cfg(feature = "resources")]
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{admission_status::AdmissionStatus, names, source::BundleSource};

/// Content to unpack, and the provisioner class that handles the content. The spec is immutable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(
    feature = "resources",
    derive(CustomResource),
    kube(
        group = "core.rukpak.io",
        version = "v1alpha1",
        kind = "Bundle",
        plural = "bundles",
        status = "BundleStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "Bundle is content that is pulled from its source, verified, and cached by digest. Its spec is immutable: for other content, create another Bundle. Most Bundles are created from the template of a BundleDeployment.",
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
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BundleSpec {
    /// Name of the ProvisionerClass for this Bundle. The creator of the Bundle needs verb `use` on
    /// that class. If the class does not exist or has another provisioner, the Bundle is admitted
    /// with a warning and is not reconciled.
    #[schemars(regex(pattern = names::LABEL_PATTERN), length(max = names::LABEL_LIMIT))]
    pub provisioner_class_name: String,
    /// Source of the content.
    pub source: BundleSource,
}

/// Observed state of a Bundle.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleStatus {
    /// Requester of this generation, recorded in a seal. The pod does not reconcile objects without
    /// a seal, because they were written while admission was off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionStatus>,
    /// Phase of the Bundle: `Pending`, `Unpacking`, `Failing` or `Unpacked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Source, pinned to the unpacked content: a digest for an image, a commit for git. For `http`,
    /// `configMaps` and `upload` this field equals `spec.source`, and `content.digest` identifies
    /// the content. This field is set only in phase `Unpacked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_source: Option<BundleSource>,
    /// URL inside the cluster that returns the unpacked content as a gzipped tar. Callers need
    /// permission `get` on the path of this URL. ClusterRole `bundle-reader` has this permission.
    #[serde(
        default,
        rename = "contentURL",
        skip_serializing_if = "Option::is_none"
    )]
    pub content_url: Option<String>,
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Content that was unpacked first for this Bundle. The pod never accepts other content for
    /// this Bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<BundleContent>,
    /// Signers whose signatures satisfied a SignaturePolicy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub signed_by: Vec<SignedBy>,
    /// Conditions `Unpacked`, `Verified`, `Compatible` and `SourceMoved`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Content that was unpacked first for a Bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleContent {
    /// Digest of the content: the digest of the OCI manifest for `image`, of the archive for `http`
    /// and `upload`, of the files for `git` and `configMaps`.
    pub digest: String,
    /// Digest of the Bundle's spec at the time of unpacking.
    pub spec_digest: String,
    /// Format of the content: `plain+v0`, `registry+v1` or `helm+v3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Name of the package, from bundle.yaml.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Version of the package, from bundle.yaml.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Number of objects in the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Size of the files in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// MAC over digest, version and spec digest. Only the pod has the key of the MAC. If the MAC is
    /// invalid, the pod unpacks the content again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// Authority that signed the content, with the SignaturePolicy that lists this authority.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignedBy {
    /// Name of the SignaturePolicy.
    pub policy: String,
    /// Name of the authority in that policy.
    pub authority: String,
    /// Identity in the certificate, for keyless signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// OpenID Connect issuer of the identity, for keyless signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Time at which the pod verified the signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_at: Option<Time>,
}
