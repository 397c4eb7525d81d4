//! Order in which objects are installed and removed.

use crate::object::{Manifest, ObjectId};

/// Phase of an installation. A phase starts after all earlier phases are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Namespaces, which contain other objects.
    Namespaces,
    /// NetworkPolicies, quotas, and other policies and limits for workloads.
    Policies,
    /// ServiceAccounts.
    Identity,
    /// Secrets and ConfigMaps.
    Configuration,
    /// PersistentVolumes, PersistentVolumeClaims and StorageClasses.
    Storage,
    /// CustomResourceDefinitions, which must be established before custom resources are applied.
    Crds,
    /// Roles and ClusterRoles.
    Roles,
    /// RoleBindings and ClusterRoleBindings.
    Bindings,
    /// Services, issuers and certificates that workloads use.
    Infrastructure,
    /// Workloads, and all kinds that have no other phase, such as custom resources.
    Deploy,
    /// Autoscalers.
    Scaling,
    /// Ingresses, routes and monitors of workloads.
    Publish,
    /// Admission webhooks, admission policies and aggregated APIs. The objects of this phase can
    /// block requests of all earlier phases. Therefore only bindings of admission policies are
    /// applied later.
    Admission,
    /// Bindings of admission policies. The API server checks the permission to bind against the
    /// current policy, which must exist.
    AdmissionBindings,
}

impl Phase {
    /// Returns the phase of a kind.
    pub fn of(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("", "Namespace") => Self::Namespaces,
            ("networking.k8s.io", "NetworkPolicy")
            | ("policy", "PodDisruptionBudget")
            | ("scheduling.k8s.io", "PriorityClass")
            | ("node.k8s.io", "RuntimeClass")
            | ("", "ResourceQuota" | "LimitRange") => Self::Policies,
            ("", "ServiceAccount") => Self::Identity,
            ("", "Secret" | "ConfigMap") => Self::Configuration,
            ("", "PersistentVolume" | "PersistentVolumeClaim")
            | ("storage.k8s.io", "StorageClass" | "CSIDriver" | "VolumeAttributesClass") => {
                Self::Storage
            }
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Self::Crds,
            ("rbac.authorization.k8s.io", "ClusterRole" | "Role") => Self::Roles,
            ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => Self::Bindings,
            ("", "Service")
            | ("cert-manager.io", "Issuer" | "ClusterIssuer" | "Certificate")
            | ("networking.k8s.io", "IngressClass") => Self::Infrastructure,
            ("autoscaling", "HorizontalPodAutoscaler")
            | ("autoscaling.k8s.io", "VerticalPodAutoscaler")
            | ("keda.sh", "ScaledObject" | "ScaledJob") => Self::Scaling,
            (
                "monitoring.coreos.com",
                "ServiceMonitor" | "PodMonitor" | "PrometheusRule" | "Probe",
            )
            | ("networking.k8s.io" | "extensions", "Ingress")
            | (
                "gateway.networking.k8s.io",
                "Gateway" | "HTTPRoute" | "GRPCRoute" | "TLSRoute" | "TCPRoute" | "UDPRoute",
            )
            | ("route.openshift.io", "Route") => Self::Publish,
            (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration"
                | "MutatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "MutatingAdmissionPolicy",
            )
            | ("apiregistration.k8s.io", "APIService") => Self::Admission,
            (
                "admissionregistration.k8s.io",
                "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding",
            ) => Self::AdmissionBindings,
            _ => Self::Deploy,
        }
    }

    /// Returns true if the next phase waits until all objects of this phase are ready. The API
    /// server can store the objects of later phases only afterwards.
    pub fn gates(self) -> bool {
        matches!(self, Self::Namespaces | Self::Crds)
    }
}

/// Returns true if the next phase can wait until objects of this kind are healthy. Returns false
/// for a PersistentVolumeClaim, because the claim may stay unbound until a Pod of a later phase
/// uses the claim.
pub fn can_gate(group: &str, kind: &str) -> bool {
    (group, kind) != ("", "PersistentVolumeClaim")
}

/// Returns the objects by phase, in the order of installation, and within a phase in the given
/// order. Empty phases are omitted.
pub fn phases(objects: &[Manifest]) -> Vec<(Phase, Vec<&Manifest>)> {
    let mut by_phase = std::collections::BTreeMap::<Phase, Vec<&Manifest>>::new();
    for object in objects {
        by_phase
            .entry(Phase::of(&object.id.group, &object.id.kind))
            .or_default()
            .push(object);
    }
    by_phase.into_iter().collect()
}

