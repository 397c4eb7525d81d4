//! Fields of custom resources that contain images by definition. The URL in a comment is the page
//! that defines the fields.

/// Kind of custom resource and its image fields. `*` matches each item of a list.
pub(super) struct ImageFields {
    pub(super) group: &'static str,
    pub(super) kinds: &'static [&'static str],
    pub(super) fields: &'static [&'static str],
}

/// Known kinds. Lists of containers need no entry, because the search finds them in all kinds.
pub(super) const KNOWN: &[ImageFields] = &[
    // https://prometheus-operator.dev/docs/api-reference/api/
    ImageFields {
        group: "monitoring.coreos.com",
        kinds: &[
            "Prometheus",
            "PrometheusAgent",
            "Alertmanager",
            "ThanosRuler",
        ],
        fields: &["spec.image", "spec.thanos.image"],
    },
    // https://argo-workflows.readthedocs.io/en/latest/fields/
    ImageFields {
        group: "argoproj.io",
        kinds: &["Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate"],
        fields: &[
            "spec.templates.*.container.image",
            "spec.templates.*.script.image",
            "spec.templates.*.sidecars.*.image",
            "spec.templateDefaults.container.image",
            "spec.templateDefaults.script.image",
        ],
    },
    ImageFields {
        group: "argoproj.io",
        kinds: &["CronWorkflow"],
        fields: &[
            "spec.workflowSpec.templates.*.container.image",
            "spec.workflowSpec.templates.*.script.image",
            "spec.workflowSpec.templates.*.sidecars.*.image",
        ],
    },
    // https://tekton.dev/docs/pipelines/pipeline-api/
    ImageFields {
        group: "tekton.dev",
        kinds: &["Task", "ClusterTask"],
        fields: &[
            "spec.steps.*.image",
            "spec.sidecars.*.image",
            "spec.stepTemplate.image",
        ],
    },
    ImageFields {
        group: "tekton.dev",
        kinds: &["StepAction"],
        fields: &["spec.image"],
    },
    ImageFields {
        group: "tekton.dev",
        kinds: &["Pipeline"],
        fields: &[
            "spec.tasks.*.taskSpec.steps.*.image",
            "spec.tasks.*.taskSpec.sidecars.*.image",
            "spec.tasks.*.taskSpec.stepTemplate.image",
            "spec.finally.*.taskSpec.steps.*.image",
            "spec.finally.*.taskSpec.sidecars.*.image",
        ],
    },
    // https://olm.operatorframework.io/docs/concepts/crds/clusterserviceversion/ and catalogsource/
    ImageFields {
        group: "operators.coreos.com",
        kinds: &["ClusterServiceVersion"],
        fields: &["spec.relatedImages.*.image"],
    },
    ImageFields {
        group: "operators.coreos.com",
        kinds: &["CatalogSource"],
        fields: &["spec.image"],
    },
    // https://docs.crossplane.io/latest/packages/
    ImageFields {
        group: "pkg.crossplane.io",
        kinds: &["Provider", "Configuration", "Function"],
        fields: &["spec.package"],
    },
    // https://cloudnative-pg.io/documentation/current/cloudnative-pg.v1/
    ImageFields {
        group: "postgresql.cnpg.io",
        kinds: &["Cluster"],
        fields: &["spec.imageName"],
    },
    ImageFields {
        group: "postgresql.cnpg.io",
        kinds: &["ImageCatalog", "ClusterImageCatalog"],
        fields: &["spec.images.*.image"],
    },
    // https://strimzi.io/docs/operators/latest/configuring
    ImageFields {
        group: "kafka.strimzi.io",
        kinds: &["Kafka"],
        fields: &[
            "spec.kafka.image",
            "spec.zookeeper.image",
            "spec.entityOperator.topicOperator.image",
            "spec.entityOperator.userOperator.image",
            "spec.cruiseControl.image",
            "spec.kafkaExporter.image",
        ],
    },
    ImageFields {
        group: "kafka.strimzi.io",
        kinds: &["KafkaConnect", "KafkaMirrorMaker2", "KafkaBridge"],
        fields: &["spec.image"],
    },
    // https://opentelemetry.io/docs/platforms/kubernetes/operator/
    ImageFields {
        group: "opentelemetry.io",
        kinds: &["OpenTelemetryCollector"],
        fields: &["spec.image", "spec.targetAllocator.image"],
    },
    ImageFields {
        group: "opentelemetry.io",
        kinds: &["Instrumentation"],
        fields: &[
            "spec.java.image",
            "spec.nodejs.image",
            "spec.python.image",
            "spec.dotnet.image",
            "spec.go.image",
        ],
    },
    // https://www.elastic.co/docs/reference/cloud-on-k8s/k8s-api-reference
    ImageFields {
        group: "elasticsearch.k8s.elastic.co",
        kinds: &["Elasticsearch"],
        fields: &["spec.image"],
    },
    ImageFields {
        group: "kibana.k8s.elastic.co",
        kinds: &["Kibana"],
        fields: &["spec.image"],
    },
    // https://www.rabbitmq.com/kubernetes/operator/using-operator
    ImageFields {
        group: "rabbitmq.com",
        kinds: &["RabbitmqCluster"],
        fields: &["spec.image"],
    },
    // https://kubevirt.io/user-guide/storage/disks_and_volumes/
    ImageFields {
        group: "kubevirt.io",
        kinds: &["VirtualMachine"],
        fields: &["spec.template.spec.volumes.*.containerDisk.image"],
    },
    ImageFields {
        group: "kubevirt.io",
        kinds: &["VirtualMachineInstance"],
        fields: &["spec.volumes.*.containerDisk.image"],
    },
];

/// API groups whose objects contain only patterns or schemas of images. No image in such an object
/// is pulled.
pub(super) const PATTERNS: &[&str] = &[
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "constraints.gatekeeper.sh",
    "kyverno.io",
    "policies.kyverno.io",
    "policy.sigstore.dev",
    "templates.gatekeeper.sh",
];

/// Returns the image fields of a kind.
pub(super) fn fields<'a>(group: &'a str, kind: &'a str) -> impl Iterator<Item = &'static str> + 'a {
    KNOWN
        .iter()
        .filter(move |known| known.group == group && known.kinds.contains(&kind))
        .flat_map(|known| known.fields.iter().copied())
}
