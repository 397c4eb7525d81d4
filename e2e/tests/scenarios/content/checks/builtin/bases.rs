//! A valid object of each built-in kind.

use super::Base;

/// The objects that the cases change.
pub(in crate::scenarios::content::checks) const BASES: &[Base] = &[
    (
        "deployment",
        "/apis/apps/v1/namespaces/default/deployments",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: case, namespace: default}, spec: {selector: {matchLabels: {a: b}}, \
         template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b, ports: [{containerPort: 80}], \
         env: [{name: A, value: a}], resources: {limits: {cpu: 100m}}, livenessProbe: {httpGet: {port: http, path: /}}}]}}}}",
    ),
    (
        "statefulset",
        "/apis/apps/v1/namespaces/default/statefulsets",
        "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: case, namespace: default}, spec: {selector: {matchLabels: {a: b}}, serviceName: a, \
         template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}, \
         volumeClaimTemplates: [{metadata: {name: data, creationTimestamp: null}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}",
    ),
    (
        "cronjob",
        "/apis/batch/v1/namespaces/default/cronjobs",
        "{apiVersion: batch/v1, kind: CronJob, metadata: {name: case, namespace: default}, spec: {schedule: '0 1 * * *', \
         jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}}}}",
    ),
    (
        "service",
        "/api/v1/namespaces/default/services",
        "{apiVersion: v1, kind: Service, metadata: {name: case, namespace: default}, spec: {selector: {a: b}, ports: [{port: 80, targetPort: http, name: a}]}}",
    ),
    (
        "configmap",
        "/api/v1/namespaces/default/configmaps",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: case, namespace: default}, data: {a: b}}",
    ),
    (
        "secret",
        "/api/v1/namespaces/default/secrets",
        "{apiVersion: v1, kind: Secret, metadata: {name: case, namespace: default}, data: {a: YQ==}}",
    ),
    (
        "ingress",
        "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
        "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: case, namespace: default}, spec: {rules: [{host: a.example.com, \
         http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]}}",
    ),
    (
        "networkpolicy",
        "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
        "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: case, namespace: default}, spec: {podSelector: {}, \
         ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 80, protocol: TCP}]}]}}",
    ),
    (
        "rolebinding",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: case, namespace: default}, \
         roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: ServiceAccount, name: a, namespace: default}]}",
    ),
    (
        "clusterrole",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: case}, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}",
    ),
    (
        "hpa",
        "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
        "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: case, namespace: default}, spec: {maxReplicas: 3, \
         scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]}}",
    ),
    (
        "pdb",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: case, namespace: default}, spec: {maxUnavailable: 25%, selector: {matchLabels: {a: b}}}}",
    ),
    (
        "claim",
        "/api/v1/namespaces/default/persistentvolumeclaims",
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: case, namespace: default}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}",
    ),
    (
        "webhook",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: case}, webhooks: [{name: a.example.com, \
         sideEffects: None, admissionReviewVersions: [v1], clientConfig: {service: {namespace: default, name: a}}, rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}]}",
    ),
    (
        "storageclass",
        "/apis/storage.k8s.io/v1/storageclasses",
        "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: case}, provisioner: example.com/a}",
    ),
    (
        "priorityclass",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: case}, value: 10}",
    ),
    (
        "limitrange",
        "/api/v1/namespaces/default/limitranges",
        "{apiVersion: v1, kind: LimitRange, metadata: {name: case, namespace: default}, spec: {limits: [{type: Container, max: {cpu: 1}}]}}",
    ),
    (
        "csidriver",
        "/apis/storage.k8s.io/v1/csidrivers",
        "{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: case}, spec: {tokenRequests: [{audience: a}]}}",
    ),
    (
        "apiservice",
        "/apis/apiregistration.k8s.io/v1/apiservices",
        "{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.case.example.com}, \
         spec: {group: case.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, service: {namespace: default, name: a}}}",
    ),
];
