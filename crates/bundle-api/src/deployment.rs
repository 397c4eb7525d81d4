//! `BundleDeployment`: a template of a Bundle, and how its content is installed.
//! Not here: what became of it (deployment_status), or the Bundle itself (bundle).

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{bundle::BundleSpec, deployment_status::BundleDeploymentStatus, names};

/// What to install, and on what terms.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "core.rukpak.io",
    version = "v1alpha1",
    kind = "BundleDeployment",
    plural = "bundledeployments",
    shortname = "bd",
    shortname = "bds",
    status = "BundleDeploymentStatus",
    derive = "Default",
    derive = "PartialEq",
    label("applyset.kubernetes.io/is-parent-type", "true"),
    doc = "BundleDeployment keeps the content of a Bundle installed. A change of its template makes a new Bundle beside the old one; the old content stays until the new one is installed, and objects that it dropped are removed then.",
    printcolumn(
        name = "Active Bundle",
        type_ = "string",
        json_path = ".status.activeBundle"
    ),
    printcolumn(
        name = "Install State",
        type_ = "string",
        json_path = r#".status.conditions[?(.type=="Installed")].reason"#
    ),
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
        name = "Version",
        type_ = "string",
        json_path = ".status.installed.version",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BundleDeploymentSpec {
    /// Name of the ProvisionerClass that installs the content. Whoever writes this needs verb `use` on that class.
    #[schemars(regex(pattern = names::LABEL_PATTERN), length(max = names::LABEL_LIMIT))]
    pub provisioner_class_name: String,
    /// The Bundle to make. Changing it makes a new one, called after this object and a hash of the template.
    pub template: BundleTemplate,
    /// Configuration of the content, free in form; the package says which keys it knows. A change is applied in place, without a new Bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::crds::free_form")]
    pub config: Option<serde_json::Value>,
    /// Install as this ServiceAccount instead of the one that the class names. Whoever writes this needs verb `impersonate` on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountName>,
    /// Namespace of the objects that name none. There is no default: content with such objects is refused without it. An operator (registry+v1) is installed
    /// into it as a whole, and without it into the namespace that its bundle suggests. Never a namespace of bundle-webhook itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = names::LABEL_PATTERN), length(max = names::LABEL_LIMIT))]
    pub target_namespace: Option<String>,
    /// Create `targetNamespace` if it is missing. An existing namespace is left as it is. With the content, a namespace that was created is deleted only if
    /// nothing else is in it. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_namespace: Option<bool>,
    /// Change nothing while this is true: neither new content nor drift. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// What to do with an object of the content that exists already and belongs to nobody. `Prevent` leaves it and fails; `Adopt` takes it over.
    /// An object that belongs to somebody else is never taken. Default: Prevent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision: Option<Collision>,
    /// What to do when installed objects are changed behind our back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// How new content replaces the old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// What happens to installed objects when this object is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
    /// What to do where the content's Kubernetes range leaves this server out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesOverride>,
    /// Checks on upgrades of CRDs that are set aside, each for a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crd_upgrades: Option<CrdUpgrades>,
}

/// The Bundle to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BundleTemplate {
    /// Labels and annotations of the Bundle. Its name is made, not taken from here.
    #[serde(default, skip_serializing_if = "TemplateMetadata::is_empty")]
    pub metadata: TemplateMetadata,
    /// The spec of the Bundle.
    pub spec: BundleSpec,
}

/// The part of the metadata that a template can set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateMetadata {
    /// Annotations of the Bundle.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Finalizers; kept for manifests that have them, and not used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Labels of the Bundle, beside those that say whose it is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Not used: the Bundle is called after the BundleDeployment and a hash of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Not used: Bundles have no namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl TemplateMetadata {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A ServiceAccount anywhere in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ServiceAccountName {
    /// Namespace of the ServiceAccount.
    #[schemars(regex(pattern = names::LABEL_PATTERN), length(max = names::LABEL_LIMIT))]
    pub namespace: String,
    /// Name of the ServiceAccount.
    #[schemars(regex(pattern = names::SUBDOMAIN_PATTERN), length(max = names::SUBDOMAIN_LIMIT))]
    pub name: String,
}

