//! The built-in kinds and the rule of each, as a table: the judgement and its documentation come from the same rows.

use serde_json::Value;

use super::{Health, pod, rules, workload};

/// Judges one object, of which the generic properties have been checked already.
pub type Rule = fn(&Value) -> Health;

/// How objects of one built-in kind are judged.
#[derive(Debug, Clone, Copy)]
pub struct KindRule {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The rule; `None` if an object of this kind is ready as soon as it exists.
    pub rule: Option<Rule>,
    /// When an object is ready.
    pub ready: &'static str,
    /// When an object counts as failed; empty if never.
    pub failed: &'static str,
    /// Where kstatus or Argo CD judge otherwise, and why this project does not; empty if they agree.
    pub differs: &'static str,
}

/// Returns the entry of a kind.
pub fn find(group: &str, kind: &str) -> Option<&'static KindRule> {
    KINDS
        .iter()
        .find(|entry| entry.group == group && entry.kind == kind)
}

const fn always(group: &'static str, kind: &'static str, differs: &'static str) -> KindRule {
    KindRule {
        group,
        kind,
        rule: None,
        ready: "as soon as it exists",
        failed: "",
        differs,
    }
}

/// The built-in kinds with a rule of their own, and those that tools of the field judge.
pub const KINDS: &[KindRule] = &[
    KindRule {
        group: "apps",
        kind: "Deployment",
        rule: Some(workload::deployment),
        ready: "all replicas are updated, ready and available, none is left over, `Progressing` says that the new ReplicaSet is available, and `Available` is `True`",
        failed: "`Progressing` has the reason `ProgressDeadlineExceeded`",
        differs: "",
    },
    KindRule {
        group: "apps",
        kind: "StatefulSet",
        rule: Some(workload::stateful_set),
        ready: "the wanted number of replicas exists and is ready, none is left over, and all are of the update revision (with a partition: as many as it leaves to update); with the strategy `OnDelete`: once its controller has seen it",
        failed: "",
        differs: "",
    },
    KindRule {
        group: "apps",
        kind: "DaemonSet",
        rule: Some(workload::daemon_set),
        ready: "on each node that it is meant for, a pod is scheduled, updated, ready and available",
        failed: "",
        differs: "With the strategy `OnDelete`, outdated pods do not count: whoever chose it replaces them. kstatus waits for them.",
    },
    KindRule {
        group: "apps",
        kind: "ReplicaSet",
        rule: Some(workload::replica_set),
        ready: "the wanted number of replicas is labelled, ready and available, none is left over, and `ReplicaFailure` is not `True`",
        failed: "",
        differs: "Argo CD calls `ReplicaFailure` degraded; kstatus, and this project, wait, since a quota or an admission policy may change.",
    },
    KindRule {
        group: "",
        kind: "ReplicationController",
        rule: Some(workload::replica_set),
        ready: "as a ReplicaSet",
        failed: "",
        differs: "kstatus and Argo CD have no rule for it.",
    },
    KindRule {
        group: "batch",
        kind: "Job",
        rule: Some(workload::job),
        ready: "it has started, is complete, or is suspended",
        failed: "`Failed` is `True`",
        differs: "Argo CD waits until a Job is complete. A Job may run for days, so this project follows kstatus.",
    },
    always("batch", "CronJob", ""),
    KindRule {
        group: "",
        kind: "Pod",
        rule: Some(pod::pod),
        ready: "`Ready` is `True`, or it has succeeded",
        failed: "its phase is `Failed`, or a container cannot be started (an image that cannot be pulled, a crash loop, a configuration that cannot be used)",
        differs: "kstatus calls a failed Pod current, and one whose image cannot be pulled in progress; Argo CD calls both degraded, as this project does. A Pod that cannot be scheduled waits with the scheduler's own words: kstatus calls it failed after 15 s, but the scheduler keeps trying.",
    },
    KindRule {
        group: "",
        kind: "PersistentVolumeClaim",
        rule: Some(rules::claim),
        ready: "its phase is `Bound`",
        failed: "its phase is `Lost`",
        differs: "kstatus waits for a lost claim, which never comes back.",
    },
    KindRule {
        group: "",
        kind: "Namespace",
        rule: Some(rules::namespace),
        ready: "its phase is `Active`",
        failed: "",
        differs: "kstatus and Argo CD have no rule for it. Objects cannot be created in a namespace that is not active.",
    },
    KindRule {
        group: "",
        kind: "Service",
        rule: Some(rules::service),
        ready: "of type `LoadBalancer`: it has a cluster IP; any other: as soon as it exists",
        failed: "",
        differs: "Argo CD waits for the load balancer's address. Clusters without a load balancer never give one, so this project follows kstatus.",
    },
    KindRule {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        rule: Some(rules::definition),
        ready: "`Established` is `True`",
        failed: "`NamesAccepted` is `False`, or `Established` is `False` for another reason than `Installing`",
        differs: "",
    },
    KindRule {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        rule: Some(rules::api_service),
        ready: "`Available` is `True`",
        failed: "",
        differs: "kstatus has no rule for it and calls it current.",
    },
    KindRule {
        group: "policy",
        kind: "PodDisruptionBudget",
        rule: Some(rules::observed),
        ready: "its controller has seen its latest generation",
        failed: "",
        differs: "",
    },
    always("", "ConfigMap", ""),
    always("", "Secret", ""),
    always(
        "networking.k8s.io",
        "Ingress",
        "Argo CD waits for an address of the load balancer. Many controllers publish none, so this project follows kstatus.",
    ),
    always(
        "autoscaling",
        "HorizontalPodAutoscaler",
        "Argo CD calls it degraded while it has no metrics. A cluster without a metrics server would make every package with an autoscaler unhealthy, so this project follows kstatus.",
    ),
];
