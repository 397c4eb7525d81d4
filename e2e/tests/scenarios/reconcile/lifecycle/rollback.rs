//! Revisions with their configuration. The plugin rolls a BundleDeployment back to a former
//! revision.

use e2e::{Cluster, Output};
use serde_json::{Value, json};

use super::{CONFIG, bundle_of, get, installed, kubectl, publish, stage};

const FORMER: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: former, namespace: team-a}
data: {text: only-in-one}
";
const PATCHES: &str = "config: {schema: config.schema.json, default: config.yaml, patches: [{kind: ConfigMap, name: web, path: /data/text, value: /text}]}\n";

/// Writes version `version` of a package with a configuration.
fn write(folder: &std::path::Path, version: &str, manifests: &str) -> anyhow::Result<()> {
    bundle_of(folder, "web", manifests)?;
    let file = folder.join("bundle.yaml");
    let package = fs_err::read_to_string(&file)?.replace("1.0.0", version);
    fs_err::write(&file, package + PATCHES)?;
    let schema = r#"{"type": "object", "properties": {"text": {"type": "string"}}}"#;
    fs_err::write(folder.join("config.schema.json"), schema)?;
    fs_err::write(folder.join("config.yaml"), "text: default\n")?;
    Ok(())
}

async fn plugin(cluster: &Cluster, line: &str) -> Output {
    cluster.kubectl_bundle(line.split(' ')).await.unwrap()
}

async fn succeeds(cluster: &Cluster, line: &str) -> String {
    plugin(cluster, line).await.success().unwrap()
}

/// Returns names, labels and data of the ConfigMaps, without fields that every write changes.
async fn config_maps(cluster: &Cluster) -> Value {
    let mut list = get(
        cluster,
        "configmaps -n team-a -l core.rukpak.io/owner-name=web",
    )
    .await;
    let items = list.as_mut().and_then(|list| list["items"].as_array_mut());
    let items = items.into_iter().flatten().map(|item| {
        let metadata = &item["metadata"];
        json!([metadata["name"], metadata["labels"], item["data"]])
    });
    items.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_installs_a_former_revision_with_its_configuration() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let both = format!("{CONFIG}---\n{FORMER}");
    let one = publish(&cluster, "team/web:1", |f| write(f, "1.0.0", &both)).await;
    let two = publish(&cluster, "team/web:2", |f| write(f, "2.0.0", CONFIG)).await;
    succeeds(&cluster, &format!("deploy web {one} --wait")).await;
    let configure = |text: &str| {
        let patch = format!("{{\"spec\":{{\"config\":{{\"text\":\"{text}\"}}}}}}");
        format!("patch bundledeployment web --type merge --field-manager kubectl-bundle -p {patch}")
    };
    kubectl(&cluster, &configure("first")).await;
    installed(&cluster, "web").await;
    let before = config_maps(&cluster).await;
    assert_eq!(before[1][2]["text"], "first", "{before}");

    succeeds(&cluster, &format!("deploy web {two} --wait")).await;
    kubectl(&cluster, &configure("second")).await;
    installed(&cluster, "web").await;
    let object = get(&cluster, "bundledeployment web").await.unwrap();
    let revisions = &object["status"]["revisions"];
    assert_eq!(revisions[0]["number"], 2, "{revisions}");
    assert_eq!(revisions[0]["config"], json!({"text": "second"}));
    assert_eq!(revisions[1]["config"], json!({"text": "first"}));
    assert_eq!(revisions[1]["requestedBy"], revisions[0]["requestedBy"]);
    let history = succeeds(&cluster, "history web").await;
    assert!(history.contains("1          1.0.0 "), "{history}");
    assert!(history.contains("2          2.0.0 "), "{history}");

    // A dry run changes nothing.
    let line = "rollback web --dry-run=server --force-conflicts";
    let dry = succeeds(&cluster, line).await;
    assert_eq!(
        dry,
        "bundledeployment.core.rukpak.io/web rolled back (server dry run)"
    );
    let same = get(&cluster, "bundledeployment web").await.unwrap();
    assert_eq!(
        same["metadata"]["generation"],
        object["metadata"]["generation"]
    );

    let done = succeeds(&cluster, "rollback web --wait --force-conflicts").await;
    assert_eq!(done, "bundledeployment.core.rukpak.io/web rolled back");
    assert_eq!(config_maps(&cluster).await, before);
    let object = get(&cluster, "bundledeployment web").await.unwrap();
    let revisions = &object["status"]["revisions"];
    assert_eq!(revisions[0]["number"], 3, "{revisions}");
    assert_eq!(revisions[0]["version"], "1.0.0");
    assert_eq!(revisions.as_array().map(Vec::len), Some(2));
    assert_eq!(object["spec"]["config"], json!({"text": "first"}));

    let again = plugin(&cluster, "rollback web --to 3").await;
    let message = again.failure(1).unwrap();
    assert!(message.contains("[BUNDLE-CLUSTER-025]"), "{message}");
    let gone = plugin(&cluster, "rollback web --to 1").await;
    let message = gone.failure(1).unwrap();
    assert!(message.contains("[BUNDLE-CLUSTER-023]"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_of_a_failed_upgrade_returns_to_the_installed_content() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    let (repository, _) = one.split_once('@').unwrap();
    let missing = format!("{repository}@sha256:{}", "0".repeat(64));
    succeeds(&cluster, &format!("deploy web {one} --wait")).await;
    let line = format!("deploy web {missing} --wait --timeout 20s");
    assert_ne!(plugin(&cluster, &line).await.code, Some(0));

    let output = plugin(&cluster, "rollback web --wait").await;
    assert!(
        output.stderr.contains("rolls back to revision 1"),
        "{output}"
    );
    output.success().unwrap();
    let object = get(&cluster, "bundledeployment web").await.unwrap();
    let reference = &object["spec"]["template"]["spec"]["source"]["image"]["ref"];
    assert_eq!(*reference, one);
    assert_eq!(object["status"]["revisions"][0]["number"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_needs_a_kept_revision_and_the_permission_to_write() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    let other = CONFIG.replace("hello", "other");
    let two = publish(&cluster, "team/web:2", |f| bundle_of(f, "web", &other)).await;
    succeeds(&cluster, &format!("deploy web {one} --wait")).await;
    let first = plugin(&cluster, "rollback web").await.failure(1).unwrap();
    assert!(first.contains("[BUNDLE-CLUSTER-023]"), "{first}");
    succeeds(&cluster, &format!("deploy web {two} --wait")).await;

    kubectl(
        &cluster,
        "create clusterrole reader --verb get,list --resource bundledeployments.core.rukpak.io,bundles.core.rukpak.io",
    )
    .await;
    kubectl(
        &cluster,
        "create clusterrolebinding reader --clusterrole reader --user reader@example.com",
    )
    .await;
    let denied = plugin(&cluster, "rollback web --as reader@example.com").await;
    let message = denied.failure(3).unwrap();
    assert!(message.contains("(Forbidden)"), "{message}");

    let object = get(&cluster, "bundledeployment web").await.unwrap();
    let former = object["status"]["revisions"][1]["bundle"].as_str().unwrap();
    kubectl(&cluster, &format!("delete bundle {former}")).await;
    let lost = plugin(&cluster, "rollback web --to 1")
        .await
        .failure(1)
        .unwrap();
    assert!(lost.contains("[BUNDLE-CLUSTER-024]"), "{lost}");
}
