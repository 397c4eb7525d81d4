//! Checks that every supported version of Kubernetes serves the API versions of the objects.
//! `version::apis` has the table.

use std::collections::BTreeSet;

use super::{error, warning};
use crate::{
    diagnostic::{Finding, Findings, codes},
    format::Content,
    object::Manifest,
    package::nearest,
    version::{
        Kubernetes, Minor,
        apis::{self, Api},
    },
};

/// Minor version from which new beta APIs are disabled by default.
const BETA_IS_OFF: Minor = Minor(1, 24);

/// Reports each object whose API version is unknown, or is missing in at least one supported
/// Kubernetes version.
pub(super) fn check(content: &Content, findings: &mut Findings) {
    let package = content.package.as_ref();
    let supported = Supported::new(package.and_then(|package| package.kubernetes.as_ref()));
    let defined: BTreeSet<(&str, &str)> = content.objects.iter().filter_map(defines).collect();
    let required: BTreeSet<&str> = package
        .and_then(|package| package.requires.as_ref())
        .map(|requires| requires.apis.iter().map(String::as_str).collect())
        .unwrap_or_default();
    for object in &content.objects {
        let (group, version, kind) = object.gvk();
        if let Some(api) = apis::api(group, version, kind) {
            findings.extend(supported.judge(object, api));
        } else if apis::is_built_in(group) {
            findings.push(supported.unknown(object));
        } else if !defined.contains(&(group, kind))
            && !required.contains(format!("{group}/{version}/{kind}").as_str())
        {
            findings.push(
                warning(
                    object,
                    codes::check::UNKNOWN_API,
                    format!("the bundle does not define {}/{kind}", object.id.api_version()),
                )
                .hint(format!(
                    "add its CustomResourceDefinition to manifests/, or list `{group}/{version}/{kind}` in requires.apis of bundle.yaml"
                )),
            );
        }
    }
}

/// Returns the group and kind that `object` defines if it is a CustomResourceDefinition. Returns
/// `None` for other objects.
fn defines(object: &Manifest) -> Option<(&str, &str)> {
    let (group, _, kind) = object.gvk();
    if (group, kind) != ("apiextensions.k8s.io", "CustomResourceDefinition") {
        return None;
    }
    let spec = object.value.get("spec")?;
    Some((
        spec.get("group")?.as_str()?,
        spec.get("names")?.get("kind")?.as_str()?,
    ))
}

/// Supported Kubernetes versions of a bundle.
pub(super) struct Supported {
    /// Range of Kubernetes versions as written in bundle.yaml; `None` if bundle.yaml declares no
    /// range.
    declared: Option<String>,
    /// Supported minor versions that the table contains, in ascending order.
    minors: Vec<Minor>,
    /// `true` if versions newer than the newest version in the table are supported too.
    beyond: bool,
}

impl Supported {
    pub(super) fn new(kubernetes: Option<&Kubernetes>) -> Self {
        let newest = apis::newest();
        let declared = kubernetes
            .filter(|kubernetes| kubernetes.baseline.is_some() || kubernetes.supported.is_some());
        let Some(kubernetes) = declared else {
            return Self {
                declared: None,
                minors: vec![newest],
                beyond: true,
            };
        };
        let has = |minor: Minor| {
            kubernetes.baseline == Some(minor)
                || kubernetes.supported.as_ref().is_some_and(|range| {
                    range.overlaps([minor.0, minor.1, 0], [minor.0, minor.1 + 1, 0])
                })
        };
        let beyond = kubernetes.baseline.is_some_and(|minor| minor > newest)
            || kubernetes
                .supported
                .as_ref()
                .is_some_and(|range| range.overlaps([newest.0, newest.1 + 1, 0], [u64::MAX; 3]));
        Self {
            declared: Some(kubernetes.to_string()),
            minors: (apis::OLDEST.1..=newest.1)
                .map(|minor| Minor(1, minor))
                .filter(|minor| has(*minor))
                .collect(),
            beyond,
        }
    }

    /// Returns `true` if a minor version is supported. Without a range, only the newest minor
    /// version is supported.
    pub(super) fn has(&self, version: Minor) -> bool {
        self.minors.contains(&version)
    }

    /// Returns `true` if versions newer than the newest version in the table are supported.
    pub(super) fn is_beyond(&self) -> bool {
        self.beyond
    }

    fn range(&self) -> &str {
        self.declared.as_deref().unwrap_or("any version")
    }

