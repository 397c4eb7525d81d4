//! BundleDeployments that reviews read. Users choose the size of a BundleDeployment, and a review
//! can need one before an access review has checked its requester. Therefore the number of
//! BundleDeployments in memory is limited, in total and for each requester.

use std::collections::BTreeMap;
use std::ops::Deref;

use bundle_api::names::ANNOTATION_STAMP;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::budget::{Cap, Pool, Share, requester_key};

/// Maximum number of BundleDeployments in memory. One requester can have one of them, so another
/// requester waits for at most one read.
const MAX_HELD: u64 = 2;

/// Limits the number of BundleDeployments in memory.
pub(super) struct DeploymentReads(Pool);

/// The parts of a BundleDeployment that reviews use. On drop, another review can read a
/// BundleDeployment.
pub struct HeldDeployment {
    object: Value,
    _turn: Share,
}

impl Default for DeploymentReads {
    fn default() -> Self {
        Self(Pool::new(MAX_HELD))
    }
}

impl DeploymentReads {
    /// Runs `reading`, which reads a BundleDeployment for `requester`. Waits before that while too
    /// many BundleDeployments are in memory.
    pub(super) async fn read(
        &self,
        requester: &str,
        reading: impl Future<Output = Result<Option<DynamicObject>, kube::Error>>,
    ) -> Result<Option<HeldDeployment>, kube::Error> {
        let cap = Cap::new(requester_key(requester), 1);
        let turn = self.0.take(1, vec![cap]).await;
        // This error does not occur, because a share of one unit fits into the pool.
        let turn = turn.map_err(|error| kube::Error::Service(error.into()))?;
        let found = reading.await?;
        Ok(found.map(|found| HeldDeployment {
            object: reviewed_parts(found),
            _turn: turn,
        }))
    }
}

impl Deref for HeldDeployment {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.object
    }
}

/// Returns metadata, spec and seal of a BundleDeployment. The metadata contain no labels,
/// finalizers, owner references and field sets, and no annotation except the stamp.
fn reviewed_parts(deployment: DynamicObject) -> Value {
    let DynamicObject {
        mut metadata,
        mut data,
        ..
    } = deployment;
    let stamp = metadata
        .annotations
        .and_then(|mut annotations| annotations.remove_entry(ANNOTATION_STAMP));
    metadata.annotations = stamp.map(|stamp| BTreeMap::from([stamp]));
    metadata.labels = None;
    metadata.finalizers = None;
    metadata.owner_references = None;
    for entry in metadata.managed_fields.iter_mut().flatten() {
        entry.fields_v1 = None;
    }
    let mut part = |pointer| data.pointer_mut(pointer).map_or(Value::Null, Value::take);
    let (spec, seal) = (part("/spec"), part("/status/admission/seal"));
    let mut object = json!({"metadata": metadata, "status": {"admission": {"seal": seal}}});
    object["spec"] = spec;
    object
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn deployment() -> DynamicObject {
        let entry = json!({
            "manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:01Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}},
        });
        let deployment = json!({
            "apiVersion": "core.rukpak.io/v1alpha1",
            "kind": "BundleDeployment",
            "metadata": {
                "name": "web",
                "uid": "u1",
                "generation": 3,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z",
                "labels": {"a": "b"},
                "annotations": {ANNOTATION_STAMP: "stamp", "a": "b"},
                "finalizers": ["example.com/a"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "a", "uid": "u2"}],
                "managedFields": [entry],
            },
            "spec": {"provisionerClassName": "plain"},
            "status": {"admission": {"seal": "seal", "admit": "a"}, "conditions": []},
        });
        serde_json::from_value(deployment).unwrap()
    }

    #[test]
    fn only_parts_that_reviews_use_are_kept() {
        let expected = json!({
            "metadata": {
                "name": "web",
                "uid": "u1",
                "generation": 3,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z",
                "annotations": {ANNOTATION_STAMP: "stamp"},
                "managedFields": [{
                    "manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:01Z",
                    "fieldsType": "FieldsV1",
                }],
            },
            "spec": {"provisionerClassName": "plain"},
            "status": {"admission": {"seal": "seal"}},
        });
        assert_eq!(reviewed_parts(deployment()), expected);
        let empty = json!({"apiVersion": "v1", "kind": "BundleDeployment", "metadata": {}});
        let empty: DynamicObject = serde_json::from_value(empty).unwrap();
        let expected =
            json!({"metadata": {}, "spec": null, "status": {"admission": {"seal": null}}});
        assert_eq!(reviewed_parts(empty), expected);
    }

    #[tokio::test]
    async fn two_deployments_are_in_memory_and_one_of_each_requester() {
        let reads = DeploymentReads::default();
        let read = |requester: &'static str| {
            let reading = async { Ok(Some(deployment())) };
            reads.read(requester, reading).now_or_never()
        };
        let of_ana = read("ana").unwrap().unwrap().unwrap();
        assert!(read("ana").is_none());
        let of_ben = read("ben").unwrap().unwrap().unwrap();
        assert!(read("eve").is_none());
        drop(of_ana);
        let of_eve = read("eve").unwrap().unwrap().unwrap();
        assert!(read("ana").is_none());
        drop((of_ben, of_eve));
        assert!(read("ana").is_some());
        // A read that finds no BundleDeployment leaves its place to others.
        let missing = reads.read("ana", async { Ok(None) }).await;
        assert!(missing.unwrap().is_none());
        assert!(read("ana").is_some());
    }
}
