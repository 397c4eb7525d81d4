//! Faults of the cluster during a first installation: an admission webhook of another project that
//! does not respond, a quota, and an etcd that does not respond. The installation continues when
//! the fault ends. `kills` kills the webhook at random.

mod kills;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use e2e::{Cluster, WebhookOptions, wait};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::scenarios::reconcile::{
    CONFIG, apply, bundle_of, condition, deployment, get, install_web, installed, kubectl, publish,
    soon, stage,
};

/// Time until the reconciler retries an installation, with a margin for a slow machine.
const RETRY: Duration = Duration::from_secs(150);

/// Name of the registered webhook, which never responds.
const WEBHOOK: &str = "silent.example.com";

/// Starts a server that accepts connections and never responds. Registers the server as webhook for
/// new ConfigMaps in namespace `team-a`, and waits until the API server calls the server.
async fn register_silent_webhook(cluster: &Cluster) -> JoinHandle<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut connections = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            connections.push(connection);
        }
    });
    let registration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "silent"},
        "webhooks": [{
            "name": WEBHOOK,
            "clientConfig": {"url": format!("https://{address}/review")},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}},
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "timeoutSeconds": 1,
            "sideEffects": "None",
        }],
    });
    apply(cluster, &registration).await;
    wait::until_true(RETRY, "the API server calls the webhook", || async {
        let line = "create configmap probe -n team-a --dry-run=server";
        let tried = cluster.kubectl(line.split(' ')).await?;
        Ok(tried.stderr.contains(WEBHOOK))
    })
    .await
    .unwrap();
    server
}

/// Waits until `Ready` of the BundleDeployment is not `True` and its message contains `text`.
/// Returns the BundleDeployment.
async fn until_reported(cluster: &Cluster, name: &str, text: &str) -> Value {
    wait::until(RETRY, &format!("{name} reports {text}"), || async {
        let object = get(cluster, &format!("bundledeployment {name}")).await;
        let object = object.unwrap_or_default();
        let ready = condition(&object, "Ready");
        let message = ready["message"].as_str().unwrap_or_default();
        if ready["status"] != "True" && message.contains(text) {
            return Ok(Some(object));
        }
        anyhow::bail!("{}", object["status"]["conditions"])
    })
    .await
    .unwrap()
}

/// Waits for a retry that installs the BundleDeployment.
async fn until_retried(cluster: &Cluster, name: &str) {
    wait::until_true(RETRY, &format!("{name} is installed"), || async {
        let object = get(cluster, &format!("bundledeployment {name}")).await;
        let object = object.unwrap_or_default();
        if condition(&object, "Installed")["status"] == "True" {
            return Ok(true);
        }
        anyhow::bail!("{}", object["status"]["conditions"])
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn admission_webhook_that_never_responds_delays_only_the_deployment_with_its_objects() {
    let (cluster, _webhook) = stage().await;
    for namespace in ["team-a", "team-b"] {
        kubectl(&cluster, &format!("create namespace {namespace}")).await;
    }
    let server = register_silent_webhook(&cluster).await;
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", CONFIG)).await;
    let others = CONFIG.replace("team-a", "team-b");
    let other = publish(&cluster, "team/other:1", |f| bundle_of(f, "other", &others)).await;

    apply(&cluster, &deployment("web", &one, &json!({}))).await;
    let web = until_reported(&cluster, "web", WEBHOOK).await;
    let ready = condition(&web, "Ready");
    let message = ready["message"].as_str().unwrap();
    for part in ["ConfigMap/team-a/web", "failed calling webhook"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }

    apply(&cluster, &deployment("other", &other, &json!({}))).await;
    installed(&cluster, "other").await;
    let web = get(&cluster, "bundledeployment web").await.unwrap();
    assert_ne!(condition(&web, "Installed")["status"], "True", "{web}");
    assert!(get(&cluster, "configmap web -n team-a").await.is_none());

    kubectl(&cluster, "delete validatingwebhookconfiguration silent").await;
    until_retried(&cluster, "web").await;
    assert!(get(&cluster, "configmap web -n team-a").await.is_some());
    server.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_prevents_a_first_installation_without_partial_content_until_its_removal() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace team-a").await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "nothing", "namespace": "team-a"},
        "spec": {"hard": {"count/configmaps": "0"}},
    });
    apply(&cluster, &quota).await;
    let refused = wait::until(RETRY, "the quota is in force", || async {
        let line = "create configmap web -n team-a --dry-run=server";
        let tried = cluster.kubectl(line.split(' ')).await?;
        Ok((tried.stderr.contains("exceeded quota")).then_some(tried.stderr))
    })
    .await
    .unwrap();
    // The message of the API server, without the prefix of kubectl.
    let reason = &refused.trim()[refused.find("configmaps \"web\" is forbidden").unwrap()..];

    let account =
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web, namespace: team-a}\n";
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: team-a}\nspec: {ports: [{port: 80}]}\n";
    let content = format!("{account}---\n{CONFIG}---\n{service}");
    let one = publish(&cluster, "team/web:1", |f| bundle_of(f, "web", &content)).await;
    apply(&cluster, &deployment("web", &one, &json!({}))).await;
    let web = until_reported(&cluster, "web", "exceeded quota").await;
    let message = condition(&web, "Ready")["message"].as_str().unwrap();
    for part in ["ConfigMap/team-a/web", reason] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    for object in ["serviceaccount", "configmap", "service"] {
        let found = get(&cluster, &format!("{object} web -n team-a")).await;
        assert_eq!(found, None);
    }

    kubectl(&cluster, "delete resourcequota nothing -n team-a").await;
    until_retried(&cluster, "web").await;
    for object in ["serviceaccount", "configmap", "service"] {
        let found = get(&cluster, &format!("{object} web -n team-a")).await;
        assert!(found.is_some(), "{object} is missing");
    }
}

