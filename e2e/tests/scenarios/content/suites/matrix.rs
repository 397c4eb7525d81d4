//! Objects of each kind with every combination of the status fields that health rules read.

use serde_json::{Map, Value, json};

use super::exceptions::has;

const TIME: &str = "2026-01-01T00:00:00Z";

/// Objects of one kind. Each [`Matrix::with`] multiplies the number of objects by the number of
/// values of one field.
pub(super) struct Matrix(Vec<Value>);

impl Matrix {
    fn of(api_version: &str, kind: &str) -> Self {
        Self(vec![json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": "web", "generation": 2, "creationTimestamp": TIME},
        })])
    }

    /// Sets the field at `path` (such as `status.replicas`) to each of `values`. `null` omits the
    /// field.
    fn with(self, path: &str, values: &[Value]) -> Self {
        self.multiplied(values, |object, value| {
            let mut at = object;
            for step in path.split('.') {
                if at.is_null() {
                    *at = Value::Object(Map::new());
                }
                at = &mut at[step];
            }
            *at = value.clone();
        })
    }

    /// Adds the condition with each status and reason. An empty status omits the condition.
    fn condition(self, kind: &str, values: &[(&str, &str)]) -> Self {
        self.multiplied(values, |object, (status, reason)| {
            if !object["status"]["conditions"].is_array() {
                object["status"]["conditions"] = json!([]);
            }
            let conditions = object["status"]["conditions"].as_array_mut().unwrap();
            conditions.push(json!({"type": kind, "status": status, "reason": reason}));
        })
    }

    fn multiplied<T: Leaves>(self, values: &[T], set: impl Fn(&mut Value, &T)) -> Self {
        let products = self.0.iter().flat_map(|object| {
            values.iter().map(|value| {
                let mut product = object.clone();
                if !value.is_omitted() {
                    set(&mut product, value);
                }
                product
            })
        });
        Self(products.collect())
    }

    /// Removes objects that no controller would write.
    fn only(mut self, possible: impl Fn(&Value) -> bool) -> Self {
        self.0.retain(|object| possible(object));
        self
    }
}

/// Value of a field. The null or empty value means that the field is omitted.
trait Leaves {
    fn is_omitted(&self) -> bool;
}

impl Leaves for Value {
    fn is_omitted(&self) -> bool {
        self.is_null()
    }
}

impl Leaves for (&str, &str) {
    fn is_omitted(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns all objects.
pub(super) fn objects() -> Vec<Value> {
    let kinds = [
        workloads(),
        vec![job(), pod()],
        others(),
        generic(),
        unread(),
    ];
    let matrices = kinds.into_iter().flatten();
    matrices.flat_map(|matrix| matrix.0).collect()
}

fn observed(matrix: Matrix) -> Matrix {
    matrix.with(
        "status.observedGeneration",
        &[json!(null), json!(1), json!(2)],
    )
}

fn counts(mut matrix: Matrix, fields: &[&str], values: &[Value]) -> Matrix {
    for field in fields {
        matrix = matrix.with(&format!("status.{field}"), values);
    }
    matrix
}

fn workloads() -> Vec<Matrix> {
    let few = [json!(null), json!(2), json!(3)];
    let replicas = [json!(0), json!(2)];
    let deployment = Matrix::of("apps/v1", "Deployment")
        .with("spec.replicas", &replicas)
        .with("spec.progressDeadlineSeconds", &[json!(null), json!(600)]);
    let fields = [
        "replicas",
        "updatedReplicas",
        "availableReplicas",
        "readyReplicas",
    ];
    let deployment = counts(observed(deployment), &fields, &few)
        .condition(
            "Progressing",
            &[
                ("", ""),
                ("True", "NewReplicaSetAvailable"),
                ("True", "ReplicaSetUpdated"),
                ("False", "FailedCreate"),
                ("False", "ProgressDeadlineExceeded"),
            ],
        )
        .condition("Available", &[("", ""), ("True", ""), ("False", "")])
        // A controller that reports a deadline has set `observedGeneration`.
        .only(|object| {
            !object["status"]["observedGeneration"].is_null()
                || !object["status"].to_string().contains("DeadlineExceeded")
        });
    let paused = observed(Matrix::of("apps/v1", "Deployment"))
        .with("spec.replicas", &replicas)
        .with("spec.paused", &[json!(true)])
        .condition("Available", &[("True", "")]);

    let stateful_set = Matrix::of("apps/v1", "StatefulSet")
        .with("spec.replicas", &replicas)
        .with(
            "spec.updateStrategy",
            &[
                json!(null),
                json!({"type": "RollingUpdate"}),
                json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
                json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}),
                json!({"type": "OnDelete"}),
            ],
        )
        .with("status.currentRevision", &[json!("web-1")])
        .with("status.updateRevision", &[json!("web-1"), json!("web-2")]);
    let fields = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
    ];
    let some = [json!(null), json!(1), json!(2), json!(3)];
    let stateful_set = counts(observed(stateful_set), &fields, &some);

    let daemon_set = Matrix::of("apps/v1", "DaemonSet")
        .with(
            "spec.updateStrategy",
            &[
                json!({"type": "RollingUpdate"}),
                json!({"type": "OnDelete"}),
            ],
        )
        .with(
            "status.desiredNumberScheduled",
            &[json!(null), json!(0), json!(2)],
        );
    let fields = [
        "currentNumberScheduled",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberReady",
    ];
    let daemon_set = counts(observed(daemon_set), &fields, &some[..3]);

    let fields = [
        "replicas",
        "fullyLabeledReplicas",
        "availableReplicas",
        "readyReplicas",
    ];
    let sets = [("apps/v1", "ReplicaSet"), ("v1", "ReplicationController")];
    let sets = sets.map(|(api_version, kind)| {
        let set = observed(Matrix::of(api_version, kind)).with("spec.replicas", &replicas);
        let failure = [("", ""), ("True", "FailedCreate"), ("False", "")];
        counts(set, &fields, &few).condition("ReplicaFailure", &failure)
    });
    let mut all = vec![deployment, paused, stateful_set, daemon_set];
    all.extend(sets);
    all
}

