//! Scaled workloads: the number of replicas is kept if an autoscaler sets it, and restored if a
//! user changes it.

use crate::scenarios::requester::*;

fn workload(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "web", "image": "registry.example.com/web:1",
                "resources": {"requests": {"cpu": "1m"}}}]},
        }},
    })
}

fn autoscaler(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name, "namespace": namespace},
        "spec": {"minReplicas": 3, "maxReplicas": 5,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]},
    })
}

async fn until_replicas(cluster: &Cluster, what: &str, wanted: i64) {
    let title = format!("{what} has {wanted} replicas");
    wait::until_true(LONG, &title, || async {
        let found = get(cluster, what).await.unwrap_or_default();
        if found["spec"]["replicas"] == wanted {
            return Ok(true);
        }
        anyhow::bail!("{} {}", found["spec"]["replicas"], found["metadata"])
    })
    .await
    .unwrap();
}

/// Returns the number of Events about restored objects of `name`.
async fn corrections(cluster: &Cluster, name: &str) -> i64 {
    let look =
        format!("events -A --field-selector involvedObject.name={name},reason=DriftCorrected");
    let events = get(cluster, &look).await.unwrap_or_default();
    let items = events["items"].as_array().cloned().unwrap_or_default();
    let count = |event: &Value| {
        let series = event["series"]["count"].as_i64();
        series.or(event["count"].as_i64()).unwrap_or(1).max(1)
    };
    items.iter().map(count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_ignored_with_an_autoscaler_and_restored_after_a_change_by_a_user() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "scaled", &json!([])).await;
    let objects = [
        workload("scaled", "own"),
        autoscaler("scaled", "own"),
        workload("scaled", "foreign"),
        workload("scaled", "plain"),
    ];
    deploy(&cluster, "scaled", "scaled", &objects, &json!({})).await;
    until(&cluster, "scaled", "Installed", "True").await;
    // One autoscaler is part of the content, and a user created the other autoscaler.
    until_replicas(&cluster, "deployment own -n scaled", 3).await;
    put(&cluster, &[autoscaler("scaled", "foreign")]).await;
    until_replicas(&cluster, "deployment foreign -n scaled", 3).await;
    wait::until_true(LONG, "the owner of the replicas is reported", || async {
        let found = get(&cluster, "bundledeployment scaled").await.unwrap_or_default();
        let warnings = found["status"]["warnings"].to_string();
        if ["own", "foreign"].iter().all(|name| {
            let message = format!(
                "Deployment.apps/scaled/{name}: spec.replicas is not applied, because HorizontalPodAutoscaler {name} sets it; \
                 to exclude the field from the first apply too, set spec.drift.ignore: [{{kind: Deployment.apps, namespace: scaled, name: {name}, fields: [/spec/replicas]}}]"
            );
            warnings.contains(&message)
        }) {
            return Ok(true);
        }
        anyhow::bail!("{}", found["status"])
    })
    .await
    .unwrap();
    until(&cluster, "scaled", "Drifted", "False").await;
    // A user who runs `kubectl scale` is not treated as an autoscaler.
    try_kubectl(&cluster, "scale deployment plain -n scaled --replicas=4")
        .await
        .success()
        .unwrap();
    until_replicas(&cluster, "deployment plain -n scaled", 1).await;
    let mut upgraded = objects.to_vec();
    upgraded.push(note("scaled", "new"));
    let reference = publish(&cluster, "scaled:2", &upgraded).await;
    let written = apply_as(
        &cluster,
        &deployment("scaled", &reference, &json!({})),
        Some("scaled"),
    )
    .await;
    written.success().unwrap();
    until(&cluster, "scaled", "Installed", "True").await;
    for name in ["own", "foreign"] {
        until_replicas(&cluster, &format!("deployment {name} -n scaled"), 3).await;
    }
    until(&cluster, "scaled", "Drifted", "False").await;
    assert_eq!(corrections(&cluster, "scaled").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_scaled_by_another_manager_are_kept_and_the_ignore_rule_is_named() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "lent", &json!([])).await;
    let objects = [workload("lent", "web")];
    deploy(&cluster, "lent", "lent", &objects, &json!({})).await;
    until(&cluster, "lent", "Installed", "True").await;
    let line = "patch deployment web -n lent --subresource=scale --type=merge --field-manager=keda-like --patch={\"spec\":{\"replicas\":4}}";
    try_kubectl(&cluster, line).await.success().unwrap();
    let owner = "Deployment.apps/lent/web: spec.replicas is not applied, because field manager keda-like sets it";
    let rule = "spec.drift.ignore: [{kind: Deployment.apps, namespace: lent, name: web, fields: [/spec/replicas]}]";
    wait::until_true(LONG, "manager and rule are named", || async {
        let found = get(&cluster, "bundledeployment lent")
            .await
            .unwrap_or_default();
        let warnings = found["status"]["warnings"].to_string();
        if warnings.contains(owner) && warnings.contains(rule) {
            return Ok(true);
        }
        anyhow::bail!("{}", found["status"])
    })
    .await
    .unwrap();
    // A changed image is restored, and the number of replicas is not changed.
    let line = "patch deployment web -n lent --type=merge --patch={\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"web\",\"image\":\"registry.example.com/web:9\"}]}}}}";
    try_kubectl(&cluster, line).await.success().unwrap();
    wait::until_true(LONG, "the image is restored", || async {
        let found = get(&cluster, "deployment web -n lent").await;
        let found = found.unwrap_or_default();
        let image = "/spec/template/spec/containers/0/image";
        Ok(found
            .pointer(image)
            .is_some_and(|image| image == "registry.example.com/web:1"))
    })
    .await
    .unwrap();
    until_replicas(&cluster, "deployment web -n lent", 4).await;
    until(&cluster, "lent", "Drifted", "False").await;
    until_replicas(&cluster, "deployment web -n lent", 4).await;
    // The API server stores each field of the named rule.
    let line = "patch bundledeployment lent --type=merge --dry-run=server --output=jsonpath={.spec.drift.ignore} --patch={\"spec\":{\"drift\":{\"ignore\":[{\"kind\":\"Deployment.apps\",\"namespace\":\"lent\",\"name\":\"web\",\"fields\":[\"/spec/replicas\"]}]}}}";
    let stored = try_kubectl(&cluster, line).await.success().unwrap();
    assert!(stored.contains(r#""namespace":"lent""#), "{stored}");
}
