//! Memory of the pod that a tenant can use with objects of this API: many small values, which need
//! a hundred times the memory of their text, and long texts in owner references.

use bundle_testkit::registry::Registry;
use e2e::wait;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;

use super::*;
use crate::scenarios::admission::stamps::{admission_off, admission_on};

const DEPLOYMENTS: usize = 80;
/// Number of maps in one object, whose size is just below the limit of admission for one object.
const MAPS: usize = 2_000;
/// Number of Bundles with a long owner reference.
const BUNDLES: usize = 100;

fn deployment_of_maps(name: &str, reference: &str, maps: usize) -> Value {
    let mut object = deployment(name, reference);
    object["spec"]["config"] = json!({"a": vec![json!({"": 0}); maps]});
    object
}

/// Returns a Bundle whose owner has a name of about 1 MB. The garbage collector does not find this
/// owner. The finalizer prevents the deletion of the Bundle.
fn bundle_with_long_owner(number: usize, reference: &str) -> Value {
    let mut object = bundle(&format!("long-owner-{number}"), reference);
    let owner = format!("{}{number}", "x".repeat(1_000_000));
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "name": owner, "uid": format!("u-{number}"), "controller": true,
    }]);
    object
}

async fn create_bundle(client: &Client, object: &Value) -> Result<(), kube::Error> {
    let request = http::Request::post("/apis/core.rukpak.io/v1alpha1/bundles")
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())
        .unwrap();
    client.request::<Value>(request).await.map(drop)
}

/// Publishes content with the Namespace `own-objects`, and returns its reference.
fn publish_own_objects(registry: &Registry) -> String {
    let manifest =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own-objects"}});
    let file = ("manifests/object.yaml".to_owned(), manifest.to_string());
    let files = [file].map(|(path, text)| (path, text.into_bytes()));
    publish(registry, "own-objects", &tar(files)).0
}

async fn install_own_objects(cluster: &Cluster, reference: &str) {
    apply(cluster, &deployment("own-objects", reference)).await;
    wait::until_true(LONG, "the content of another user is installed", || async {
        let found = try_get(cluster, "namespace own-objects").await?;
        Ok(found.is_some())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_deployments_with_many_small_values_do_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    let reference = publish_own_objects(&registry);
    let absent = reference.replace("own-objects", "own-objects-absent");

    let client = cluster.client().await.unwrap();
    let large = deployment_of_maps("too-large", &reference, 15_000);
    let (status, message) = create_dry(&client, "bundledeployments", &large).await;
    assert_eq!(status, 403);
    assert!(message.contains("BUNDLE-REVIEW-063"), "{message}");

    let probe = LivenessProbe::start(&webhook);
    for user in ["tenant-a", "tenant-b"] {
        let objects: Vec<_> = (0..DEPLOYMENTS / 2)
            .map(|number| deployment_of_maps(&format!("{user}-{number}"), &absent, MAPS))
            .collect();
        // A call of kubectl has a deadline, so each call creates only a few objects.
        for some in objects.chunks(10) {
            create_as(&cluster, user, some).await;
        }
    }
    let attack = format!("creation of {DEPLOYMENTS} BundleDeployments with {MAPS} small maps each");
    survived(&attack, &mut webhook, probe).await;
    // After the restart, the pod lists all objects.
    webhook.restart().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    install_own_objects(&cluster, &reference).await;
    let attack =
        format!("a restart with {DEPLOYMENTS} BundleDeployments with {MAPS} small maps each");
    survived(&attack, &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_owner_references_of_many_bundles_do_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    let reference = publish_own_objects(&registry);
    let absent = reference.replace("own-objects", "own-objects-absent");
    let client = cluster.client().await.unwrap();
    let refused = bundle_with_long_owner(0, &absent);
    let (status, message) = create_dry(&client, "bundles", &refused).await;
    assert_eq!(status, 403);
    assert!(message.contains("BUNDLE-REVIEW-063"), "{message}");

    admission_off(&cluster).await;
    let probe = LivenessProbe::start(&webhook);
    let objects = (0..BUNDLES).map(|number| bundle_with_long_owner(number, &absent));
    futures::stream::iter(objects.map(|object| {
        let client = &client;
        async move { create_bundle(client, &object).await }
    }))
    .buffer_unordered(4)
    .try_collect::<Vec<()>>()
    .await
    .unwrap();
    let attack = format!("creation of {BUNDLES} Bundles with owner references of 1 MB each");
    survived(&attack, &mut webhook, probe).await;
    admission_on(&webhook).await;
    // After the restart, the pod lists all objects.
    webhook.restart().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    install_own_objects(&cluster, &reference).await;
    let attack = format!("a restart with {BUNDLES} Bundles with owner references of 1 MB each");
    survived(&attack, &mut webhook, probe).await;
}
