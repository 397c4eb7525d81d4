//! Table of built-in kinds with their health rules. The documentation is generated from the same
//! table.

use serde_json::Value;

use super::{Health, pod, rules, workload};

/// Function that returns the health of an object. The caller has applied the generic rules before.
pub type Rule = fn(&Value) -> Health;

/// Health rule for objects of one built-in kind.
#[derive(Debug, Clone, Copy)]
pub struct KindRule {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Name of the kind, such as `Deployment`.
    pub kind: &'static str,
    /// Rule; `None` if an object of this kind is ready as soon as it exists.
    pub rule: Option<Rule>,
    /// Condition under which an object is ready.
    pub ready: &'static str,
    /// Condition under which an object has failed. The text is empty if objects of this kind never
    /// fail.
    pub failed: &'static str,
}

/// Returns the entry of a kind; `None` if the table does not contain the kind.
pub fn find(group: &str, kind: &str) -> Option<&'static KindRule> {
    KINDS
        .iter()
        .find(|entry| entry.group == group && entry.kind == kind)
}

const fn always(group: &'static str, kind: &'static str) -> KindRule {
    KindRule {
        group,
        kind,
        rule: None,
        ready: "as soon as it exists",
        failed: "",
    }
}

/// Built-in kinds that have a health rule in this project, in kstatus or in Argo CD.
pub const KINDS: &[KindRule] = &[
    KindRule {
        group: "apps",
        kind: "Deployment",
        rule: Some(workload::deployment),
        ready: "all replicas are updated, ready and available, no old replicas exist, `Progressing` reports that the new ReplicaSet is available, and `Available` is `True`",
        failed: "`Progressing` has the reason `ProgressDeadlineExceeded`",
    },
    KindRule {
        group: "apps",
        kind: "StatefulSet",
        rule: Some(workload::stateful_set),
        ready: "the number of ready replicas is `spec.replicas`, no further replicas exist, and all replicas have the update revision (with a partition: all replicas from that ordinal on). With the strategy `OnDelete`: as soon as the controller has observed the StatefulSet",
        failed: "",
    },
    KindRule {
        group: "apps",
        kind: "DaemonSet",
        rule: Some(workload::daemon_set),
        ready: "on each selected node, a pod is scheduled, updated, ready and available",
        failed: "",
    },
    KindRule {
        group: "apps",
        kind: "ReplicaSet",
        rule: Some(workload::replica_set),
        ready: "its controller has observed it, the number of labelled, ready and available replicas is `spec.replicas`, no further replicas exist, and `ReplicaFailure` is not `True`",
        failed: "",
    },
    KindRule {
        group: "",
        kind: "ReplicationController",
        rule: Some(workload::replica_set),
        ready: "as a ReplicaSet",
        failed: "",
    },
    KindRule {
        group: "batch",
        kind: "Job",
        rule: Some(workload::job),
        ready: "it has started, is complete, or is suspended",
        failed: "`Failed` is `True`",
    },
    always("batch", "CronJob"),
    KindRule {
        group: "",
        kind: "Pod",
        rule: Some(pod::pod),
        ready: "its phase is `Running` and `Ready` is `True`, or it has succeeded",
        failed: "its phase is `Failed`, or a container cannot be started (an image that cannot be pulled, a crash loop, a configuration that cannot be used)",
    },
    KindRule {
        group: "",
        kind: "PersistentVolumeClaim",
        rule: Some(rules::claim),
        ready: "its phase is `Bound`",
        failed: "its phase is `Lost`",
    },
    KindRule {
        group: "",
        kind: "Namespace",
        rule: Some(rules::namespace),
        ready: "its phase is `Active`",
        failed: "",
    },
    KindRule {
        group: "",
        kind: "Service",
        rule: Some(rules::service),
        ready: "of type `LoadBalancer`: it has a cluster IP; any other: as soon as it exists",
        failed: "",
    },
    KindRule {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        rule: Some(rules::definition),
        ready: "`Established` is `True`",
        failed: "`NamesAccepted` is `False`, or `Established` is `False` for a reason other than `Installing`",
    },
    KindRule {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        rule: Some(rules::api_service),
        ready: "`Available` is `True`",
        failed: "",
    },
    KindRule {
        group: "policy",
        kind: "PodDisruptionBudget",
        rule: Some(rules::observed),
        ready: "its controller has seen its latest generation",
        failed: "",
    },
    always("", "ConfigMap"),
    always("", "Secret"),
    always("networking.k8s.io", "Ingress"),
    always("autoscaling", "HorizontalPodAutoscaler"),
];
