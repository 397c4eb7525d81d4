//! Objects whose health kstatus or Argo CD evaluates differently from this project, and the reason
//! of each difference.
//!
//! The scenarios in `e2e/tests/scenarios/content/suites` run the code of kstatus and Argo CD. A
//! scenario fails if it finds a difference that is not in this table, or if the results for a row
//! of this table do not differ.

use std::fmt;

/// Project whose health rules are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HealthTool {
    /// kstatus of `sigs.k8s.io/cli-utils`, which Flux and kpt use.
    Kstatus,
    /// The health checks of Argo CD's gitops-engine that are written in Go.
    ArgoCd,
}

/// Health of one object, in terms that are common to all projects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ComparableHealth {
    /// kstatus: `Current`. Argo CD: `Healthy`, or a kind without a health check.
    Ready,
    /// kstatus: `InProgress` or `Terminating`. Argo CD: `Progressing`.
    Waiting,
    /// kstatus: `Failed`. Argo CD: `Degraded`.
    Failed,
    /// Argo CD: `Suspended`.
    Suspended,
    /// kstatus: an error. Argo CD: `Unknown`.
    Unknown,
}

/// Objects whose health the other project evaluates differently.
#[derive(Debug, Clone, Copy)]
pub struct Difference {
    /// Name of the row. The scenarios contain a condition with the same name.
    pub name: &'static str,
    /// Project whose result differs from the result of this project.
    pub tool: HealthTool,
    /// Kinds with their groups, for the documentation.
    pub kinds: &'static str,
    /// State of the objects.
    pub state: &'static str,
    /// Health in this project.
    pub here: &'static [ComparableHealth],
    /// Health in the other project.
    pub there: &'static [ComparableHealth],
    /// Reason for the result of this project.
    pub reason: &'static str,
}

impl fmt::Display for HealthTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kstatus => "kstatus",
            Self::ArgoCd => "Argo CD",
        })
    }
}

impl fmt::Display for ComparableHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ready",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Suspended => "suspended",
            Self::Unknown => "unknown",
        })
    }
}

const READY: &[ComparableHealth] = &[ComparableHealth::Ready];
const WAITING: &[ComparableHealth] = &[ComparableHealth::Waiting];
const FAILED: &[ComparableHealth] = &[ComparableHealth::Failed];
const UNKNOWN: &[ComparableHealth] = &[ComparableHealth::Unknown];
const NOT_READY: &[ComparableHealth] = &[ComparableHealth::Waiting, ComparableHealth::Failed];
const SUSPENDED: &[ComparableHealth] = &[ComparableHealth::Suspended];
const ANY: &[ComparableHealth] = &[
    ComparableHealth::Ready,
    ComparableHealth::Waiting,
    ComparableHealth::Failed,
];

