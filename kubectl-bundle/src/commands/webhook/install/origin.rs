//! Origin of an installed object: this program, a Helm release, or another tool.

use serde_json::Value;

use super::manifests::{MANAGED_BY, MANAGER};

/// Origin of an installed object, from the metadata of the object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InstallOrigin {
    /// `install` of this program.
    Plugin,
    /// Helm release.
    Helm {
        /// Name of the release.
        release: String,
        /// Namespace of the release.
        namespace: String,
    },
    /// Another tool.
    Other,
}

impl InstallOrigin {
    /// Reads the metadata of an object.
    pub(crate) fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let annotation = |name: &str| metadata["annotations"][name].as_str();
        if let Some(release) = annotation("meta.helm.sh/release-name") {
            let namespace = annotation("meta.helm.sh/release-namespace");
            return Self::Helm {
                release: release.to_owned(),
                namespace: namespace.unwrap_or_default().to_owned(),
            };
        }
        if metadata["labels"][MANAGED_BY] == MANAGER {
            Self::Plugin
        } else {
            Self::Other
        }
    }

    /// Returns a description of the origin, and the next step.
    pub(super) fn describe(&self) -> (String, String) {
        match self {
            Self::Plugin => (
                "kubectl bundle install created it".to_owned(),
                "kubectl bundle uninstall removes that installation".to_owned(),
            ),
            Self::Helm { release, namespace } => (
                format!("it belongs to Helm release {release} in namespace {namespace}"),
                format!(
                    "upgrade the release with Helm, or remove the release first: helm uninstall {release} --namespace {namespace}"
                ),
            ),
            Self::Other => (
                "neither Helm nor `kubectl bundle install` created it".to_owned(),
                "remove the other installation first; a cluster can have one installation"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn origin_is_read_from_metadata() {
        let helm = json!({"metadata": {
            "labels": {MANAGED_BY: "Helm"},
            "annotations": {"meta.helm.sh/release-name": "pod", "meta.helm.sh/release-namespace": "ns"},
        }});
        let release = InstallOrigin::Helm {
            release: "pod".to_owned(),
            namespace: "ns".to_owned(),
        };
        assert_eq!(InstallOrigin::of(&helm), release);
        let own = json!({"metadata": {"labels": {MANAGED_BY: MANAGER}}});
        assert_eq!(InstallOrigin::of(&own), InstallOrigin::Plugin);
        assert_eq!(
            InstallOrigin::of(&json!({"metadata": {}})),
            InstallOrigin::Other
        );
    }
}
