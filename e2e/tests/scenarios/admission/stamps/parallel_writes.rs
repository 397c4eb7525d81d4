//! Annotations of a BundleDeployment that other clients keep writing, while the reconciler adds and
//! removes its finalizer.

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use tokio::task::JoinSet;

use super::bounds::deployments;
use super::*;

/// Number of clients that write continuously. Each client has its own connection.
const WRITERS: usize = 8;

/// Writes an annotation of the object continuously, also before the object exists.
#[expect(
    clippy::disallowed_methods,
    reason = "the name is that of the scenario"
)]
async fn write_annotations(deployments: Api<DynamicObject>, name: &str, writer: usize) {
    for number in 0_u64.. {
        let annotations = json!({"example.com/written": format!("{writer}-{number}")});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let parameters = PatchParams::default();
        let written = deployments.patch_metadata(name, &parameters, &patch);
        // Writes fail before the object is created and after it is deleted.
        written.await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_is_installed_and_removed_while_its_annotations_are_patched_in_parallel() {
    const NAME: &str = "parallel-writes";
    const WHAT: &str = "bundledeployment parallel-writes";
    let (cluster, _webhook) = stage().await;
    let (_, one) = publish(&cluster, NAME, "1.0.0").await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write_annotations(deployments(&cluster).await, NAME, writer));
    }
    apply_with(&cluster, &deployment(NAME, &one, &json!({})), &[])
        .await
        .success()
        .unwrap();
    until(&cluster, WHAT, "Installed", "True").await;
    let written = |object: &Value| {
        let annotations = &object["metadata"]["annotations"];
        annotations["example.com/written"].clone()
    };
    let before = written(&get(&cluster, WHAT).await.unwrap());
    wait::until_true(LONG, "the writes continue", || async {
        let object = get(&cluster, WHAT).await.unwrap_or_default();
        Ok(written(&object) != before)
    })
    .await
    .unwrap();
    kubectl(&cluster, &format!("delete {WHAT} --wait=false")).await;
    wait::until_true(LONG, "the deployment is removed", || async {
        Ok(get(&cluster, WHAT).await.is_none())
    })
    .await
    .unwrap();
    let object = "configmap parallel-writes -n team-a";
    assert_eq!(get(&cluster, object).await, None);
    writers.shutdown().await;
}
