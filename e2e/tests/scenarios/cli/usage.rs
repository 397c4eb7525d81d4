//! Everyday use of the plugin on a real API server: upgrades that keep settings, waits that end
//! immediately, and lists.

use std::path::Path;
use std::time::{Duration, Instant};

use e2e::{Cluster, Output, Webhook, WebhookOptions, bundles, wait};
use serde_json::{Value, json};

use crate::scenarios::objects;

/// Time limit for a wait that ends because of a condition. A wait that ends because of its timeout
/// is much longer.
const AT_ONCE: Duration = Duration::from_secs(45);

struct Scene {
    cluster: Cluster,
    /// The webhook runs until the scene is dropped.
    _webhook: Webhook,
}

impl Scene {
    async fn start() -> Self {
        let cluster = Cluster::builder().registries(1).start().await.unwrap();
        let webhook = cluster
            .start_webhook(WebhookOptions::default())
            .await
            .unwrap();
        Self {
            cluster,
            _webhook: webhook,
        }
    }

    /// Runs the plugin with this command line.
    async fn plugin(&self, line: &str) -> Output {
        self.cluster
            .kubectl_bundle(line.split_whitespace())
            .await
            .unwrap()
    }

    /// Checks that the plugin ends with this exit code in less than [`AT_ONCE`], and returns its
    /// standard error.
    async fn fails(&self, line: &str, code: i32) -> String {
        let began = Instant::now();
        let stderr = self.plugin(line).await.failure(code).unwrap();
        assert!(began.elapsed() < AT_ONCE, "{line}: {:?}", began.elapsed());
        stderr
    }

    async fn kubectl(&self, line: &str) -> String {
        objects::kubectl(&self.cluster, line).await
    }

    async fn get(&self, what: &str) -> Value {
        objects::get(&self.cluster, what).await.unwrap()
    }

    async fn apply(&self, object: &Value) {
        objects::apply(&self.cluster, object).await;
    }

    /// Builds and pushes the bundle that `write` creates, and returns its pinned reference.
    async fn publish(&self, name: &str, write: impl Fn(&Path) -> anyhow::Result<()>) -> String {
        let folder = self
            .cluster
            .folder()
            .join("data")
            .join(name.replace(':', "-"));
        write(&folder).unwrap();
        let reference = self.cluster.registry(0).unwrap().reference(name);
        let line = format!("push {} {reference} --overwrite-tag", folder.display());
        let pushed = self.plugin(&line).await.success().unwrap();
        pushed.lines().last().unwrap().to_owned()
    }

    /// Waits until the shell completions of kubectl for `words` contain the line `expected`. On a
    /// busy machine, a completion can be empty, because the plugin waits for the cluster only
    /// briefly.
    async fn completes(&self, words: &[&str], expected: &str) {
        wait::until_true(AT_ONCE, &format!("{words:?} completes"), || async {
            let words = ["__complete", "bundle"].iter().chain(words);
            let completions = self.cluster.kubectl(words).await?.success()?;
            let mut names = completions.lines().map(|line| line.split('\t').next());
            anyhow::ensure!(names.any(|name| name == Some(expected)), "{completions}");
            Ok(true)
        })
        .await
        .unwrap();
    }

    /// Creates another class with the spec of the existing class.
    async fn class(&self, name: &str) {
        let mut class = self.get("provisionerclass core-rukpak-io-plain").await;
        class["metadata"] = json!({"name": name});
        class.as_object_mut().unwrap().remove("status");
        self.apply(&class).await;
    }

    /// Creates a user with permission to write the BundleDeployments of one class, including
    /// BundleDeployments of other users. The user has no other permissions.
    async fn user(&self, name: &str, class: &str) {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [
                {"apiGroups": ["core.rukpak.io"], "resources": ["bundledeployments"], "verbs": ["get", "list", "watch", "create", "patch", "manage"]},
                {"apiGroups": ["core.rukpak.io"], "resources": ["provisionerclasses"], "resourceNames": [class], "verbs": ["use"]},
            ],
        });
        self.apply(&role).await;
        self.kubectl(&format!(
            "create clusterrolebinding {name} --clusterrole={name} --user={name}"
        ))
        .await;
    }
}

