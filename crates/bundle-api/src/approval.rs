//! `BundleApproval`: a named person's approval of one content digest for one BundleDeployment.
//! Not here: whether it counts (bundle_core::review, reconcile).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admission_status::AdmissionStatus;
use crate::names;

/// An approval of one content digest. It does not change; deleting it withdraws it.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource,
)]
#[kube(
    group = "core.rukpak.io",
    version = "v1alpha1",
    kind = "BundleApproval",
    plural = "bundleapprovals",
    status = "BundleApprovalStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "BundleApproval is a named person's approval of exactly one content digest for one BundleDeployment. Whoever writes it needs verb `approve` on the class. It is immutable; deleting it withdraws it: nothing further is changed, and nothing is torn down.",
    printcolumn(
        name = "Deployment",
        type_ = "string",
        json_path = ".spec.bundleDeployment.name"
    ),
    printcolumn(name = "Digest", type_ = "string", json_path = ".spec.digest"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = r#".status.conditions[?(.type=="Accepted")].reason"#
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BundleApprovalSpec {
    /// The BundleDeployment that may have the content.
    pub bundle_deployment: DeploymentRef,
    /// Exactly this content.
    #[schemars(regex(pattern = r"^sha256:[0-9a-f]{64}$"))]
    pub digest: String,
    /// Why, or the number of the change: whoever reads it later will ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One BundleDeployment, and no later one of the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeploymentRef {
    /// Name of the BundleDeployment.
    #[schemars(regex(pattern = names::SUBDOMAIN_PATTERN), length(max = names::SUBDOMAIN_LIMIT))]
    pub name: String,
    /// Its uid: a later BundleDeployment of the same name needs its own approval.
    pub uid: String,
    /// Its `metadata.generation` that the author of the approval has read. The approval is refused if it has another one when the approval is created. Required
    /// if the BundleDeployment sets ServiceAccount, target namespace, config, `collision`, `drift.ignore`, `deletion` or `rollout.replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub generation: Option<i64>,
}

/// Whether an approval counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleApprovalStatus {
    /// Who asked for this generation, as the pod sealed it. Objects without a seal were written while admission was off: nothing is done with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionStatus>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: the approval counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