/// Number of objects that are installed while etcd stops. Their installation takes much longer than
/// the time until the test has seen the first object in the audit log.
const OBJECTS: usize = 1_000;
/// Duration of the outage of etcd. The lease of the leader expires during the outage.
const OUTAGE: Duration = Duration::from_secs(20);
const LEASE: &str = "8s";

/// Returns the number of creations of each ConfigMap `item-N` in namespace `team-a`, from the audit
/// log after this position.
fn creations(cluster: &Cluster, position: u64) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for event in cluster.audit_since(position).unwrap() {
        let object = &event["objectRef"];
        let name = object["name"].as_str().unwrap_or_default();
        let uri = event["requestURI"].as_str().unwrap_or_default();
        if event["responseStatus"]["code"] == 201
            && object["resource"] == "configmaps"
            && object["namespace"] == "team-a"
            && name.starts_with("item-")
            && !uri.contains("dryRun")
        {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_that_does_not_respond_for_20_s_delays_an_installation_of_two_replicas() {
    let builder = Cluster::builder().registries(1).audit(true);
    let cluster = builder.start().await.unwrap();
    let replica = |admission| WebhookOptions {
        admission,
        flags: ["--lease-duration", LEASE].map(ToOwned::to_owned).into(),
        ..WebhookOptions::default()
    };
    let mut first = cluster.start_webhook(replica(true)).await.unwrap();
    let mut second = cluster.start_webhook(replica(false)).await.unwrap();
    install_web(&cluster).await;
    let mut manifests = String::new();
    for number in 0..OBJECTS {
        write!(
            manifests,
            "---
apiVersion: v1
kind: ConfigMap
metadata: {{name: item-{number}, namespace: team-a}}
data: {{text: hello}}
"
        )
        .unwrap();
    }
    let write = |folder: &std::path::Path| bundle_of(folder, "many", &manifests);
    let many = publish(&cluster, "team/many:1", write).await;
    let start = cluster.audit_position().unwrap();
    apply(&cluster, &deployment("many", &many, &json!({}))).await;
    wait::until_true(RETRY, "the first object is installed", || async {
        Ok(!creations(&cluster, start).is_empty())
    })
    .await
    .unwrap();

    cluster.pause_store().unwrap();
    let before = creations(&cluster, start).len();
    assert!(before < OBJECTS, "the installation is complete");
    tokio::time::sleep(OUTAGE).await;
    assert!(first.is_running() && second.is_running());
    cluster.resume_store().unwrap();

    until_retried(&cluster, "many").await;
    let created = creations(&cluster, start);
    let repeated: Vec<_> = created.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "{repeated:?}");
    assert!(before < created.len());
    let names = kubectl(&cluster, "get configmaps -n team-a -o name").await;
    let installed = names.lines().filter(|name| name.contains("/item-"));
    assert_eq!(installed.count(), OBJECTS);
    let mut leaders = 0;
    for replica in [&first, &second] {
        let metrics = replica.metrics().await.unwrap();
        leaders += metrics.matches("\nbundle_is_leader 1").count();
    }
    assert_eq!(leaders, 1);

    // The watches report drift of both deployments.
    let line = r#"patch configmap item-7 -n team-a --type merge -p {"data":{"text":"changed"}}"#;
    kubectl(&cluster, line).await;
    kubectl(&cluster, "delete configmap web -n team-a").await;
    for name in ["item-7", "web"] {
        let what = format!("configmap {name} -n team-a");
        soon(&cluster, &what, "/data/text", "hello").await;
    }
}
