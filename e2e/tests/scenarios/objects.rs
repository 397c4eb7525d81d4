//! Objects of the cluster of a scenario: applied with kubectl, read and waited for. The functions
//! panic after a failure.

use std::path::Path;
use std::time::Duration;

use e2e::{Cluster, Output, Tool, wait};
use serde_json::Value;

/// Time limit of [`until`], and of a read that is repeated.
const LONG: Duration = Duration::from_secs(90);

/// Public key without a private key. With a policy for this key, the webhook fetches signatures and
/// accepts none.
pub(super) const KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE7Y0qL4tO7w54g5f06c3Lfs1YV16L
V3fNXeWV4QEAPKvwv0ABl1erK1MDqgMrsdjMQWVx4XnUmO/grOVubgmDig==
-----END PUBLIC KEY-----
";

/// Runs kubectl as the administrator with the arguments of `line`, and returns its output even if
/// it fails.
pub(super) async fn try_kubectl(cluster: &Cluster, line: &str) -> Output {
    cluster.kubectl(line.split(' ')).await.unwrap()
}

/// Runs kubectl as the administrator with the words of `line`, and returns its standard output.
/// Repeats a failed `get`, because a busy API server rejects or drops requests.
pub(super) async fn kubectl(cluster: &Cluster, line: &str) -> String {
    if !line.starts_with("get ") {
        return try_kubectl(cluster, line).await.success().unwrap();
    }
    wait::until(LONG, line, || async {
        try_kubectl(cluster, line).await.success().map(Some)
    })
    .await
    .unwrap()
}

/// Applies `object` as the administrator.
pub(super) async fn apply(cluster: &Cluster, object: &Value) {
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    let applied = kubectl.args(["apply", "-f", "-"]).stdin(object.to_string());
    applied.output().await.unwrap().success().unwrap();
}

/// Applies `object` with `kubeconfig`.
pub(super) async fn apply_with_kubeconfig(cluster: &Cluster, object: &Value, kubeconfig: &Path) {
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    let applied = kubectl
        .kubeconfig(kubeconfig)
        .args(["apply", "-f", "-"])
        .stdin(object.to_string());
    applied.output().await.unwrap().success().unwrap();
}

/// Applies `object` server-side with `flags`, and forces conflicts.
pub(super) async fn apply_with(cluster: &Cluster, object: &Value, flags: &[&str]) -> Output {
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    kubectl
        .args(["apply", "--server-side", "--force-conflicts", "-f", "-"])
        .args(flags)
        .stdin(object.to_string())
        .output()
        .await
        .unwrap()
}

/// Applies `object` server-side as `user`. `None` means the administrator.
pub(super) async fn apply_as(cluster: &Cluster, object: &Value, user: Option<&str>) -> Output {
    let flag = user.map(|user| format!("--as={user}"));
    let flags: Vec<&str> = flag.iter().map(String::as_str).collect();
    apply_with(cluster, object, &flags).await
}

/// Returns the object `what`, such as `configmap a -n b`, if it exists. Repeats a failed read,
/// because a busy API server rejects or drops requests.
pub(super) async fn get(cluster: &Cluster, what: &str) -> Option<Value> {
    wait::until(LONG, &format!("get {what}"), || async {
        try_get(cluster, what).await.map(Some)
    })
    .await
    .unwrap()
}

/// Like [`get`], for waits: reads once, and returns the error of a failed read.
pub(super) async fn try_get(cluster: &Cluster, what: &str) -> anyhow::Result<Option<Value>> {
    cluster.get(what).await
}

/// Returns the condition of type `kind` of `object`, or null.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .and_then(|all| all.iter().find(|found| found["type"] == kind))
        .unwrap_or(&Value::Null)
}

/// Waits until a condition of the object `what` has this status for its current generation, and
/// returns the condition.
pub(super) async fn until_condition(
    cluster: &Cluster,
    what: &str,
    kind: &str,
    status: &str,
) -> Value {
    wait::until(LONG, &format!("{what}: {kind}={status}"), || async {
        let Some(object) = try_get(cluster, what).await? else {
            anyhow::bail!("it is not there");
        };
        let found = condition(&object, kind);
        if found["status"] == status
            && found["observedGeneration"] == object["metadata"]["generation"]
        {
            return Ok(Some(found.clone()));
        }
        anyhow::bail!("{}", object["status"]["conditions"])
    })
    .await
    .unwrap()
}

/// Like [`until_condition`], but returns the message of the condition.
pub(super) async fn until(cluster: &Cluster, what: &str, kind: &str, status: &str) -> String {
    let found = until_condition(cluster, what, kind, status).await;
    found["message"].as_str().unwrap_or_default().to_owned()
}

/// Waits until a condition of the object `what` has this reason, and returns its message.
pub(super) async fn until_reason(
    cluster: &Cluster,
    what: &str,
    kind: &str,
    reason: &str,
) -> String {
    wait::until(LONG, &format!("{what}: {kind} with {reason}"), || async {
        let object = try_get(cluster, what).await?.unwrap_or_default();
        let found = condition(&object, kind);
        Ok((found["reason"] == reason)
            .then(|| found["message"].as_str().unwrap_or_default().to_owned()))
    })
    .await
    .unwrap()
}
