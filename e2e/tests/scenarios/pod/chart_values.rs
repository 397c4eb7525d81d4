//! Values of the Helm chart: combinations that the API server must accept, and values that Helm
//! must reject with a message that names the value.

use e2e::{Cluster, Output, Tool};
use serde_json::{Value, json};

use super::chart::{HELMS, helm};
use crate::scenarios::objects::{apply, kubectl};

/// Returns the values that every installation requires.
fn image() -> Value {
    json!({"repository": "registry.example.com/bundle-webhook", "digest": format!("sha256:{}", "a".repeat(64))})
}

/// Runs `helm template` with these values.
async fn template(cluster: &Cluster, tool: Tool, values: &Value) -> Output {
    let line = "template bundle-webhook CHART --namespace default --kube-version 1.33.0 \
        --api-versions core.rukpak.io/v1alpha1/ProvisionerClass --values -";
    let command = helm(cluster, tool, line).await;
    command.stdin(values.to_string()).output().await.unwrap()
}

/// Returns `rendered` with only the kind of each CRD, because schemas in CRDs contain words that
/// the tests search for.
fn without_schemas(rendered: &str) -> String {
    const CRD: &str = "kind: CustomResourceDefinition\n";
    let documents = rendered.split("\n---\n");
    let kept: Vec<&str> = documents
        .map(|text| if text.contains(CRD) { CRD } else { text })
        .collect();
    kept.join("\n---\n")
}

