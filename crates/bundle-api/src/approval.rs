//! `BundleApproval`: the approval of one content digest for one BundleDeployment.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
#[cfg(feature = "resources")]
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admission_status::AdmissionStatus;
use crate::names;

/// Approval of one content digest. The spec is immutable. Delete the object to withdraw the
/// approval.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(
    feature = "resources",
    derive(CustomResource),
    kube(
        group = "core.rukpak.io",
        version = "v1alpha1",
        kind = "BundleApproval",
        plural = "bundleapprovals",
        status = "BundleApprovalStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "BundleApproval is a named person's approval of exactly one content digest for one BundleDeployment. Its author needs verb `approve` on the class. It is immutable. Deleting it withdraws the approval: installed content stays and is maintained, and no new content is installed.",
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
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BundleApprovalSpec {
    /// BundleDeployment for which the content is approved.
    pub bundle_deployment: DeploymentRef,
    /// Digest of the approved content.
    #[schemars(regex(pattern = r"^sha256:[0-9a-f]{64}$"))]
    pub digest: String,
    /// Reason for the approval, for example the number of a change request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One BundleDeployment, identified by name and uid.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeploymentRef {
    /// Name of the BundleDeployment.
    #[schemars(regex(pattern = names::SUBDOMAIN_PATTERN), length(max = names::SUBDOMAIN_LIMIT))]
    pub name: String,
    /// Uid of the BundleDeployment. A later BundleDeployment of the same name needs its own
    /// approval.
    pub uid: String,
    /// `metadata.generation` of the BundleDeployment that the author of the approval reviewed. The
    /// approval is rejected if the BundleDeployment has another generation when the approval is
    /// created. This field is required if the spec of the BundleDeployment sets `serviceAccount`,
    /// `targetNamespace`, `config`, `collision`, `crdUpgrades`, `drift.ignore`, `deletion` or
    /// `rollout.replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub generation: Option<i64>,
}

/// Observed state of an approval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleApprovalStatus {
    /// Requester of this generation, recorded in a seal. The pod does not reconcile objects without
    /// a seal, because they were written while admission was off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionStatus>,
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Condition `Accepted`: the approval is valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
