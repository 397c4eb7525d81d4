//! Credentials are sent to a host that the requester chose. Therefore, each time the pod sends the
//! credentials, the requester must have permission to read their Secret.

use e2e::webhook::NAMESPACE;
use e2e::{Cluster, wait};
use serde_json::{Value, json};

use super::{Repository, apply_admitted, bundle, deployment, stage, text_of, until_reported};
use crate::scenarios::objects::apply_as;
use crate::scenarios::reconcile::{LONG, apply, condition, get, installed, kubectl, until};

const USER: &str = "gitrights-mallory";

/// Binds `role`, such as `--clusterrole=admin`, to the user in `namespace`, or in the cluster.
async fn bind(cluster: &Cluster, name: &str, role: &str, namespace: Option<&str>) {
    let line = match namespace {
        Some(namespace) => {
            format!("create rolebinding {name} -n {namespace} {role} --user={USER}")
        }
        None => format!("create clusterrolebinding {name} {role} --user={USER}"),
    };
    kubectl(cluster, &line).await;
}

/// Grants the user all permissions for bundles of `class` in namespace default, except the
/// permission to read the Secret.
async fn allow_user(cluster: &Cluster, class: &str) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": class},
        "rules": [{
            "apiGroups": ["core.rukpak.io"], "resources": ["provisionerclasses"],
            "resourceNames": [class], "verbs": ["use"],
        }],
    });
    apply(cluster, &role).await;
    for role in ["bundle-editor", class] {
        let flag = format!("--clusterrole={role}");
        bind(cluster, &format!("{USER}-{role}"), &flag, None).await;
    }
    let flag = "--clusterrole=edit";
    bind(cluster, USER, flag, Some("default")).await;
}

/// Applies `object` as the user repeatedly until the message of the rejection contains `text`. The
/// webhook reads the class and the permissions with a delay.
async fn until_rejected(cluster: &Cluster, object: &Value, text: &str) {
    wait::until_true(LONG, &format!("rejected: {text}"), || async {
        let written = apply_as(cluster, object, Some(USER)).await;
        let rejected = written.failure(1)?;
        anyhow::ensure!(rejected.contains(text), "{rejected}");
        Ok(true)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_sent_only_while_the_requester_can_read_the_secret() {
    let (cluster, mut webhook) = stage().await;
    let class = "gitrights";
    let repository = Repository::start(&cluster, class).await;
    repository.bundle(class, "first");
    repository.push(false).await;
    repository.allow(&cluster, class).await;
    allow_user(&cluster, class).await;
    let line = format!(
        "create role {class} -n {NAMESPACE} --verb=get --resource=secrets --resource-name={class}"
    );
    kubectl(&cluster, &line).await;
    let grant = async || bind(&cluster, class, &format!("--role={class}"), Some(NAMESPACE)).await;
    let withdraw = format!("delete rolebinding {class} -n {NAMESPACE}");
    let missing = format!("verb get is missing in namespace {NAMESPACE} on Secret {class}");

    // The permission is withdrawn between the review and the first fetch.
    let source = repository.source(class, class, &json!({"branch": "later"}));
    let waiting = bundle(class, class, &source);
    until_rejected(&cluster, &waiting, "BUNDLE-REVIEW-071").await;
    grant().await;
    apply_admitted(&cluster, &waiting, Some(USER)).await;
    until_reported(&cluster, class, "couldn't find remote ref refs/heads/later").await;
    kubectl(&cluster, &withdraw).await;
    until_reported(&cluster, class, &missing).await;
    let line = "push --quiet served main:refs/heads/later";
    repository.git(line).await;
    grant().await;
    until(&cluster, &format!("bundle {class}"), "Unpacked", "True").await;
    kubectl(&cluster, &format!("delete bundle {class}")).await;

    // The permission is missing when lost content is fetched again.
    let source = repository.source(class, class, &json!({"branch": "main"}));
    let installed_content = deployment(class, class, &source);
    apply_admitted(&cluster, &installed_content, Some(USER)).await;
    installed(&cluster, class).await;
    assert_eq!(text_of(&cluster, class).await, Some(json!("first")));
    webhook.kill().unwrap();
    kubectl(&cluster, &withdraw).await;
    let cache = format!("webhook-{}", webhook.address().port());
    fs_err::remove_dir_all(cluster.folder().join("data").join(cache)).unwrap();
    kubectl(&cluster, &format!("delete configmap {class} -n default")).await;
    let logins = repository.server.logins().unwrap();
    webhook.start().await.unwrap();
    let what = format!("bundledeployment {class}");
    wait::until_true(LONG, "the missing permission is reported", || async {
        let found = get(&cluster, &what).await.unwrap_or_default();
        let reported = condition(&found, "Installed");
        anyhow::ensure!(reported["reason"] == "ReadingContentFailed", "{reported}");
        let text = reported["message"].as_str().unwrap_or_default();
        anyhow::ensure!(text.contains(&missing), "{reported}");
        Ok(true)
    })
    .await
    .unwrap();
    assert_eq!(text_of(&cluster, class).await, None);
    assert_eq!(repository.server.logins().unwrap(), logins);
    grant().await;
    wait::until_true(LONG, "the content is back", || async {
        Ok(text_of(&cluster, class).await == Some(json!("first")))
    })
    .await
    .unwrap();
    assert!(repository.server.logins().unwrap() > logins);
}
