//! Jobs that are deleted after their TTL (`ttlSecondsAfterFinished`). Each Job runs once for each
//! content, also across restarts of the webhook. `updates::replacing` tests Jobs that are replaced.

use e2e::{Cluster, wait};
use serde_json::{Value, json};

use crate::scenarios::reconcile::{
    LONG, apply, bundle_of, condition, deployment, get, installed, kubectl, publish, stage, until,
};

/// Returns a Job without retries, so that the first failed Pod ends the Job.
fn content(text: &str, ttl: u32) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: once, namespace: once}}
data: {{text: {text}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: once, namespace: once}}
spec:
  ttlSecondsAfterFinished: {ttl}
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: run, image: 'registry.example.com/run:1'}}]
"
    )
}

async fn uid(cluster: &Cluster) -> String {
    let job = get(cluster, "job once -n once").await.unwrap_or_default();
    let uid = job["metadata"]["uid"].as_str();
    uid.unwrap_or_default().to_owned()
}

/// Sets the Pod of the Job to succeeded, and waits until the Job is deleted.
async fn run(cluster: &Cluster) {
    end(cluster, "Succeeded").await;
}

/// Sets the phase of the Job's Pod, like a kubelet, and waits until the Job is deleted.
async fn end(cluster: &Cluster, phase: &str) {
    let before = uid(cluster).await;
    assert!(!before.is_empty(), "there is no Job");
    let patch = json!({"status": {"phase": phase}}).to_string();
    wait::until_true(LONG, "the Job has run and is gone", || async {
        if uid(cluster).await != before {
            return Ok(true);
        }
        let look = format!("pods -n once -l batch.kubernetes.io/controller-uid={before}");
        let pods = get(cluster, &look).await.unwrap_or_default();
        for pod in pods["items"].as_array().into_iter().flatten() {
            let pod = pod["metadata"]["name"].as_str().unwrap_or_default();
            let line = format!("patch pod {pod} -n once --subresource=status --type=merge -p");
            let line = line.split(' ').chain([patch.as_str()]);
            cluster.kubectl(line).await?;
        }
        Ok(false)
    })
    .await
    .unwrap();
}

/// Checks that the webhook has corrected drift, and did not create the Job again.
async fn check_job_not_recreated(cluster: &Cluster) {
    gone_with_health(cluster, "True").await;
}

/// Waits until a deleted ConfigMap is restored, and checks that the Job does not exist and that the
/// condition `Healthy` has this status.
async fn gone_with_health(cluster: &Cluster, health: &str) {
    let line = "delete configmap once -n once";
    kubectl(cluster, line).await;
    wait::until_true(LONG, "the ConfigMap is restored", || async {
        Ok(get(cluster, "configmap once -n once").await.is_some())
    })
    .await
    .unwrap();
    wait::until_true(LONG, "nothing has drifted", || async {
        let found = get(cluster, "bundledeployment once")
            .await
            .unwrap_or_default();
        let is = |kind: &str, status: &str| condition(&found, kind)["status"] == status;
        if is("Drifted", "False") && is("Ready", health) && is("Healthy", health) {
            return Ok(true);
        }
        anyhow::bail!("{}", found["status"])
    })
    .await
    .unwrap();
    assert_eq!(uid(cluster).await, "", "the Job was created again");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_its_ttl_deletes_runs_once_for_each_content() {
    let (cluster, mut webhook) = stage().await;
    kubectl(&cluster, "create namespace once").await;
    let one = publish(&cluster, "team/once:1", |f| {
        bundle_of(f, "once", &content("one", 1))
    })
    .await;
    apply(&cluster, &deployment("once", &one, &json!({}))).await;
    installed(&cluster, "once").await;

    // A user deletes the Job before it has run: this is drift.
    let first = uid(&cluster).await;
    kubectl(&cluster, "delete job once -n once").await;
    wait::until_true(LONG, "the Job is restored", || async {
        let now = uid(&cluster).await;
        Ok(!now.is_empty() && now != first)
    })
    .await
    .unwrap();
    run(&cluster).await;
    check_job_not_recreated(&cluster).await;

    webhook.restart().await.unwrap();
    check_job_not_recreated(&cluster).await;

    // A change of settings is not a change of the content, so the Job does not run again.
    let settings = json!({"drift": {"ignore": [{"manager": "nobody"}]}});
    apply(&cluster, &deployment("once", &one, &settings)).await;
    installed(&cluster, "once").await;
    check_job_not_recreated(&cluster).await;

    let two = publish(&cluster, "team/once:2", |f| {
        bundle_of(f, "once", &content("two", 0))
    })
    .await;
    apply(&cluster, &deployment("once", &two, &json!({}))).await;
    until(&cluster, "bundledeployment once", "Installed", "True").await;
    wait::until_true(LONG, "the Job of the new content is there", || async {
        Ok(!uid(&cluster).await.is_empty())
    })
    .await
    .unwrap();
    // The Job ends while the webhook is down.
    webhook.kill().unwrap();
    run(&cluster).await;
    webhook.start().await.unwrap();
    check_job_not_recreated(&cluster).await;
    let object: Value = get(&cluster, "bundledeployment once").await.unwrap();
    assert_eq!(condition(&object, "Healthy")["status"], "True", "{object}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_job_that_its_ttl_deleted_stays_unhealthy_until_new_content() {
    let (cluster, mut webhook) = stage().await;
    kubectl(&cluster, "create namespace once").await;
    let one = publish(&cluster, "team/failing:1", |f| {
        bundle_of(f, "once", &content("one", 1))
    })
    .await;
    apply(&cluster, &deployment("once", &one, &json!({}))).await;
    installed(&cluster, "once").await;
    end(&cluster, "Failed").await;
    gone_with_health(&cluster, "False").await;
    let object = get(&cluster, "bundledeployment once").await.unwrap();
    let message = condition(&object, "Healthy")["message"].to_string();
    assert!(
        message.contains("Job.batch/once/once: the Job failed, and was deleted after its TTL"),
        "{message}"
    );
    webhook.restart().await.unwrap();
    gone_with_health(&cluster, "False").await;

    let two = publish(&cluster, "team/failing:2", |f| {
        bundle_of(f, "once", &content("two", 0))
    })
    .await;
    apply(&cluster, &deployment("once", &two, &json!({}))).await;
    wait::until_true(LONG, "the Job of the new content is there", || async {
        Ok(!uid(&cluster).await.is_empty())
    })
    .await
    .unwrap();
    run(&cluster).await;
    gone_with_health(&cluster, "True").await;
}