    fn judge(&self, object: &Manifest, api: &Api) -> Option<Finding> {
        let (group, version, kind) = object.gvk();
        let name = format!("{}/{kind}", object.id.api_version());
        let instead = match api.replacement {
            Some(replacement) => format!("use {replacement}"),
            None => match better(group, version, kind) {
                Some(version) => format!("use {group}/{version}/{kind}"),
                None => "no API of the same name replaces it; see the Kubernetes guide to deprecated APIs".to_owned(),
            },
        };
        if let Some(removed) = api.removed
            && self.minors.iter().any(|minor| *minor >= removed)
        {
            let message = format!(
                "{name} is not served since Kubernetes {removed}, and the bundle supports {}",
                self.range()
            );
            return Some(if self.declared.is_some() {
                error(object, codes::check::API_NOT_SERVED, message).hint(instead)
            } else {
                // A bundle that declares no supported versions may be made for an old version of
                // Kubernetes. Therefore this is only a warning.
                warning(object, codes::check::API_NOT_SERVED, message).hint(format!(
                    "{instead}, or name kubernetes.supported in bundle.yaml"
                ))
            });
        }
        if let (Some(introduced), Some(_)) = (api.introduced, &self.declared)
            && let Some(before) = self.minors.iter().find(|minor| **minor < introduced)
        {
            return Some(
                error(
                    object,
                    codes::check::API_NOT_SERVED,
                    format!(
                        "{name} is served since Kubernetes {introduced}, and the bundle supports {}, which includes {before}",
                        self.range()
                    ),
                )
                .hint(format!("raise kubernetes.supported to `>={introduced}`, or use an older API")),
            );
        }
        let newest = self.minors.last().copied()?;
        let off = version.contains("alpha")
            || (version.contains("beta")
                && api.introduced.is_some_and(|minor| minor >= BETA_IS_OFF));
        if off {
            let stage = if version.contains("alpha") {
                "an alpha"
            } else {
                "a beta"
            };
            return Some(
                warning(
                    object,
                    codes::check::API_DEPRECATED,
                    format!("{name} is {stage} API, which API servers serve only if an administrator has enabled it"),
                )
                .hint("list the API in requires.apis of bundle.yaml: the installation then checks that the cluster serves the API"),
            );
        }
        if let Some(deprecated) = api.deprecated
            && (deprecated <= newest || self.beyond)
        {
            let end = api
                .removed
                .map(|minor| format!(", and removed in {minor}"))
                .unwrap_or_default();
            return Some(
                warning(
                    object,
                    codes::check::API_DEPRECATED,
                    format!("{name} is deprecated since Kubernetes {deprecated}{end}"),
                )
                .hint(instead),
            );
        }
        None
    }

    /// Returns the finding for an unknown kind in a built-in API group.
    fn unknown(&self, object: &Manifest) -> Finding {
        let (group, version, kind) = object.gvk();
        let known = apis::of(group);
        let newest = apis::newest();
        let message = format!(
            "no version of Kubernetes up to {newest} has {}/{kind}",
            object.id.api_version()
        );
        // If the bundle supports Kubernetes versions newer than the table, such a version may serve
        // this API. Therefore this is only a warning.
        let finding = if self.beyond {
            warning(object, codes::check::UNKNOWN_API, message)
        } else {
            error(object, codes::check::UNKNOWN_API, message)
        };
        let kinds: Vec<&str> = known.iter().map(|(_, kind, _)| *kind).collect();
        if let Some(better) = better(group, version, kind) {
            finding.hint(format!("did you mean version `{better}`?"))
        } else if let Some(near) = nearest(kind, &kinds) {
            finding.hint(format!("did you mean kind `{near}`?"))
        } else {
            finding.hint("check apiVersion and kind")
        }
    }
}

/// Returns the most stable version of `group`, other than `version`, in which the newest Kubernetes
/// release serves `kind`. Returns `None` if there is no such version.
fn better(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    apis::of(group)
        .iter()
        .filter(|(own, named, api)| {
            *named == kind && *own != version && api.removed.is_none_or(|end| end > apis::newest())
        })
        // This order places `v1` before `v1beta1`.
        .min_by_key(|(own, _, _)| (own.contains("alpha"), own.contains("beta"), *own))
        .map(|(own, _, _)| *own)
}

#[cfg(test)]
mod tests {
    use super::super::tests::messages_of;

