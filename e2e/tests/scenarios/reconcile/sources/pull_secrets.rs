//! Pull secrets of sources, which the requester must be able to read, and pull secrets of classes.

use std::sync::atomic::{AtomicUsize, Ordering};

use e2e::registry::{PASSWORD, USER};
use e2e::webhook::{NAMESPACE, WebhookOptions};
use e2e::{Cluster, Tool, bundles, wait};
use serde_json::{Value, json};

use super::config_maps::class;
use crate::scenarios::objects::apply_as;
use crate::scenarios::reconcile::{CLASS, LONG, apply, condition, get, kubectl, publish, until};

const MALLORY: &str = "pull-mallory";
const SECRET: &str = "pull-login";
const PRIVATE_CLASS: &str = "pull-private";

fn bundle(name: &str, class: &str, image: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": class, "source": {"type": "image", "image": image}},
    })
}

/// Applies a Bundle as the user. Retries until the webhook has read the class and the permissions.
async fn by_mallory(cluster: &Cluster, object: &Value) {
    wait::until_true(LONG, "the Bundle is admitted", || async {
        let written = apply_as(cluster, object, Some(MALLORY)).await;
        written.success()?;
        Ok(true)
    })
    .await
    .unwrap();
}

/// Waits until the webhook rejects a Bundle of the user because of the Secret.
async fn until_refused(cluster: &Cluster, object: &Value) {
    wait::until_true(LONG, "the pull secret is refused", || async {
        let written = apply_as(cluster, object, Some(MALLORY)).await;
        let refused = written.failure(1)?;
        Ok(refused.contains("BUNDLE-REVIEW-071") && refused.contains("image.pullSecret"))
    })
    .await
    .unwrap();
}

/// Waits until the registry rejects the request for a Bundle.
async fn until_denied(cluster: &Cluster, name: &str) {
    wait::until_true(LONG, &format!("{name} is denied"), || async {
        let found = get(cluster, &format!("bundle {name}")).await;
        let found = found.unwrap_or_default();
        let condition = condition(&found, "Unpacked");
        if condition.to_string().contains("the registry denies access") {
            return Ok(true);
        }
        anyhow::bail!("{condition}")
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pull_secrets_need_permission_or_a_class() {
    let builder = Cluster::builder().registries(1).registry_password(true);
    let cluster = builder.start().await.unwrap();
    let options = WebhookOptions::default();
    let _webhook = cluster.start_webhook(options).await.unwrap();
    let host = cluster.registry(0).unwrap().host();
    let crane = cluster.tool(Tool::Crane).await.unwrap();
    let crane = crane.args(["auth", "login", &host, "-u", USER, "-p", PASSWORD]);
    crane.output().await.unwrap().success().unwrap();
    let pinned = publish(&cluster, "team/private:1", |folder| {
        bundles::greeting(folder, "1.0.0", None)
    })
    .await;
    let line = format!(
        "create secret docker-registry {SECRET} --docker-server={host} --docker-username={USER} --docker-password={PASSWORD} -n {NAMESPACE}"
    );
    kubectl(&cluster, &line).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": MALLORY},
        "rules": [{"apiGroups": ["core.rukpak.io"], "resources": ["provisionerclasses"], "verbs": ["use"]}],
    });
    apply(&cluster, &role).await;
    // For permission to use the class, a RoleBinding in the system namespace is sufficient.
    for binding in [
        "clusterrolebinding pull-editor --clusterrole=bundle-editor".to_owned(),
        format!("rolebinding {MALLORY} --clusterrole={MALLORY} --namespace={NAMESPACE}"),
    ] {
        kubectl(&cluster, &format!("create {binding} --user={MALLORY}")).await;
    }
    let sources = json!({"pullSecrets": [SECRET]});
    let private = class(PRIVATE_CLASS, &json!({ "sources": sources }));
    apply(&cluster, &private).await;

    // A user without permission to read a Secret cannot use the Secret.
    let named = json!({"ref": pinned, "pullSecret": SECRET});
    let object = bundle("pull-named", CLASS, &named);
    until_refused(&cluster, &object).await;
    let missing = json!({"ref": pinned, "pullSecret": "pull-gone"});
    until_refused(&cluster, &bundle("pull-named", CLASS, &missing)).await;
    assert_eq!(get(&cluster, "bundle pull-named").await, None);

    // The Secret of the class is used for the class only, also if the content is in the cache.
    let open = json!({ "ref": pinned });
    by_mallory(&cluster, &bundle("pull-class", PRIVATE_CLASS, &open)).await;
    until(&cluster, "bundle pull-class", "Unpacked", "True").await;
    let unpacked = get(&cluster, "bundle pull-class").await.unwrap();
    let resolved = &unpacked["status"]["resolvedSource"]["image"];
    assert_eq!(resolved["pullSecret"], Value::Null);
    by_mallory(&cluster, &bundle("pull-other", CLASS, &open)).await;
    until_denied(&cluster, "pull-other").await;

    // A user with permission to read the Secret can use the Secret.
    let line = format!(
        "create role {SECRET} --verb=get --resource=secrets --resource-name={SECRET} -n {NAMESPACE}"
    );
    kubectl(&cluster, &line).await;
    let line =
        format!("create rolebinding {SECRET} --role={SECRET} --user={MALLORY} -n {NAMESPACE}");
    kubectl(&cluster, &line).await;
    by_mallory(&cluster, &object).await;
    until(&cluster, "bundle pull-named", "Unpacked", "True").await;
    kubectl(
        &cluster,
        &format!("delete rolebinding {SECRET} -n {NAMESPACE}"),
    )
    .await;
    // An allowed access review is cached for a second. An update without a change is not reviewed,
    // so each attempt creates another Bundle.
    let attempts = AtomicUsize::new(0);
    wait::until_true(LONG, "the permission is withdrawn", || async {
        let name = format!("pull-late-{}", attempts.fetch_add(1, Ordering::Relaxed));
        let late = bundle(&name, CLASS, &named);
        let refused = apply_as(&cluster, &late, Some(MALLORY)).await.failure(1)?;
        Ok(refused.contains("BUNDLE-REVIEW-071"))
    })
    .await
    .unwrap();

    // An unusable Secret of the class is reported without its name.
    kubectl(&cluster, &format!("delete secret {SECRET} -n {NAMESPACE}")).await;
    by_mallory(&cluster, &bundle("pull-gone", PRIVATE_CLASS, &open)).await;
    wait::until_true(LONG, "the missing Secret is reported", || async {
        let found = get(&cluster, "bundle pull-gone").await.unwrap_or_default();
        let reported = condition(&found, "Unpacked").to_string();
        let expected = format!("a pull secret of provisioner class {PRIVATE_CLASS}: ");
        let has_hint = reported.contains("ask an administrator");
        Ok(reported.contains(&expected) && has_hint && !reported.contains(SECRET))
    })
    .await
    .unwrap();
}
