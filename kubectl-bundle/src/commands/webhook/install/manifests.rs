//! Manifests of bundle-webhook, included from `webhook/deploy`: the Helm chart rendered with
//! default values.

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::object::is_dns_label;
use bundle_core::yaml;
use serde_json::Value;

use crate::failure::Outcome;

/// Name of the Deployment.
pub(crate) const DEPLOYMENT: &str = "bundle-webhook";
/// Label that names the tool which installed an object. Helm also sets this label.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of the label on objects of `install`.
pub(crate) const MANAGER: &str = "kubectl-bundle";

/// System namespace in the manifests.
pub(crate) const DEFAULT_SYSTEM_NAMESPACE: &str = "bundle-system";
/// State namespace in the manifests.
const DEFAULT_STATE_NAMESPACE: &str = "bundle-system-state";

macro_rules! files {
    ($($name:literal)*) => {
        /// Path below `webhook/deploy`, and text.
        const FILES: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../../../webhook/deploy/", $name))),)*
        ];
    };
}

files! {
    "manifests/00-namespace.yaml"
    "manifests/10-rbac-webhook.yaml"
    "manifests/11-rbac-installer.yaml"
    "manifests/12-rbac-people.yaml"
    "manifests/crds-bundleapprovals.yaml"
    "manifests/crds-bundledeployments.yaml"
    "manifests/crds-bundles.yaml"
    "manifests/crds-provisionerclasses.yaml"
    "manifests/crds-signaturepolicies.yaml"
    "manifests/deployment.yaml"
    "manifests/networkpolicy.yaml"
    "manifests/service.yaml"
    "manifests/zz-provisionerclasses.yaml"
    "admission/mutating.yaml"
    "admission/validating.yaml"
}

/// Phases of an installation, in their order. `uninstall` uses the reverse order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InstallPhase {
    /// Namespaces.
    Namespaces,
    /// CRDs of this project.
    Definitions,
    /// ServiceAccounts and their permissions.
    Permissions,
    /// ProvisionerClasses. They precede the registrations that review ProvisionerClasses.
    Classes,
    /// The Deployment, and the other objects for its pods.
    Workload,
    /// Admission registrations.
    Registrations,
}

impl InstallPhase {
    /// All phases.
    pub(crate) const ALL: [Self; 6] = [
        Self::Namespaces,
        Self::Definitions,
        Self::Permissions,
        Self::Classes,
        Self::Workload,
        Self::Registrations,
    ];

    /// Returns `true` if the objects of this phase are kept when an installation is removed,
    /// because other objects and records depend on them.
    pub(crate) fn outlives_installation(self) -> bool {
        matches!(self, Self::Definitions | Self::Namespaces | Self::Classes)
    }
}

/// Object of the installation.
#[derive(Debug, Clone)]
pub(crate) struct EmbeddedManifest {
    /// Object.
    pub(crate) object: Value,
}

impl EmbeddedManifest {
    fn text(&self, pointer: &str) -> &str {
        let found = self.object.pointer(pointer);
        found.and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns `metadata.name`.
    pub(crate) fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Returns `metadata.namespace`.
    pub(crate) fn namespace(&self) -> Option<&str> {
        Some(self.text("/metadata/namespace")).filter(|namespace| !namespace.is_empty())
    }

    /// Returns the kind.
    pub(crate) fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// Returns group and version.
    pub(crate) fn group_version(&self) -> (&str, &str) {
        let text = self.text("/apiVersion");
        text.split_once('/').unwrap_or(("", text))
    }

    /// Returns the name in kubectl's form: `deployment.apps/bundle-webhook`.
    pub(crate) fn title(&self) -> String {
        let kind = self.kind().to_lowercase();
        match self.group_version().0 {
            "" => format!("{kind}/{}", self.name()),
            group => format!("{kind}.{group}/{}", self.name()),
        }
    }

    /// Returns the phase in which the object is applied.
    pub(crate) fn phase(&self) -> InstallPhase {
        match self.kind() {
            "Namespace" => InstallPhase::Namespaces,
            "CustomResourceDefinition" => InstallPhase::Definitions,
            "ProvisionerClass" => InstallPhase::Classes,
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
                InstallPhase::Registrations
            }
            "Deployment" | "Service" | "NetworkPolicy" | "PodDisruptionBudget" => {
                InstallPhase::Workload
            }
            _ => InstallPhase::Permissions,
        }
    }

