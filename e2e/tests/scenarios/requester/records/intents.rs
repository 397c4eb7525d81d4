//! The webhook planned to create an object, and another user created the object first.

use crate::scenarios::requester::*;

const INSTALLER: &str = "system:serviceaccount:bundle-system:installer";

/// Returns a policy that forbids the installing ServiceAccount to create ServiceAccounts in the
/// namespace of the scenario.
fn guard(scenario: &str) -> [Value; 2] {
    let name = format!("{scenario}-guard");
    let metadata = json!({"name": name});
    let expression = format!("request.userInfo.username != '{INSTALLER}'");
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["*"], "resources": ["serviceaccounts"], "operations": ["CREATE"],
                }]},
                "validations": [{"expression": expression, "message": format!("{name} says no")}],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
            "spec": {
                "policyName": name, "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": {"matchLabels": {"scenario": scenario}}},
            },
        }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_another_deployment_created_after_a_failed_installation_stays_its_own() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "intent", &json!([])).await;
    put(&cluster, &guard("intent")).await;
    let line = format!("create serviceaccount probe -n intent --dry-run=server --as={INSTALLER}");
    wait::until_true(LONG, "the guard is in force", || async {
        let tried = try_kubectl(&cluster, &line).await;
        Ok(tried.stderr.contains("says no"))
    })
    .await
    .unwrap();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "first", "namespace": "intent"}});
    let shared_note = note("intent", "shared");
    // The ServiceAccount is applied first and is rejected. Therefore the ConfigMap is recorded and
    // never created.
    let first = [account, shared_note.clone()];
    deploy(&cluster, "intent", "intent-first", &first, &json!({})).await;
    let failed = until(&cluster, "intent-first", "Installed", "False").await;
    wait::until_true(LONG, "the first installation is refused", || async {
        let found = get(&cluster, "bundledeployment intent-first").await;
        Ok(found.is_some_and(|found| found["status"].to_string().contains("says no")))
    })
    .await
    .unwrap_or_else(|error| panic!("{failed}: {error}"));
    assert_eq!(get(&cluster, "configmap shared -n intent").await, None);

    deploy(
        &cluster,
        "intent",
        "intent-second",
        &[shared_note],
        &json!({}),
    )
    .await;
    until(&cluster, "intent-second", "Installed", "True").await;
    let line = "delete validatingadmissionpolicybinding intent-guard";
    try_kubectl(&cluster, line).await.success().unwrap();
    wait::until_true(LONG, "the first deployment names the owner", || async {
        try_kubectl(
            &cluster,
            "annotate bundledeployment intent-first again=1 --overwrite",
        )
        .await;
        let object = get(&cluster, "configmap shared -n intent")
            .await
            .unwrap_or_default();
        let owner = &object["metadata"]["labels"]["core.rukpak.io/owner-name"];
        assert_eq!(owner, "intent-second", "it was taken over");
        let found = get(&cluster, "bundledeployment intent-first")
            .await
            .unwrap_or_default();
        let text = found["status"].to_string();
        if text.contains("belongs to BundleDeployment intent-second") {
            return Ok(true);
        }
        anyhow::bail!("{text}")
    })
    .await
    .unwrap();
    // The removal of the BundleDeployment `intent-first` does not delete the object that belongs to
    // `intent-second`.
    try_kubectl(
        &cluster,
        "delete bundledeployment intent-first --wait=false",
    )
    .await;
    wait::until_true(LONG, "the first deployment is gone", || async {
        Ok(get(&cluster, "bundledeployment intent-first")
            .await
            .is_none())
    })
    .await
    .unwrap();
    let object = get(&cluster, "configmap shared -n intent").await;
    assert!(object.is_some());
}
