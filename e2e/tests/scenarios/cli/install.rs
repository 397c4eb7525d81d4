//! `kubectl bundle install` and `uninstall` on a real API server: a dump of every object before and
//! after the installation, rejections, waits, and a comparison with the objects that the chart
//! renders. The cluster has no node: the scenario writes the status of Pods.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::{Cluster, Output, Tool, WebhookOptions, bundles, wait};
use serde_json::{Value, json};

use crate::scenarios::objects::{get, kubectl, try_kubectl};
use crate::scenarios::pod::chart::{folder as chart, helm};

const SOON: Duration = Duration::from_secs(60);
const IMAGE: &str = "registry.example.com/bundle-webhook@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
/// Kinds whose objects change without a write: Events expire, and ComponentStatus is computed for
/// each request.
const EXCLUDED: [&str; 3] = ["events", "events.events.k8s.io", "componentstatuses"];

async fn plugin(cluster: &Cluster, line: &str) -> Output {
    cluster.kubectl_bundle(line.split(' ')).await.unwrap()
}

/// Returns every object of the cluster by kind, namespace and name, without fields that the API
/// server updates.
pub(in crate::scenarios) async fn dump(
    cluster: &Cluster,
) -> anyhow::Result<BTreeMap<String, Value>> {
    let kinds = cluster
        .kubectl(["api-resources", "--verbs=list", "-o", "name"])
        .await?
        .success()?;
    let kinds: Vec<&str> = kinds
        .lines()
        .filter(|kind| !EXCLUDED.contains(kind))
        .collect();
    let list = cluster
        .kubectl(["get", "-A", "-o", "json", &kinds.join(",")])
        .await?
        .success()?;
    let mut list: Value = serde_json::from_str(&list)?;
    let mut objects = BTreeMap::new();
    for mut object in list["items"].as_array_mut().unwrap().drain(..) {
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.remove("renewTime");
        }
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let key = format!(
            "{} {} {}/{}",
            text("/apiVersion").unwrap_or_default(),
            text("/kind").unwrap_or_default(),
            text("/metadata/namespace").unwrap_or_default(),
            text("/metadata/name").unwrap_or_default(),
        );
        objects.insert(key, object);
    }
    Ok(objects)
}

