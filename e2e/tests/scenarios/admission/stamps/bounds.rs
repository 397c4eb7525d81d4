//! Objects of the project's kinds that are too large to be read. Admission rejects such objects. An
//! object that was written while the registrations were missing is reported and can be removed.

use e2e::Tool;
use e2e::tools::KubernetesRelease;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};

use super::*;
use crate::scenarios::objects;

const FINALIZER: &str = "core.rukpak.io/delete-installed-objects";
/// Size in bytes of one finalizer in `metadata.finalizers`.
const FINALIZER_BYTES: usize = 8;
/// Size in bytes of one finalizer in `metadata.managedFields`.
const FIELD_BYTES: usize = 18;
/// Maximum size of an object in bytes, below the 1.5 MiB that API servers store.
const OBJECT_BYTES: usize = 1_380_000;
/// Number of finalizers that makes an object larger than the largest object that the webhook reads.
const FINALIZERS: usize = 158_000;

pub(super) async fn deployments(cluster: &Cluster) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "core.rukpak.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "core.rukpak.io/v1alpha1".to_owned(),
        kind: "BundleDeployment".to_owned(),
        plural: "bundledeployments".to_owned(),
    };
    Api::all_with(cluster.client().await.unwrap(), &resource)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the names are those of the scenario"
)]
async fn patched(cluster: &Cluster, name: &str, patch: &Value) -> Result<(), kube::Error> {
    let patch = Patch::Merge(patch);
    let parameters = PatchParams::default();
    let deployments = deployments(cluster).await;
    let done = deployments.patch_metadata(name, &parameters, &patch);
    done.await.map(drop)
}

async fn installed(cluster: &Cluster, name: &str) {
    let (_, one) = publish(cluster, name, "1.0.0").await;
    apply(cluster, &deployment(name, &one, &json!({}))).await;
    let what = format!("bundledeployment {name}");
    until(cluster, &what, "Installed", "True").await;
}

/// Returns the finalizer of the webhook and `count - 1` short finalizers.
fn finalizers(count: usize) -> Vec<String> {
    let digit = |number: usize| char::from(b"0123456789abcdefghijklmnopqrstuvwxyz"[number % 36]);
    let short = (1..count).map(|n| {
        let (a, b, c, d) = (n / 46_656, n / 1296, n / 36, n);
        format!("{}/{}{}{}", digit(a), digit(b), digit(c), digit(d))
    });
    std::iter::once(FINALIZER.to_owned()).chain(short).collect()
}

/// Returns `count` entries of `metadata.managedFields`. Each entry owns the label `a`.
fn field_managers(count: usize) -> Vec<Value> {
    let entry = |number: usize| {
        json!({
            "manager": format!("bounds-{number}"), "operation": "Apply",
            "apiVersion": "core.rukpak.io/v1alpha1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}},
        })
    };
    (0..count).map(entry).collect()
}

/// Adds as many labels to the deployment as admission permits, and returns their number.
async fn add_labels(cluster: &Cluster, name: &str) -> usize {
    let mut count = 0;
    for step in [1_000, 100, 10, 1] {
        loop {
            match add_labels_up_to(cluster, name, count + step).await {
                Ok(()) => count += step,
                Err(refused) => {
                    let refused = refused.to_string();
                    assert!(refused.contains("BUNDLE-REVIEW-063"), "{refused}");
                    break;
                }
            }
        }
    }
    count
}

async fn add_labels_up_to(cluster: &Cluster, name: &str, count: usize) -> Result<(), kube::Error> {
    let labels = (0..count).map(|number| (format!("label-{number:05}"), json!("")));
    let labels: serde_json::Map<String, Value> = labels.collect();
    patched(cluster, name, &json!({"metadata": {"labels": labels}})).await
}

