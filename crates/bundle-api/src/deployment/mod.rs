//! `BundleDeployment`: a template of a Bundle, and the options for installing its content.

pub mod status;

use std::collections::BTreeMap;

#[cfg(feature = "resources")]
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "resources")]
use self::status::BundleDeploymentStatus;
use crate::{bundle::BundleSpec, names, service_account::ServiceAccountName};

/// Content to install, and the options for its installation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(
    feature = "resources",
    derive(CustomResource),
    kube(
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
        doc = "BundleDeployment keeps the content of a Bundle installed. A change of its template creates a new Bundle. The old content stays until the new content is installed; then objects that the new content does not contain are deleted.",
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
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BundleDeploymentSpec {
    /// Name of the ProvisionerClass that installs the content. The requester needs verb `use` on
    /// that class.
    #[schemars(regex(pattern = names::LABEL_PATTERN), length(max = names::LABEL_LIMIT))]
    pub provisioner_class_name: String,
    /// Template of the Bundle. A change of the template creates a new Bundle, named after this
    /// BundleDeployment and a hash of the template.
    pub template: BundleTemplate,
    /// Configuration of the content, in free form. The schema of the package documents the keys.
    /// Operators (registry+v1) have the keys `watchNamespace`, `watchNamespaces` and
    /// `deploymentConfig`. For plain content, this field has an effect only if `bundle.yaml` sets
    /// `config.patches`. A change of this field is applied to the installed objects, without a new
    /// Bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::free_form")]
    pub config: Option<serde_json::Value>,
    /// ServiceAccount that installs the content, instead of the ServiceAccount of the class. The
    /// requester needs verb `impersonate` on this ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountName>,
    /// Namespace for namespaced objects that set no namespace. This field has no default. If this
    /// field is not set, content with objects that need a namespace is rejected. All objects of an
    /// operator (registry+v1) are installed in this namespace. If this field is not set, an
    /// operator is installed in the namespace that the bundle suggests. A namespace of
    /// bundle-webhook itself is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = names::LABEL_PATTERN), length(max = names::LABEL_LIMIT))]
    pub target_namespace: Option<String>,
    /// Create `targetNamespace` if it does not exist. An existing namespace is not changed. When
    /// the content is deleted, the pod also deletes a namespace that it created, if the namespace
    /// contains no other objects. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_namespace: Option<bool>,
    /// Stop reconciling while this field is true: new content is not installed, and drift is not
    /// corrected. Setting or clearing this field does not install content again. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Handling of an object in the content that already exists on the cluster and has no owner.
    /// With `Prevent` the object stays unchanged and the installation fails. With `Adopt` the
    /// BundleDeployment becomes the owner of the object. An object with another owner is never
    /// adopted. Default: `Prevent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision: Option<Collision>,
    /// Handling of installed objects that were changed by another actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// Settings for upgrades, in which new content replaces installed content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// Handling of installed objects when this BundleDeployment is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
    /// Override for content that does not support the Kubernetes version of this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesOverride>,
    /// Exceptions from the checks of CRD upgrades. New content is rejected if its CRDs could break
    /// existing custom resources. An exception allows the upgrade although one check fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crd_upgrades: Option<CrdUpgrades>,
}

/// Template of the Bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BundleTemplate {
    /// Labels and annotations of the Bundle. The name of the Bundle is generated.
    #[serde(default, skip_serializing_if = "TemplateMetadata::is_empty")]
    pub metadata: TemplateMetadata,
    /// The spec of the Bundle.
    pub spec: BundleSpec,
}

/// Metadata that a template can set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateMetadata {
    /// Annotations of the Bundle.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Not used. This field is accepted for compatibility with existing manifests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Labels of the Bundle, in addition to its owner labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Not used. The Bundle is named after the BundleDeployment and a hash of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Not used. Bundles have no namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl TemplateMetadata {
    /// Returns `true` if no field is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Handling of an object in the content that already exists on the cluster and has no owner. With
/// `Prevent` the object stays unchanged and the installation fails. With `Adopt` the
/// BundleDeployment becomes the owner of the object. An object with another owner is never adopted.
/// Default: `Prevent`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Collision {
    /// Do not change the object, and fail.
    #[default]
    Prevent,
    /// Adopt the object: the BundleDeployment becomes its owner.
    Adopt,
}

/// Handling of installed objects that were changed by another actor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// `Correct` restores the object at once. `Report` only sets condition `Drifted` and
    /// `status.drift`. Default: `Correct`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<DriftMode>,
    /// Fields that other actors own. Drift of these fields is neither restored nor reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<DriftIgnore>,
}

/// `Correct` restores the object at once. `Report` only sets condition `Drifted` and
/// `status.drift`. Default: `Correct`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftMode {
    /// Restore the drifted object.
    #[default]
    Correct,
    /// Report the drift in the status, and do not change the object.
    Report,
}

/// Fields that another actor owns: named fields of matching objects, or all fields of a field
/// manager.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriftIgnore {
    /// Kind of the objects, with its group: `Deployment.apps`, `ConfigMap`. Default: every kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Namespace of the object. Default: every namespace, and objects without a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object. Default: every name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Ignored fields, as JSON pointers such as `/spec/replicas`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Field manager. Drift of the fields that this manager owns is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
}

