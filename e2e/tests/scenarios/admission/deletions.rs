//! Permissions to delete Bundles, BundleDeployments and BundleApprovals. The deletion of a
//! BundleDeployment also removes its installed objects: the scenarios in `reconcile` test this
//! removal.

use std::time::Duration;

use e2e::{Cluster, Output, Tool, WebhookOptions, bundles, wait};
use serde_json::{Value, json};

use crate::scenarios::objects::{get, try_kubectl};

const CLASS: &str = "core-rukpak-io-plain";
const SOON: Duration = Duration::from_secs(60);

async fn by(cluster: &Cluster, user: &str, line: &str) -> Output {
    try_kubectl(cluster, &format!("{line} --as={user}")).await
}

async fn create(cluster: &Cluster, user: &str, object: &Value) {
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    let created = kubectl
        .args(["create", "-f", "-", &format!("--as={user}")])
        .stdin(object.to_string())
        .output()
        .await
        .unwrap();
    created.success().unwrap();
}

/// Applies `object` server-side as `user`. The field manager has the name of the user.
async fn kubectl_apply(cluster: &Cluster, user: &str, object: &Value) -> Output {
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    let flags = ["apply", "--server-side", "-f", "-"];
    let identity = [format!("--as={user}"), format!("--field-manager={user}")];
    let command = kubectl.args(flags).args(&identity);
    command.stdin(object.to_string()).output().await.unwrap()
}

async fn bind(cluster: &Cluster, user: &str, role: &str) {
    let line =
        format!("create clusterrolebinding {user}-{role} --clusterrole={role} --user={user}");
    try_kubectl(cluster, &line).await.success().unwrap();
}

async fn exists(cluster: &Cluster, what: &str) -> bool {
    get(cluster, what).await.is_some()
}

async fn until_gone(cluster: &Cluster, what: &str) {
    wait::until_true(SOON, &format!("{what} is gone"), || async {
        Ok(!exists(cluster, what).await)
    })
    .await
    .unwrap();
}

async fn publish(cluster: &Cluster) -> String {
    let folder = cluster.folder().join("data").join("greeting");
    bundles::greeting(&folder, "1.0.0", None).unwrap();
    let registry = cluster.registry(0).unwrap();
    let (folder, reference) = (
        folder.display().to_string(),
        registry.reference("greeting:1.0.0"),
    );
    let pushed = cluster
        .kubectl_bundle(["push", &folder, &reference])
        .await
        .unwrap();
    pushed.success().unwrap().lines().last().unwrap().to_owned()
}

fn bundle(name: &str, reference: &str) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": CLASS, "source": {"type": "image", "image": {"ref": reference}}},
    })
}

fn deployment(name: &str, reference: &str) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": CLASS, "template": {"spec": bundle(name, reference)["spec"]}},
    })
}

