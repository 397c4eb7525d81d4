//! Roles with short rules that expand to a very large number of permissions.

use super::*;
use crate::scenarios::objects::apply_as;

/// Returns a Role whose rule has 100 verbs and 100 names of this length: 10,000 permissions.
fn role(name: &str, length: usize) -> String {
    let verbs: Vec<String> = (0..100).map(|number| format!("v{number}")).collect();
    let names: Vec<String> = (0..100)
        .map(|number| format!("n{number:0length$}"))
        .collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": "home"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs, "resourceNames": names}],
    })
    .to_string()
}

/// Waits until the condition `Installed` is `False`, and returns its message.
async fn until_denied(cluster: &Cluster, name: &str) -> String {
    let what = format!("bundledeployment {name}");
    let reported = format!("{name} is not installed for missing permissions");
    wait::until(LONG, &reported, || async {
        let object = try_get(cluster, &what).await?.unwrap_or_default();
        let message = condition(&object, "Installed")["message"].as_str();
        let message = message.unwrap_or_default();
        let is_denied = message.contains("lacks permissions for this content");
        Ok(is_denied.then(|| message.to_owned()))
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_with_many_permissions_do_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    kubectl(&cluster, "create namespace home").await;
    grant_tenant(&cluster, "mallory").await;
    let line = "create rolebinding mallory -n home --clusterrole=admin --user=mallory";
    kubectl(&cluster, line).await;
    let large = [(
        "manifests/large.yaml".to_owned(),
        role("large", 10 << 10).into_bytes(),
    )];
    let small = (0..100).map(|number| {
        let text = role(&format!("small-{number}"), 5);
        (format!("manifests/{number}.yaml"), text.into_bytes())
    });
    let probe = LivenessProbe::start(&webhook);
    for (name, tar) in [("large-role", tar(large)), ("small-roles", tar(small))] {
        let (reference, _) = publish(&registry, name, &tar);
        let object = deployment(name, &reference);
        let applied = apply_as(&cluster, &object, Some("mallory")).await;
        applied.success().unwrap();
    }
    let message = until_denied(&cluster, "large-role").await;
    assert!(message.contains("escalate"), "{message}");
    let message = until_denied(&cluster, "small-roles").await;
    assert!(message.contains("and others"), "{message}");
    let file = (
        "manifests/a.yaml".to_owned(),
        config_map("beside", "a").into_bytes(),
    );
    let (reference, _) = publish(&registry, "beside", &tar([file]));
    apply(&cluster, &bundle("beside", &reference)).await;
    until_phase(&cluster, "beside", "Unpacked", LONG).await;
    survived("roles with 10,000 permissions each", &mut webhook, probe).await;
}
