//! Attempts of a tenant to gain permissions through the pod. The tenant has permission to write
//! Bundles and BundleDeployments, and can push any image.

use e2e::webhook::shared;
use e2e::{Cluster, WebhookOptions, bundles};
use serde_json::{Value, json};

use crate::scenarios::objects::{apply_as, get, try_kubectl, until};

const CLASS: &str = "core-rukpak-io-plain";
const MALLORY: &str = "mallory";
const HOME: &str = "mallory-home";

/// Grants Mallory permission to edit the project's kinds, use the shipped classes, and administer
/// one namespace.
async fn tenant(cluster: &Cluster) {
    let subject =
        json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": MALLORY}]);
    let binding = |kind: &str, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": format!("{MALLORY}-{role}"), "namespace": (kind == "RoleBinding").then_some(HOME)},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": subject,
        })
    };
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}}),
        binding("ClusterRoleBinding", "bundle-editor"),
        binding("ClusterRoleBinding", "bundle-user"),
        binding("RoleBinding", "admin"),
    ] {
        apply_as(cluster, &object, None).await.success().unwrap();
    }
}

async fn by_mallory(cluster: &Cluster, object: &Value) {
    let written = apply_as(cluster, object, Some(MALLORY)).await;
    written.success().unwrap();
}

/// Pushes these objects as a bundle, and returns its pinned reference.
async fn publish(cluster: &Cluster, registry: usize, name: &str, objects: &[Value]) -> String {
    let folder = cluster.folder().join("data").join(name);
    bundles::greeting(&folder, "1.0.0", None).unwrap();
    let documents: Vec<_> = objects.iter().map(ToString::to_string).collect();
    fs_err::write(
        folder.join("manifests/greeting.yaml"),
        documents.join("\n---\n"),
    )
    .unwrap();
    let reference = cluster
        .registry(registry)
        .unwrap()
        .reference(&format!("{name}:1.0.0"));
    let folder = folder.display().to_string();
    let pushed = cluster
        .kubectl_bundle(["push", &folder, &reference, "--overwrite-tag"])
        .await
        .unwrap();
    pushed.success().unwrap().lines().last().unwrap().to_owned()
}

fn note(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": HOME}, "data": {"a": "b"}})
}

/// Returns a ClusterRoleBinding that would make Mallory cluster-admin.
fn cluster_admin_binding(name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": MALLORY}],
    })
}

fn bundle(name: &str, class: &str, reference: &str) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": class, "source": {"type": "image", "image": {"ref": reference}}},
    })
}