fn job() -> Matrix {
    Matrix::of("batch/v1", "Job")
        .with("status.startTime", &[json!(null), json!(TIME)])
        .condition("Suspended", &[("", ""), ("True", ""), ("False", "")])
        .condition("Complete", &[("", ""), ("True", "")])
        .condition("Failed", &[("", ""), ("True", "BackoffLimitExceeded")])
        // A Job ends only once, and only after its start.
        .only(|object| {
            let status = object["status"].to_string();
            let ends = status.matches("Complete").count() + status.matches("BackoffLimit").count();
            ends == 0 || ends == 1 && !object["status"]["startTime"].is_null()
        })
}

fn pod() -> Matrix {
    let waiting = |reason: &str| json!([{"name": "web", "state": {"waiting": {"reason": reason}}}]);
    let running = json!([{"name": "web", "state": {"running": {"startedAt": TIME}}}]);
    let restarted = json!([{
        "name": "web",
        "state": {"running": {"startedAt": TIME}},
        "lastState": {"terminated": {"exitCode": 1}},
    }]);
    let ended = json!([{"name": "web", "state": {"terminated": {"exitCode": 1}}}]);
    Matrix::of("v1", "Pod")
        .with(
            "spec.restartPolicy",
            &["Always", "OnFailure", "Never"].map(Value::from),
        )
        .with(
            "status.phase",
            &[
                json!(null),
                json!("Pending"),
                json!("Running"),
                json!("Succeeded"),
                json!("Failed"),
                json!("Unknown"),
            ],
        )
        .condition(
            "PodScheduled",
            &[
                ("", ""),
                ("True", ""),
                ("False", "Unschedulable"),
                ("False", "SchedulingGated"),
            ],
        )
        .condition(
            "Ready",
            &[("", ""), ("True", ""), ("False", "ContainersNotReady")],
        )
        .with(
            "status.initContainerStatuses",
            &[json!(null), waiting("CrashLoopBackOff"), running.clone()],
        )
        .with(
            "status.containerStatuses",
            &[
                json!(null),
                waiting("ContainerCreating"),
                waiting("PodInitializing"),
                waiting("CrashLoopBackOff"),
                waiting("ErrImagePull"),
                waiting("ImagePullBackOff"),
                waiting("CreateContainerConfigError"),
                running,
                restarted,
                ended,
            ],
        )
        // A Pod that is not scheduled is not ready. A Pod with a container that cannot be started
        // is neither ready nor ended. Without reports of the kubelet, containers have no reasons.
        .only(|object| {
            let status = object["status"].to_string();
            let is_blocked = ["BackOff", "ErrImagePull", "ConfigError"]
                .iter()
                .any(|reason| status.contains(reason));
            let is_ready = has(object, "Ready", "True");
            let has_ended = ["Succeeded", "Failed", "Unknown"]
                .iter()
                .any(|phase| object["status"]["phase"] == *phase);
            let is_unscheduled = has(object, "PodScheduled", "False");
            !(is_unscheduled && is_ready || is_blocked && (is_ready || has_ended))
        })
}

