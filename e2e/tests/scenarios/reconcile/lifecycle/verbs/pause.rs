//! `pause`, `resume` and `unmanage` with several names. The names in this test are unique, because
//! the test uses the shared cluster.

use e2e::Cluster;
use e2e::webhook::shared;
use serde_json::{Value, json};

use super::plugin;
use crate::scenarios::reconcile::{CONFIG, bundle_of, get, kubectl, publish};

const NAMESPACE: &str = "pause-verbs";
const BLOG: &str = "pause-verbs-blog";
const CART: &str = "pause-verbs-cart";
const LOST: &str = "pause-verbs-lost";

/// Runs the plugin, and checks the exit code and standard output. If the command fails, standard
/// error must contain an error for the missing BundleDeployment, and otherwise must not.
async fn check(cluster: &Cluster, line: &str, code: i32, stdout: &str) {
    let output = plugin(cluster, line).await;
    assert_eq!(output.code, Some(code), "{output}");
    assert_eq!(output.stdout, stdout, "{output}");
    let missing = format!(
        "Error from server (NotFound): bundledeployments.core.rukpak.io \"{LOST}\" not found"
    );
    let has_error = output.stderr.lines().any(|line| line == missing);
    assert_eq!(has_error, code == 1, "{output}");
}

/// Returns a command line of kubectl with the names of both BundleDeployments.
fn both(word: &str) -> String {
    [BLOG, CART]
        .map(|name| format!("bundledeployment.core.rukpak.io/{name} {word}\n"))
        .concat()
}

/// Returns the spec of a BundleDeployment.
async fn spec(cluster: &Cluster, name: &str) -> Value {
    let object = get(cluster, &format!("bundledeployment {name}")).await;
    object.unwrap()["spec"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn several_deployments_are_paused_resumed_and_unmanaged_in_spite_of_a_missing_one() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    kubectl(&cluster, &format!("create namespace {NAMESPACE}")).await;
    let mut references = Vec::new();
    for name in [BLOG, CART] {
        let content = CONFIG
            .replace("name: web", &format!("name: {name}"))
            .replace("team-a", NAMESPACE);
        let reference = publish(&cluster, &format!("{name}:1"), |folder| {
            bundle_of(folder, name, &content)
        })
        .await;
        let line = format!("deploy {name} {reference} --drift report --wait-for ready --wait");
        plugin(&cluster, &line).await.success().unwrap();
        references.push(reference);
    }
    let before = [spec(&cluster, BLOG).await, spec(&cluster, CART).await];
    assert_eq!(before[0]["rollout"]["waitFor"], "Ready");

    let three = format!("{BLOG} {LOST} {CART}");
    let two = format!("{BLOG} {CART}");
    check(&cluster, &format!("pause {three}"), 1, &both("paused")).await;
    for (name, before) in [BLOG, CART].into_iter().zip(&before) {
        let mut expected = before.clone();
        expected["paused"] = json!(true);
        assert_eq!(spec(&cluster, name).await, expected);
    }
    let line = format!("pause {two}");
    check(&cluster, &line, 0, &both("already paused")).await;

    // The plugin keeps the fields of its earlier applies. The BundleDeployment also remains paused.
    let again = format!("deploy {BLOG} {} --drift correct", references[0]);
    plugin(&cluster, &again).await.success().unwrap();
    let changed = spec(&cluster, BLOG).await;
    assert_eq!(changed["paused"], true);
    assert_eq!(changed["rollout"]["waitFor"], "Ready");
    let conflict = plugin(&cluster, &format!("{again} --paused=false")).await;
    let message = conflict.failure(1).unwrap();
    assert!(message.contains("kubectl bundle resume"), "{message}");

    let line = format!("resume {three} --dry-run=server");
    check(&cluster, &line, 1, &both("resumed (server dry run)")).await;
    let paused = format!("get {two} -o json");
    let list: Value = serde_json::from_str(&plugin(&cluster, &paused).await.stdout).unwrap();
    for item in list["items"].as_array().unwrap() {
        assert_eq!(item["spec"]["paused"], true, "{list}");
    }
    let resumed = plugin(&cluster, &format!("resume {two} -o json")).await;
    let list: Value = serde_json::from_str(&resumed.success().unwrap()).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "{list}");
    assert_eq!(spec(&cluster, CART).await, before[1]);
    let line = format!("resume {two}");
    check(&cluster, &line, 0, &both("already resumed")).await;
    // The field is unset, so an apply of the field has no conflict.
    let running = format!("{again} --paused=false --wait");
    plugin(&cluster, &running).await.success().unwrap();

    let deleted = [BLOG, CART]
        .map(|name| format!("bundledeployment.core.rukpak.io \"{name}\" deleted\n"))
        .concat();
    check(&cluster, &format!("unmanage {three}"), 1, &deleted).await;
    for name in [BLOG, CART] {
        let deployment = get(&cluster, &format!("bundledeployment {name}")).await;
        assert_eq!(deployment, None);
        let object = get(&cluster, &format!("configmap {name} -n {NAMESPACE}")).await;
        assert_eq!(object.unwrap()["data"]["text"], "hello");
    }
}