/// What to do with an object of the content that exists already and belongs to nobody. `Prevent` leaves it and fails; `Adopt` takes it over.
/// An object that belongs to somebody else is never taken. Default: Prevent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Collision {
    /// Leave it, and fail.
    #[default]
    Prevent,
    /// Take it over.
    Adopt,
}

/// What to do when installed objects are changed behind our back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// `Correct` restores the object at once; `Report` only says so in the status. Default: Correct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<DriftMode>,
    /// Fields that are somebody else's. They are neither restored nor reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<DriftIgnore>,
}

/// `Correct` restores the object at once; `Report` only says so in the status. Default: Correct.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftMode {
    /// Restore it.
    #[default]
    Correct,
    /// Say so.
    Report,
}

/// Fields that are somebody else's: of some objects, or of a field manager.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriftIgnore {
    /// Kind of the objects, with its group: `Deployment.apps`, `ConfigMap`. Absent: every kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the object. Absent: every name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Fields, as JSON pointers: `/spec/replicas`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Everything that this field manager owns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
}

/// How new content replaces the old.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// How long new content may take until it is healthy, as `10m` or `1h30m`. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    pub deadline: Option<String>,
    /// What to do when it is not: `Hold` stops and says so; `RollBack` installs what was there before. Default: Hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// How many earlier revisions are remembered. Default: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub history: Option<u32>,
    /// Whether a lower version may replace a higher one. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_downgrade: Option<bool>,
    /// Handling of an object of which an immutable field changes: `IfCompleted` deletes and creates anew Jobs that have finished, `Always` any
    /// object but Namespaces, CRDs and volumes, `Never` none. The annotation `core.rukpak.io/replace` of an object overrides it. Default: IfCompleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace: Option<Replace>,
}

/// Handling of an object of which an immutable field changes: `IfCompleted` deletes and creates anew Jobs that have finished, `Always` any
/// object but Namespaces, CRDs and volumes, `Never` none. Default: IfCompleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Replace {
    /// Any object but Namespaces, CRDs and volumes.
    Always,
    /// Jobs that have completed or failed.
    #[default]
    IfCompleted,
    /// No object.
    Never,
}

/// What to do when it is not: `Hold` stops and says so; `RollBack` installs what was there before. Default: Hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// Stop, and say so.
    #[default]
    Hold,
    /// Install what was there before.
    RollBack,
}

/// What happens to installed objects when the BundleDeployment is deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// `Delete` removes them; `Orphan` leaves them, without our labels. Default: Delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<DeleteObjects>,
    /// What to do with a CRD that still has resources: `Refuse` waits and says so, `Orphan` leaves the CRD, `Delete` removes it with all of them. Default: Refuse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_resources: Option<DeleteCustomResources>,
}

/// `Delete` removes them; `Orphan` leaves them, without our labels. Default: Delete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeleteObjects {
    /// They are removed.
    #[default]
    Delete,
    /// They are left.
    Orphan,
}

/// What to do with a CRD that still has resources: `Refuse` waits and says so, `Orphan` leaves the CRD, `Delete` removes it with all of them. Default: Refuse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeleteCustomResources {
    /// Deletion waits, and says so.
    #[default]
    Refuse,
    /// The CRD is left.
    Orphan,
    /// The CRD is removed, with all of them.
    Delete,
}

/// What to do where the content's Kubernetes range leaves this server out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KubernetesOverride {
    /// `Accept` installs anyway; that it was accepted is recorded in the status. Absent: what the package says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<Unsupported>,
}

/// `Accept` installs anyway; that it was accepted is recorded in the status. Absent: what the package says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Unsupported {
    /// Install anyway.
    Accept,
}

/// Checks on upgrades of CRDs that are set aside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CrdUpgrades {
    /// One entry a check and CRD.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceptions: Vec<CrdUpgradeException>,
}

/// One check on one CRD that is set aside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CrdUpgradeException {
    /// Name of the CRD: `widgets.example.com`.
    pub crd: String,
    /// The check: `NoExistingFieldRemoved`.
    pub check: String,
    /// Why. It is shown where the check would have spoken.
    pub reason: String,
}