/// Returns the combinations: name, additional values, and texts that the result must and must not
/// contain.
fn combinations() -> Vec<(&'static str, Value, Vec<&'static str>, Vec<&'static str>)> {
    let certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    vec![
        (
            "defaults",
            json!({}),
            vec![
                "kind: PodDisruptionBudget",
                "core-rukpak-io-helm",
                "cluster-admin",
            ],
            vec![
                "args:",
                "ServiceMonitor",
                "HTTPS_PROXY",
                "vconfigmaps",
                "kind: Secret",
            ],
        ),
        (
            "scheduling",
            json!({
                "replicas": 3,
                "resources": {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
                "podDisruptionBudget": {"minAvailable": "50%"},
                "priorityClassName": "system-cluster-critical",
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}],
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "bundle-webhook"}},
                }]}},
                "topologySpreadConstraints": [],
                "podLabels": {"team": "platform"},
                "podAnnotations": {"example.com/scrape": "true"},
            }),
            vec!["minAvailable: 50%", "podAntiAffinity", "example.com/scrape"],
            vec!["topologySpreadConstraints"],
        ),
        (
            "network and proxies",
            json!({
                "networkPolicy": {
                    "admissionFrom": [{"ipBlock": {"cidr": "10.0.0.0/24"}}],
                    "healthFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
                    "egressPorts": [443, 6443, 3128],
                },
                "proxy": {"https": "http://proxy.example.com:3128", "noProxy": "10.0.0.0/8,.svc"},
            }),
            vec!["cidr: 10.0.0.0/24", "port: 3128", "HTTPS_PROXY", "NO_PROXY"],
            vec!["name: HTTP_PROXY"],
        ),
        (
            "registries",
            json!({
                "registries": {
                    "ca": certificate,
                    "conf": "[[registry]]\nprefix = \"registry.example.com\"\nlocation = \"mirror.example.com\"\n",
                    "credentials": [{"name": "chart-regcred", "registry": "registry.example.com", "username": "u", "password": "p"}],
                },
            }),
            vec![
                "--registry-ca=/etc/bundle-webhook/registries/ca.crt",
                "--registries-conf=/etc/bundle-webhook/registries/registries.conf",
                "core.rukpak.io/registries-checksum",
                "kubernetes.io/dockerconfigjson",
            ],
            vec![],
        ),
        (
            "metrics, log and settings",
            json!({
                "metrics": {"serviceMonitor": {"enabled": true, "labels": {"release": "prometheus"}}},
                "log": {"format": "text", "level": "info,bundle_webhook=debug"},
                "cache": {"limit": "2Gi", "sizeLimit": "4Gi"},
                "settings": {"leaseDuration": "30s", "sourceCheckInterval": "1h"},
                "admission": {"timeoutSeconds": 15, "clientCA": {"configMap": "api-server-ca"}},
            }),
            vec![
                "kind: ServiceMonitor",
                "name: bundle-webhook-metrics",
                "--log-format=text",
                "--lease-duration=30s",
                "--source-check-interval=1h",
                "--cache-limit=2Gi",
                "--client-ca-file=/etc/bundle-webhook/client-ca/ca.crt",
                "timeoutSeconds: 15",
            ],
            vec!["timeoutSeconds: 10"],
        ),
        (
            "classes with ServiceAccounts of their own",
            json!({"classes": {
                "defaults": {"signatures": "Required"},
                "items": {
                    "core-rukpak-io-helm": null,
                    "team-a": {
                        "provisioner": "core.rukpak.io/plain",
                        "serviceAccount": {"namespace": "default", "name": "deployer"},
                        "authorization": "Class",
                        "approval": {"mode": "Required", "by": "AnotherPerson"},
                        "sources": {"types": ["image"], "hosts": ["registry.example.com"]},
                        "targets": {"namespaces": ["team-a"], "clusterScoped": "Deny"},
                    },
                },
            }}),
            vec![
                "signatures: Required",
                "name: bundle-webhook-impersonator",
                "resourceNames: [\"deployer\"]",
                "by: AnotherPerson",
                "core-rukpak-io-registry, core-rukpak-io-helm, team-a]",
            ],
            vec!["signatures: IfPolicy", "name: core-rukpak-io-helm"],
        ),
        (
            "preset rukpak",
            json!({"preset": "rukpak"}),
            vec![
                "\n  authorization: Class",
                "privateAddresses: Allow",
                "name: rukpak-system-state",
                "  name: core\n  namespace: rukpak-system",
                "  - name: https\n    port: 443",
                "  name: rukpak-ca\n  namespace: rukpak-system",
                "resourceNames: [rukpak-ca]\n  verbs: [update]",
                "--content-service=core",
                "--ca-secret=rukpak-ca",
                "name: bundle-reader",
                "name: vconfigmaps.core.rukpak.io",
                "kubernetes.io/metadata.name: rukpak-system",
                "replicas: 1",
            ],
            vec![
                "\n  authorization: Requester",
                "bundle-system",
                "bundle-webhook-content",
                "kind: PodDisruptionBudget",
            ],
        ),
        (
            "preset rukpak with values of its own",
            json!({
                "preset": "rukpak",
                "namespace": "chart-other",
                "replicas": 2,
                "content": {"service": {"name": "content", "port": 8443}, "caSecret": "content-ca", "uploadPath": "/v1/uploads/"},
                "rbac": {"uploaderRole": "sender"},
                "classes": {"defaults": {"sources": {"types": ["image"], "privateAddresses": "Deny"}}},
            }),
            vec![
                "  name: content\n  namespace: chart-other",
                "    port: 8443",
                "--content-url=https://content.chart-other.svc:8443",
                "--ca-secret=content-ca",
                "--upload-path=/v1/uploads/",
                "--uploader-role=sender",
                "name: sender",
                "nonResourceURLs: [/v1/uploads/*]",
                "privateAddresses: Deny",
                "replicas: 2",
                "kind: PodDisruptionBudget",
            ],
            vec!["rukpak-system", "rukpak-ca", "privateAddresses: Allow"],
        ),
        (
            "least rights",
            json!({
                "rbac": {"people": false, "impersonatePeople": false},
                "installer": {"clusterRole": ""},
                "networkPolicy": {"enabled": false},
                "podDisruptionBudget": {"enabled": false},
                "test": {"enabled": false},
                "crds": {"install": false},
            }),
            vec!["requesterCheck: AccessReview"],
            vec![
                "resources: [users, groups]",
                "name: cluster-admin",
                "bundle-viewer",
                "bundle-reader",
                "bundle-uploader",
                "kind: NetworkPolicy",
                "kind: PodDisruptionBudget",
                "kind: CustomResourceDefinition",
            ],
        ),
        (
            "other namespaces",
            json!({"namespace": "chart-other", "stateNamespace": "chart-other-records", "keepOnUninstall": false}),
            vec![
                "name: chart-other-records",
                "--state-namespace=chart-other-records",
            ],
            vec!["namespace: bundle-system", "helm.sh/resource-policy"],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn rendered_values_are_accepted_by_the_api_server() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    // A dry run needs the namespaces and the kinds of the custom resources.
    for namespace in [
        "bundle-system",
        "bundle-system-state",
        "chart-other",
        "chart-other-records",
        "chart-other-state",
        "rukpak-system",
        "rukpak-system-state",
    ] {
        kubectl(&cluster, &format!("create namespace {namespace}")).await;
        kubectl(
            &cluster,
            &format!("label namespace {namespace} pod-security.kubernetes.io/enforce=restricted pod-security.kubernetes.io/warn=restricted"),
        )
        .await;
    }
    let crds = format!("{}/../crds", env!("CARGO_MANIFEST_DIR"));
    kubectl(&cluster, &format!("apply --server-side -f {crds}")).await;
    apply(&cluster, &json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "servicemonitors.monitoring.coreos.com", "annotations": {"api-approved.kubernetes.io": "unapproved"}},
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .await;
    kubectl(&cluster, "wait --for=condition=Established crd --all").await;
    for (name, mut values, present, absent) in combinations() {
        values["image"] = image();
        for tool in HELMS {
            let rendered = template(&cluster, tool, &values).await.success().unwrap();
            let own = without_schemas(&rendered);
            for text in &present {
                assert!(own.contains(text), "{name}, {tool}: no {text}");
            }
            for text in &absent {
                assert!(!own.contains(text), "{name}, {tool}: {text}");
            }
            let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
            let output = kubectl
                .args(["apply", "--server-side", "--force-conflicts"])
                .args(["--dry-run=server", "--validate=strict", "-f", "-"])
                .stdin(rendered)
                .output()
                .await
                .unwrap();
            assert!(
                output.is_success() && !output.stderr.contains("Warning"),
                "{name}, {tool}: {output}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_values_are_rejected_by_name() {
    let cluster = e2e::webhook::shared().await.unwrap();
    let cases = [
        (json!({"replica": 3}), "replica"),
        (json!({"image": {"digst": "x"}}), "digst"),
        (
            json!({"image": {"digest": "sha256:short"}}),
            "/image/digest",
        ),
        (json!({"networkPolicy": {"enabeld": false}}), "enabeld"),
        (
            json!({"metrics": {"serviceMonitor": {"enable": true}}}),
            "enable",
        ),
        (
            json!({"settings": {"leaseDuration": "half an hour"}}),
            "/settings/leaseDuration",
        ),
        (json!({"settings": {"lease": "3s"}}), "lease"),
        (json!({"log": {"format": "xml"}}), "/log/format"),
        (
            json!({"classes": {"items": {"web": {"provisioner": "core.rukpak.io/plain", "authorisation": "Class"}}}}),
            "authorisation",
        ),
        (
            json!({"classes": {"defaults": {"signature": "Required"}}}),
            "signature",
        ),
        (json!({"preset": "olm"}), "/preset"),
        (json!({"replicas": "two"}), "/replicas"),
        (json!({"content": {"caSecret": "A/B"}}), "/content/caSecret"),
        (
            json!({"content": {"downloadPath": "bundles"}}),
            "/content/downloadPath",
        ),
        (
            json!({"content": {"url": "http://a.example.com"}}),
            "/content/url",
        ),
        (json!({"stateNamespace": "Not-A-Label"}), "/stateNamespace"),
    ];
    for (values, expected) in cases {
        for tool in HELMS {
            let output = template(&cluster, tool, &values).await;
            assert!(
                !output.is_success() && output.stderr.contains(expected),
                "{values}: {output}"
            );
        }
    }
    // Without an image nothing is rendered, and the message names the reason.
    for (values, expected) in [
        (json!({}), "no image of bundle-webhook is published yet"),
        (
            json!({"image": {"repository": "registry.example.com/w"}}),
            "image.digest (recommended) or image.tag is required",
        ),
        (
            json!({"image": image(), "stateNamespace": "bundle-system"}),
            "stateNamespace must differ from namespace",
        ),
    ] {
        for tool in HELMS {
            let output = template(&cluster, tool, &values).await;
            assert!(
                !output.is_success() && output.stderr.contains(expected),
                "{values}: {output}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_passes_helm_lint() {
    let cluster = e2e::webhook::shared().await.unwrap();
    for tool in HELMS {
        let line = "lint CHART --kube-version 1.33.0 --values -";
        let values = json!({"image": image()}).to_string();
        let command = helm(&cluster, tool, line).await.stdin(values);
        let output = command.output().await.unwrap();
        assert!(
            output.is_success() && !output.stdout.contains("[ERROR]"),
            "{output}"
        );
    }
}
