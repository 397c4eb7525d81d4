//! Memory of the pod that a tenant can use with BundleDeployments: many small values need a hundred
//! times the memory of their text.

use bundle_testkit::registry::Registry;
use e2e::wait;
use serde_json::json;

use super::*;

const DEPLOYMENTS: usize = 80;
/// Number of maps in one object, whose size is just below the limit of admission for one object.
const MAPS: usize = 2_000;

fn deployment_of_maps(name: &str, reference: &str, maps: usize) -> Value {
    let mut object = deployment(name, reference);
    object["spec"]["config"] = json!({"a": vec![json!({"": 0}); maps]});
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn many_deployments_with_many_small_values_do_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let registry = Registry::without_faults().await.unwrap();
    let manifest =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own-objects"}});
    let file = ("manifests/object.yaml".to_owned(), manifest.to_string());
    let files = [file].map(|(path, text)| (path, text.into_bytes()));
    let (reference, _) = publish(&registry, "own-objects", &tar(files));
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
    apply(&cluster, &deployment("own-objects", &reference)).await;
    wait::until_true(LONG, "the content of another user is installed", || async {
        let found = try_get(&cluster, "namespace own-objects").await?;
        Ok(found.is_some())
    })
    .await
    .unwrap();
    let attack =
        format!("a restart beside {DEPLOYMENTS} BundleDeployments with {MAPS} small maps each");
    survived(&attack, &mut webhook, probe).await;
}
