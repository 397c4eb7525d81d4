//! Requesters gain no permissions through a bundle. The pod sends a dry run of the content as the
//! requester, and repeats access reviews before every change. `reconcile::permissions` and `tenant`
//! test access reviews alone.

use std::time::Duration;

use e2e::webhook::shared;
use e2e::{Cluster, WebhookOptions, bundles, wait};
use serde_json::{Value, json};

use super::objects::{apply_as, condition, get, try_get, try_kubectl, until_condition};

mod accounts;
mod classes;
mod notations;
mod permissions;
mod policies;
mod records;
mod removal;
mod tenant;
mod updates;

const CLASS: &str = "core-rukpak-io-plain";
const LONG: Duration = Duration::from_secs(90);
const RBAC: &str = "rbac.authorization.k8s.io";

/// Applies objects as the administrator.
async fn put(cluster: &Cluster, objects: &[Value]) {
    if objects.len() > 1 && !objects.iter().any(takes_effect_later) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        apply_as(cluster, &list, None).await.success().unwrap();
        return;
    }
    for object in objects {
        apply_as(cluster, object, None).await.success().unwrap();
    }
}

/// Returns `true` for a definition, and for an object that the webhook reads, such as a class. The
/// API server and the webhook read such an object with a delay. Therefore a later command applies
/// the objects that depend on it.
fn takes_effect_later(object: &Value) -> bool {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    object["kind"] == "CustomResourceDefinition" || version.starts_with("core.rukpak.io/")
}

/// Applies `object` server-side with a token of ServiceAccount `deployer` of `namespace`.
async fn apply_as_deployer(cluster: &Cluster, namespace: &str, object: &Value) {
    let kubeconfig = cluster.service_account_kubeconfig(namespace, "deployer");
    let kubeconfig = kubeconfig.await.unwrap();
    let kubectl = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
    let written = kubectl
        .kubeconfig(&kubeconfig)
        .args(["apply", "--server-side", "-f", "-"])
        .stdin(object.to_string());
    written.output().await.unwrap().success().unwrap();
}

/// Waits until a condition of the BundleDeployment has this status for its current generation.
/// Returns the condition.
async fn until(cluster: &Cluster, name: &str, kind: &str, status: &str) -> Value {
    until_condition(cluster, &format!("bundledeployment {name}"), kind, status).await
}

/// Waits until the content of `name` is rejected because of missing permissions, and returns the
/// message.
async fn until_refused(cluster: &Cluster, name: &str) -> String {
    let found = until(cluster, name, "Authorized", "False").await;
    found["message"].as_str().unwrap_or_default().to_owned()
}

/// Waits until `name` reports withdrawn permissions of its requester, and returns the message.
async fn until_withdrawn(cluster: &Cluster, name: &str) -> String {
    let found = until(cluster, name, "Authorized", "False").await;
    assert_eq!(found["reason"], "RightsWithdrawn", "{found}");
    found["message"].as_str().unwrap_or_default().to_owned()
}

/// Writes the files of a bundle that contains only these objects, and returns the folder. The tag
/// is the version of the bundle, if the tag is a valid version.
fn write(cluster: &Cluster, name: &str, objects: &[Value]) -> String {
    let folder = cluster.folder().join("data").join(name.replace(':', "-"));
    let tag = name.split_once(':').map(|(_, tag)| tag);
    let version = tag.filter(|tag| tag.matches('.').count() == 2);
    bundles::greeting(&folder, version.unwrap_or("1.0.0"), None).unwrap();
    let documents: Vec<_> = objects.iter().map(ToString::to_string).collect();
    let file = folder.join("manifests/greeting.yaml");
    fs_err::write(file, documents.join("\n---\n")).unwrap();
    folder.display().to_string()
}

/// Pushes these objects as a bundle, and returns its pinned reference.
async fn publish(cluster: &Cluster, name: &str, objects: &[Value]) -> String {
    let folder = write(cluster, name, objects);
    push(cluster, name, &folder).await
}

/// Pushes the bundle in `folder`, and returns its pinned reference.
async fn push(cluster: &Cluster, name: &str, folder: &str) -> String {
    let tagged = format!("{name}:1.0.0");
    let tagged = if name.contains(':') { name } else { &tagged };
    let reference = cluster.registry(0).unwrap().reference(tagged);
    let pushed = cluster
        .kubectl_bundle(["push", folder, &reference, "--overwrite-tag"])
        .await
        .unwrap();
    pushed.success().unwrap().lines().last().unwrap().to_owned()
}

fn deployment(name: &str, reference: &str, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": CLASS, "template": {"spec": {
            "provisionerClassName": CLASS,
            "source": {"type": "image", "image": {"ref": reference}},
        }}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

/// Publishes `objects` and deploys them as `user`.
async fn deploy(cluster: &Cluster, user: &str, name: &str, objects: &[Value], more: &Value) {
    let reference = publish(cluster, name, objects).await;
    let written = apply_as(cluster, &deployment(name, &reference, more), Some(user)).await;
    written.success().unwrap();
}

fn note(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {"a": "b"}})
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"scenario": name}}})
}

