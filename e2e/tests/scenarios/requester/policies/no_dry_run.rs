//! Admission webhooks that do not support dry runs: the API server rejects dry runs that match
//! these webhooks.

use crate::scenarios::requester::*;

/// Name of the webhook that [`register`] registers.
const WEBHOOK: &str = "effects.example.com";

/// Registers a webhook with side effects for the ConfigMaps of `scenario`. No server listens at its
/// address, because the API server rejects a dry run before it calls the webhook.
///
/// Kubernetes has rejected new registrations of this kind since 1.22, but still calls existing
/// registrations.
async fn register(cluster: &Cluster, scenario: &str) {
    let name = format!("{scenario}-webhook");
    let registration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": WEBHOOK,
            "clientConfig": {"url": "https://127.0.0.1:1/none"},
            "rules": [super::resource_rule("", "configmaps", &["CREATE", "UPDATE"])],
            "namespaceSelector": {"matchLabels": {"scenario": scenario}},
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore",
            "timeoutSeconds": 1,
            "sideEffects": "None",
        }],
    });
    put(cluster, &[registration]).await;
    let found = format!("validatingwebhookconfiguration {name}");
    let mut stored = get(cluster, &found).await.unwrap();
    stored["webhooks"][0]["sideEffects"] = json!("Some");
    let key = format!("validatingwebhookconfigurations/{name}");
    cluster.store(&key, &stored).await.unwrap();
    wait::until_true(LONG, "dry runs are refused", || async {
        let line = format!("create configmap probe -n {scenario} --dry-run=server");
        let tried = try_kubectl(cluster, &line).await;
        if tried.stderr.contains("does not support dry run") {
            return Ok(true);
        }
        anyhow::bail!("{}", tried.stderr)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_without_dry_run_support_is_named_and_a_class_with_reviews_alone_passes_it() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "effects", &json!([])).await;
    register(&cluster, "effects").await;
    deploy(
        &cluster,
        "effects",
        "effects",
        &[note("effects", "one")],
        &json!({}),
    )
    .await;
    let found = until(&cluster, "effects", "Authorized", "False").await;
    assert_eq!(found["reason"], "DryRunUnsupported", "{found}");
    let why = found["message"].as_str().unwrap();
    for part in [WEBHOOK, "ConfigMap/effects/one", "dry run"] {
        assert!(why.contains(part), "{part} is not in {why}");
    }
    assert_eq!(get(&cluster, "configmap one -n effects").await, None);

    let class = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass", "metadata": {"name": "effects"},
        "spec": {
            "provisioner": "core.rukpak.io/plain", "requesterCheck": "AccessReview",
            "serviceAccount": {"namespace": "bundle-system", "name": "installer"},
        },
    });
    let user = json!([{"apiGroups": ["core.rukpak.io"], "resources": ["provisionerclasses"], "resourceNames": ["effects"], "verbs": ["use"]}]);
    put(
        &cluster,
        &[
            class,
            cluster_role("effects-use", &user),
            binding("effects-use", None, "effects-use", "effects"),
        ],
    )
    .await;
    let more = json!({"provisionerClassName": "effects"});
    let objects = [note("effects", "two")];
    deploy(&cluster, "effects", "effects-reviewed", &objects, &more).await;
    until(&cluster, "effects-reviewed", "Installed", "True").await;
    assert!(get(&cluster, "configmap two -n effects").await.is_some());
}