    /// Marks the object as created by `install`.
    pub(crate) fn set_managed(&mut self) {
        self.object["metadata"]["labels"][MANAGED_BY] = MANAGER.into();
    }
}

/// Returns all objects, for the system namespace `namespace` and its state namespace.
///
/// # Errors
/// Returns an error if `namespace` cannot be the name of a namespace.
pub(crate) fn all(namespace: &str) -> Outcome<Vec<EmbeddedManifest>> {
    let state = state_namespace(namespace);
    if !is_dns_label(&state) {
        return Err(Finding::error(
            codes::usage::BAD_ARGUMENT,
            format!("`{namespace}` or `{state}` cannot be the name of a namespace"),
        )
        .at_field("--system-namespace")
        .hint("use lowercase letters, digits and `-`, at most 57 characters")
        .into());
    }
    let mut manifests = Vec::new();
    for (file, text) in FILES {
        for document in yaml::documents(text.as_bytes(), file)? {
            let mut object = document.value;
            if object["kind"] == "Namespace" {
                rename(&mut object["metadata"]["name"], namespace, &state);
            }
            replace_namespaces(&mut object, namespace, &state);
            manifests.push(EmbeddedManifest { object });
        }
    }
    Ok(manifests)
}

/// Returns the namespace of the keys and inventories of bundle-webhook.
pub(crate) fn state_namespace(namespace: &str) -> String {
    format!("{namespace}-state")
}

/// Replaces the shipped namespaces in each field `namespace`.
fn replace_namespaces(value: &mut Value, namespace: &str, state: &str) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if name == "namespace" {
                    rename(field, namespace, state);
                } else {
                    replace_namespaces(field, namespace, state);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                replace_namespaces(item, namespace, state);
            }
        }
        _ => {}
    }
}

fn rename(field: &mut Value, namespace: &str, state: &str) {
    match field.as_str() {
        Some(DEFAULT_SYSTEM_NAMESPACE) => *field = namespace.into(),
        Some(DEFAULT_STATE_NAMESPACE) => *field = state.into(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embeds_every_manifest() {
        let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../webhook/deploy");
        let mut found = Vec::new();
        for folder in ["admission", "manifests"] {
            for entry in std::fs::read_dir(deploy.join(folder)).unwrap() {
                let name = entry.unwrap().file_name();
                found.push(format!("{folder}/{}", name.to_string_lossy()));
            }
        }
        let mut carried: Vec<_> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        found.sort();
        carried.sort();
        assert_eq!(carried, found);
    }

    #[test]
    fn another_system_namespace_replaces_all_mentions() {
        let manifests = all("other").unwrap();
        for manifest in &manifests {
            // Descriptions of fields in CRDs may contain the default namespace.
            if manifest.kind() != "CustomResourceDefinition" {
                let text = manifest.object.to_string();
                assert!(!text.contains("bundle-system"), "{text}");
            }
        }
        let namespaces: Vec<_> = manifests
            .iter()
            .filter(|manifest| manifest.phase() == InstallPhase::Namespaces)
            .map(EmbeddedManifest::name)
            .collect();
        assert_eq!(namespaces, ["other", "other-state"]);
        assert!(all("Not a name").is_err());
    }

    #[test]
    fn registrations_come_last_and_classes_before_them() {
        let manifests = all(DEFAULT_SYSTEM_NAMESPACE).unwrap();
        let phase = |kind: &str| {
            let found = manifests.iter().find(|manifest| manifest.kind() == kind);
            found.unwrap().phase()
        };
        assert_eq!(
            phase("ValidatingWebhookConfiguration"),
            InstallPhase::Registrations
        );
        assert!(phase("ProvisionerClass") < phase("MutatingWebhookConfiguration"));
        assert!(phase("CustomResourceDefinition") < phase("ProvisionerClass"));
        assert!(phase("ServiceAccount") < phase("Deployment"));
    }
}
