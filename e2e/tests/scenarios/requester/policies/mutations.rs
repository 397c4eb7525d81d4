//! Mutating policies with different results for the requester of a content and the ServiceAccount
//! that installs it.

use e2e::tools::KubernetesRelease;

use crate::scenarios::requester::*;

/// Returns a MutatingAdmissionPolicy with its binding. The policy sets the label `guard` on
/// ConfigMaps in a namespace of the scenario if `condition` is true.
fn mutation(name: &str, scenario: &str, condition: &str) -> [Value; 2] {
    let version = KubernetesRelease::from_environment().unwrap();
    let version = version.mutating_policy_version();
    let kind = |kind: &str, spec: &Value| {
        json!({
            "apiVersion": version, "kind": kind,
            "metadata": {"name": name}, "spec": spec,
        })
    };
    let label = r#"Object{metadata: Object.metadata{labels: {"guard": "secret-value"}}}"#;
    [
        kind(
            "MutatingAdmissionPolicy",
            &json!({
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"], "operations": ["CREATE"],
                }]},
                "matchConditions": [{"name": "who", "expression": condition}],
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label}}],
            }),
        ),
        kind(
            "MutatingAdmissionPolicyBinding",
            &json!({
                "policyName": name,
                "matchResources": {"namespaceSelector": {"matchLabels": {"scenario": scenario}}},
            }),
        ),
    ]
}

/// Waits until the API server adds the label for `user`.
async fn until_mutating(cluster: &Cluster, scenario: &str, user: &str) {
    wait::until_true(LONG, "the mutating policy is in force", || async {
        let line =
            format!("create configmap probe -n {scenario} --dry-run=server -o json --as={user}");
        let tried = try_kubectl(cluster, &line).await;
        Ok(tried.stdout.contains("guard"))
    })
    .await
    .unwrap();
}

/// Returns the number of objects for which access reviews and dry runs had different results.
async fn disagreements(webhook: &e2e::Webhook) -> u64 {
    let page = webhook.metrics().await.unwrap();
    let counted = page
        .lines()
        .find_map(|line| line.strip_prefix("bundle_authorization_disagreements_total "));
    counted.unwrap_or("0").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_content_that_a_policy_changes_only_for_the_requester_and_names_the_fields() {
    let cluster = shared().await.unwrap();
    let webhook = cluster.webhook().await.unwrap();
    let before = disagreements(webhook).await;
    tenant(&cluster, "mutated", &json!([])).await;
    let condition = "request.userInfo.username == 'mutated'";
    put(&cluster, &mutation("mutated-guard", "mutated", condition)).await;
    until_mutating(&cluster, "mutated", "mutated").await;
    let objects = [note("mutated", "one")];
    deploy(&cluster, "mutated", "mutated", &objects, &json!({})).await;
    let why = until_refused(&cluster, "mutated").await;
    for part in ["ConfigMap/mutated/one", "metadata.labels.guard"] {
        assert!(why.contains(part), "{part} is not in {why}");
    }
    assert!(!why.contains("secret-value"), "{why}");
    assert_eq!(get(&cluster, "configmap one -n mutated").await, None);
    assert!(disagreements(webhook).await > before, "nothing is counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_content_that_a_policy_changes_only_for_the_installer() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "unmutated", &json!([])).await;
    let installer = "system:serviceaccount:bundle-system:installer";
    let condition = format!("request.userInfo.username == '{installer}'");
    let policy = mutation("unmutated-guard", "unmutated", &condition);
    put(&cluster, &policy).await;
    until_mutating(&cluster, "unmutated", installer).await;
    let objects = [note("unmutated", "one")];
    deploy(&cluster, "unmutated", "unmutated", &objects, &json!({})).await;
    let why = until_refused(&cluster, "unmutated").await;
    assert!(why.contains("metadata.labels.guard"), "{why}");
    assert_eq!(get(&cluster, "configmap one -n unmutated").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn mutation_for_every_user_and_random_fields_are_no_difference() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "alike", &json!([])).await;
    let policy = mutation("alike-guard", "alike", "true");
    put(&cluster, &policy).await;
    until_mutating(&cluster, "alike", "alike").await;
    // The API server generates the address of a Service and the selector of a Job in each dry run.
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "alike"},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]},
    });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": "alike"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example.com/none:1.0.0"}]}}},
    });
    let objects = [note("alike", "one"), service, job];
    deploy(&cluster, "alike", "alike", &objects, &json!({})).await;
    until(&cluster, "alike", "Installed", "True").await;
    let one = get(&cluster, "configmap one -n alike").await.unwrap();
    assert_eq!(one["metadata"]["labels"]["guard"], "secret-value");
}
