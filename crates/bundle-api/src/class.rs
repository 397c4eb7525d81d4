//! `ProvisionerClass`: the provisioner of a class, and the rules for content of the class.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
#[cfg(feature = "resources")]
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names;
use crate::service_account::ServiceAccountName;

/// Provisioner of the class, and the rules for content of the class.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(
    feature = "resources",
    derive(CustomResource),
    kube(
        group = "core.rukpak.io",
        version = "v1alpha1",
        kind = "ProvisionerClass",
        plural = "provisionerclasses",
        status = "ReadyStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "ProvisionerClass defines the provisioner of a class name, the ServiceAccount that installs content, and the rules for it. Users need verb `use` on it to name it in a Bundle or BundleDeployment, and verb `approve` to approve content for it.",
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
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionerClassSpec {
    /// The provisioner: `core.rukpak.io/plain`, `core.rukpak.io/registry` or `core.rukpak.io/helm`.
    /// The pod ignores objects of a class with any other provisioner.
    pub provisioner: String,
    /// Parameters of the provisioner. The documentation of each provisioner lists its parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// ServiceAccount that reads, writes and watches the installed objects. A BundleDeployment can
    /// name another ServiceAccount. If this field is not set, each BundleDeployment must name a
    /// ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountName>,
    /// Identity whose permissions are required. `Requester`: the requester must be allowed to write
    /// every object in the content. `Class`: the requester needs only verb `use` on the class. The
    /// ServiceAccount of the class needs all other permissions. Default: `Requester`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
    /// Check of the requester's permission to write the objects of the content. The check applies
    /// only with `authorization: Requester`. `DryRun` uses access reviews, and a server-side dry
    /// run of each object as the requester. In the dry run, the API server applies its checks and
    /// the admission policies to the requester. `AccessReview` uses only access reviews. Use
    /// `AccessReview` in clusters with admission webhooks that do not support dry runs. Default:
    /// `DryRun`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester_check: Option<RequesterCheck>,
    /// Rules for the approval of content before its installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Handling of content that no SignaturePolicy matches. `IfPolicy` admits this content with a
    /// warning. `Required` rejects this content, and all sources that cannot be signed. Default:
    /// `IfPolicy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signatures: Option<Signatures>,
    /// Allowed sources of content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<Sources>,
    /// Allowed target namespaces and scopes of content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Targets>,
}

/// Identity whose permissions are required. `Requester`: the requester must be allowed to write
/// every object in the content. `Class`: the requester needs only verb `use` on the class. The
/// ServiceAccount of the class needs all other permissions. Default: `Requester`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Authorization {
    /// Require permissions of the requester for every object.
    #[default]
    Requester,
    /// Require permissions of the ServiceAccount of the class. The requester needs only verb `use`
    /// on the class.
    Class,
}

/// Check of the requester's permission to write the objects of the content. The check applies only
/// with `authorization: Requester`. `DryRun` uses access reviews, and a server-side dry run of each
/// object as the requester. In the dry run, the API server applies its checks and the admission
/// policies to the requester. `AccessReview` uses only access reviews. Use `AccessReview` in
/// clusters with admission webhooks that do not support dry runs. Default: `DryRun`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RequesterCheck {
    /// Check by access reviews and dry runs.
    #[default]
    DryRun,
    /// Check by access reviews only.
    AccessReview,
}

/// Rules for the approval of content before its installation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approval {
    /// `Required`: content is installed only after a BundleApproval of its digest. `None`: no
    /// approval is required. Default: `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ApprovalMode>,
    /// Users who can approve content. `Anyone`: every user with verb `approve` on the class.
    /// `AnotherPerson`: every user with verb `approve` on the class, except the requester. Default:
    /// `Anyone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ApprovalBy>,
}

/// `Required`: content is installed only after a BundleApproval of its digest. `None`: no approval
/// is required. Default: `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalMode {
    /// No approval is required.
    #[default]
    None,
    /// Each content digest requires an approval.
    Required,
}

/// Users who can approve content. `Anyone`: every user with verb `approve` on the class.
/// `AnotherPerson`: every user with verb `approve` on the class, except the requester. Default:
/// `Anyone`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalBy {
    /// Anyone with verb `approve`.
    #[default]
    Anyone,
    /// Anyone with verb `approve`, except the requester.
    AnotherPerson,
}

/// Handling of content that no SignaturePolicy matches. `IfPolicy` admits this content with a
/// warning. `Required` rejects this content, and all sources that cannot be signed. Default:
/// `IfPolicy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Signatures {
    /// Admit content that no SignaturePolicy matches, with a warning.
    #[default]
    IfPolicy,
    /// Reject content that no SignaturePolicy matches.
    Required,
}

/// Allowed sources of content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sources {
    /// Source types: `image`, `git`, `http`, `configMaps`, `upload`. Default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
    /// Allowed hosts of registries, repositories and URLs, with an optional port:
    /// `registry.example.com`, `*.example.com`, `registry.example.com:5000`. A host without port
    /// matches every port. Default: `*`, every host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Permission for loopback, link-local and private addresses in `git` and `http` sources. The
    /// addresses of registries are limited only by `hosts`. Default: `Deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::allow_or_deny")]
    pub private_addresses: Option<AllowDeny>,
    /// Hosts that may be used without verified TLS, with the same patterns as `hosts`. The registry
    /// of an `image` may have an untrusted certificate, or no TLS. An `http` source may have an
    /// `http://` URL, and `git` and `http` sources may set `insecureSkipVerify`. Anyone on the
    /// network path to these hosts can read the credentials, and replace content that the source
    /// does not name by digest or commit. Default: no host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_hosts: Option<Vec<String>>,
    /// Names of Secrets of type `kubernetes.io/dockerconfigjson` in the system namespace, for
    /// `image` sources without `pullSecret`. Everyone who can use the class can install the images
    /// that these credentials can pull. The first Secret with credentials for a repository is used.
    /// Default: no Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(min = 1, max = names::SUBDOMAIN_LIMIT)))]
    pub pull_secrets: Option<Vec<String>>,
}

/// Allowed target namespaces and scopes of content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Targets {
    /// Allowed namespaces. `*` matches any sequence of characters. Default: `*`, every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// Permission for cluster-scoped objects in content. Default: `Allow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::allow_or_deny")]
    pub cluster_scoped: Option<AllowDeny>,
}

/// Permission of a class for one feature: `Allow` or `Deny`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllowDeny {
    /// The class allows the feature.
    Allow,
    /// The class denies the feature.
    Deny,
}

/// Observed state of a ProvisionerClass or a SignaturePolicy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadyStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Condition `Ready`: the object is valid and in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
