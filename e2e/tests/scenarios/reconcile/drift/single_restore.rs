//! The reconciler restores one object without applying the other objects of its content. The number
//! of requests does not depend on the size of the content.

use std::path::PathBuf;

use e2e::webhook::NAMESPACE;
use e2e::{Cluster, bundles, wait};
use serde_json::{Value, json};

use crate::scenarios::reconcile::{
    CLASS, LONG, apply, deployment, get, kubectl, publish, stage, staged, until,
};

const INSTALLER: &str = "system:serviceaccount:bundle-system:installer";
const POD: &str = "system:serviceaccount:bundle-system:bundle-webhook";

async fn patch(cluster: &Cluster, namespace: &str, name: &str) {
    let line = format!(
        "patch configmap {name} -n {namespace} --type=merge --patch={{\"data\":{{\"text\":\"evil\"}}}}"
    );
    kubectl(cluster, &line).await;
}

async fn until_text(cluster: &Cluster, namespace: &str, name: &str, text: &str) {
    let what = format!("configmap {name} -n {namespace}");
    wait::until_true(LONG, &format!("{name} has the text {text:?}"), || async {
        let found = get(cluster, &what).await.unwrap_or_default();
        Ok(found["data"]["text"] == text)
    })
    .await
    .unwrap();
}

/// Returns the files of the cache with this extension.
fn cached(cluster: &Cluster, webhook: &e2e::Webhook, extension: &str) -> Vec<PathBuf> {
    let cache = format!("webhook-{}", webhook.address().port());
    let folder = cluster.folder().join("data").join(cache).join("content");
    let files = fs_err::read_dir(folder).unwrap();
    files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}

/// Returns the ConfigMap with the content. The content is lost if this ConfigMap and the cache are
/// lost.
fn source() -> Value {
    let object = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata: {{text: hello}}\n"
        )
    };
    let objects = [object("single-restore-one"), object("single-restore-two")].concat();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "single-restore", "namespace": NAMESPACE},
        "immutable": true,
        "data": {"all.yaml": objects},
    })
}

fn single_restore() -> Value {
    let source = json!({"type": "configMaps", "configMaps": [
        {"configMap": {"name": "single-restore"}, "path": "manifests"},
    ]});
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": "single-restore"},
        "spec": {"provisionerClassName": CLASS, "template": {
            "metadata": {"labels": {"app": "single-restore"}},
            "spec": {"provisionerClassName": CLASS, "source": source},
        }},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn drifted_object_is_restored_without_its_content_unless_its_rendered_copy_is_damaged() {
    let (cluster, webhook) = stage().await;
    apply(&cluster, &source()).await;
    apply(&cluster, &single_restore()).await;
    until(&cluster, "bundledeployment single-restore", "Ready", "True").await;
    let contents = cached(&cluster, &webhook, "content");
    let [content] = &contents[..] else {
        panic!("not one copy of the content");
    };
    fs_err::remove_file(content).unwrap();
    let line = format!("delete configmap single-restore -n {NAMESPACE}");
    kubectl(&cluster, &line).await;
    patch(&cluster, "default", "single-restore-one").await;
    until_text(&cluster, "default", "single-restore-one", "hello").await;
    until(&cluster, "bundledeployment single-restore", "Ready", "True").await;

    // The reconciler never applies a damaged object from the cache, but reads the content again.
    let copies = cached(&cluster, &webhook, "rendered");
    let [rendered] = &copies[..] else {
        panic!("not one rendered copy");
    };
    let mut damaged = fs_err::read(rendered).unwrap();
    let at = damaged
        .windows(5)
        .position(|text| text == b"hello")
        .unwrap();
    damaged[at] = b'j';
    fs_err::write(rendered, damaged).unwrap();
    patch(&cluster, "default", "single-restore-one").await;
    wait::until_true(LONG, "the lost content is reported", || async {
        let object = get(&cluster, "bundledeployment single-restore").await;
        let conditions = object.unwrap_or_default()["status"]["conditions"].to_string();
        Ok(conditions.contains("BUNDLE-INSTALL-070"))
    })
    .await
    .unwrap();
    let found = get(&cluster, "configmap single-restore-one -n default").await;
    assert_eq!(found.unwrap()["data"]["text"], "evil");
    assert!(!rendered.exists());
    apply(&cluster, &source()).await;
    until_text(&cluster, "default", "single-restore-one", "hello").await;
    assert_eq!(cached(&cluster, &webhook, "rendered").len(), 1);
    kubectl(&cluster, "delete bundledeployment single-restore").await;
}

/// Returns each request of the pod about ConfigMaps of this namespace: the verb, the user, and
/// `true` for a dry run.
fn requests(events: &[Value], namespace: &str) -> Vec<(String, String, bool)> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let text = |event: &Value, pointer: &str| {
        let found = event.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    events
        .iter()
        .filter(|event| text(event, "/user/username") == POD)
        .map(|event| (event, text(event, "/requestURI")))
        .filter(|(event, uri)| uri.starts_with(&path) && event["verb"] != "watch")
        .map(|(event, uri)| {
            let user = text(event, "/impersonatedUser/username");
            (text(event, "/verb"), user, uri.contains("dryRun=All"))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_read_one_dry_run_and_one_apply_restore_an_object_of_a_small_and_a_large_content() {
    let (cluster, _webhook) = staged(Cluster::builder().audit(true)).await;
    for (name, count) in [("restore-few", 3), ("restore-many", 300)] {
        let reference = publish(&cluster, &format!("team/{name}:1"), |folder| {
            bundles::many(folder, name, count)
        })
        .await;
        apply(&cluster, &deployment(name, &reference, &json!({}))).await;
        let what = format!("bundledeployment {name}");
        until(&cluster, &what, "Ready", "True").await;
        let before = cluster.audit().unwrap().len();
        patch(&cluster, name, "item-00001").await;
        until_text(&cluster, name, "item-00001", "a small object").await;
        wait::until_true(LONG, "the restore is reported", || async {
            let events = get(&cluster, "events.v1.events.k8s.io -n default").await;
            let events = events.unwrap_or_default();
            let events = events["items"].as_array().cloned().unwrap_or_default();
            Ok(events.iter().any(|event| {
                event["reason"] == "DriftCorrected" && event["regarding"]["name"] == name
            }))
        })
        .await
        .unwrap();
        until(&cluster, &what, "Ready", "True").await;
        let events = cluster.audit().unwrap();
        let found = requests(&events[before..], name);
        let request = |verb: &str, user: &str, dry_run| (verb.to_owned(), user.to_owned(), dry_run);
        // The pod reads the object as the installer, sends a dry run as the requester (permissions
        // and admission policies), and applies the object as the installer.
        let expected = [
            request("get", INSTALLER, false),
            request("patch", "admin", true),
            request("patch", INSTALLER, false),
        ];
        assert_eq!(found, expected, "{name}");
    }
}