/// Returns the steps of a removal. The objects of one step are deleted at the same time, and the
/// next step waits until these objects no longer exist.
///
/// Custom resources are deleted first, while the controllers that handle their finalizers still
/// run.
pub fn removal<'a>(
    objects: impl IntoIterator<Item = &'a ObjectId>,
    is_custom: impl Fn(&ObjectId) -> bool,
) -> Vec<Vec<&'a ObjectId>> {
    let mut steps = std::collections::BTreeMap::<(bool, std::cmp::Reverse<Phase>), Vec<_>>::new();
    for id in objects {
        let phase = Phase::of(&id.group, &id.kind);
        steps
            .entry((!is_custom(id), std::cmp::Reverse(phase)))
            .or_default()
            .push(id);
    }
    steps.into_values().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn id(group: &str, kind: &str) -> ObjectId {
        ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: "x".to_owned(),
        }
    }

    fn manifest(group: &str, kind: &str) -> Manifest {
        Manifest {
            id: id(group, kind),
            value: Value::Null,
            file: String::new(),
            line: 1,
        }
    }

    #[test]
    fn dependencies_come_before_dependents() {
        let order = [
            ("", "Namespace"),
            ("policy", "PodDisruptionBudget"),
            ("", "ServiceAccount"),
            ("", "ConfigMap"),
            ("", "PersistentVolumeClaim"),
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
            ("rbac.authorization.k8s.io", "ClusterRole"),
            ("rbac.authorization.k8s.io", "RoleBinding"),
            ("", "Service"),
            ("apps", "Deployment"),
            ("autoscaling", "HorizontalPodAutoscaler"),
            ("networking.k8s.io", "Ingress"),
            (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration",
            ),
        ];
        let reversed: Vec<_> = order
            .iter()
            .rev()
            .map(|(group, kind)| manifest(group, kind))
            .collect();
        let kinds: Vec<_> = phases(&reversed)
            .into_iter()
            .flat_map(|(_, objects)| objects)
            .map(|object| object.id.kind.clone())
            .collect();
        assert_eq!(kinds, order.map(|(_, kind)| kind));
    }

    #[test]
    fn unknown_kinds_and_kinds_of_other_groups_are_applied_with_workloads() {
        for (group, kind) in [
            ("example.com", "Widget"),
            ("example.com", "Namespace"),
            ("", "Widget"),
        ] {
            assert_eq!(Phase::of(group, kind), Phase::Deploy);
        }
    }

    #[test]
    fn custom_resources_are_removed_before_their_controllers_and_definitions() {
        let ids = [
            id("apiextensions.k8s.io", "CustomResourceDefinition"),
            id("apps", "Deployment"),
            id("example.com", "Widget"),
            id("", "Namespace"),
            id(
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration",
            ),
        ];
        let steps: Vec<Vec<&str>> = removal(&ids, |id| id.group == "example.com")
            .into_iter()
            .map(|step| step.into_iter().map(|id| id.kind.as_str()).collect())
            .collect();
        assert_eq!(
            steps,
            [
                vec!["Widget"],
                vec!["ValidatingWebhookConfiguration"],
                vec!["Deployment"],
                vec!["CustomResourceDefinition"],
                vec!["Namespace"]
            ]
        );
    }

    proptest! {
        #[test]
        fn no_object_is_lost_and_phases_only_rise(picks in proptest::collection::vec(0_usize..6, 0..60)) {
            let kinds = [("", "Namespace"), ("", "Secret"), ("apps", "Deployment"), ("x.y", "Z"), ("rbac.authorization.k8s.io", "Role"),
                ("apiextensions.k8s.io", "CustomResourceDefinition")];
            let objects: Vec<_> = picks.iter().map(|&pick| manifest(kinds[pick].0, kinds[pick].1)).collect();
            let found = phases(&objects);
            prop_assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0));
            prop_assert_eq!(found.iter().map(|(_, objects)| objects.len()).sum::<usize>(), objects.len());
            let ids: Vec<_> = objects.iter().map(|object| object.id.clone()).collect();
            prop_assert_eq!(removal(&ids, |_| false).iter().map(Vec::len).sum::<usize>(), ids.len());
        }
    }
}