/// Returns the generated Bundle of a BundleDeployment.
async fn generated(cluster: &Cluster, deployment: &str) -> String {
    wait::until(SOON, "the Bundle of the template is there", || async {
        let line =
            format!("get bundles -l core.rukpak.io/owner-name={deployment} -o name --sort-by=.metadata.creationTimestamp");
        let names = try_kubectl(cluster, &line).await.success()?;
        Ok(names.lines().next().map(ToOwned::to_owned))
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn role_edit_grants_no_write_to_kinds_of_the_project() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    bind(&cluster, "ed", "edit").await;
    bind(&cluster, "ada", "admin").await;
    for user in ["ed", "ada"] {
        for resource in ["bundles", "bundledeployments", "bundleapprovals"] {
            for verb in [
                "create",
                "update",
                "patch",
                "delete",
                "deletecollection",
                "manage",
            ] {
                let line = format!("auth can-i {verb} {resource}.core.rukpak.io");
                let may = by(&cluster, user, &line).await;
                assert_eq!(may.stdout.trim(), "no", "{user}: {verb} {resource}");
            }
        }
        let may = by(
            &cluster,
            user,
            "auth can-i get bundledeployments.core.rukpak.io",
        )
        .await;
        assert_eq!(may.stdout.trim(), "yes", "{user}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_its_requester_and_users_with_manage_can_delete_a_deployment() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    for user in ["ana", "mallory"] {
        bind(&cluster, user, "bundle-editor").await;
        bind(&cluster, user, "bundle-user").await;
        bind(&cluster, user, "cluster-admin-of-content").await;
    }
    bind(&cluster, "mallory", "collector").await;
    let collector = "create clusterrole collector --verb=deletecollection --resource=bundledeployments.core.rukpak.io";
    try_kubectl(&cluster, collector).await.success().unwrap();
    let content = "create clusterrole cluster-admin-of-content --verb=create,patch,delete --resource=namespaces,configmaps,serviceaccounts";
    try_kubectl(&cluster, content).await.success().unwrap();
    bind(&cluster, "boss", "bundle-admin").await;
    bind(&cluster, "boss", "bundle-user").await;
    let reference = publish(&cluster).await;
    for name in ["one", "two"] {
        create(&cluster, "ana", &deployment(name, &reference)).await;
    }
    create(&cluster, "ana", &bundle("lone", &reference)).await;
    let child = generated(&cluster, "one").await;

    // Mallory has all permissions on the kinds and on the class, but not the verb `manage`.
    for line in [
        "delete bundledeployment one",
        "delete bundledeployment one --dry-run=server",
        "delete bundledeployment one --cascade=orphan",
        "delete bundledeployments --all",
        "delete bundle lone",
        &format!("delete {child}"),
    ] {
        let refused = by(&cluster, "mallory", line).await.failure(1).unwrap();
        assert!(refused.contains("BUNDLE-REVIEW-040"), "{line}: {refused}");
    }
    let all = "delete --raw /apis/core.rukpak.io/v1alpha1/bundledeployments";
    let refused = by(&cluster, "mallory", all).await.failure(1).unwrap();
    assert!(refused.contains("BUNDLE-REVIEW-040"), "{refused}");
    // The webhook also rejects writes that cause a deletion, and writes that change the set of
    // objects that a removal deletes.
    let owner = r#"{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"gone","uid":"0"}]}}"#;
    let finalizers = r#"{"metadata":{"finalizers":null}}"#;
    // The webhook also rejects writes that make the user a requester, and writes that change the
    // handling of another user's objects.
    let config = r#"{"spec":{"config":{"x":"y"}}}"#;
    let deletion = r#"{"spec":{"deletion":{"customResources":"Delete"}}}"#;
    let collision = r#"{"spec":{"collision":"Adopt"}}"#;
    let class = r#"{"spec":{"provisionerClassName":"another"}}"#;
    // The field managers in `managedFields` determine which fields the next apply of another user
    // removes.
    let no_owners = r#"{"metadata":{"managedFields":[{}]}}"#;
    let second_owner = r#"{"metadata":{"managedFields":[{"manager":"gitops","operation":"Apply","apiVersion":"core.rukpak.io/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:template":{}}}}]}}"#;
    // The annotation of `kubectl apply` has the same effect.
    let last_applied =
        r#"{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}}"#;
    let token = try_kubectl(
        &cluster,
        "get bundledeployment one -o jsonpath={.status.admission.admit}",
    )
    .await
    .success()
    .unwrap();
    assert!(!token.is_empty());
    let admit = format!(r#"{{"metadata":{{"annotations":{{"core.rukpak.io/admit":"{token}"}}}}}}"#);
    for (what, patch) in [
        ("bundledeployment one", config),
        ("bundledeployment one", deletion),
        ("bundledeployment one", collision),
        ("bundledeployment one", class),
        ("bundledeployment one", admit.as_str()),
        ("bundledeployment one", no_owners),
        ("bundledeployment one", second_owner),
        ("bundledeployment one", last_applied),
        ("bundle lone", owner),
        ("bundledeployment one", owner),
        ("bundledeployment one", finalizers),
    ] {
        let line = format!("patch {what} --type=merge --patch={patch}");
        let refused = by(&cluster, "mallory", &line).await.failure(1).unwrap();
        assert!(refused.contains("BUNDLE-REVIEW-040"), "{line}: {refused}");
    }
    let one = "get bundledeployment one -o json --show-managed-fields";
    let one: Value =
        serde_json::from_str(&try_kubectl(&cluster, one).await.success().unwrap()).unwrap();
    let entries = one["metadata"]["managedFields"].as_array().unwrap();
    let index = entries
        .iter()
        .position(|entry| entry["fieldsV1"]["f:spec"].is_object());
    let entry = format!("/metadata/managedFields/{}", index.unwrap());
    for operation in [
        json!({"op": "add", "path": format!("{entry}/subresource"), "value": "status"}),
        json!({"op": "replace", "path": format!("{entry}/manager"), "value": "kubectl"}),
        // The next write of the requester would seem to be older than this entry.
        json!({"op": "replace", "path": format!("{entry}/time"), "value": "2099-01-01T00:00:00Z"}),
        // `kubectl apply --server-side` moves the fields of such an entry to its apply.
        json!({"op": "add", "path": format!("{entry}/fieldsV1/f:metadata"), "value": {
            "f:annotations": {"f:kubectl.kubernetes.io/last-applied-configuration": {}},
        }}),
    ] {
        let line = format!("patch bundledeployment one --type=json --patch=[{operation}]");
        let refused = by(&cluster, "mallory", &line).await.failure(1).unwrap();
        assert!(refused.contains("BUNDLE-REVIEW-040"), "{line}: {refused}");
    }
    let applied = kubectl_apply(&cluster, "mallory", &deployment("one", &reference)).await;
    let refused = applied.failure(1).unwrap();
    assert!(refused.contains("BUNDLE-REVIEW-040"), "{refused}");
    let label = "label bundledeployment one team=a";
    by(&cluster, "mallory", label).await.success().unwrap();
    // The requester can change the annotation.
    let line = format!("patch bundledeployment one --type=merge --patch={last_applied}");
    by(&cluster, "ana", &line).await.success().unwrap();
    for what in [
        "bundledeployment one",
        "bundledeployment two",
        "bundle lone",
        &child,
    ] {
        assert!(exists(&cluster, what).await, "{what}");
    }

    // The requester deletes in the foreground: the garbage collector deletes the Bundle first.
    let deleted = by(
        &cluster,
        "ana",
        "delete bundledeployment one --cascade=foreground --timeout=60s",
    )
    .await;
    deleted.success().unwrap();
    until_gone(&cluster, &child).await;
    by(&cluster, "ana", "delete bundle lone --timeout=60s")
        .await
        .success()
        .unwrap();

    // An administrator deletes in the background: the garbage collector deletes the Bundle
    // afterwards.
    let child = generated(&cluster, "two").await;
    by(
        &cluster,
        "boss",
        "delete bundledeployment two --timeout=60s",
    )
    .await
    .success()
    .unwrap();
    until_gone(&cluster, &child).await;

    // After the class was deleted, a user with the verb `manage` can still delete BundleDeployments
    // of this class.
    create(&cluster, "ana", &deployment("three", &reference)).await;
    let spare = "get provisionerclass core-rukpak-io-plain -o yaml";
    assert!(try_kubectl(&cluster, spare).await.is_success());
    try_kubectl(&cluster, "delete provisionerclass core-rukpak-io-plain")
        .await
        .success()
        .unwrap();
    let line = "delete clusterrolebinding boss-bundle-user";
    try_kubectl(&cluster, line).await.success().unwrap();
    wait::until_true(SOON, "the administrator may delete it", || async {
        let deleted = by(
            &cluster,
            "boss",
            "delete bundledeployment three --wait=false",
        )
        .await;
        Ok(deleted.success().is_ok())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_withdrawn_by_its_author_or_an_administrator() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    for user in ["ben", "mallory"] {
        bind(&cluster, user, "bundle-approver").await;
    }
    let reference = publish(&cluster).await;
    let created = cluster.tool(Tool::Kubectl).await.unwrap();
    let created = created
        .args(["create", "-f", "-"])
        .stdin(deployment("web", &reference).to_string())
        .output();
    created.await.unwrap().success().unwrap();
    let uid = try_kubectl(
        &cluster,
        "get bundledeployment web -o jsonpath={.metadata.uid}",
    )
    .await
    .success()
    .unwrap();
    let digest = reference.split_once('@').unwrap().1;
    for name in ["first", "second"] {
        let approval = json!({
            "apiVersion": "core.rukpak.io/v1alpha1",
            "kind": "BundleApproval",
            "metadata": {"name": name},
            "spec": {"bundleDeployment": {"name": "web", "uid": uid}, "digest": digest},
        });
        create(&cluster, "ben", &approval).await;
    }
    let refused = by(&cluster, "mallory", "delete bundleapproval first").await;
    let refused = refused.failure(1).unwrap();
    assert!(refused.contains("BUNDLE-REVIEW-040"), "{refused}");
    by(&cluster, "ben", "delete bundleapproval first")
        .await
        .success()
        .unwrap();
    try_kubectl(&cluster, "delete bundleapproval second")
        .await
        .success()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_is_taken_over_only_without_its_owner_references() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let content = "create clusterrole owned-content --verb=create,patch,delete --resource=namespaces,configmaps,serviceaccounts";
    try_kubectl(&cluster, content).await.success().unwrap();
    for role in ["bundle-editor", "bundle-user", "owned-content"] {
        bind(&cluster, "ana", role).await;
    }
    for role in ["bundle-admin", "bundle-user", "owned-content"] {
        bind(&cluster, "boss", role).await;
    }
    let line = "get namespace default -o jsonpath={.metadata.uid}";
    let uid = try_kubectl(&cluster, line).await.success().unwrap();
    let reference = publish(&cluster).await;
    let mut object = deployment("owned", &reference);
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": uid}]);
    // The object has an owner reference from the beginning, like an object that a controller
    // generates.
    create(&cluster, "ana", &object).await;
    let drift = json!({"spec": {"drift": {"mode": "Report"}}}).to_string();
    let patch =
        |patch: String| format!("patch bundledeployment owned --type=merge --patch={patch}");
    by(&cluster, "ana", &patch(drift)).await.success().unwrap();
    let taken = json!({"spec": {"template": {"metadata": {"labels": {"taken": "over"}}}}});
    let refused = by(&cluster, "boss", &patch(taken.to_string())).await;
    let refused = refused.failure(1).unwrap();
    assert!(refused.contains("BUNDLE-REVIEW-061"), "{refused}");
    assert!(
        refused.contains("together with its owner, Namespace"),
        "{refused}"
    );
    let mut taken = taken;
    taken["metadata"]["ownerReferences"] = json!(null);
    let line = patch(taken.to_string());
    by(&cluster, "boss", &line).await.success().unwrap();
}
