//! What became of a BundleDeployment: `status`.
//! Not here: what was asked for (deployment).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{admission_status::AdmissionStatus, deployment::ServiceAccountName};

/// What became of a BundleDeployment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleDeploymentStatus {
    /// Who asked for this generation, as the pod sealed it. Objects without a seal were written while admission was off: nothing is done with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionStatus>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Name of the Bundle whose content is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_bundle: Option<String>,
    /// What is installed, as whom, and at whose request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed: Option<Installed>,
    /// New content that is not installed completely; absent once it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// What is and was installed, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub revisions: Vec<Revision>,
    /// Objects that are out of line now, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub drift: Vec<DriftedObject>,
    /// Warnings of the API server and overrides that are in force, each once, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub warnings: Vec<String>,
    /// `HasValidBundle`, `Installed`, `Authorized`, `Approved`, `Healthy`, `Drifted`, `Progressing` and `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What is installed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Installed {
    /// Digest of the content.
    pub digest: String,
    /// Version of the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How many objects were applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// The ServiceAccount that applied them.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub installed_as: Option<ServiceAccountName>,
    /// Who asked for this content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Who approved it, where the class asks for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// Digest over our managed fields of all installed objects after the last apply. Equal to what is found after a restart, nothing has drifted, and
    /// nothing needs to be applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields_digest: Option<String>,
}

/// New content that is not installed completely. Objects that it does not name are of the installed content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// Name of its Bundle.
    pub bundle: String,
    /// Its digest.
    pub digest: String,
    /// Version of its package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Number of its objects, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Number of them that were applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<u64>,
    /// Objects that were applied from it, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub applied_objects: Vec<String>,
}

/// One revision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// Name of the Bundle.
    pub bundle: String,
    /// Digest of its content.
    pub digest: String,
    /// Version of the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When it was installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed_at: Option<Time>,
    /// `Active`, `Superseded` or `Failed`.
    pub state: RevisionState,
}

/// What a revision is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RevisionState {
    /// It is installed.
    #[default]
    Active,
    /// Another one took its place.
    Superseded,
    /// It could not be installed.
    Failed,
}

/// One object that is out of line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriftedObject {
    /// The object: `ConfigMap/team-a/web`.
    pub object: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}
