//! Charts, which real helm renders in the pod: installed from images, archives and git, configured,
//! and restored. If a chart is rejected, the message names the template, value or hook that is the
//! reason.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bundle_testkit::file_server::{FileResponse, FileServer};
use e2e::webhook::{NAMESPACE, Webhook};
use e2e::{Cluster, Tool, WebhookOptions, tools, wait};
use serde_json::{Value, json};

use crate::scenarios::content::formats::write;
use crate::scenarios::reconcile::sources::git::Repository;
use crate::scenarios::reconcile::sources::http;
use crate::scenarios::reconcile::{
    LONG, apply, condition, get, installed, kubectl, publish, until_reason,
};

/// Class of RukPak for charts.
const CLASS: &str = "core-rukpak-io-helm";
/// A class for charts that allows the addresses of the servers in these scenarios.
pub(super) const LOCAL_CLASS: &str = "charts";

const CHART: &str =
    "apiVersion: v2\nname: web\nversion: 1.4.0\ndependencies: [{name: db, version: 1.0.0}]\n";
const VALUES: &str = "replicas: 1\ngreeting: hello\n";
const SCHEMA: &str = r#"{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"replicas": {"type": "integer", "minimum": 0}}}"#;
const TEMPLATE: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example.com/web@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-facts}
data:
  namespace: {{ .Release.Namespace }}
  greeting: {{ .Values.greeting | quote }}
  version: {{ .Capabilities.KubeVersion.Version }}
  kind: {{ .Capabilities.APIVersions.Has "core.rukpak.io/v1alpha1/BundleDeployment" | quote }}
  {{- if .Values.unused }}
  time: {{ now | quote }}
  {{- end }}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .Release.Name }}-hook, annotations: {helm.sh/hook: "pre-install,pre-upgrade"}}
---
apiVersion: v1
kind: Pod
metadata: {name: {{ .Release.Name }}-test, annotations: {helm.sh/hook: test}}
spec: {containers: [{name: web, image: "registry.example.com/web@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]}
"#;
const DEFINITION: &str = r"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.charts.example.com}
spec:
  group: charts.example.com
  names: {kind: Shop, plural: shops}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";
const SHOP: &str =
    "apiVersion: charts.example.com/v1\nkind: Shop\nmetadata: {name: {{ .Release.Name }}}\n";
const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n";

/// The chart of these scenarios, with a dependency and a definition.
const FILES: [(&str, &str); 7] = [
    ("Chart.yaml", CHART),
    ("values.yaml", VALUES),
    ("values.schema.json", SCHEMA),
    ("templates/web.yaml", TEMPLATE),
    ("crds/shops.yaml", DEFINITION),
    (
        "charts/db/Chart.yaml",
        "apiVersion: v2\nname: db\nversion: 1.0.0\n",
    ),
    ("charts/db/templates/shop.yaml", SHOP),
];

/// A folder with a script `helm`, which records each run and starts the real helm.
struct CountedHelm {
    folder: PathBuf,
    runs: PathBuf,
}

impl CountedHelm {
    fn new(folder: &Path) -> Self {
        Self::delayed(folder, 0)
    }

    /// Returns a script that waits for `seconds` before it starts helm.
    fn delayed(folder: &Path, seconds: u64) -> Self {
        let real = tools::path(Tool::Helm, None).unwrap();
        let (bin, runs) = (folder.join("bin"), folder.join("runs"));
        fs_err::create_dir_all(&bin).unwrap();
        let (real, log) = (real.display(), runs.display());
        let script =
            format!("#!/bin/sh\necho run >> {log}\n/bin/sleep {seconds}\nexec {real} \"$@\"\n");
        let helm = bin.join("helm");
        fs_err::write(&helm, script).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs_err::set_permissions(&helm, executable).unwrap();
        Self { folder: bin, runs }
    }

    fn runs(&self) -> usize {
        let text = fs_err::read_to_string(&self.runs).unwrap_or_default();
        text.lines().count()
    }

    /// Returns options for a webhook that uses this script, with the memory that charts need.
    fn options(&self) -> WebhookOptions {
        WebhookOptions {
            flags: ["--memory-limit", "512Mi"].map(str::to_owned).into(),
            programs: vec![self.folder.clone()],
            ..WebhookOptions::default()
        }
    }
}

pub(super) fn deployment(name: &str, class: &str, source: &Value, config: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {
            "provisionerClassName": class,
            "targetNamespace": "team-a",
            "config": config,
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "provisionerClassName": class, "source": source,
            }},
        },
    })
}

