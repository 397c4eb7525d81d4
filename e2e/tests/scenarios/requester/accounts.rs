//! Requesters that are ServiceAccounts: deleted, or recreated with the same name by the next owner
//! of the namespace.

use super::*;

const USER: &str = "system:serviceaccount:reborn:deployer";

/// Creates namespace and ServiceAccount, with the permissions to deploy and to be impersonated.
async fn create_service_account(cluster: &Cluster) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "deployer", "namespace": "reborn"}});
    let mut objects = vec![namespace("reborn"), account];
    objects.extend(impersonator("reborn", "deployer"));
    objects.push(binding(
        "reborn-robot-admin",
        Some("reborn"),
        "admin",
        "system:serviceaccounts:reborn",
    ));
    let group =
        json!([{"apiGroup": RBAC, "kind": "Group", "name": "system:serviceaccounts:reborn"}]);
    if let Some(binding) = objects.last_mut() {
        binding["subjects"] = group;
    }
    put(cluster, &objects).await;
}

/// Waits until the BundleDeployment reports that the ServiceAccount of its requester is missing or
/// was recreated. The message must contain `why`. Checks that the ConfigMap does not exist.
async fn until_departed(cluster: &Cluster, why: &str) {
    wait::until_true(LONG, why, || async {
        let found = get(cluster, "bundledeployment reborn").await;
        let found = found.unwrap_or_default();
        let authorized = condition(&found, "Authorized");
        let message = authorized["message"].as_str().unwrap_or_default();
        if authorized["reason"] == "RightsWithdrawn"
            && message.contains("ServiceAccount reborn/deployer")
            && message.contains(why)
        {
            return Ok(true);
        }
        anyhow::bail!("{}", found["status"]["conditions"])
    })
    .await
    .unwrap();
    assert_eq!(get(cluster, "configmap one -n reborn").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_restored_for_a_service_account_that_was_deleted_or_recreated() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let cluster_wide = ["bundle-editor", "bundle-user"]
        .map(|role| binding(&format!("reborn-{role}"), None, role, USER));
    put(&cluster, &cluster_wide).await;
    create_service_account(&cluster).await;
    let reference = publish(&cluster, "reborn", &[note("reborn", "one")]).await;
    apply_as_deployer(
        &cluster,
        "reborn",
        &deployment("reborn", &reference, &json!({})),
    )
    .await;
    until(&cluster, "reborn", "Installed", "True").await;

    // The group of the deleted ServiceAccount still has the permissions.
    for line in [
        "delete serviceaccount deployer -n reborn",
        "delete configmap one -n reborn",
    ] {
        try_kubectl(&cluster, line).await.success().unwrap();
    }
    until_departed(&cluster, "no longer exists").await;

    let line = "delete namespace reborn --timeout 80s";
    try_kubectl(&cluster, line).await.success().unwrap();
    create_service_account(&cluster).await;
    until_departed(&cluster, "was recreated").await;
    take_over(&cluster).await;
}

/// Makes the recreated ServiceAccount the requester, as a reinstalled GitOps controller does.
async fn take_over(cluster: &Cluster) {
    let kubeconfig = cluster
        .service_account_kubeconfig("reborn", "deployer")
        .await
        .unwrap();
    let found = get(cluster, "bundledeployment reborn").await.unwrap();
    let value = found["status"]["admission"]["admit"].as_str().unwrap();
    let admit = format!("core.rukpak.io/admit={value}");
    let annotate = async || {
        let kubectl = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
        kubectl
            .kubeconfig(&kubeconfig)
            .args(["annotate", "bundledeployment", "reborn", &admit])
            .output()
            .await
            .unwrap()
    };
    // The new ServiceAccount is not the requester, although it has the same name.
    let refused = annotate().await.failure(1).unwrap();
    assert!(refused.contains("BUNDLE-REVIEW-040"), "{refused}");
    let manages = [
        json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": "manage-reborn"}, "rules": [{
            "apiGroups": ["core.rukpak.io"], "resources": ["bundledeployments"], "resourceNames": ["reborn"], "verbs": ["manage"],
        }]}),
        binding("manage-reborn", None, "manage-reborn", USER),
    ];
    put(cluster, &manages).await;
    annotate().await.success().unwrap();
    wait::until_true(LONG, "its content is restored", || async {
        let found = get(cluster, "configmap one -n reborn").await;
        if found.is_some() {
            return Ok(true);
        }
        let deployment = get(cluster, "bundledeployment reborn").await;
        anyhow::bail!("{}", deployment.unwrap_or_default()["status"]["conditions"])
    })
    .await
    .unwrap();
}