/// Waits until the cluster has exactly the objects of `before`: controllers react to a removal with
/// a delay.
async fn until_as_before(cluster: &Cluster, before: &BTreeMap<String, Value>) {
    wait::until_true(SOON, "the cluster is as before", || async {
        let now = dump(cluster).await?;
        let keys = before.keys().chain(now.keys());
        let different: Vec<&String> = keys
            .filter(|key| before.get(*key) != now.get(*key))
            .collect();
        if different.is_empty() {
            return Ok(true);
        }
        anyhow::bail!("different: {different:?}")
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_leaves_the_cluster_as_before_install() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let cluster = &cluster;
    let before = dump(cluster).await.unwrap();

    let tried = plugin(
        cluster,
        &format!("install --image {IMAGE} --dry-run=server"),
    )
    .await
    .success()
    .unwrap();
    assert!(
        tried.contains(
            "clusterrole.rbac.authorization.k8s.io/bundle-webhook created (server dry run)"
        ),
        "{tried}"
    );
    until_as_before(cluster, &before).await;
    let nothing = plugin(cluster, "uninstall").await.failure(1).unwrap();
    assert!(nothing.contains("BUNDLE-CLUSTER-012"), "{nothing}");

    let installed = plugin(cluster, &format!("install --image {IMAGE}")).await;
    for granted in [
        "ServiceAccount bundle-system/installer: ClusterRole cluster-admin in the whole cluster",
        "a user with its token is as powerful as cluster-admin",
    ] {
        assert!(installed.stderr.contains(granted), "{installed}");
    }
    assert!(!installed.stderr.contains("which can move"), "{installed}");
    let installed = installed.success().unwrap();
    assert!(
        installed.ends_with(
            "validatingwebhookconfiguration.admissionregistration.k8s.io/bundle-webhook created"
        ),
        "{installed}"
    );
    let classes = kubectl(cluster, "get provisionerclasses -o name").await;
    assert_eq!(classes.lines().count(), 3, "{classes}");
    let deployment = get(cluster, "deployment bundle-webhook -n bundle-system")
        .await
        .unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], IMAGE);

    let second = plugin(cluster, &format!("install --image {IMAGE}"))
        .await
        .failure(3)
        .unwrap();
    assert!(
        second.contains("BUNDLE-CLUSTER-009")
            && second.contains("kubectl bundle install created it"),
        "{second}"
    );

    plugin(cluster, "uninstall --dry-run=server")
        .await
        .success()
        .unwrap();
    assert!(
        get(cluster, "deployment bundle-webhook -n bundle-system")
            .await
            .is_some()
    );
    let removed = plugin(cluster, "uninstall").await.success().unwrap();
    let first: Vec<&str> = removed.lines().take(2).collect();
    assert!(
        first
            .iter()
            .all(|line| line.contains("webhookconfiguration")),
        "{removed}"
    );
    until_as_before(cluster, &before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_finds_an_installation_in_another_namespace() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let cluster = &cluster;
    let before = dump(cluster).await.unwrap();
    let line = format!("install --image {IMAGE} --system-namespace install-other");
    let forbidden = plugin(cluster, &format!("{line} --as=install-nobody")).await;
    forbidden.failure(3).unwrap();
    until_as_before(cluster, &before).await;

    // The remaining objects of an interrupted installation are overwritten, and later removed with
    // the other objects.
    plugin(cluster, &line).await.success().unwrap();
    for leftover in [
        "validatingwebhookconfiguration",
        "mutatingwebhookconfiguration",
    ] {
        kubectl(cluster, &format!("delete {leftover} bundle-webhook")).await;
    }
    for kinds in [
        "deploy,pdb,service,networkpolicy,serviceaccount,role,rolebinding -n install-other",
        "role,rolebinding -n install-other-state",
        "clusterrole,clusterrolebinding",
    ] {
        let line = format!("delete {kinds} -l app.kubernetes.io/managed-by=kubectl-bundle");
        kubectl(cluster, &line).await;
    }
    plugin(cluster, &line).await.success().unwrap();
    let class = get(cluster, "provisionerclass core-rukpak-io-plain").await;
    let account = &class.unwrap()["spec"]["serviceAccount"];
    assert_eq!(account["namespace"], "install-other");
    let wrong = plugin(cluster, "uninstall --system-namespace bundle-system").await;
    let wrong = wrong.failure(2).unwrap();
    assert!(wrong.contains("is in namespace install-other"), "{wrong}");
    plugin(cluster, "uninstall").await.success().unwrap();
    until_as_before(cluster, &before).await;
}

/// Publishes a small bundle, and returns its reference.
async fn publish(cluster: &Cluster) -> String {
    let folder = cluster.folder().join("data").join("install-greeting");
    bundles::greeting(&folder, "1.0.0", None).unwrap();
    let reference = cluster
        .registry(0)
        .unwrap()
        .reference("install-greeting:1.0.0");
    let line = format!("push {} {reference}", folder.display());
    let pushed = plugin(cluster, &line).await.success().unwrap();
    pushed.lines().last().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_deletes_or_orphans_objects_of_bundles() {
    let cluster = Cluster::builder().start().await.unwrap();
    let cluster = &cluster;
    let reference = publish(cluster).await;
    let before = dump(cluster).await.unwrap();
    for mode in ["delete", "orphan"] {
        plugin(cluster, &format!("install --image {IMAGE}"))
            .await
            .success()
            .unwrap();
        // In this scenario the webhook is a process of the harness. The harness creates the
        // registrations again without the label of the project. `uninstall` must remove these
        // registrations too.
        kubectl(
            cluster,
            "delete validatingwebhookconfiguration,mutatingwebhookconfiguration bundle-webhook",
        )
        .await;
        let mut webhook = cluster
            .start_webhook(WebhookOptions::default())
            .await
            .unwrap();
        plugin(
            cluster,
            &format!("deploy install-greeting {reference} --class core-rukpak-io-plain --wait"),
        )
        .await
        .success()
        .unwrap();
        let installed = dump(cluster).await.unwrap();
        let refused = plugin(cluster, "uninstall").await.failure(3).unwrap();
        assert!(
            refused.contains("BUNDLE-CLUSTER-010") && refused.contains("install-greeting"),
            "{refused}"
        );
        assert!(
            get(cluster, "validatingwebhookconfiguration bundle-webhook")
                .await
                .is_some()
        );
        plugin(cluster, &format!("uninstall --bundle-deployments={mode}"))
            .await
            .success()
            .unwrap();
        webhook.kill().unwrap();
        if mode == "delete" {
            until_as_before(cluster, &before).await;
            continue;
        }
        let now = dump(cluster).await.unwrap();
        let content = |key: &&String| key.contains("greeting") && !key.contains("rukpak");
        let kept: Vec<&String> = installed.keys().filter(content).collect();
        assert!(!kept.is_empty());
        for key in kept {
            assert!(now.contains_key(key), "{key} is gone");
        }
        let left = kubectl(cluster, "get crd,clusterrole,namespace -o name").await;
        assert!(
            !left.contains("rukpak") && !left.contains("bundle-"),
            "{left}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn release_of_helm_is_named_and_its_kept_objects_survive() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let cluster = &cluster;
    let line = "install pods CHART --namespace default --set image.repository=registry.example.com/w,image.tag=install-test";
    let release = helm(cluster, Tool::Helm, line)
        .await
        .output()
        .await
        .unwrap();
    release.success().unwrap();
    let refused = plugin(cluster, &format!("install --image {IMAGE}"))
        .await
        .failure(3)
        .unwrap();
    assert!(
        refused.contains("it belongs to Helm release pods in namespace default"),
        "{refused}"
    );
    let refused = plugin(cluster, "uninstall").await.failure(1).unwrap();
    assert!(
        refused.contains("helm uninstall pods --namespace default"),
        "{refused}"
    );
    let line = "uninstall pods --namespace default";
    let removed = helm(cluster, Tool::Helm, line)
        .await
        .output()
        .await
        .unwrap();
    removed.success().unwrap();

    // Helm has not deleted CRDs and namespaces. `install` does not treat these objects as another
    // installation, and `uninstall` does not delete these objects.
    kubectl(
        cluster,
        "create secret generic install-regcred -n bundle-system",
    )
    .await;
    let before = dump(cluster).await.unwrap();
    let installed = plugin(cluster, &format!("install --image {IMAGE}")).await;
    assert!(
        installed
            .stderr
            .contains("namespace/bundle-system exists and is not changed"),
        "{installed}"
    );
    installed.success().unwrap();
    plugin(cluster, "uninstall").await.success().unwrap();
    until_as_before(cluster, &before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn install_waits_until_all_pods_are_ready() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let cluster = &cluster;
    let late = plugin(
        cluster,
        &format!("install --image {IMAGE} --wait --timeout=15s"),
    )
    .await
    .failure(4)
    .unwrap();
    assert!(late.contains("0 of 2 pods are ready"), "{late}");
    plugin(cluster, "uninstall").await.success().unwrap();

    let line = format!("install --image {IMAGE} --wait --timeout=60s");
    let install = plugin(cluster, &line);
    let make_ready = wait::until_true(SOON, "both pods are ready", || async {
        let pods = try_kubectl(
            cluster,
            "get pods -n bundle-system -l app.kubernetes.io/name=bundle-webhook -o name",
        )
        .await
        .success()?;
        for pod in pods.lines() {
            let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            let words = ["patch", pod, "-n", "bundle-system", "--subresource=status"];
            let patch = ["--type=merge", "-p", &status.to_string()];
            cluster
                .kubectl(words.into_iter().chain(patch))
                .await?
                .success()?;
        }
        Ok(pods.lines().count() == 2)
    });
    let (installed, ready) = tokio::join!(install, make_ready);
    ready.unwrap();
    assert!(
        installed.stderr.contains("bundle-webhook is ready"),
        "{installed}"
    );
    installed.success().unwrap();
}

/// Returns the objects of manifests or of a list, by kind, namespace and name.
fn by_key(text: &str) -> BTreeMap<String, Value> {
    let mut objects = BTreeMap::new();
    for document in e2e::cluster::manifests::parse(text.as_bytes(), "rendered").unwrap() {
        let is_list = document["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("List"));
        let items = if is_list {
            document["items"].as_array().unwrap().clone()
        } else {
            vec![document]
        };
        for object in items {
            let metadata = &object["metadata"];
            let key = format!(
                "{} {} {}",
                object["kind"], metadata["namespace"], metadata["name"]
            );
            objects.insert(key, object);
        }
    }
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_and_chart_install_the_same_objects_for_the_same_values() {
    let cluster = e2e::webhook::shared().await.unwrap();
    let image = json!({"repository": "registry.example.com/w", "tag": "v1", "digest": format!("sha256:{}", "b".repeat(64))});
    for mut values in [
        json!({}),
        json!({
            "replicas": 3,
            "resources": {"limits": {"memory": "256Mi"}},
            "priorityClassName": "system-cluster-critical",
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "topologySpreadConstraints": [],
            "podLabels": {"team": "platform"},
            "podAnnotations": {"example.com/a": "b"},
        }),
        json!({
            "proxy": {"https": "http://proxy.example.com:3128", "http": "http://proxy.example.com:3128", "noProxy": ".svc"},
            "log": {"format": "text", "level": "debug"},
            "cache": {"limit": "1Gi", "sizeLimit": "2Gi"},
            "settings": {
                "drainDelay": "1s", "drainTimeout": "2s", "leaseDuration": "30s", "pathRotationInterval": "2h",
                "reviewDeadline": "5s", "rightsCheckInterval": "5m", "sourceCheckInterval": "1h",
            },
        }),
    ] {
        values["image"] = image.clone();
        values["image"]["pullPolicy"] = "Always".into();
        values["image"]["pullSecrets"] = json!(["regcred"]);
        let command = cluster.plugin().await.unwrap();
        let own = command
            .args(["install", "--values", "-", "--dry-run=client", "-o", "json"])
            .stdin(values.to_string())
            .output()
            .await
            .unwrap()
            .success()
            .unwrap();
        let plain = chart().join("plain-values.yaml");
        let line = format!(
            "template bundle-webhook CHART --namespace default --kube-version 1.33.0 --api-versions core.rukpak.io/v1alpha1/ProvisionerClass --values {} --values -",
            plain.display()
        );
        let command = helm(&cluster, Tool::Helm, &line).await;
        let rendered = command.stdin(values.to_string()).output().await.unwrap();
        let (own, rendered) = (by_key(&own), by_key(&rendered.success().unwrap()));
        assert_eq!(
            own.keys().collect::<Vec<_>>(),
            rendered.keys().collect::<Vec<_>>()
        );
        for (key, object) in own {
            assert_eq!(object, rendered[&key], "{key}");
        }
    }
}