async fn until_data(cluster: &Cluster, name: &str, key: &str, value: &str) {
    let what = format!("{key} of ConfigMap {name} is {value}");
    wait::until_true(LONG, &what, || async {
        let object = get(cluster, &format!("configmap {name} -n team-a")).await;
        Ok(object.is_some_and(|object| object["data"][key] == value))
    })
    .await
    .unwrap();
}

async fn until_replicas(cluster: &Cluster, replicas: u64) {
    let what = format!("the Deployment has {replicas} replicas");
    wait::until_true(LONG, &what, || async {
        let object = get(cluster, "deployment web -n team-a").await;
        Ok(object.is_some_and(|object| object["spec"]["replicas"] == replicas))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_is_configured_upgraded_in_place_and_restored_without_helm() {
    let folder = tempfile::tempdir().unwrap();
    let helm = CountedHelm::new(folder.path());
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let mut webhook = cluster.start_webhook(helm.options()).await.unwrap();
    // The plugin finds helm in the same folder as the other programs of the cluster.
    cluster.tool(Tool::Helm).await.unwrap();
    let reference = publish(&cluster, "team/chart:1", |folder| {
        write(folder, &FILES);
        Ok(())
    })
    .await;
    kubectl(&cluster, "create namespace team-a").await;
    let source = json!({"type": "image", "image": {"ref": reference}});
    let configured = |config: &Value| deployment("web", CLASS, &source, config);
    apply(&cluster, &configured(&json!({"values": "replicas: 2\n"}))).await;
    installed(&cluster, "web").await;
    until_replicas(&cluster, 2).await;
    let facts = get(&cluster, "configmap web-facts -n team-a")
        .await
        .unwrap();
    let version = kubectl(&cluster, "version -o json").await;
    let version: Value = serde_json::from_str(&version).unwrap();
    let expected = json!({
        "namespace": "team-a", "greeting": "hello", "kind": "true",
        "version": version["serverVersion"]["gitVersion"],
    });
    assert_eq!(facts["data"], expected);
    for present in ["serviceaccount web-hook", "shops.charts.example.com web"] {
        let found = get(&cluster, &format!("{present} -n team-a")).await;
        assert!(found.is_some(), "{present}");
    }
    assert_eq!(get(&cluster, "pod web-test -n team-a").await, None);
    let releases = kubectl(&cluster, "get secrets -A -l owner=helm -o name").await;
    assert_eq!(releases.trim(), "");
    let object = get(&cluster, "bundledeployment web").await.unwrap();
    let warnings = &object["status"]["warnings"];
    assert!(warnings.is_null() || warnings == &json!([]), "{warnings}");
    let active = object["status"]["activeBundle"].clone();

    // The configuration is a map instead of a text, and has another value.
    apply(
        &cluster,
        &configured(&json!({"replicas": 3, "greeting": "good"})),
    )
    .await;
    until_replicas(&cluster, 3).await;
    until_data(&cluster, "web-facts", "greeting", "good").await;
    installed(&cluster, "web").await;
    let object = get(&cluster, "bundledeployment web").await.unwrap();
    assert_eq!(object["status"]["activeBundle"], active, "in place");

    let runs = helm.runs();
    kubectl(&cluster, "delete deployment web -n team-a").await;
    until_replicas(&cluster, 3).await;
    webhook.restart().await.unwrap();
    kubectl(&cluster, "delete configmap web-facts -n team-a").await;
    until_data(&cluster, "web-facts", "greeting", "good").await;
    assert_eq!(helm.runs(), runs, "the objects are in the cache");

    // If values are wrong, the message contains their path, and nothing is changed.
    let wrong = json!({"values": "replicas: many\n"});
    apply(&cluster, &configured(&wrong)).await;
    let what = "bundledeployment web";
    let message = until_reason(&cluster, what, "Installed", "InvalidConfiguration").await;
    assert!(
        message.contains("spec.config.values.replicas: "),
        "{message}"
    );
    until_replicas(&cluster, 3).await;
    let invalid = json!({"values": "replicas: [\n"});
    apply(&cluster, &configured(&invalid)).await;
    wait::until_true(LONG, "the invalid text is named", || async {
        let found = until_reason(&cluster, what, "Installed", "InvalidConfiguration").await;
        Ok(found.contains("spec.config.values: line "))
    })
    .await
    .unwrap();
    let time = json!({"unused": true});
    apply(&cluster, &configured(&time)).await;
    let failed = until_failed(&cluster, "web", "calls `now`").await;
    assert!(failed.contains("templates/web.yaml:20: "), "{failed}");
    apply(&cluster, &configured(&json!({}))).await;
    until_replicas(&cluster, 1).await;
    installed(&cluster, "web").await;
}

/// Waits until a BundleDeployment or its Bundle reports this text, and returns the message.
pub(super) async fn until_failed(cluster: &Cluster, name: &str, expected: &str) -> String {
    wait::until(LONG, &format!("{name} reports: {expected}"), || async {
        let what = format!("bundledeployment {name}");
        let object = get(cluster, &what).await.unwrap_or_default();
        let messages = ["HasValidBundle", "Installed"].map(|kind| {
            let found = condition(&object, kind);
            let is_false = found["status"] == "False";
            let message = found["message"].as_str().filter(|_| is_false);
            message.unwrap_or_default().to_owned()
        });
        match messages.iter().find(|message| message.contains(expected)) {
            Some(message) => Ok(Some(message.clone())),
            None => anyhow::bail!("{messages:?}"),
        }
    })
    .await
    .unwrap()
}

/// Starts a webhook with helm, a server, and a class that allows charts from this server.
pub(super) async fn http_stage(folder: &Path) -> (Cluster, Webhook, FileServer) {
    let helm = CountedHelm::new(folder);
    let (cluster, webhook, server) = http::stage(helm.options()).await;
    apply(&cluster, &local_class(LOCAL_CLASS)).await;
    kubectl(&cluster, "create namespace team-a").await;
    (cluster, webhook, server)
}

fn local_class(name: &str) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass",
        "metadata": {"name": name},
        "spec": {
            "provisioner": "core.rukpak.io/helm",
            "serviceAccount": {"namespace": NAMESPACE, "name": "installer"},
            "sources": {"privateAddresses": "Allow"},
        },
    })
}

