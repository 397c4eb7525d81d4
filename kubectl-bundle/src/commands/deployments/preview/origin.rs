//! The tool that manages an existing object, from labels, annotations and field managers.

use std::fmt;

use bundle_core::plan::ownership::FORMER_MANAGERS;
use kube::api::ObjectMeta;

/// Tool that manages an object. Anyone who can write the object can forge the labels, annotations
/// and field managers that name the tool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum ObjectOrigin {
    /// A Helm release.
    Helm {
        /// Name of the release.
        release: String,
        /// Namespace of the release.
        namespace: String,
    },
    /// Flux. The text is the kind and name of the Flux object: `Kustomization web`.
    Flux(String),
    /// An application of Argo CD.
    ArgoCd(String),
    /// `kubectl apply`, with or without kustomize.
    Kubectl,
    /// Another field manager.
    Manager(String),
}

impl ObjectOrigin {
    /// Returns the tool. Returns `None` if no label, annotation or field manager names a tool.
    pub(super) fn of(metadata: &ObjectMeta) -> Option<Self> {
        let label = |name: &str| metadata.labels.as_ref()?.get(name).cloned();
        let annotation = |name: &str| metadata.annotations.as_ref()?.get(name).cloned();
        if let Some(name) = label("kustomize.toolkit.fluxcd.io/name") {
            return Some(Self::Flux(format!("Kustomization {name}")));
        }
        if let Some(name) = label("helm.toolkit.fluxcd.io/name") {
            return Some(Self::Flux(format!("HelmRelease {name}")));
        }
        if let Some(id) = annotation("argocd.argoproj.io/tracking-id") {
            let name = id.split(':').next().unwrap_or_default();
            return Some(Self::ArgoCd(name.to_owned()));
        }
        if let Some(name) = label("argocd.argoproj.io/instance") {
            return Some(Self::ArgoCd(name));
        }
        if let Some(release) = annotation("meta.helm.sh/release-name") {
            let namespace = annotation("meta.helm.sh/release-namespace").unwrap_or_default();
            return Some(Self::Helm { release, namespace });
        }
        let managers = metadata.managed_fields.iter().flatten();
        let managers: Vec<&str> = managers
            .filter_map(|entry| entry.manager.as_deref())
            .collect();
        let is_of_kubectl = |manager: &&str| {
            *manager != "helm" && FORMER_MANAGERS.iter().any(|(known, _)| known == manager)
        };
        if managers.iter().any(is_of_kubectl)
            || annotation("kubectl.kubernetes.io/last-applied-configuration").is_some()
        {
            return Some(Self::Kubectl);
        }
        let first = managers.first()?;
        Some(Self::Manager((*first).to_owned()))
    }

    /// Returns `true` if the tool is a controller, which applies the object again after each
    /// change.
    pub(in super::super) fn is_controller(&self) -> bool {
        matches!(self, Self::Flux(_) | Self::ArgoCd(_))
    }
}

impl fmt::Display for ObjectOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Helm { release, namespace } => write!(f, "Helm release {namespace}/{release}"),
            Self::Flux(object) => write!(f, "Flux {object}"),
            Self::ArgoCd(name) => write!(f, "Argo CD application {name}"),
            Self::Kubectl => f.write_str("kubectl apply"),
            Self::Manager(name) => write!(f, "field manager {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_are_found_by_their_marks() {
        let managed = |name: &str| json!([{"manager": name, "operation": "Update"}]);
        for (metadata, expected) in [
            (
                json!({"annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "a"}, "managedFields": managed("helm")}),
                "Helm release a/web",
            ),
            (
                json!({"labels": {"helm.toolkit.fluxcd.io/name": "web"}, "annotations": {"meta.helm.sh/release-name": "web"}}),
                "Flux HelmRelease web",
            ),
            (
                json!({"annotations": {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:a/web"}}),
                "Argo CD application shop",
            ),
            (
                json!({"managedFields": managed("kubectl-client-side-apply")}),
                "kubectl apply",
            ),
            (
                json!({"managedFields": managed("operator")}),
                "field manager operator",
            ),
        ] {
            let metadata = serde_json::from_value(metadata).unwrap();
            let found = ObjectOrigin::of(&metadata).unwrap();
            assert_eq!(found.to_string(), expected);
        }
        assert_eq!(ObjectOrigin::of(&ObjectMeta::default()), None);
    }
}