/// Adds more finalizers to the deployment than the webhook reads, in several writes. The API server
/// also stores each finalizer as a field of its manager.
async fn add_finalizers(cluster: &Cluster, name: &str) {
    let mut count = 1;
    while count < FINALIZERS {
        let room = OBJECT_BYTES - count * FINALIZER_BYTES;
        count = FINALIZERS.min(count + room / (FINALIZER_BYTES + FIELD_BYTES));
        let metadata = json!({"finalizers": finalizers(count), "managedFields": [{}]});
        let done = patched(cluster, name, &json!({"metadata": metadata})).await;
        done.unwrap_or_else(|error| panic!("{count} finalizers: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_objects_that_could_not_be_read_are_rejected() {
    let (cluster, _webhook) = stage().await;
    let name = "bounds-rejected";
    installed(&cluster, name).await;
    let labels: serde_json::Map<String, Value> = (0..20_000)
        .map(|n| (format!("label-{n:05}"), json!("valued")))
        .collect();
    let owner = |n: usize| json!({"apiVersion": "v1", "kind": "Namespace", "name": "team-a", "uid": format!("u-{n}")});
    let owners: Vec<Value> = (0..65).map(owner).collect();
    let mut long_owner = owner(0);
    long_owner["name"] = json!("x".repeat(254));
    let config = json!({"lists": vec![json!([]); 180_000]});
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    patched(&cluster, name, &label).await.unwrap();
    for patch in [
        json!({"metadata": {"finalizers": finalizers(33)}}),
        json!({"metadata": {"ownerReferences": owners}}),
        json!({"metadata": {"ownerReferences": [long_owner]}}),
        json!({"metadata": {"labels": labels}}),
        json!({"metadata": {"annotations": {"a": "x".repeat(33_000)}}}),
        json!({"metadata": {"annotations": {"core.rukpak.io/proof": "x".repeat(67_000)}}}),
        json!({"metadata": {"managedFields": field_managers(400)}}),
        json!({"spec": {"config": config}}),
    ] {
        let refused = patched(&cluster, name, &patch).await.unwrap_err();
        assert!(
            refused.to_string().contains("BUNDLE-REVIEW-063"),
            "{refused}"
        );
    }
    let most = json!({"metadata": {"finalizers": finalizers(32)}});
    patched(&cluster, name, &most).await.unwrap();
    let one = json!({"metadata": {"finalizers": [FINALIZER]}});
    patched(&cluster, name, &one).await.unwrap();

    // An object with the maximum size of annotations still has space for the stamp of the next
    // write.
    let annotations = json!({
        "a": "x".repeat(32_000),
        "kubectl.kubernetes.io/last-applied-configuration": "x".repeat(97_000),
        "core.rukpak.io/proof": "x".repeat(66_000),
    });
    let annotations = json!({"metadata": {"annotations": annotations}});
    patched(&cluster, name, &annotations).await.unwrap();
    let groups: Vec<String> = (0..200)
        .map(|number| format!("--as-group=bounds-{number:036}"))
        .collect();
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    let patch = json!({"spec": {"drift": {"mode": "Report"}, "collision": "Adopt"}}).to_string();
    let written = kubectl
        .args([
            "patch",
            "bundledeployment",
            name,
            "--type=merge",
            "-p",
            &patch,
        ])
        .args(["--as=bounds-ana", "--as-group=system:masters"])
        .args(&groups);
    written.output().await.unwrap().success().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_another_user_prevent_no_upgrade_and_no_removal() {
    let (cluster, _webhook) = stage().await;
    let name = "bounds-full";
    let what = format!("bundledeployment {name}");
    installed(&cluster, name).await;
    let count = add_labels(&cluster, name).await;
    assert!(count > 1_000, "{count}");
    let refused = add_labels_up_to(&cluster, name, count + 1).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("BUNDLE-REVIEW-063"), "{refused}");

    // The upgrade adds a stamp, the annotation of `kubectl apply`, and a field manager. The write
    // of another user adds a second requester to the stamp.
    let (_, two) = publish(&cluster, name, "2.0.0").await;
    objects::apply(&cluster, &deployment(name, &two, &json!({}))).await;
    let other = json!({"spec": {"collision": "Adopt"}}).to_string();
    let patching = cluster.tool(Tool::Kubectl).await.unwrap();
    let written = patching
        .args(["patch", "bundledeployment", name, "--type=merge"])
        .args(["--as=bounds-ana", "--as-group=system:masters", "-p", &other]);
    written.output().await.unwrap().success().unwrap();
    let note = format!("configmap {name} -n team-a");
    wait::until_true(LONG, "the upgrade is installed", || async {
        let found = get(&cluster, &note).await;
        Ok(found.is_some_and(|found| found["data"]["text"] == "2.0.0"))
    })
    .await
    .unwrap();

    // After these writes, another user still cannot make the object larger.
    for number in 1..=3 {
        let refused = add_labels_up_to(&cluster, name, count + number).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("BUNDLE-REVIEW-063"), "{refused}");
    }
    kubectl(&cluster, &format!("delete {what}")).await;
    assert_eq!(get(&cluster, &note).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_that_is_too_large_to_be_read_is_reported_and_removed_once_it_is_smaller() {
    let (cluster, webhook) = stage().await;
    let name = "bounds-reported";
    let what = format!("bundledeployment {name}");
    installed(&cluster, name).await;
    admission_off(&cluster).await;
    add_finalizers(&cluster, name).await;
    // At the next write, API servers of 1.33 also record the manager of each finalizer, and etcd
    // rejects the larger object. Therefore the webhook creates an Event, but can set no condition.
    let is_writable = KubernetesRelease::from_environment().unwrap() != KubernetesRelease::Oldest;
    if is_writable {
        for kind in ["Ready", "Progressing"] {
            let why = until(&cluster, &what, kind, "False").await;
            assert!(why.contains("BUNDLE-REVIEW-063"), "{why}");
        }
        let installed = until(&cluster, &what, "Installed", "True").await;
        assert!(installed.contains("Instantiated"), "{installed}");
    }
    let events = format!(
        "get events -n default --field-selector involvedObject.name={name} -o jsonpath={{.items[*].reason}}"
    );
    wait::until_true(LONG, "an Event names the reason", || async {
        Ok(kubectl(&cluster, &events)
            .await
            .contains("BUNDLE-REVIEW-063"))
    })
    .await
    .unwrap();
    admission_on(&webhook).await;
    if !is_writable {
        let one = json!({"metadata": {"finalizers": finalizers(1)}});
        wait::until_true(LONG, "it is made smaller", || async {
            Ok(patched(&cluster, name, &one).await.is_ok())
        })
        .await
        .unwrap();
    }

    // Shortly after a gap in the registrations, the webhook rejects deletions.
    wait::until_true(LONG, "it is being deleted", || async {
        let line = format!("delete {what} --wait=false");
        Ok(try_kubectl(&cluster, &line).await.is_success())
    })
    .await
    .unwrap();
    let note = format!("configmap {name} -n team-a");
    if is_writable {
        assert!(get(&cluster, &note).await.is_some());
        // A review needs memory for the stored and for the new object, so an update to a fifth of the
        // finalizers exceeds the limit of a review.
        let smaller = json!({"metadata": {"finalizers": finalizers(FINALIZERS / 12)}});
        patched(&cluster, name, &smaller).await.unwrap();
        // From now on the webhook can read the object, and can remove its own finalizer at any
        // time.
        // Each update removes more entries of field managers than its label adds.
        for most in [FINALIZERS / 12 - 100, 1] {
            wait::until_true(LONG, "it is made smaller", || async {
                let Some(found) = get(&cluster, &what).await else {
                    return Ok(true);
                };
                let stored = found["metadata"]["finalizers"].as_array().cloned();
                let mut kept = stored.unwrap_or_default();
                kept.truncate(most);
                kept.retain(|finalizer| most > 1 || finalizer == FINALIZER);
                let metadata = json!({"labels": {"a": "x".repeat(60)}, "finalizers": kept});
                patched(&cluster, name, &json!({"metadata": metadata})).await?;
                Ok(true)
            })
            .await
            .unwrap();
        }
    }
    wait::until_true(LONG, "it is removed", || async {
        Ok(get(&cluster, &what).await.is_none())
    })
    .await
    .unwrap();
    assert_eq!(get(&cluster, &note).await, None);
}
