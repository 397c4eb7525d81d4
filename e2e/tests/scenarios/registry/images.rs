//! Container images with real tools: crane creates an image and an index, a real registry serves
//! their digests, and a real API server receives the locked digests.

use std::time::Duration;

use e2e::{Cluster, Tool, WebhookOptions, wait};
use serde_json::{Value, json};

const CLASS: &str = "core-rukpak-io-plain";

/// Runs crane, and returns its output.
async fn crane(cluster: &Cluster, arguments: &[&str]) -> String {
    let crane = cluster.tool(Tool::Crane).await.unwrap();
    let output = crane.args(arguments).output().await.unwrap();
    output.success().unwrap().trim().to_owned()
}

async fn plugin(cluster: &Cluster, arguments: &[&str]) -> String {
    let output = cluster.kubectl_bundle(arguments).await.unwrap();
    output.success().unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn installs_the_digests_of_the_lock() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let registry = cluster.registry(0).unwrap();
    let reference = |rest: &str| registry.reference(rest);
    let data = cluster.folder().join("data");
    let layer = data.join("layer.tar.gz");
    fs_err::write(&layer, b"not really an archive").unwrap();
    let layer = layer.display().to_string();
    let (tool, index) = (reference("lib/tool:1.0.0"), reference("lib/web:2.0.0"));
    crane(&cluster, &["append", "-f", &layer, "-t", &tool]).await;
    crane(&cluster, &["index", "append", "-m", &tool, "-t", &index]).await;
    let digest_of_tool = crane(&cluster, &["digest", &tool]).await;
    let digest_of_index = crane(&cluster, &["digest", &index]).await;
    assert_ne!(digest_of_tool, digest_of_index);

    let folder = data.join("locked");
    fs_err::create_dir_all(folder.join("manifests")).unwrap();
    fs_err::write(
        folder.join("bundle.yaml"),
        "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: locked\nversion: 1.0.0\nformat: plain+v0\n",
    )
    .unwrap();
    let manifests = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: locked}}\n---\n\
         apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: locked}}\nspec:\n  replicas: 0\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec:\n      initContainers: [{{name: init, image: '{tool}'}}]\n      containers:\n      - name: web\n        image: {index}\n        env: [{{name: RELATED_IMAGE_TOOL, value: '{tool}'}}, {{name: OTHER, value: plain}}]\n"
    );
    let file = folder.join("manifests/web.yaml");
    fs_err::write(&file, &manifests).unwrap();
    let folder = folder.display().to_string();
    let layout = data.join("locked.oci").display().to_string();
    let built = plugin(&cluster, &["build", &folder, "--lock", "--to", &layout]).await;
    // A moved tag does not change a build from the lock file or the installed objects.
    crane(
        &cluster,
        &["append", "-b", &tool, "-f", &layer, "-t", &tool],
    )
    .await;
    crane(&cluster, &["copy", &tool, &index]).await;
    assert_eq!(
        plugin(&cluster, &["build", &folder, "--to", &layout]).await,
        built
    );
    assert_eq!(fs_err::read_to_string(file).unwrap(), manifests);
    let target = reference("team/locked:1.0.0");
    let pinned = plugin(&cluster, &["push", &layout, &target]).await;
    let report = plugin(&cluster, &["inspect", &target, "-o", "json"]).await;
    let report: Value = serde_json::from_str(&report).unwrap();
    for (image, digest) in [(&tool, &digest_of_tool), (&index, &digest_of_index)] {
        let mut images = report["images"].as_array().unwrap().iter();
        let found = images.find(|one| one["image"] == **image);
        assert_eq!(found.unwrap()["digest"], **digest, "{report}");
    }
    // `inspect` recognizes the index that crane created, and an image that is not a bundle.
    let seen = plugin(
        &cluster,
        &["inspect", &reference(&format!("lib/web@{digest_of_index}"))],
    )
    .await;
    assert!(seen.contains("an index"), "{seen}");
    let seen = plugin(&cluster, &["inspect", &tool]).await;
    assert!(seen.contains("is not marked as a bundle"), "{seen}");

    let object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": "locked"},
        "spec": {
            "provisionerClassName": CLASS,
            "template": {"metadata": {}, "spec": {
                "provisionerClassName": CLASS,
                "source": {"type": "image", "image": {"ref": pinned}},
            }},
        },
    });
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    let applied = kubectl.args(["apply", "-f", "-"]).stdin(object.to_string());
    applied.output().await.unwrap().success().unwrap();
    let deployment = wait::until(
        Duration::from_secs(90),
        "the deployment is installed",
        || cluster.get("deployment web -n locked"),
    )
    .await
    .unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], format!("{index}@{digest_of_index}"));
    assert_eq!(
        pod["initContainers"][0]["image"],
        format!("{tool}@{digest_of_tool}")
    );
    assert_eq!(
        container["env"][0]["value"],
        format!("{tool}@{digest_of_tool}")
    );
    assert_eq!(container["env"][1]["value"], "plain");
}
