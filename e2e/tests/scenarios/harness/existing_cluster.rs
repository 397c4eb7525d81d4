//! Tests on an existing cluster, as with `cargo xtask demo --context`: it is found by its context,
//! and left unchanged.

use std::path::Path;

use e2e::{Cluster, Tool, Webhook, WebhookOptions};

/// Returns all objects that tests could create, without those that a server creates itself.
async fn everything(host: &Cluster) -> String {
    let kinds = "namespaces,clusterroles,clusterrolebindings,crds,validatingwebhookconfigurations,mutatingwebhookconfigurations,priorityclasses";
    let listed = host.kubectl(["get", kinds, "-o", "name"]).await.unwrap();
    listed.success().unwrap()
}

fn visit(kubeconfig: &Path, context: &str) -> e2e::cluster::Builder {
    Cluster::builder()
        .registries(0)
        .existing(context)
        .kubeconfig(kubeconfig)
}

/// Installs the product with its registrations. Admission responses are not tested here.
async fn move_in(guest: &Cluster) -> Webhook {
    let options = WebhookOptions {
        admission: false,
        ..WebhookOptions::default()
    };
    let webhook = guest.start_webhook(options).await.unwrap();
    webhook.register().await.unwrap();
    webhook
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_context_and_silent_server_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    fs_err::write(
        &file,
        r#"{"apiVersion": "v1", "kind": "Config", "users": [{"name": "ana", "user": {}}],
            "clusters": [{"name": "office", "cluster": {"server": "https://127.0.0.1:1"}}],
            "contexts": [{"name": "office", "context": {"cluster": "office", "user": "ana"}}]}"#,
    )
    .unwrap();
    let error = visit(&file, "home").start().await.err().unwrap();
    let text = format!("{error:#}");
    let expected = format!("cannot take context `home` from {}: ", file.display());
    assert!(text.starts_with(&expected), "{text}");
    assert!(
        text.contains("\nhint: `kubectl config get-contexts`"),
        "{text}"
    );

    let error = visit(&file, "office").start().await.err().unwrap();
    let text = format!("{error:#}");
    let expected = format!(
        "the API server https://127.0.0.1:1 of context `office` in {} does not answer\nhint: ",
        file.display()
    );
    assert!(text.starts_with(&expected), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tests_on_an_existing_cluster_remove_only_their_own_objects() {
    let host = Cluster::builder().registries(0).start().await.unwrap();
    let before = everything(&host).await;
    let guest = visit(host.kubeconfig(), "e2e").start().await.unwrap();
    assert_eq!(guest.server(), host.server());

    let made = ["namespace/shop"];
    host.kubectl(["create", "namespace", "shop"])
        .await
        .unwrap()
        .success()
        .unwrap();
    let error = guest.reserve(&made).await.unwrap_err().to_string();
    assert!(
        error.contains("the cluster of context `e2e` has objects already")
            && error.contains("\n  namespace/shop\n"),
        "{error}"
    );
    host.kubectl(["delete", "namespace", "shop"])
        .await
        .unwrap()
        .success()
        .unwrap();
    guest.reserve(&made).await.unwrap();

    let webhook = move_in(&guest).await;
    guest
        .kubectl(["create", "namespace", "shop"])
        .await
        .unwrap()
        .success()
        .unwrap();
    assert!(
        everything(&host)
            .await
            .contains("validatingwebhookconfiguration")
    );
    guest.leave(Some(webhook)).await.unwrap();
    assert_eq!(everything(&host).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn admission_of_a_killed_test_run_is_removed_by_the_next_run() {
    let host = Cluster::builder().registries(0).start().await.unwrap();
    let before = everything(&host).await;
    let guest = visit(host.kubeconfig(), "e2e").start().await.unwrap();
    let webhook = move_in(&guest).await;
    drop((webhook, guest));
    let left = everything(&host).await;
    assert!(left.contains("namespace/bundle-system"), "{left}");
    assert!(!left.contains("webhookconfiguration"), "{left}");
    // Nobody is there to do what the finalizer waits for.
    let orphan = r#"{"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": "left", "finalizers": ["core.rukpak.io/delete-installed-objects"]},
        "spec": {"provisionerClassName": "core-rukpak-io-plain", "template": {"spec": {"provisionerClassName": "core-rukpak-io-plain",
            "source": {"type": "image", "image": {"ref": "registry.example.com/web:1.0.0"}}}}}}"#;
    let kubectl = host.tool(Tool::Kubectl).await.unwrap();
    let applied = kubectl.args(["apply", "-f", "-"]).stdin(orphan).output();
    applied.await.unwrap().success().unwrap();

    let next = visit(host.kubeconfig(), "e2e").start().await.unwrap();
    next.reserve(&["namespace/shop"]).await.unwrap();
    assert_eq!(everything(&host).await, before);

    // What bears no mark of ours is somebody's installation.
    host.kubectl(["create", "namespace", "bundle-system"])
        .await
        .unwrap()
        .success()
        .unwrap();
    let error = next
        .start_webhook(WebhookOptions::default())
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("\n  namespace/bundle-system\n"), "{error}");
}
