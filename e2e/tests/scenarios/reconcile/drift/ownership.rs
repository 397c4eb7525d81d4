//! Fields that another field manager owned before the webhook applied the object: in adopted
//! objects, in Secrets that an earlier version applied, and in lists that another user changed.
//! `inventory` tests owners of objects; `managers` tests changes by other field managers.

use e2e::webhook::shared;
use e2e::{Cluster, Tool, wait};
use serde_json::{Value, json};

use crate::scenarios::reconcile::{
    LONG, apply, bundle_of, deployment, get, installed, kubectl, publish,
};

async fn put(cluster: &Cluster, line: &str, object: &Value) {
    let tool = cluster.tool(Tool::Kubectl).await.unwrap();
    let tool = tool.args(line.split(' ')).stdin(object.to_string());
    tool.output().await.unwrap().success().unwrap();
}

/// Publishes and deploys `objects`, and adopts existing objects.
async fn adopt(cluster: &Cluster, name: &str, version: &str, objects: &[Value]) {
    let manifests: Vec<String> = objects.iter().map(ToString::to_string).collect();
    let manifests = manifests.join("\n---\n");
    let reference = publish(cluster, &format!("{name}:{version}"), |folder| {
        bundle_of(folder, name, &manifests)
    })
    .await;
    let more = json!({"collision": "Adopt"});
    apply(cluster, &deployment(name, &reference, &more)).await;
    installed(cluster, name).await;
}

async fn until_value(cluster: &Cluster, what: &str, pointer: &str, expected: &Value) {
    wait::until_true(LONG, &format!("{what} {pointer}"), || async {
        let object = get(cluster, what).await.unwrap_or_default();
        let found = object.pointer(pointer).cloned().unwrap_or_default();
        if found == *expected {
            return Ok(true);
        }
        anyhow::bail!("{found}")
    })
    .await
    .unwrap();
}

fn secret(namespace: &str, texts: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web", "namespace": namespace}, "stringData": texts})
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_with_string_data_is_restored_and_loses_the_keys_that_an_upgrade_drops() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let name = "ownership-secret";
    kubectl(&cluster, &format!("create namespace {name}")).await;
    let both = secret(name, &json!({"keep": "a", "drop": "b"}));
    adopt(&cluster, name, "1", &[both]).await;
    let what = format!("secret web -n {name}");
    let data = json!({"keep": "YQ==", "drop": "Yg=="});
    until_value(&cluster, &what, "/data", &data).await;
    kubectl(
        &cluster,
        &format!(r#"patch {what} --type=merge -p {{"data":{{"keep":"eA=="}}}}"#),
    )
    .await;
    until_value(&cluster, &what, "/data", &data).await;
    let one = secret(name, &json!({"keep": "a"}));
    adopt(&cluster, name, "2", &[one]).await;
    until_value(&cluster, &what, "/data", &json!({"keep": "YQ=="})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_that_an_earlier_version_applied_as_string_data_loses_dropped_keys_too() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let name = "ownership-earlier";
    kubectl(&cluster, &format!("create namespace {name}")).await;
    let both = secret(name, &json!({"keep": "a", "drop": "b"}));
    let line = "apply --server-side --field-manager bundle-webhook -f -";
    put(&cluster, line, &both).await;
    let one = secret(name, &json!({"keep": "a"}));
    adopt(&cluster, name, "1", &[one]).await;
    let what = format!("secret web -n {name}");
    until_value(&cluster, &what, "/data", &json!({"keep": "YQ=="})).await;
}

fn config(namespace: &str, name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data})
}

fn workload(namespace: &str, env: &[&str]) -> Value {
    let env: Vec<Value> = env
        .iter()
        .map(|name| json!({"name": name, "value": "1"}))
        .collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "registry.example.com/web:1", "env": env}]},
            },
        },
    })
}

/// Runs real Helm of this version to install a chart that contains only `object`.
async fn by_helm(cluster: &Cluster, helm: Tool, release: &str, object: &Value) {
    let folder = cluster.folder().join("data").join(release);
    fs_err::create_dir_all(folder.join("templates")).unwrap();
    let chart = format!("apiVersion: v2\nname: {release}\nversion: 1.0.0\n");
    fs_err::write(folder.join("Chart.yaml"), chart).unwrap();
    fs_err::write(folder.join("templates/all.yaml"), object.to_string()).unwrap();
    let namespace = object["metadata"]["namespace"].as_str().unwrap();
    let folder = folder.display().to_string();
    let tool = cluster.tool(helm).await.unwrap();
    let tool = tool.args(["install", release, &folder, "-n", namespace]);
    tool.output().await.unwrap().success().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn adopted_object_loses_dropped_fields_of_any_earlier_field_manager() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let name = "ownership-adopted";
    kubectl(&cluster, &format!("create namespace {name}")).await;
    let both = json!({"keep": "a", "drop": "b"});
    put(&cluster, "apply -f -", &config(name, "client", &both)).await;
    put(&cluster, "apply -f -", &workload(name, &["KEEP", "DROP"])).await;
    let line = "apply --server-side -f -";
    put(&cluster, line, &config(name, "server", &both)).await;
    by_helm(
        &cluster,
        Tool::Helm,
        "helm-four",
        &config(name, "helm-four", &both),
    )
    .await;
    by_helm(
        &cluster,
        Tool::Helm3,
        "helm-three",
        &config(name, "helm-three", &both),
    )
    .await;
    // Fields of another field manager are not removed.
    kubectl(
        &cluster,
        &format!("annotate configmap client -n {name} example.com/note=theirs"),
    )
    .await;
    let names = ["client", "server", "helm-four", "helm-three"];
    let content = |data: &Value, env: &[&str]| {
        let configs = names.iter().map(|config| self::config(name, config, data));
        configs.chain([workload(name, env)]).collect::<Vec<_>>()
    };
    adopt(&cluster, name, "1", &content(&both, &["KEEP", "DROP"])).await;
    let applied = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";
    let client = format!("configmap client -n {name}");
    until_value(&cluster, &client, applied, &Value::Null).await;
    adopt(
        &cluster,
        name,
        "2",
        &content(&json!({"keep": "a"}), &["KEEP"]),
    )
    .await;
    for config in names {
        let what = format!("configmap {config} -n {name}");
        until_value(&cluster, &what, "/data", &json!({"keep": "a"})).await;
    }
    let env = "/spec/template/spec/containers/0/env";
    let kept = json!([{"name": "KEEP", "value": "1"}]);
    until_value(&cluster, &format!("deployment web -n {name}"), env, &kept).await;
    let note = "/metadata/annotations/example.com~1note";
    until_value(&cluster, &client, note, &json!("theirs")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_port_changed_by_another_user_is_restored() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let name = "ownership-ports";
    kubectl(&cluster, &format!("create namespace {name}")).await;
    let service = |service: &str, port: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": service, "namespace": name},
            "spec": {"selector": {"app": "web"}, "ports": [port]}})
    };
    let objects = [
        service("named", json!({"name": "http", "port": 80})),
        service("unnamed", json!({"port": 80})),
    ];
    adopt(&cluster, name, "1", &objects).await;
    for service in ["named", "unnamed"] {
        let what = format!("service {service} -n {name}");
        let patch = r#"[{"op":"replace","path":"/spec/ports/0/port","value":81}]"#;
        kubectl(&cluster, &format!("patch {what} --type=json -p {patch}")).await;
        until_value(&cluster, &what, "/spec/ports/0/port", &json!(80)).await;
        until_value(&cluster, &what, "/spec/ports/1", &Value::Null).await;
    }
}