fn subject(user: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "User", "name": user})
}

fn cluster_role(name: &str, rules: &Value) -> Value {
    json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

/// Returns a binding of a ClusterRole to `user`, in one namespace or for the whole cluster.
fn binding(name: &str, namespace: Option<&str>, role: &str, user: &str) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" },
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject(user)],
    })
}

/// Returns the Role and RoleBinding that let the pod impersonate ServiceAccount `name`, as the
/// condition suggests.
fn impersonator(namespace: &str, name: &str) -> [Value; 2] {
    let role = "bundle-impersonator";
    let rules = json!([{"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [name], "verbs": ["impersonate"]}]);
    let metadata = json!({"name": role, "namespace": namespace});
    let pod =
        json!({"kind": "ServiceAccount", "name": "bundle-webhook", "namespace": "bundle-system"});
    [
        json!({"apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": role},
            "subjects": [pod],
        }),
    ]
}

/// Creates a namespace `user`. Grants `user` permission to edit the project's kinds, use the
/// shipped classes, and administer this namespace. `rules` are additional permissions in the whole
/// cluster.
async fn tenant(cluster: &Cluster, user: &str, rules: &Value) {
    let role = format!("{user}-more");
    put(
        cluster,
        &[
            namespace(user),
            binding(&format!("{user}-editor"), None, "bundle-editor", user),
            binding(&format!("{user}-user"), None, "bundle-user", user),
            binding("tenant-admin", Some(user), "admin", user),
            cluster_role(&role, rules),
            binding(&role, None, &role, user),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn impersonation_of_people_is_only_used_for_dry_runs() {
    let cluster = Cluster::builder()
        .registries(1)
        .audit(true)
        .start()
        .await
        .unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    tenant(&cluster, "audited", &json!([])).await;
    let objects = [note("audited", "one"), note("audited", "two")];
    deploy(&cluster, "audited", "audited", &objects, &json!({})).await;
    until(&cluster, "audited", "Installed", "True").await;
    // The upgrade removes one object. Afterwards the other object is deleted and restored.
    let fewer = publish(&cluster, "audited", &objects[..1]).await;
    let upgraded = deployment("audited", &fewer, &json!({}));
    let upgraded = apply_as(&cluster, &upgraded, Some("audited")).await;
    upgraded.success().unwrap();
    wait::until_true(LONG, "two is pruned", || async {
        Ok(get(&cluster, "configmap two -n audited").await.is_none())
    })
    .await
    .unwrap();
    try_kubectl(&cluster, "delete configmap one -n audited")
        .await
        .success()
        .unwrap();
    wait::until_true(LONG, "one is restored", || async {
        Ok(get(&cluster, "configmap one -n audited").await.is_some())
    })
    .await
    .unwrap();
    let events = cluster.audit().unwrap();
    let by_pod: Vec<_> = events
        .iter()
        .filter(|event| {
            event["user"]["username"] == "system:serviceaccount:bundle-system:bundle-webhook"
        })
        .filter(|event| {
            event["impersonatedUser"]["username"]
                .as_str()
                .is_some_and(|user| !user.starts_with("system:serviceaccount:"))
        })
        .collect();
    for verb in ["patch", "delete"] {
        assert!(
            by_pod.iter().any(|event| event["verb"] == verb),
            "no dry run to {verb}"
        );
    }
    for event in by_pod {
        let uri = event["requestURI"].as_str().unwrap_or_default();
        let query = uri.split_once('?').map_or("", |(_, query)| query);
        assert!(query.split('&').any(|pair| pair == "dryRun=All"), "{event}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_that_cannot_impersonate_people_installs_nothing_and_reports_it() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    tenant(&cluster, "unknown", &json!([])).await;
    let mut role = get(&cluster, "clusterrole bundle-webhook").await.unwrap();
    let rules = role["rules"].as_array_mut().unwrap();
    rules.retain(|rule| {
        let people = ["users", "*"].map(Value::from);
        let resources = rule["resources"].as_array().unwrap();
        !resources.iter().any(|resource| people.contains(resource))
    });
    let rules = json!({"rules": rules}).to_string();
    let patch = [
        "patch",
        "clusterrole",
        "bundle-webhook",
        "--type=merge",
        "-p",
        &rules,
    ];
    cluster.kubectl(patch).await.unwrap().success().unwrap();
    let objects = [note("unknown", "one")];
    deploy(&cluster, "unknown", "unknown", &objects, &json!({})).await;
    let found = until(&cluster, "unknown", "Authorized", "Unknown").await;
    wait::until_true(LONG, "the condition says what is missing", || async {
        let object = get(&cluster, "bundledeployment unknown")
            .await
            .unwrap_or_default();
        let found = condition(&object, "Authorized");
        Ok(found["reason"] == "RequesterNotImpersonated"
            && found["message"]
                .as_str()
                .is_some_and(|why| why.contains("impersonate")))
    })
    .await
    .unwrap_or_else(|error| panic!("{found}: {error}"));
    assert_eq!(get(&cluster, "configmap one -n unknown").await, None);
}