/// Returns the files of a chart `web` with one more file.
pub(super) fn chart_with<'a>(path: &'a str, text: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        (
            "web/Chart.yaml",
            "apiVersion: v2\nname: web\nversion: 1.4.0\n",
        ),
        ("web/templates/config.yaml", CONFIG_MAP),
        (path, text),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_of_a_chart_is_installed_and_bad_ones_are_rejected_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, _webhook, server) = http_stage(folder.path()).await;
    let source = |name: &str| {
        let url = format!("https://{}/{name}.tgz", server.host());
        json!({"type": "http", "http": {"url": url}})
    };
    let install = |name: &'static str, files: &[(&str, &str)]| {
        let response = FileResponse::File(http::archive(files));
        server.respond(&format!("/{name}.tgz"), response);
        deployment(name, LOCAL_CLASS, &source(name), &json!({}))
    };
    let top: Vec<(String, &str)> = FILES
        .iter()
        .map(|(path, text)| (format!("web/{path}"), *text))
        .collect();
    let top: Vec<(&str, &str)> = top
        .iter()
        .map(|(path, text)| (path.as_str(), *text))
        .collect();
    apply(&cluster, &install("web", &top)).await;
    installed(&cluster, "web").await;
    until_replicas(&cluster, 1).await;
    kubectl(&cluster, "delete deployment web -n team-a").await;
    until_replicas(&cluster, 1).await;

    let secret = "kind: Secret\napiVersion: v1\nmetadata: {name: a}\nstringData: {a: ";
    let lookup = format!("{secret}{{{{ (lookup \"v1\" \"Secret\" \"a\" \"b\").data }}}}}}\n");
    let random = format!("{secret}{{{{ randAlphaNum 20 }}}}}}\n");
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate, annotations: {helm.sh/hook: pre-upgrade}}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}\n";
    let dependent = "apiVersion: v2\nname: web\nversion: 1.4.0\ndependencies: [{name: db, version: 1.0.0, repository: 'https://charts.example.com'}]\n";
    let bad = |path, text| chart_with(path, text);
    for (name, files, expected) in [
        (
            "lookup",
            bad("web/templates/a.yaml", &lookup),
            "templates/a.yaml:4: the template calls `lookup`",
        ),
        (
            "random",
            bad("web/templates/a.yaml", &random),
            "templates/a.yaml: two renderings",
        ),
        (
            "hook",
            bad("web/templates/a.yaml", job),
            "Job.batch/migrate: the hook pre-upgrade",
        ),
        (
            "failing",
            bad("web/templates/a.yaml", "a: 1\n{{ fail \"no luck\" }}\n"),
            "templates/a.yaml:2: helm cannot render the chart: ",
        ),
        (
            "dependent",
            vec![("web/Chart.yaml", dependent)],
            "found in Chart.yaml, but missing in charts/ directory: db",
        ),
        (
            "nochart",
            vec![("README.md", "no chart")],
            "Chart.yaml file is missing",
        ),
    ] {
        apply(&cluster, &install(name, &files)).await;
        let message = until_failed(&cluster, name, expected).await;
        // Each message names a next step.
        assert!(message.contains(" ("), "{message}");
        let objects = kubectl(&cluster, "get secret,job,configmap -n team-a -o name").await;
        assert!(!objects.contains(&format!("/{name}")), "{objects}");
    }
    server.respond("/page.tgz", FileResponse::Html("<html>log in</html>"));
    let page = deployment("page", LOCAL_CLASS, &source("page"), &json!({}));
    apply(&cluster, &page).await;
    until_failed(&cluster, "page", "gzip: invalid header").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_in_git_is_installed_with_values_from_a_folder_or_the_root() {
    let folder = tempfile::tempdir().unwrap();
    let helm = CountedHelm::new(folder.path());
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let _webhook = cluster.start_webhook(helm.options()).await.unwrap();
    kubectl(&cluster, "create namespace team-a").await;
    let repository = Repository::start(&cluster, "charts").await;
    repository.allow(&cluster, "charts").await;
    apply(&cluster, &local_class(LOCAL_CLASS)).await;
    for (path, text) in FILES {
        repository.write(&format!("deploy/web/{path}"), text);
    }
    repository.write("Chart.yaml", "apiVersion: v2\nname: root\nversion: 1.0.0\n");
    repository.write("templates/config.yaml", CONFIG_MAP);
    repository.push(false).await;
    let branch = json!({"branch": "main"});
    let source = |directory| repository.source("charts", directory, &branch);
    let values = json!({"values": "replicas: 4\n"});
    let web = deployment("web", LOCAL_CLASS, &source("deploy/web"), &values);
    apply(&cluster, &web).await;
    let root = deployment("root", LOCAL_CLASS, &source("."), &json!({}));
    apply(&cluster, &root).await;
    installed(&cluster, "web").await;
    until_replicas(&cluster, 4).await;
    installed(&cluster, "root").await;
    assert!(get(&cluster, "configmap root -n team-a").await.is_some());
}