/// All differences. The differences from kstatus are first.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "kstatus-not-observed",
        tool: HealthTool::Kstatus,
        kinds: "`Deployment.apps`, `StatefulSet.apps`, `ReplicaSet.apps`, `PodDisruptionBudget.policy`",
        state: "`status.observedGeneration` is missing",
        here: WAITING,
        there: READY,
        reason: "The controller writes this field with its first status. Until then the controller has not observed the object.",
    },
    Difference {
        name: "kstatus-daemon-set-on-delete",
        tool: HealthTool::Kstatus,
        kinds: "`DaemonSet.apps`",
        state: "pods are outdated, and the update strategy is `OnDelete`",
        here: READY,
        there: WAITING,
        reason: "With this strategy the user replaces the pods.",
    },
    Difference {
        name: "kstatus-replication-controller",
        tool: HealthTool::Kstatus,
        kinds: "`ReplicationController`",
        state: "replicas are missing or left over, or `status.observedGeneration` is missing",
        here: WAITING,
        there: READY,
        reason: "kstatus has no rule for this kind. A ReplicationController has the same status fields as a ReplicaSet.",
    },
    Difference {
        name: "kstatus-job-suspended",
        tool: HealthTool::Kstatus,
        kinds: "`Job.batch`",
        state: "it is suspended and has not started",
        here: READY,
        there: WAITING,
        reason: "Nothing happens until the user resumes the Job.",
    },
    Difference {
        name: "kstatus-pod-failed",
        tool: HealthTool::Kstatus,
        kinds: "`Pod`",
        state: "its phase is `Failed`",
        here: FAILED,
        there: READY,
        reason: "kstatus reports that the Pod has ended. A failed Pod does not do its work.",
    },
    Difference {
        name: "kstatus-pod-blocked",
        tool: HealthTool::Kstatus,
        kinds: "`Pod`",
        state: "a container cannot be started, and one of these conditions is true: the reason is not a crash loop; the phase is not yet `Running`; the container is an init container",
        here: FAILED,
        there: WAITING,
        reason: "The kubelet cannot start the container without a change, for example of the image.",
    },
    Difference {
        name: "kstatus-pod-unschedulable",
        tool: HealthTool::Kstatus,
        kinds: "`Pod`",
        state: "the scheduler has found no node for it for more than 15 s",
        here: WAITING,
        there: FAILED,
        reason: "The scheduler keeps trying, and a new node can be added. The message quotes the \
         scheduler.",
    },
    Difference {
        name: "kstatus-pod-unknown",
        tool: HealthTool::Kstatus,
        kinds: "`Pod`",
        state: "its phase is `Unknown`",
        here: WAITING,
        there: UNKNOWN,
        reason: "The node does not report now. The node may report later.",
    },
    Difference {
        name: "kstatus-claim-lost",
        tool: HealthTool::Kstatus,
        kinds: "`PersistentVolumeClaim`",
        state: "its phase is `Lost`",
        here: FAILED,
        there: WAITING,
        reason: "A lost claim never gets its volume again.",
    },
    Difference {
        name: "kstatus-namespace",
        tool: HealthTool::Kstatus,
        kinds: "`Namespace`",
        state: "its phase is not `Active`",
        here: WAITING,
        there: READY,
        reason: "kstatus has no rule for this kind. Objects cannot be created in a namespace that is not active.",
    },
    Difference {
        name: "kstatus-api-service",
        tool: HealthTool::Kstatus,
        kinds: "`APIService.apiregistration.k8s.io`",
        state: "`Available` is not `True`",
        here: WAITING,
        there: READY,
        reason: "kstatus has no rule for this kind. The API is not served until `Available` is `True`.",
    },
    Difference {
        name: "kstatus-unread-kinds",
        tool: HealthTool::Kstatus,
        kinds: "kinds that are ready as soon as they exist",
        state: "it is being deleted, or `status.observedGeneration` differs from `metadata.generation`",
        here: READY,
        there: WAITING,
        reason: "The pod does not read objects of these kinds when they change. The pod creates a deleted object again.",
    },
    Difference {
        name: "kstatus-ready-invalid",
        tool: HealthTool::Kstatus,
        kinds: "custom resources",
        state: "the status of `Ready` is neither `True` nor `False` nor `Unknown`",
        here: WAITING,
        there: READY,
        reason: "The object is ready if the status is `True`.",
    },
    Difference {
        name: "argo-deployment-paused",
        tool: HealthTool::ArgoCd,
        kinds: "`Deployment.apps`",
        state: "it is paused",
        here: ANY,
        there: SUSPENDED,
        reason: "The pods of a paused Deployment keep running, so this project evaluates the status as kstatus does.",
    },
    Difference {
        name: "argo-deployment-counts",
        tool: HealthTool::ArgoCd,
        kinds: "`Deployment.apps`",
        state: "all replicas are updated and available, but replicas are not ready or left over, `Available` is not `True`, or `Progressing` is not `True` for the new ReplicaSet",
        here: WAITING,
        there: READY,
        reason: "This project follows kstatus, which reads these fields too.",
    },
    Difference {
        name: "argo-stateful-set-counts",
        tool: HealthTool::ArgoCd,
        kinds: "`StatefulSet.apps`",
        state: "`status.readyReplicas` equals `spec.replicas`, but another count differs: replicas are not created yet, are left over, or have the old revision",
        here: WAITING,
        there: READY,
        reason: "This project follows kstatus, which reads these fields too.",
    },
    Difference {
        name: "argo-stateful-set-on-delete",
        tool: HealthTool::ArgoCd,
        kinds: "`StatefulSet.apps`",
        state: "replicas are not ready, and the update strategy is `OnDelete`",
        here: READY,
        there: WAITING,
        reason: "This project follows kstatus: with this strategy the user replaces the pods.",
    },
    Difference {
        name: "argo-daemon-set-counts",
        tool: HealthTool::ArgoCd,
        kinds: "`DaemonSet.apps`",
        state: "all pods are updated and available, but pods are not scheduled or not ready, or `status.desiredNumberScheduled` is missing",
        here: WAITING,
        there: READY,
        reason: "This project follows kstatus, which reads these fields too.",
    },
    Difference {
        name: "argo-daemon-set-on-delete",
        tool: HealthTool::ArgoCd,
        kinds: "`DaemonSet.apps`",
        state: "pods are missing or not available, and the update strategy is `OnDelete`",
        here: WAITING,
        there: READY,
        reason: "The strategy concerns only outdated pods. Missing pods are created with every strategy.",
    },
    Difference {
        name: "argo-replica-failure",
        tool: HealthTool::ArgoCd,
        kinds: "`ReplicaSet.apps`",
        state: "`ReplicaFailure` is `True`",
        here: WAITING,
        there: FAILED,
        reason: "This project follows kstatus: a quota or an admission policy may change.",
    },
    Difference {
        name: "argo-replica-set-counts",
        tool: HealthTool::ArgoCd,
        kinds: "`ReplicaSet.apps`",
        state: "all replicas are available, but replicas are not ready, not labelled or left over",
        here: WAITING,
        there: READY,
        reason: "This project follows kstatus, which reads these fields too.",
    },
    Difference {
        name: "argo-job-running",
        tool: HealthTool::ArgoCd,
        kinds: "`Job.batch`",
        state: "it has started and is not complete",
        here: READY,
        there: WAITING,
        reason: "This project follows kstatus: a Job may run for days.",
    },
    Difference {
        name: "argo-job-resumed",
        tool: HealthTool::ArgoCd,
        kinds: "`Job.batch`",
        state: "it was resumed and has not started",
        here: WAITING,
        there: READY,
        reason: "Argo CD treats the Job as healthy because the condition `Suspended` exists, although its status is `False`. This project follows kstatus.",
    },
    Difference {
        name: "argo-job-suspended",
        tool: HealthTool::ArgoCd,
        kinds: "`Job.batch`",
        state: "it is suspended",
        here: READY,
        there: SUSPENDED,
        reason: "Nothing happens until the user resumes the Job. This project has only the results \
         ready, waiting and failed.",
    },
    Difference {
        name: "argo-pod-finite",
        tool: HealthTool::ArgoCd,
        kinds: "`Pod`",
        state: "it is ready, and its restart policy is `OnFailure` or `Never`",
        here: READY,
        there: WAITING,
        reason: "Argo CD runs such Pods as hooks, and waits until they end. This project follows kstatus.",
    },
    Difference {
        name: "argo-pod-blocked",
        tool: HealthTool::ArgoCd,
        kinds: "`Pod`",
        state: "a container cannot be started, and the container is an init container or the restart policy is `OnFailure` or `Never`",
        here: FAILED,
        there: &[ComparableHealth::Waiting, ComparableHealth::Unknown],
        reason: "The kubelet cannot start the container without a change, for example of the image.",
    },
    Difference {
        name: "argo-pod-restarted",
        tool: HealthTool::ArgoCd,
        kinds: "`Pod`",
        state: "it is not ready, and a container has been restarted",
        here: WAITING,
        there: FAILED,
        reason: "This project follows kstatus: the container was started again. The Pod has failed when the container is in a crash loop.",
    },
    Difference {
        name: "argo-pod-unknown",
        tool: HealthTool::ArgoCd,
        kinds: "`Pod`",
        state: "it has no phase, or its phase is `Unknown`",
        here: WAITING,
        there: UNKNOWN,
        reason: "No kubelet has reported yet, or the node does not report. The node may report later.",
    },
    Difference {
        name: "argo-claim-without-phase",
        tool: HealthTool::ArgoCd,
        kinds: "`PersistentVolumeClaim`",
        state: "it has no phase",
        here: WAITING,
        there: UNKNOWN,
        reason: "The controller has not observed the claim yet.",
    },
    Difference {
        name: "argo-load-balancer",
        tool: HealthTool::ArgoCd,
        kinds: "`Service`",
        state: "its type is `LoadBalancer`, and it has no address of a load balancer",
        here: READY,
        there: WAITING,
        reason: "This project follows kstatus: a cluster without a load balancer never assigns an address.",
    },
    Difference {
        name: "argo-ingress",
        tool: HealthTool::ArgoCd,
        kinds: "`Ingress.networking.k8s.io`",
        state: "it has no address of a load balancer",
        here: READY,
        there: WAITING,
        reason: "This project follows kstatus: many controllers publish no address.",
    },
    Difference {
        name: "argo-autoscaler",
        tool: HealthTool::ArgoCd,
        kinds: "`HorizontalPodAutoscaler.autoscaling`",
        state: "it has no metrics, or its conditions are missing",
        here: READY,
        there: NOT_READY,
        reason: "This project follows kstatus: without a metrics server every package with an autoscaler would be unhealthy.",
    },
    Difference {
        name: "argo-without-check",
        tool: HealthTool::ArgoCd,
        kinds: "`CustomResourceDefinition.apiextensions.k8s.io`, `Namespace`, `PodDisruptionBudget.policy`, `ReplicationController`, custom resources",
        state: "it is not ready by the rules of this page",
        here: NOT_READY,
        there: READY,
        reason: "Argo CD has no health check in Go for these kinds. For some of these kinds, Argo CD has Lua scripts, which the scenarios do not run.",
    },
    Difference {
        name: "argo-generic",
        tool: HealthTool::ArgoCd,
        kinds: "every kind",
        state: "`Reconciling` is `True` or `status.observedGeneration` differs from `metadata.generation` (waiting), or `Stalled` is `True` (failed)",
        here: NOT_READY,
        there: &[
            ComparableHealth::Ready,
            ComparableHealth::Waiting,
            ComparableHealth::Failed,
            ComparableHealth::Suspended,
            ComparableHealth::Unknown,
        ],
        reason: "Argo CD does not read these conditions, and compares generations for workloads \
         only. The result of Argo CD depends on other fields. This project follows kstatus.",
    },
    Difference {
        name: "argo-unread-kinds",
        tool: HealthTool::ArgoCd,
        kinds: "kinds that are ready as soon as they exist",
        state: "it is being deleted",
        here: READY,
        there: WAITING,
        reason: "The pod does not read objects of these kinds when they change. The pod creates a deleted object again.",
    },
    Difference {
        name: "argo-workflow",
        tool: HealthTool::ArgoCd,
        kinds: "`Workflow.argoproj.io`",
        state: "it has not succeeded",
        here: READY,
        there: NOT_READY,
        reason: "The kind belongs to the Argo project, and Argo CD has a rule for this kind. In \
         this project, the rule for custom resources applies.",
    },
];