/// Writes a bundle of only these manifests.
fn bundle_of(folder: &Path, manifests: &str) -> anyhow::Result<()> {
    bundles::greeting(folder, "1.0.0", None)?;
    fs_err::write(folder.join("manifests/greeting.yaml"), manifests)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_keeps_class_and_settings_whose_flags_are_not_given() {
    let scene = Scene::start().await;
    scene.class("production").await;
    let one = scene
        .publish("greeting:1.0.0", |folder| {
            bundles::greeting(folder, "1.0.0", None)
        })
        .await;
    let two = scene
        .publish("greeting:2.0.0", |folder| {
            bundles::greeting(folder, "2.0.0", None)
        })
        .await;
    let deploy = format!(
        "deploy hello {one} --class production --collision adopt --drift report --deletion orphan --wait"
    );
    let message = scene.plugin(&deploy).await;
    assert!(message.stderr.contains("hello is installed"), "{message}");

    // The upgrade keeps all settings, and prints only the changed field.
    let message = scene
        .plugin(&format!("deploy hello {two} --wait=healthy"))
        .await;
    let changed = format!("  spec.template.spec.source.image.ref: {one} -> {two}");
    assert!(
        message.stderr.lines().any(|line| line == changed),
        "{message}"
    );
    assert!(
        message.stderr.contains("hello is installed and healthy"),
        "{message}"
    );
    assert!(
        !message.stderr.contains("provisionerClassName"),
        "{message}"
    );
    let object = scene.get("bundledeployment hello").await;
    let spec = &object["spec"];
    assert_eq!(spec["provisionerClassName"], "production", "{spec}");
    assert_eq!(
        spec["template"]["spec"]["provisionerClassName"],
        "production"
    );
    assert_eq!(spec["collision"], "Adopt");
    assert_eq!(spec["drift"]["mode"], "Report");
    assert_eq!(spec["deletion"]["objects"], "Orphan");
    assert_eq!(object["status"]["installed"]["version"], "2.0.0");

    // A field that another field manager set is not changed, and its field manager still owns the
    // field.
    scene
        .kubectl("patch bundledeployment hello --type=merge -p {\"spec\":{\"paused\":true}}")
        .await;
    scene
        .plugin(&format!("deploy hello {one}"))
        .await
        .success()
        .unwrap();
    let object = scene.get("bundledeployment hello").await;
    assert_eq!(object["spec"]["paused"], true, "{object}");
    let paused = scene
        .fails(&format!("deploy hello {one} --wait --timeout 2m"), 3)
        .await;
    assert!(paused.contains("spec.paused is true"), "{paused}");
    let conflict = scene
        .fails(&format!("deploy hello {one} --paused=false"), 1)
        .await;
    assert!(conflict.contains("--force-conflicts"), "{conflict}");
    let line = format!("deploy hello {one} --paused=false --force-conflicts --wait");
    scene.plugin(&line).await.success().unwrap();

    // A change of the class requires the verb `use` on both classes.
    scene.user("ana", "core-rukpak-io-plain").await;
    let switch = format!("deploy hello {one} --class core-rukpak-io-plain");
    let refused = scene.fails(&format!("{switch} --as ana"), 3).await;
    assert!(
        refused.contains(
            "hello changes from class production to class core-rukpak-io-plain: this \
         requires verb use on both classes"
        ),
        "{refused}"
    );
    assert!(
        refused.contains("provisioner class \"production\""),
        "{refused}"
    );
    let object = scene.get("bundledeployment hello").await;
    assert_eq!(object["spec"]["provisionerClassName"], "production");
    scene.plugin(&switch).await.success().unwrap();

    let message = scene.plugin("delete hello").await;
    assert!(
        message.stderr.contains("hello: 3 objects stay"),
        "{message}"
    );
    assert!(
        message.stderr.contains("hello is gone; its objects stay"),
        "{message}"
    );
    scene.kubectl("get configmap greeting -n greeting").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_returns_at_once_if_only_a_change_can_help() {
    let scene = Scene::start().await;
    let hello = scene
        .publish("greeting:1.0.0", |folder| {
            bundles::greeting(folder, "1.0.0", None)
        })
        .await;

    let unknown = scene
        .fails(&format!("deploy lost {hello} --class nowhere --wait"), 3)
        .await;
    assert!(
        unknown.contains("ProvisionerClass nowhere does not exist, so lost is not installed"),
        "{unknown}"
    );

    scene.user("ana", "core-rukpak-io-plain").await;
    // The user has no permission to read Events, so the command must use only the conditions.
    let denied = scene
        .fails(&format!("deploy hers {hello} --wait --as ana"), 3)
        .await;
    assert!(
        denied.contains("ana") && denied.contains("error: bundledeployment hers: "),
        "{denied}"
    );

    scene.kubectl("create namespace greeting").await;
    let exists = scene
        .fails(&format!("deploy hello {hello} --wait"), 3)
        .await;
    assert!(exists.contains("[BUNDLE-INSTALL-002]"), "{exists}");
    assert!(
        exists.contains("waiting for hello to be installed"),
        "{exists}"
    );
    let adopt = format!("deploy hello {hello} --collision Adopt --wait");
    scene.plugin(&adopt).await.success().unwrap();

    let broken = scene
        .publish("broken:1.0.0", |folder| {
            bundle_of(folder, "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: default}\nspec: {ports: [{name: a, port: 80}, {name: a, port: 81}]}\n")
        })
        .await;
    let invalid = scene
        .plugin(&format!("deploy broken {broken} --wait --timeout 60s"))
        .await;
    assert_eq!(invalid.code, Some(1), "{invalid}");
    for part in ["Duplicate value", "[BUNDLE-INSTALL-023]"] {
        assert!(invalid.stderr.contains(part), "{invalid}");
    }

    // Without a node no Pod runs, so the wait ends only with its timeout.
    let idle = scene
        .publish("idle:1.0.0", |folder| {
            bundle_of(folder, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: idle, namespace: default}\nspec:\n  selector: {matchLabels: {app: idle}}\n  template:\n    metadata: {labels: {app: idle}}\n    spec: {containers: [{name: idle, image: 'registry.k8s.io/pause:3.10'}]}\n")
        })
        .await;
    scene
        .plugin(&format!("deploy idle {idle} --wait"))
        .await
        .success()
        .unwrap();
    let late = scene
        .fails(
            &format!("deploy idle {idle} --wait=healthy --timeout 15s"),
            4,
        )
        .await;
    assert!(
        late.contains("[BUNDLE-CLUSTER-004]") && late.contains("Deployment"),
        "{late}"
    );

    let kinds = scene
        .publish("kinds:1.0.0", |folder| {
            bundle_of(folder, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: notes.example.com}\nspec:\n  group: example.com\n  scope: Namespaced\n  names: {plural: notes, singular: note, kind: Note}\n  versions:\n  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n")
        })
        .await;
    scene
        .plugin(&format!("deploy kinds {kinds} --wait"))
        .await
        .success()
        .unwrap();
    let note = json!({"apiVersion": "example.com/v1", "kind": "Note", "metadata": {"name": "mine", "namespace": "default"}});
    scene.apply(&note).await;
    let left = scene.fails("delete kinds", 3).await;
    assert!(
        left.contains("[BUNDLE-INSTALL-016]") && left.contains("notes exist"),
        "{left}"
    );
    scene.kubectl("delete note mine -n default").await;
    // The removal continues after the command has ended, and may be complete before the next read.
    let gone = scene.plugin("delete kinds").await;
    assert!(
        gone.stderr.contains("kinds is gone") || gone.stderr.contains("not found"),
        "{gone}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_completes_names_and_lists_show_what_was_created_and_corrected() {
    let scene = Scene::start().await;
    let hello = scene
        .publish("greeting:1.0.0", |folder| {
            bundles::greeting(folder, "1.0.0", None)
        })
        .await;
    for line in [
        format!("create mine {hello} --wait"),
        format!("deploy hello {hello} --wait"),
    ] {
        scene.plugin(&line).await.success().unwrap();
    }
    scene.kubectl("delete configmap greeting -n greeting").await;
    wait::until_true(AT_ONCE, "the correction is counted", || async {
        let table = scene.plugin("get -A").await.success()?;
        let row = table.lines().find(|line| line.starts_with("hello "));
        let cells: Vec<_> = row.unwrap_or_default().split_whitespace().collect();
        Ok(cells.get(6).is_some_and(|count| *count != "0"))
    })
    .await
    .unwrap();
    let table = scene.plugin("get").await.success().unwrap();
    assert!(table.contains("CORRECTED"), "{table}");
    assert!(
        table.lines().any(|line| line.starts_with("mine ")),
        "{table}"
    );
    assert!(!table.contains("hello-"), "a generated Bundle: {table}");
    let page = scene.plugin("status hello").await.success().unwrap();
    assert!(
        page.contains("Corrected: ") && page.contains("ConfigMap/greeting/greeting"),
        "{page}"
    );
    let plain = scene.plugin("get hello -o yaml").await.success().unwrap();
    assert!(!plain.contains("managedFields"), "{plain}");
    let whole = scene
        .plugin("get hello -o yaml --show-managed-fields")
        .await
        .success()
        .unwrap();
    assert!(whole.contains("managedFields"), "{whole}");

    // kubectl itself requests the completions.
    let bin = scene.cluster.folder().join("bin");
    let installed = scene.plugin("completion install").await.success().unwrap();
    let file = bin.join("kubectl_complete-bundle");
    assert_eq!(installed.trim(), file.display().to_string());
    scene.completes(&["status", ""], "hello").await;
    let class = ["deploy", "web", "--class", "core"];
    scene.completes(&class, "core-rukpak-io-plain").await;
    scene.completes(&["re"], "render").await;
}