fn deployment(name: &str, class: &str, reference: &str) -> Value {
    let template = bundle(name, class, reference);
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": class, "template": {"spec": template["spec"]}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn installer_is_not_the_requester_of_a_nested_bundle_deployment() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster).await;
    let loot = publish(
        &cluster,
        0,
        "nest-loot",
        &[cluster_admin_binding("nest-crown")],
    )
    .await;
    let inner = deployment("nest-inner", CLASS, &loot);
    let outer = publish(&cluster, 0, "nest-outer", &[inner]).await;
    by_mallory(&cluster, &deployment("nest-outer", CLASS, &outer)).await;
    let why = until(
        &cluster,
        "bundledeployment nest-outer",
        "Installed",
        "False",
    )
    .await;
    assert!(
        why.contains("impersonate") && why.contains("installer"),
        "{why}"
    );
    assert_eq!(get(&cluster, "bundledeployment nest-inner").await, None);
    assert_eq!(get(&cluster, "clusterrolebinding nest-crown").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregated_role_of_another_user_is_not_granted_by_an_empty_role() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster).await;
    for (name, rules, ignore) in [
        ("silent", Value::Null, json!([])),
        (
            "ignored",
            json!([]),
            json!([{"kind": "Role.rbac.authorization.k8s.io", "fields": ["/rules"]}]),
        ),
    ] {
        let vaults = format!("{name}vaults");
        let mut role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": name, "namespace": HOME},
            "rules": [{"apiGroups": ["example.com"], "resources": [vaults], "verbs": ["*"]}],
        });
        apply_as(&cluster, &role, None).await.success().unwrap();
        if let Some(role) = role.as_object_mut() {
            role.remove("rules");
        }
        if !rules.is_null() {
            role["rules"] = rules;
        }
        let mut binding = cluster_admin_binding(name);
        binding["kind"] = "RoleBinding".into();
        binding["metadata"]["namespace"] = HOME.into();
        binding["roleRef"]["kind"] = "Role".into();
        binding["roleRef"]["name"] = name.into();
        let reference = publish(&cluster, 0, &format!("role-{name}"), &[role, binding]).await;
        let mut object = deployment(&format!("role-{name}"), CLASS, &reference);
        object["spec"]["collision"] = "Adopt".into();
        object["spec"]["drift"] = json!({"ignore": ignore});
        by_mallory(&cluster, &object).await;
        let what = format!("bundledeployment role-{name}");
        if name == "silent" {
            let why = until(&cluster, &what, "Installed", "False").await;
            assert!(why.contains(&vaults), "{why}");
        } else {
            until(&cluster, &what, "Installed", "True").await;
        }
        let may = format!("auth can-i get {vaults}.example.com -n {HOME} --as={MALLORY}");
        let answer = try_kubectl(&cluster, &may).await;
        assert!(!answer.is_success(), "{name}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_content_is_scoped_to_repository_and_pull_secret() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster).await;
    let house = cluster.registry(1).unwrap().host();
    let class = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "ProvisionerClass",
        "metadata": {"name": "only-house"},
        "spec": {
            "provisioner": "core.rukpak.io/plain",
            "serviceAccount": {"namespace": "bundle-system", "name": "installer"},
            "authorization": "Class",
            "sources": {"hosts": [house]},
        },
    });
    apply_as(&cluster, &class, None).await.success().unwrap();
    let mut binding = cluster_admin_binding("mallory-only-house");
    binding["roleRef"]["name"] = "use-only-house".into();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "use-only-house"},
        "rules": [{"apiGroups": ["core.rukpak.io"], "resources": ["provisionerclasses"], "resourceNames": ["only-house"], "verbs": ["use"]}],
    });
    apply_as(&cluster, &role, None).await.success().unwrap();
    apply_as(&cluster, &binding, None).await.success().unwrap();

    let loot = publish(
        &cluster,
        0,
        "house-loot",
        &[cluster_admin_binding("house-crown")],
    )
    .await;
    by_mallory(&cluster, &bundle("house-loot", CLASS, &loot)).await;
    until(&cluster, "bundle house-loot", "Unpacked", "True").await;
    let digest = loot.split('@').next_back().unwrap();
    let elsewhere = format!("{house}/team/web@{digest}");
    by_mallory(&cluster, &deployment("house", "only-house", &elsewhere)).await;
    until(
        &cluster,
        "bundledeployment house",
        "HasValidBundle",
        "False",
    )
    .await;
    assert_eq!(get(&cluster, "clusterrolebinding house-crown").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_with_only_labels_of_the_webhook_are_not_pruned() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster).await;
    let mut treasure = note("treasure");
    treasure["metadata"]["namespace"] = "default".into();
    treasure["metadata"]["labels"] = json!({"core.rukpak.io/owner-kind": "BundleDeployment", "core.rukpak.io/owner-name": "pruner"});
    apply_as(&cluster, &treasure, None).await.success().unwrap();
    let mut old = note("pruner-old");
    old["metadata"]["labels"] = treasure["metadata"]["labels"].clone();
    by_mallory(&cluster, &old).await;
    let reference = publish(&cluster, 0, "pruner", &[note("pruner")]).await;
    by_mallory(&cluster, &deployment("pruner", CLASS, &reference)).await;
    until(&cluster, "bundledeployment pruner", "Installed", "True").await;
    for what in [
        format!("configmap pruner-old -n {HOME}"),
        "configmap treasure -n default".to_owned(),
    ] {
        assert!(get(&cluster, &what).await.is_some(), "{what}");
    }
    try_kubectl(&cluster, "delete configmap treasure -n default")
        .await
        .success()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_tag_after_deletion_of_the_bundle_installs_nothing_for_other_requesters() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster).await;
    publish(&cluster, 0, "moved", &[note("moved")]).await;
    let tag = cluster.registry(0).unwrap().reference("moved:1.0.0");
    let admins = deployment("moved", CLASS, &tag);
    apply_as(&cluster, &admins, None).await.success().unwrap();
    until(&cluster, "bundledeployment moved", "Installed", "True").await;
    let active = get(&cluster, "bundledeployment moved").await.unwrap()["status"]["activeBundle"]
        .as_str()
        .unwrap()
        .to_owned();
    publish(
        &cluster,
        0,
        "moved",
        &[cluster_admin_binding("moved-crown")],
    )
    .await;
    let delete = format!("delete bundle {active}");
    let by_mallory = try_kubectl(&cluster, &format!("{delete} --as={MALLORY}")).await;
    let refused = by_mallory.failure(1).unwrap();
    assert!(refused.contains("BUNDLE-REVIEW-040"), "{refused}");
    // A user with permission deletes the Bundle. The pod still does not install the new content of
    // the tag.
    try_kubectl(&cluster, &delete).await.success().unwrap();
    let why = until(&cluster, "bundledeployment moved", "Installed", "False").await;
    assert!(why.contains("was deleted and created again"), "{why}");
    assert_eq!(get(&cluster, "clusterrolebinding moved-crown").await, None);
    assert!(
        get(&cluster, &format!("configmap moved -n {HOME}"))
            .await
            .is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_is_valid_only_for_its_class() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster).await;
    for (name, verbs) in [
        ("review-mine", json!(["use", "approve"])),
        ("review-theirs", json!(["use"])),
    ] {
        let class = json!({
            "apiVersion": "core.rukpak.io/v1alpha1",
            "kind": "ProvisionerClass",
            "metadata": {"name": name},
            "spec": {
                "provisioner": "core.rukpak.io/plain",
                "serviceAccount": {"namespace": "bundle-system", "name": "installer"},
                "approval": {"mode": "Required", "by": "Anyone"},
            },
        });
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [
                {"apiGroups": ["core.rukpak.io"], "resources": ["provisionerclasses"], "resourceNames": [name], "verbs": verbs},
                {"apiGroups": ["core.rukpak.io"], "resources": ["bundleapprovals"], "verbs": ["create", "get", "patch"]},
            ],
        });
        let mut binding = cluster_admin_binding(&format!("mallory-{name}"));
        binding["roleRef"]["name"] = name.into();
        for object in [class, role, binding] {
            apply_as(&cluster, &object, None).await.success().unwrap();
        }
    }
    let reference = publish(&cluster, 0, "review", &[note("review")]).await;
    let digest = reference.split('@').next_back().unwrap();
    let mut object = deployment("review", "review-mine", &reference);
    object["spec"]["paused"] = true.into();
    by_mallory(&cluster, &object).await;
    until(
        &cluster,
        "bundledeployment review",
        "HasValidBundle",
        "True",
    )
    .await;
    let uid = get(&cluster, "bundledeployment review").await.unwrap()["metadata"]["uid"].clone();
    let approval = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleApproval",
        "metadata": {"name": "review"},
        "spec": {"bundleDeployment": {"name": "review", "uid": uid}, "digest": digest},
    });
    by_mallory(&cluster, &approval).await;
    object["spec"]["paused"] = false.into();
    object["spec"]["provisionerClassName"] = "review-theirs".into();
    by_mallory(&cluster, &object).await;
    let why = until(&cluster, "bundledeployment review", "Approved", "False").await;
    assert!(
        why.contains("mallory has no permission to approve for class review-theirs"),
        "{why}"
    );
    assert_eq!(
        get(&cluster, &format!("configmap review -n {HOME}")).await,
        None
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_bundle_with_the_installed_name_is_not_installed() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let mut webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    tenant(&cluster).await;
    let good = publish(&cluster, 0, "swap-good", &[note("swap")]).await;
    let loot = publish(
        &cluster,
        0,
        "swap-loot",
        &[cluster_admin_binding("swap-crown")],
    )
    .await;
    by_mallory(&cluster, &deployment("swap", CLASS, &good)).await;
    until(&cluster, "bundledeployment swap", "Installed", "True").await;
    let active =
        get(&cluster, "bundledeployment swap").await.unwrap()["status"]["activeBundle"].clone();
    let active = active.as_str().unwrap();

    let nowhere = cluster.registry(0).unwrap().reference("nowhere:1");
    by_mallory(&cluster, &deployment("swap", CLASS, &nowhere)).await;
    until(&cluster, "bundledeployment swap", "HasValidBundle", "False").await;
    let delete = format!("delete bundle {active} --as={MALLORY}");
    try_kubectl(&cluster, &delete).await.success().unwrap();
    by_mallory(&cluster, &bundle(active, CLASS, &loot)).await;
    until(&cluster, &format!("bundle {active}"), "Unpacked", "True").await;
    // The pod has the record of the first Bundle only in memory. After the restart, the record is
    // lost.
    webhook.restart().await.unwrap();
    until(&cluster, "bundledeployment swap", "Ready", "False").await;
    by_mallory(
        &cluster,
        &deployment(
            "swap-after",
            CLASS,
            &publish(&cluster, 0, "swap-after", &[note("swap-after")]).await,
        ),
    )
    .await;
    until(&cluster, "bundledeployment swap-after", "Installed", "True").await;
    assert_eq!(get(&cluster, "clusterrolebinding swap-crown").await, None);
}
