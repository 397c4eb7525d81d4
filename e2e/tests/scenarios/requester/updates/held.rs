//! Replacements that are delayed by finalizers: permissions are checked again after the delay.
//! `replacing` tests which objects are replaced.

use crate::scenarios::requester::*;

/// Returns a RoleBinding for `user` that is replaced on change, because its `roleRef` is immutable.
fn role_binding(namespace: &str, name: &str, role: &str, user: &str) -> Value {
    let mut object = binding(name, Some(namespace), role, user);
    object["metadata"]["annotations"]["core.rukpak.io/replace"] = "Always".into();
    object
}

async fn may_read_secrets(cluster: &Cluster, user: &str, namespace: &str) -> bool {
    let line = format!("auth can-i get secrets -n {namespace} --as={user}");
    try_kubectl(cluster, &line).await.is_success()
}

#[tokio::test(flavor = "multi_thread")]
async fn object_is_not_created_in_a_namespace_that_was_replaced_while_a_replacement_was_delayed() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "holdup";
    tenant(&cluster, user, &json!([])).await;
    let other = [
        namespace("holdup-other"),
        binding("holdup-admin", Some("holdup-other"), "admin", user),
    ];
    put(&cluster, &other).await;
    let one = [role_binding(user, "held", "view", user)];
    deploy(&cluster, user, user, &one, &json!({})).await;
    until(&cluster, user, "Installed", "True").await;
    let finalizers = |list: &str| {
        format!(
            "patch rolebinding held -n {user} --type=merge --as={user} --patch={{\"metadata\":{{\"finalizers\":{list}}}}}"
        )
    };
    let patched = try_kubectl(&cluster, &finalizers(r#"["example.com/hold"]"#)).await;
    patched.success().unwrap();
    let two = [
        role_binding(user, "held", "edit", user),
        binding("taken", Some("holdup-other"), "admin", user),
    ];
    let reference = publish(&cluster, "holdup:2", &two).await;
    let written = deployment(user, &reference, &json!({}));
    apply_as(&cluster, &written, Some(user))
        .await
        .success()
        .unwrap();
    wait::until_true(LONG, "the replacement is held", || async {
        let held = get(&cluster, &format!("rolebinding held -n {user}")).await;
        Ok(held.is_some_and(|held| held["metadata"]["deletionTimestamp"].is_string()))
    })
    .await
    .unwrap();
    // From now on the namespace belongs to another user, and the requester has no permissions in
    // the namespace.
    let line = "delete namespace holdup-other";
    try_kubectl(&cluster, line).await.success().unwrap();
    put(&cluster, &[namespace("holdup-other")]).await;
    wait::until_true(LONG, "the binding went with its namespace", || async {
        Ok(!may_read_secrets(&cluster, user, "holdup-other").await)
    })
    .await
    .unwrap();
    let release = try_kubectl(&cluster, &finalizers("null")).await;
    release.success().unwrap();
    let message = until_refused(&cluster, user).await;
    // The API server rejects either the binding itself or the permissions that the binding would
    // grant.
    let refused = ["holdup-other", "ClusterRole admin"];
    assert!(
        refused.iter().any(|words| message.contains(words)),
        "{message}"
    );
    let taken = get(&cluster, "rolebinding taken -n holdup-other").await;
    assert_eq!(taken, None);
    assert!(!may_read_secrets(&cluster, user, "holdup-other").await);
}
