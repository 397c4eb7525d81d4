//! Use of an existing cluster, as by `cargo xtask demo --context`: selection by context, and
//! removal of all changes.

use std::path::Path;

use e2e::{Cluster, Tool, Webhook, WebhookOptions};

/// Returns the names of all cluster-scoped objects of the kinds that tests create.
async fn everything(host: &Cluster) -> String {
    let kinds = "namespaces,clusterroles,clusterrolebindings,crds,validatingwebhookconfigurations,mutatingwebhookconfigurations,priorityclasses";
    let listed = host.kubectl(["get", kinds, "-o", "name"]).await.unwrap();
    listed.success().unwrap()
}

fn existing(kubeconfig: &Path, context: &str) -> e2e::cluster::Builder {
    Cluster::builder()
        .registries(0)
        .existing(context)
        .kubeconfig(kubeconfig)
}

/// Installs the product with its registrations. These scenarios do not test admission responses.
async fn install(tests: &Cluster) -> Webhook {
    let options = WebhookOptions {
        admission: false,
        ..WebhookOptions::default()
    };
    let webhook = tests.start_webhook(options).await.unwrap();
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
    let error = existing(&file, "home").start().await.err().unwrap();
    let text = format!("{error:#}");
    let expected = format!("cannot read context `home` from {}: ", file.display());
    assert!(text.starts_with(&expected), "{text}");
    assert!(
        text.contains("\nhint: `kubectl config get-contexts`"),
        "{text}"
    );

    let error = existing(&file, "office").start().await.err().unwrap();
    let text = format!("{error:#}");
    let expected = format!(
        "the API server https://127.0.0.1:1 of context `office` in {} does not respond\nhint: ",
        file.display()
    );
    assert!(text.starts_with(&expected), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tests_on_an_existing_cluster_remove_only_their_own_objects() {
    let host = Cluster::builder().registries(0).start().await.unwrap();
    let before = everything(&host).await;
    let tests = existing(host.kubeconfig(), "e2e").start().await.unwrap();
    assert_eq!(tests.server(), host.server());

    let names = ["namespace/shop"];
    host.kubectl(["create", "namespace", "shop"])
        .await
        .unwrap()
        .success()
        .unwrap();
    let error = tests.reserve(&names).await.unwrap_err().to_string();
    assert!(
        error.contains("the cluster of context `e2e` has objects that the tests would create")
            && error.contains("\n  namespace/shop\n"),
        "{error}"
    );
    host.kubectl(["delete", "namespace", "shop"])
        .await
        .unwrap()
        .success()
        .unwrap();
    tests.reserve(&names).await.unwrap();

    let webhook = install(&tests).await;
    tests
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
    tests.leave(Some(webhook)).await.unwrap();
    assert_eq!(everything(&host).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn admission_of_a_killed_test_run_is_removed_by_the_next_run() {
    let host = Cluster::builder().registries(0).start().await.unwrap();
    let before = everything(&host).await;
    let tests = existing(host.kubeconfig(), "e2e").start().await.unwrap();
    let webhook = install(&tests).await;
    drop((webhook, tests));
    let left = everything(&host).await;
    assert!(left.contains("namespace/bundle-system"), "{left}");
    assert!(!left.contains("webhookconfiguration"), "{left}");
    // No controller removes this finalizer.
    let orphan = r#"{"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": "left", "finalizers": ["core.rukpak.io/delete-installed-objects"]},
        "spec": {"provisionerClassName": "core-rukpak-io-plain", "template": {"spec": {"provisionerClassName": "core-rukpak-io-plain",
            "source": {"type": "image", "image": {"ref": "registry.example.com/web:1.0.0"}}}}}}"#;
    let kubectl = host.tool(Tool::Kubectl).await.unwrap();
    let applied = kubectl.args(["apply", "-f", "-"]).stdin(orphan).output();
    applied.await.unwrap().success().unwrap();

    let next = existing(host.kubeconfig(), "e2e").start().await.unwrap();
    next.reserve(&["namespace/shop"]).await.unwrap();
    assert_eq!(everything(&host).await, before);

    // An installation without the label of the tests is not removed.
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