fn others() -> Vec<Matrix> {
    let phases = |phases: &[&str]| -> Vec<Value> {
        let named = phases.iter().map(|phase| json!(phase));
        std::iter::once(Value::Null).chain(named).collect()
    };
    let address = [json!(null), json!([{"ip": "192.0.2.1"}])];
    let is = [("", ""), ("True", ""), ("False", ""), ("Unknown", "")];
    vec![
        Matrix::of("v1", "PersistentVolumeClaim")
            .with("status.phase", &phases(&["Pending", "Bound", "Lost"])),
        Matrix::of("v1", "Namespace").with("status.phase", &phases(&["Active", "Terminating"])),
        Matrix::of("v1", "Service")
            .with(
                "spec.type",
                &phases(&["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]),
            )
            .with(
                "spec.clusterIP",
                &[json!(null), json!("10.0.0.1"), json!("None")],
            )
            .with("status.loadBalancer.ingress", &address)
            // The API server assigns a cluster IP before a load balancer gets an address.
            .only(|object| {
                !object["spec"]["clusterIP"].is_null() || object["status"]["loadBalancer"].is_null()
            }),
        Matrix::of("networking.k8s.io/v1", "Ingress").with("status.loadBalancer.ingress", &address),
        Matrix::of("apiextensions.k8s.io/v1", "CustomResourceDefinition")
            .condition(
                "NamesAccepted",
                &[("", ""), ("True", "NoConflicts"), ("False", "Conflict")],
            )
            .condition(
                "Established",
                &[
                    ("", ""),
                    ("True", "InitialNamesAccepted"),
                    ("False", "Installing"),
                    ("False", "NotAccepted"),
                    ("Unknown", ""),
                ],
            ),
        Matrix::of("apiregistration.k8s.io/v1", "APIService").condition("Available", &is),
        observed(Matrix::of("policy/v1", "PodDisruptionBudget")),
        observed(Matrix::of("autoscaling/v2", "HorizontalPodAutoscaler"))
            .condition(
                "AbleToScale",
                &[
                    ("", ""),
                    ("True", "ReadyForNewScale"),
                    ("False", "FailedGetScale"),
                ],
            )
            .condition(
                "ScalingActive",
                &[
                    ("", ""),
                    ("True", "ValidMetricFound"),
                    ("False", "FailedGetResourceMetric"),
                ],
            )
            .condition(
                "ScalingLimited",
                &[("", ""), ("True", "TooFewReplicas"), ("False", "")],
            ),
        Matrix::of("argoproj.io/v1alpha1", "Workflow").with(
            "status.phase",
            &phases(&["Pending", "Running", "Succeeded", "Failed", "Error"]),
        ),
    ]
}

/// Returns the fields that kstatus reads in objects of every kind. Custom resources can have an API
/// group that ends with `k8s.io`, so these groups are included.
fn generic() -> Vec<Matrix> {
    let is = [("", ""), ("True", "Why"), ("False", "Why")];
    [
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "ReplicaSet"),
        ("v1", "ReplicationController"),
        ("batch/v1", "Job"),
        ("v1", "Pod"),
        ("v1", "PersistentVolumeClaim"),
        ("v1", "Namespace"),
        ("v1", "Service"),
        ("policy/v1", "PodDisruptionBudget"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("apiregistration.k8s.io/v1", "APIService"),
        ("shop.example.com/v1", "Widget"),
        ("gateway.networking.k8s.io/v1", "Gateway"),
        ("snapshot.storage.k8s.io/v1", "VolumeSnapshot"),
    ]
    .map(|(api_version, kind)| {
        observed(Matrix::of(api_version, kind))
            .with("metadata.deletionTimestamp", &[json!(null), json!(TIME)])
            .condition(
                "Ready",
                &[
                    ("", ""),
                    ("True", ""),
                    ("False", "Why"),
                    ("Unknown", ""),
                    ("Maybe", ""),
                ],
            )
            .condition("Reconciling", &is)
            .condition("Stalled", &is)
    })
    .into()
}

/// Returns objects of kinds that are ready as soon as they exist.
fn unread() -> Vec<Matrix> {
    [
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
        ("v1", "ServiceAccount"),
        ("batch/v1", "CronJob"),
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("networking.k8s.io/v1", "Ingress"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("storage.k8s.io/v1", "StorageClass"),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
        ),
    ]
    .map(|(api_version, kind)| {
        Matrix::of(api_version, kind)
            .with("metadata.deletionTimestamp", &[json!(null), json!(TIME)])
    })
    .into()
}