    fn check_api(kubernetes: &str, api_version: &str, kind: &str) -> Vec<String> {
        let object = format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: web}}\n");
        let mut declared = messages_of(kubernetes, &[("manifests/a.yaml", &object)]);
        declared.retain(|line| !line.contains("has no namespace"));
        declared
    }

    #[test]
    fn reports_removed_api_with_range_version_and_replacement() {
        let all = ">=1.31 <1.37";
        for (kubernetes, api_version, kind, expected) in [
            (all, "apps/v1", "DaemonSet", ""),
            (
                all,
                "extensions/v1beta1",
                "Ingress",
                "error: manifests/a.yaml:1: Ingress.extensions/web: extensions/v1beta1/Ingress is not served since Kubernetes 1.22, and the bundle supports >=1.31 <1.37 (use networking.k8s.io/v1/Ingress)",
            ),
            (
                all,
                "policy/v1beta1",
                "PodSecurityPolicy",
                "error: manifests/a.yaml:1: PodSecurityPolicy.policy/web: policy/v1beta1/PodSecurityPolicy is not served since Kubernetes 1.25, and the bundle supports >=1.31 <1.37 (no API of the same name replaces it; see the Kubernetes guide to deprecated APIs)",
            ),
            (
                "<1.22",
                "networking.k8s.io/v1beta1",
                "IngressClass",
                "error: manifests/a.yaml:1: IngressClass.networking.k8s.io/web: networking.k8s.io/v1beta1/IngressClass is served since Kubernetes 1.18, and the bundle supports <1.22, which includes 1.16 (raise kubernetes.supported to `>=1.18`, or use an older API)",
            ),
            (
                ">=1.33 <1.37",
                "resource.k8s.io/v1",
                "DeviceClass",
                "error: manifests/a.yaml:1: DeviceClass.resource.k8s.io/web: resource.k8s.io/v1/DeviceClass is served since Kubernetes 1.34, and the bundle supports >=1.33 <1.37, which includes 1.33 (raise kubernetes.supported to `>=1.34`, or use an older API)",
            ),
            (
                ">=1.19 <1.22",
                "rbac.authorization.k8s.io/v1beta1",
                "ClusterRole",
                "warning: manifests/a.yaml:1: ClusterRole.rbac.authorization.k8s.io/web: rbac.authorization.k8s.io/v1beta1/ClusterRole is deprecated since Kubernetes 1.17, and removed in 1.22 (use rbac.authorization.k8s.io/v1/ClusterRole)",
            ),
            (
                all,
                "apps/v1",
                "Deploymnet",
                "error: manifests/a.yaml:1: Deploymnet.apps/web: no version of Kubernetes up to 1.36 has apps/v1/Deploymnet (did you mean kind `Deployment`?)",
            ),
            (
                ">=1.31",
                "apps/v2",
                "DaemonSet",
                "warning: manifests/a.yaml:1: DaemonSet.apps/web: no version of Kubernetes up to 1.36 has apps/v2/DaemonSet (did you mean version `v1`?)",
            ),
            (
                all,
                "storage.k8s.io/v1alpha1",
                "VolumeAttributesClass",
                "error: manifests/a.yaml:1: VolumeAttributesClass.storage.k8s.io/web: storage.k8s.io/v1alpha1/VolumeAttributesClass is not served since Kubernetes 1.35, and the bundle supports >=1.31 <1.37 (use storage.k8s.io/v1/VolumeAttributesClass)",
            ),
            (
                ">=1.33",
                "coordination.k8s.io/v1beta1",
                "LeaseCandidate",
                "warning: manifests/a.yaml:1: LeaseCandidate.coordination.k8s.io/web: coordination.k8s.io/v1beta1/LeaseCandidate is a beta API, which API servers serve only if an administrator has enabled it (list the API in requires.apis of bundle.yaml: the installation then checks that the cluster serves the API)",
            ),
            (
                all,
                "example.com/v1",
                "Shop",
                "warning: manifests/a.yaml:1: Shop.example.com/web: the bundle does not define example.com/v1/Shop (add its CustomResourceDefinition to manifests/, or list `example.com/v1/Shop` in requires.apis of bundle.yaml)",
            ),
        ] {
            let declared = check_api(kubernetes, api_version, kind).join("\n");
            assert_eq!(declared, expected, "{kubernetes} {api_version} {kind}");
        }
    }

    #[test]
    fn without_a_range_reports_only_removed_apis() {
        assert_eq!(
            check_api("", "policy/v1beta1", "PodDisruptionBudget"),
            [
                "warning: manifests/a.yaml:1: PodDisruptionBudget.policy/web: policy/v1beta1/PodDisruptionBudget is not served since Kubernetes 1.25, and the bundle supports any version \
                 (use policy/v1/PodDisruptionBudget, or name kubernetes.supported in bundle.yaml)"
            ]
        );
        assert_eq!(check_api("", "resource.k8s.io/v1", "DeviceClass"), [""; 0]);
    }
}
