//! A field that a policy requires of the requester, and that a second field manager owns. The
//! second field manager gives up the field between the dry run as the requester and the apply.

use tokio::net::TcpListener;

use super::{policy, resource_rule, until_enforced};
use crate::scenarios::objects::apply_with;
use crate::scenarios::requester::*;

const INSTALLER: &str = "system:serviceaccount:bundle-system:installer";

/// Registers a webhook for updates of ConfigMaps by the installing ServiceAccount, in namespaces of
/// the scenario. Of all dry runs, only those for ConfigMap `probe` match. Waits until the API
/// server calls the webhook, and returns the listener of the webhook.
///
/// The listener never responds. The API server holds an update until the listener closes the
/// connection, or until the TLS handshake times out after 10 s. Then it admits the update.
async fn hold_updates(cluster: &Cluster, scenario: &str) -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let expression = format!(
        "request.userInfo.username == '{INSTALLER}' && (!request.dryRun || request.name == 'probe')"
    );
    let registration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": format!("{scenario}-hold")},
        "webhooks": [{
            "name": "hold.example.com",
            "clientConfig": {"url": format!("https://{address}/review")},
            "rules": [resource_rule("", "configmaps", &["UPDATE"])],
            "namespaceSelector": {"matchLabels": {"scenario": scenario}},
            "matchConditions": [{"name": "installer", "expression": expression}],
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore",
            "timeoutSeconds": 30,
            "sideEffects": "None",
        }],
    });
    put(cluster, &[registration]).await;
    let line =
        format!("label configmap probe -n {scenario} more=yes --dry-run=server --as={INSTALLER}");
    wait::until_true(LONG, "the API server calls the webhook", || async {
        tokio::select! {
            called = listener.accept() => {
                drop(called?);
                Ok(true)
            }
            tried = try_kubectl(cluster, &line) => {
                tried.success()?;
                Ok(false)
            }
        }
    })
    .await
    .unwrap();
    listener
}

/// Returns each patch of ConfigMap `one` by the pod since `position`: the impersonated user, `true`
/// for a dry run, and the status code.
fn patches(cluster: &Cluster, namespace: &str, position: u64) -> Vec<(String, bool, u64)> {
    let events = cluster.audit_since(position).unwrap();
    let is_patch = |event: &&Value| {
        let object = &event["objectRef"];
        event["verb"] == "patch"
            && object["resource"] == "configmaps"
            && object["namespace"] == namespace
            && object["name"] == "one"
    };
    let patch = |event: &Value| {
        let user = event["impersonatedUser"]["username"].as_str()?;
        let uri = event["requestURI"].as_str()?;
        let code = event["responseStatus"]["code"].as_u64()?;
        Some((user.to_owned(), uri.contains("dryRun=All"), code))
    };
    events.iter().filter(is_patch).filter_map(patch).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_does_not_remove_a_field_that_a_co_owner_gives_up_after_the_dry_run() {
    let builder = Cluster::builder().registries(1).audit(true);
    let cluster = builder.start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let user = "coowned";
    tenant(&cluster, user, &json!([])).await;
    // The policy forbids only the requester to remove the key `kept`.
    let updates = resource_rule("", "configmaps", &["UPDATE"]);
    let expression = "request.userInfo.username != 'coowned' || 'kept' in object.data";
    let guard = policy("coowned-guard", &updates, user, expression);
    put(&cluster, &guard).await;
    put(&cluster, &[note(user, "probe")]).await;
    let line = format!("label configmap probe -n {user} more=yes");
    until_enforced(&cluster, "coowned-guard", user, &line).await;

    let mut before = [note(user, "one")];
    before[0]["data"]["kept"] = json!("yes");
    deploy(&cluster, user, user, &before, &json!({})).await;
    until(&cluster, user, "Installed", "True").await;
    let co_owner = ["--field-manager=co-owner"];
    let mut owned = note(user, "one");
    owned["data"] = json!({"kept": "yes"});
    let written = apply_with(&cluster, &owned, &co_owner).await;
    written.success().unwrap();
    let after = publish(&cluster, "coowned:2.0.0", &[note(user, "one")]).await;
    let listener = hold_updates(&cluster, user).await;

    // The policy admits the dry run of the upgrade, because the key belongs to the co-owner, too.
    let position = cluster.audit_position().unwrap();
    let upgraded = deployment(user, &after, &json!({}));
    let upgraded = apply_as(&cluster, &upgraded, Some(user)).await;
    upgraded.success().unwrap();
    let connection = wait::until(LONG, "the API server holds the apply", || async {
        Ok(Some(listener.accept().await?))
    })
    .await
    .unwrap();
    owned.as_object_mut().unwrap().remove("data");
    let written = apply_with(&cluster, &owned, &co_owner).await;
    written.success().unwrap();
    drop((connection, listener));

    let why = until_refused(&cluster, user).await;
    assert!(why.contains("coowned-guard says no"), "{why}");
    let found = get(&cluster, &format!("configmap one -n {user}")).await;
    let data = json!({"a": "b", "kept": "yes"});
    assert_eq!(found.unwrap()["data"], data);
    let patch = |user: &str, dry_run, code: u64| (user.to_owned(), dry_run, code);
    let expected = [
        patch(user, true, 200),
        patch(INSTALLER, false, 409),
        patch(user, true, 422),
    ];
    let sent = patches(&cluster, user, position);
    assert!(sent.windows(3).any(|three| three == expected), "{sent:?}");
}
