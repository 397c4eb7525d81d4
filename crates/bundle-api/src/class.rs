//! `ProvisionerClass`: who answers to a class name, and on what terms.
//! Not here: reading it into rules (bundle_core::review::class).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::deployment::ServiceAccountName;

/// Who answers to this class name, and on what terms.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "core.rukpak.io",
    version = "v1alpha1",
    kind = "ProvisionerClass",
    plural = "provisionerclasses",
    status = "ReadyStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "ProvisionerClass says which provisioner answers to a class name, as whom it installs, and on what terms. People need verb `use` on it to name it in a Bundle or BundleDeployment, and verb `approve` to approve content for it.",
    printcolumn(
        name = "Provisioner",
        type_ = "string",
        json_path = ".spec.provisioner"
    ),
    printcolumn(name = "Signatures", type_ = "string", json_path = ".spec.signatures"),
    printcolumn(
        name = "Authorization",
        type_ = "string",
        json_path = ".spec.authorization"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionerClassSpec {
    /// The provisioner: `core.rukpak.io/plain`, `core.rukpak.io/registry` or `core.rukpak.io/helm`. Objects of a class with any other are left alone.
    pub provisioner: String,
    /// Parameters of the provisioner; each says which it knows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// The ServiceAccount that reads, writes and watches the installed objects, unless a BundleDeployment names its own. Without one, each
    /// BundleDeployment must.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountName>,
    /// Whose right counts. `Requester`: whoever asks for content must be allowed to write every object in it. `Class`: verb `use` is enough; the rest
    /// is delegated to the class's ServiceAccount. Default: Requester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
    /// How it is found out whether the requester may write the objects of a content, under `authorization: Requester`. `DryRun`: by access reviews, and by
    /// sending each object as a server-side dry run as the requester, so that policies and the API server's own checks count for them. `AccessReview`: by
    /// access reviews alone; for clusters with admission webhooks that do not support dry runs. Default: DryRun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester_check: Option<RequesterCheck>,
    /// Whether content waits for somebody's approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// What happens where no SignaturePolicy matches. `IfPolicy` admits with a warning; `Required` refuses, and refuses every source that cannot be
    /// signed. Default: IfPolicy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signatures: Option<Signatures>,
    /// Where content may come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<Sources>,
    /// Where content may land.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Targets>,
}

/// Whose right counts. `Requester`: whoever asks for content must be allowed to write every object in it. `Class`: verb `use` is enough; the rest
/// is delegated to the class's ServiceAccount. Default: Requester.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Authorization {
    /// That of whoever asks, for every object.
    #[default]
    Requester,
    /// That of the class.
    Class,
}

/// How it is found out whether the requester may write the objects of a content, under `authorization: Requester`. `DryRun`: by access reviews, and by
/// sending each object as a server-side dry run as the requester, so that policies and the API server's own checks count for them. `AccessReview`: by
/// access reviews alone; for clusters with admission webhooks that do not support dry runs. Default: DryRun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RequesterCheck {
    /// By access reviews and dry runs.
    #[default]
    DryRun,
    /// By access reviews alone.
    AccessReview,
}

/// Whether content waits for somebody's approval.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approval {
    /// `Required` waits for a BundleApproval of each content digest. Default: None.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ApprovalMode>,
    /// `AnotherPerson`: not whoever asked for the content. Default: Anyone with verb `approve` on the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ApprovalBy>,
}

/// `Required` waits for a BundleApproval of each content digest. Default: None.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalMode {
    /// It is not.
    #[default]
    None,
    /// It is, for each content digest.
    Required,
}

/// `AnotherPerson`: not whoever asked for the content. Default: Anyone with verb `approve` on the class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalBy {
    /// Anyone with verb `approve`.
    #[default]
    Anyone,
    /// Of those, anyone but the requester.
    AnotherPerson,
}

/// What happens where no SignaturePolicy matches. `IfPolicy` admits with a warning; `Required` refuses, and refuses every source that cannot be
/// signed. Default: IfPolicy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Signatures {
    /// Admitted, with a warning.
    #[default]
    IfPolicy,
    /// Refused.
    Required,
}

/// Where content may come from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sources {
    /// Source types: `image`, `git`, `http`, `configMaps`, `upload`. Default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
    /// Hosts of registries, repositories and URLs, with their port where one is named: `registry.example.com`, `*.example.com`, `registry.example.com:5000`.
    /// A host without port stands for every port. Default: `*`, every host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Whether `git` and `http` sources may name loopback, link-local and private addresses. Default: Deny.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::crds::allow_or_deny")]
    pub private_addresses: Option<AllowDeny>,
}

/// Where content may land.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Targets {
    /// Namespaces, with `*` for any run of characters. Default: `*`, every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// Whether content may hold cluster-scoped objects. Default: Allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::crds::allow_or_deny")]
    pub cluster_scoped: Option<AllowDeny>,
}

/// Whether something may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllowDeny {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

/// A status that says whether the object can be used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadyStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: the object was read and can be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