/// Settings for upgrades, in which new content replaces installed content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Maximum time for new content to become healthy after its objects are applied, such as `10m`
    /// or `1h30m`. A change of the spec restarts this time if the pod applies objects after this
    /// change. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    pub deadline: Option<String>,
    /// Handling of content that is not healthy by the deadline. `Hold` reports the content and
    /// keeps it installed. `RollBack` installs the content and the configuration that were healthy
    /// last, with the same checks as a rollback by the requester. `RollBack` also replaces content
    /// that could not be applied completely by the deadline. The failed content is not retried
    /// until the spec changes. Default: `Hold`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// Condition under which the next phase starts when new content is installed. `Applied`: all
    /// objects of the current phase are applied. `Ready`: these objects are also healthy. Default:
    /// `Applied`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for: Option<WaitFor>,
    /// Number of earlier revisions that are kept. Default: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub history: Option<u32>,
    /// Allow a lower version to replace a higher version of the same package. Default: false.
    /// Content of a former revision in `status.revisions` is always allowed. A SignaturePolicy can
    /// still forbid lower versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_downgrade: Option<bool>,
    /// Allow another package to replace the installed package, whose objects are then deleted.
    /// Default: false. Content without a `bundle.yaml` belongs to no package. Content of a former
    /// revision in `status.revisions` is always allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_other_package: Option<bool>,
    /// Range of versions that may be installed, such as `^1.4`, `~1.4` or `>=1.4 <2`. New content
    /// with a version outside of the range, or without a known version, is not installed. Installed
    /// content, and content of a former revision in `status.revisions`, is always allowed. `^1.4`
    /// excludes other major versions, and `^0.4` excludes other minor versions. A prerelease such
    /// as `1.4.0-alpha` is only in a range with the suffix `-0`, such as `>=1.4.0-0`. Default:
    /// every version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub versions: Option<String>,
    /// Handling of an object if new content changes an immutable field of this object.
    /// `IfCompleted` deletes and recreates finished Jobs. `Always` deletes and recreates any object
    /// except Namespaces, CRDs and volumes. `Never` recreates no object. The annotation
    /// `core.rukpak.io/replace` of an object overrides this field. Default: `IfCompleted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace: Option<Replace>,
}

/// Handling of an object if new content changes an immutable field of this object. `IfCompleted`
/// deletes and recreates finished Jobs. `Always` deletes and recreates any object except
/// Namespaces, CRDs and volumes. `Never` recreates no object. Default: `IfCompleted`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Replace {
    /// Delete and recreate any object except Namespaces, CRDs and volumes.
    Always,
    /// Delete and recreate Jobs that have completed or failed.
    #[default]
    IfCompleted,
    /// Recreate no object.
    Never,
}

/// Handling of content that is not healthy by the deadline. `Hold` reports the content and keeps it
/// installed. `RollBack` installs the content and the configuration that were healthy last, with
/// the same checks as a rollback by the requester. `RollBack` also replaces content that could not
/// be applied completely by the deadline. The failed content is not retried until the spec changes.
/// Default: `Hold`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// Report the content, and keep it installed.
    #[default]
    Hold,
    /// Install the content that was healthy last.
    RollBack,
}

/// Condition under which the next phase starts when new content is installed. `Applied`: all
/// objects of the current phase are applied. `Ready`: these objects are also healthy. Default:
/// `Applied`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WaitFor {
    /// The objects of the phase are applied.
    #[default]
    Applied,
    /// The objects of the phase are applied and healthy.
    Ready,
}

/// Handling of installed objects when the BundleDeployment is deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// `Delete` deletes the installed objects. `Orphan` keeps the objects, and removes the labels
    /// of this project from the objects. Default: `Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<DeleteObjects>,
    /// Handling of a CRD that still has resources: `Refuse` waits until the CRD has no resources
    /// and reports the CRD, `Orphan` keeps the CRD, `Delete` deletes the CRD and all its resources.
    /// Default: `Refuse`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_resources: Option<DeleteCustomResources>,
}

/// `Delete` deletes the installed objects. `Orphan` keeps the objects, and removes the labels of
/// this project from the objects. Default: `Delete`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeleteObjects {
    /// Delete the installed objects.
    #[default]
    Delete,
    /// Keep the installed objects, and remove the labels of this project.
    Orphan,
}

/// Handling of a CRD that still has resources: `Refuse` waits until the CRD has no resources and
/// reports the CRD, `Orphan` keeps the CRD, `Delete` deletes the CRD and all its resources.
/// Default: `Refuse`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeleteCustomResources {
    /// Wait until the CRD has no resources, and report the CRD.
    #[default]
    Refuse,
    /// Keep the CRD and its resources.
    Orphan,
    /// Delete the CRD and all its resources.
    Delete,
}

/// Override for content that does not support the Kubernetes version of this server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KubernetesOverride {
    /// `Accept` installs the content even if the package does not support the Kubernetes version of
    /// the cluster, and records a warning in `status.warnings`. By default, the content is
    /// rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<Unsupported>,
}

/// `Accept` installs the content even if the package does not support the Kubernetes version of the
/// cluster, and records a warning in `status.warnings`. By default, the content is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Unsupported {
    /// Install the content on an unsupported server.
    Accept,
}

/// Exceptions from the checks of CRD upgrades.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CrdUpgrades {
    /// Exceptions, one for each check and CRD.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceptions: Vec<CrdUpgradeException>,
}

/// Exception from one check for one CRD.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CrdUpgradeException {
    /// Name of the CRD: `widgets.example.com`.
    pub crd: String,
    /// Name of the check, as in the message of the failed check: `NoScopeChange`,
    /// `NoStoredVersionRemoved`, `NoConversionRemoved`, `NoExistingFieldRemoved`,
    /// `ServedVersionValidator`, `ExistingCustomResources`, `Enum`, `Required`, `Maximum`,
    /// `MaxItems`, `MaxLength`, `MaxProperties`, `Minimum`, `MinItems`, `MinLength`,
    /// `MinProperties`, `Default`, `Type`, `UnknownChange`. `ChangeValidator` covers `Enum` and all
    /// checks after `Enum` in this list.
    pub check: String,
    /// Reason for the exception. `status.warnings` shows this reason instead of the result of the
    /// check.
    pub reason: String,
}
