//! Memory of the pod that a tenant can use through responses of the API server. The objects have
//! the label of the webhook and metadata of the maximum size.

use bundle_testkit::registry::Registry;
use e2e::wait;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Map, Value, json};

use super::*;

const NAMESPACE: &str = "answers-crowd";
/// Number of objects, more than one page of a list.
const FOREIGN_OBJECTS: usize = 110;

/// Returns a ConfigMap with the label that the watches select and about 0.9 MiB of `managedFields`:
/// one field for each key of its data.
fn many_fields(number: usize) -> ConfigMap {
    let data: Map<String, Value> = (0..36_000)
        .map(|key| (format!("key-{key:05}"), json!("")))
        .collect();
    config_map_with(number, json!({}), &Value::Object(data))
}

/// Returns a ConfigMap with the label that the watches select and about 0.9 MiB of other labels.
fn many_labels(number: usize) -> ConfigMap {
    let labels: Map<String, Value> = (0..50_000)
        .map(|key| (format!("label-{key:05}"), json!("")))
        .collect();
    config_map_with(number, Value::Object(labels), &json!({}))
}

fn config_map_with(number: usize, mut labels: Value, data: &Value) -> ConfigMap {
    labels["core.rukpak.io/owner-kind"] = json!("BundleDeployment");
    labels["core.rukpak.io/owner-name"] = json!("answers");
    let object = json!({
        "metadata": {"name": format!("foreign-{number:04}"), "labels": labels},
        "data": data,
    });
    serde_json::from_value(object).unwrap()
}

async fn installed_and_restored(cluster: &Cluster) {
    kubectl(cluster, &format!("delete configmap answers -n {NAMESPACE}")).await;
    wait::until_true(LONG, "the installed ConfigMap is restored", || async {
        let what = format!("configmap answers -n {NAMESPACE}");
        Ok(try_get(cluster, &what).await?.is_some())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn labelled_objects_with_a_mebibyte_of_metadata_each_do_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    kubectl(&cluster, &format!("create namespace {NAMESPACE}")).await;
    let manifest = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "answers", "namespace": NAMESPACE},
        "data": {"a": "b"},
    });
    let file = ("manifests/answers.yaml".to_owned(), manifest.to_string());
    let files = [file].map(|(path, text)| (path, text.into_bytes()));
    let (reference, _) = publish(&registry, "answers", &tar(files));
    apply(&cluster, &deployment("answers", &reference)).await;
    wait::until_true(LONG, "the content is installed", || async {
        let what = format!("configmap answers -n {NAMESPACE}");
        Ok(try_get(&cluster, &what).await?.is_some())
    })
    .await
    .unwrap();
    let probe = LivenessProbe::start(&webhook);
    let api: Api<ConfigMap> = Api::namespaced(cluster.client().await.unwrap(), NAMESPACE);
    let made: Vec<_> = futures::stream::iter((0..FOREIGN_OBJECTS).map(|number| {
        let object = match number % 8 {
            0 => many_labels(number),
            _ => many_fields(number),
        };
        let api = api.clone();
        async move { api.create(&PostParams::default(), &object).await.map(drop) }
    }))
    .buffer_unordered(4)
    .collect()
    .await;
    for result in made {
        result.unwrap();
    }
    installed_and_restored(&cluster).await;
    survived("a watch of labelled objects of 1 MiB", &mut webhook, probe).await;
    // After the restart, the pod lists all objects.
    webhook.restart().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    installed_and_restored(&cluster).await;
    survived("a list of labelled objects of 1 MiB", &mut webhook, probe).await;
}
