//! Roles and bindings, for which the API server checks the permissions of the writer.

use crate::scenarios::content::unchecked::push_unchecked;
use crate::scenarios::requester::*;

/// Returns the permission to write every role and binding of the cluster. With this permission
/// alone, a tenant can write only roles that grant no further permissions.
fn roles_of_the_cluster() -> Value {
    json!([{
        "apiGroups": [RBAC],
        "resources": ["clusterroles", "clusterrolebindings"],
        "verbs": ["create", "patch", "update", "delete", "get", "list"],
    }])
}

async fn has_permission(cluster: &Cluster, user: &str, what: &str) -> bool {
    try_kubectl(cluster, &format!("auth can-i {what} --as={user}"))
        .await
        .is_success()
}

#[tokio::test(flavor = "multi_thread")]
async fn label_on_existing_cluster_role_without_rules_aggregates_nothing_that_requester_lacks() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "silent", &roles_of_the_cluster()).await;
    let mut collector = cluster_role("silent-collector", &json!([]));
    collector["aggregationRule"] =
        json!({"clusterRoleSelectors": [{"matchLabels": {"silent-collect": "true"}}]});
    collector.as_object_mut().unwrap().remove("rules");
    let vault =
        json!([{"apiGroups": ["example.com"], "resources": ["silentvaults"], "verbs": ["*"]}]);
    put(
        &cluster,
        &[
            collector,
            binding("silent-collector", None, "silent-collector", "silent"),
            cluster_role("silent-vault", &vault),
        ],
    )
    .await;
    let mut labelled = cluster_role("silent-vault", &json!([]));
    labelled.as_object_mut().unwrap().remove("rules");
    labelled["metadata"]["labels"] = json!({"silent-collect": "true"});
    let adopt = json!({"collision": "Adopt"});
    deploy(&cluster, "silent", "silent", &[labelled], &adopt).await;
    let why = until_refused(&cluster, "silent").await;
    assert!(why.contains("silentvaults"), "{why}");
    assert!(!has_permission(&cluster, "silent", "get silentvaults.example.com").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn binding_to_aggregated_cluster_role_with_empty_rules_grants_nothing_that_requester_lacks() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "hollow", &roles_of_the_cluster()).await;
    let mut collector = cluster_role("hollow-collector", &json!([]));
    collector["aggregationRule"] =
        json!({"clusterRoleSelectors": [{"matchLabels": {"hollow-collect": "true"}}]});
    collector.as_object_mut().unwrap().remove("rules");
    let vault =
        json!([{"apiGroups": ["example.com"], "resources": ["hollowvaults"], "verbs": ["*"]}]);
    let mut part = cluster_role("hollow-vault", &vault);
    part["metadata"]["labels"] = json!({"hollow-collect": "true"});
    put(&cluster, &[collector, part]).await;
    let emptied = cluster_role("hollow-collector", &json!([]));
    let crown = binding("hollow-crown", None, "hollow-collector", "hollow");
    let adopt = json!({"collision": "Adopt"});
    deploy(&cluster, "hollow", "hollow", &[emptied, crown], &adopt).await;
    until_refused(&cluster, "hollow").await;
    assert_eq!(get(&cluster, "clusterrolebinding hollow-crown").await, None);
    assert!(!has_permission(&cluster, "hollow", "get hollowvaults.example.com").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn subject_added_to_existing_binding_without_role_ref_is_checked_with_the_role_of_that_binding()
 {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    // The requester can bind every Role of the namespace, and no ClusterRole.
    let bind = json!([{"apiGroups": [RBAC], "resources": ["roles"], "verbs": ["bind"]}]);
    tenant(&cluster, "headless", &bind).await;
    let vault =
        json!([{"apiGroups": ["example.com"], "resources": ["headlessvaults"], "verbs": ["*"]}]);
    put(
        &cluster,
        &[
            cluster_role("headless-vault", &vault),
            binding("keeper", Some("headless"), "headless-vault", "somebody"),
        ],
    )
    .await;
    let mut joined = binding("keeper", Some("headless"), "headless-vault", "headless");
    joined.as_object_mut().unwrap().remove("roleRef");
    let adopt = json!({"collision": "Adopt"});
    let reference = push_unchecked(&cluster, "headless", &joined).await;
    let object = deployment("headless", &reference, &adopt);
    apply_as(&cluster, &object, Some("headless"))
        .await
        .success()
        .unwrap();
    let why = until_refused(&cluster, "headless").await;
    // The requester has no permission to read the role, so the message contains only the name of
    // the role.
    assert!(why.contains("ClusterRole headless-vault"), "{why}");
    assert!(!why.contains("headlessvaults"), "{why}");
    assert!(
        !has_permission(
            &cluster,
            "headless",
            "get headlessvaults.example.com -n headless"
        )
        .await
    );
}