/// Creates and deletes a CustomResourceDefinition without end. `changes` counts the deletions.
async fn change_served_apis(cluster: &Cluster, changes: &AtomicUsize) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "flips.flip.example.com"},
        "spec": {
            "group": "flip.example.com", "scope": "Namespaced",
            "names": {"kind": "Flip", "plural": "flips"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    loop {
        apply(cluster, &definition).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        kubectl(cluster, "delete crd flips.flip.example.com").await;
        changes.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Serves a valid chart at a URL of `server`. Returns a BundleDeployment of this chart.
fn deployment_of_served_chart(server: &FileServer) -> Value {
    let files = chart_with("web/values.yaml", "a: 1\n");
    server.respond("/web.tgz", FileResponse::File(http::archive(&files)));
    let url = format!("https://{}/web.tgz", server.host());
    let source = json!({"type": "http", "http": {"url": url}});
    deployment("web", LOCAL_CLASS, &source, &json!({}))
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_is_rendered_once_and_restored_while_served_apis_change() {
    let folder = tempfile::tempdir().unwrap();
    // The rendering takes longer than the time that a reconcile waits for it, and longer than the
    // time between two changes of the served APIs.
    let helm = CountedHelm::delayed(folder.path(), 8);
    let (cluster, _webhook, server) = http::stage(helm.options()).await;
    apply(&cluster, &local_class(LOCAL_CLASS)).await;
    kubectl(&cluster, "create namespace team-a").await;
    let object = deployment_of_served_chart(&server);
    let changes = AtomicUsize::new(0);
    let until_changed = async || {
        let before = changes.load(Ordering::SeqCst);
        wait::until_true(LONG, "the served APIs change", || async {
            Ok(changes.load(Ordering::SeqCst) > before)
        })
        .await
        .unwrap();
    };
    let scenario = async {
        until_changed().await;
        apply(&cluster, &object).await;
        installed(&cluster, "web").await;
        assert_eq!(helm.runs(), 1);
        kubectl(&cluster, "delete configmap web -n team-a").await;
        wait::until_true(LONG, "the object is restored", || async {
            Ok(get(&cluster, "configmap web -n team-a").await.is_some())
        })
        .await
        .unwrap();
        until_changed().await;
        assert_eq!(helm.runs(), 1);
    };
    tokio::select! {
        () = change_served_apis(&cluster, &changes) => {}
        () = scenario => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_without_helm_names_the_image_that_has_it() {
    let options = WebhookOptions {
        flags: ["--memory-limit", "512Mi"].map(str::to_owned).into(),
        ..WebhookOptions::default()
    };
    let (cluster, _webhook, server) = http::stage(options).await;
    apply(&cluster, &local_class(LOCAL_CLASS)).await;
    kubectl(&cluster, "create namespace team-a").await;
    let object = deployment_of_served_chart(&server);
    apply(&cluster, &object).await;
    let message = until_failed(&cluster, "web", "this pod has no `helm` program").await;
    assert!(message.contains("whose tag ends with -full"), "{message}");
}
