//! `status` of a BundleDeployment.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{admission_status::AdmissionStatus, service_account::ServiceAccountName};

/// Observed state of a BundleDeployment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleDeploymentStatus {
    /// Requester of this generation, recorded in a seal. The pod does not reconcile objects without
    /// a seal, because they were written while admission was off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionStatus>,
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Name of the Bundle that contains the installed content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_bundle: Option<String>,
    /// Installed content, with its requester and the ServiceAccount that installed the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed: Option<Installed>,
    /// New content that is not completely installed yet. Absent if no upgrade is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// Installed and earlier revisions, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub revisions: Vec<Revision>,
    /// Objects that differ from the content, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub drift: Vec<DriftedObject>,
    /// Warnings of the API server and active overrides, without duplicates, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub warnings: Vec<String>,
    /// Conditions `HasValidBundle`, `Installed`, `Authorized`, `Approved`, `Healthy`, `Drifted`,
    /// `Progressing` and `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Installed content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Installed {
    /// Digest of the content.
    pub digest: String,
    /// Version of the installed package, if the package has a version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Number of objects of the content that were applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// ServiceAccount that applied the objects.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub installed_as: Option<ServiceAccountName>,
    /// Requester of this content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Approver of this content, if the class requires approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// Digest over the managed fields of all installed objects after the last apply. If the digest
    /// is unchanged after a restart of the pod, no object has drifted. The pod then applies no
    /// object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields_digest: Option<String>,
}

/// New content that is not completely installed yet. Objects that were not yet applied from the new
/// content still belong to the installed content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// Name of the new Bundle.
    pub bundle: String,
    /// Digest of the new content.
    pub digest: String,
    /// Version of the package in the new content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Number of objects of the new content. Absent until the number is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Number of objects that were applied from the new content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<u64>,
    /// Objects that were applied from the new content, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub applied_objects: Vec<String>,
}

/// One revision of the content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// Name of the Bundle.
    pub bundle: String,
    /// Digest of the content.
    pub digest: String,
    /// Version of the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Time of installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed_at: Option<Time>,
    /// `Active`, `Superseded` or `Failed`. `Failed` content was not healthy by
    /// `spec.rollout.deadline`, and former content was installed again.
    pub state: RevisionState,
    /// Number of the revision. The number increases with each installation of other content, even
    /// if that content was installed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<i64>,
    /// Requester of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Digest of `spec.config` at the last installation of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_digest: Option<String>,
    /// `spec.config` at the last installation of the content. Absent if `spec.config` was not set.
    /// Also absent if this configuration and the configurations of newer revisions together exceed
    /// 8 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::free_form")]
    pub config: Option<serde_json::Value>,
}

/// State of a revision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RevisionState {
    /// The revision is installed.
    #[default]
    Active,
    /// The revision was replaced by another revision.
    Superseded,
    /// The objects were not healthy by `spec.rollout.deadline`, and former content replaced these
    /// objects.
    Failed,
}

/// Object that differs from the content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriftedObject {
    /// Kind, namespace and name of the object: `ConfigMap/team-a/web`.
    pub object: String,
    /// Time at which the difference was first observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}
