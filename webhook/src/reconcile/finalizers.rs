//! Adds or removes one finalizer of an object by JSON patch. The patch tests the uid and the
//! finalizers, but not the resourceVersion. Therefore concurrent writes of other fields, such as
//! annotations, cause no conflict.

use bundle_cluster::ByName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::discovery::ApiResource;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::api::object::is_not_found;

/// Maximum number of attempts to change the finalizers.
const MAX_ATTEMPTS: usize = 10;

/// A change of one finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reconcile) enum FinalizerChange {
    /// Adds the finalizer at the end of the list.
    Add(&'static str),
    /// Removes every occurrence of the finalizer.
    Remove(&'static str),
}

impl FinalizerChange {
    /// Changes the finalizers of `object`. Succeeds without a change if the object no longer
    /// exists, or if it has another uid. Returns the last error if other clients change the
    /// finalizers during every attempt.
    ///
    /// `object` can be older than the last change of its finalizers. Therefore each attempt reads
    /// the object first, except the first attempt if its patch tests all finalizers that the change
    /// depends on.
    pub(in crate::reconcile) async fn apply(
        self,
        own: &Client,
        resource: &ApiResource,
        object: &DynamicObject,
    ) -> Result<(), kube::Error> {
        let api: Api<DynamicObject> = Api::all_with(own.clone(), resource);
        let api = ByName(&api);
        let name = object.name_any();
        for attempt in 1.. {
            let operations = if attempt == 1 && self.is_tested(&object.metadata) {
                self.operations(&object.metadata)
            } else {
                // The whole object is requested, because the size limit for metadata responses is
                // lower.
                let live = api.get_opt(&name).await?;
                let live = live.filter(|live| live.metadata.uid == object.metadata.uid);
                let operations = live.map(|live| self.operations(&live.metadata));
                operations.unwrap_or_default()
            };
            if operations.is_empty() {
                break;
            }
            let patch = serde_json::from_value(operations.into());
            let patch = Patch::<()>::Json(patch.map_err(kube::Error::SerdeError)?);
            let parameters = PatchParams::default();
            match api.patch_metadata(&name, &parameters, &patch).await {
                Ok(_) => break,
                Err(error) if attempt < MAX_ATTEMPTS && is_outdated(&error) => {}
                Err(error) if is_not_found(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns true if the patch for an object with this metadata fails as soon as the finalizers
    /// that the change depends on have changed. An addition to existing finalizers does not test
    /// that the finalizer is still missing.
    fn is_tested(self, metadata: &ObjectMeta) -> bool {
        let mut finalizers = metadata.finalizers.iter().flatten();
        match self {
            Self::Add(_) => finalizers.next().is_none(),
            Self::Remove(finalizer) => finalizers.any(|name| name == finalizer),
        }
    }

    /// Returns the operations of a JSON patch. The list is empty if no change is necessary.
    fn operations(self, metadata: &ObjectMeta) -> Vec<Value> {
        let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
        let mut operations = vec![json!({
            "op": "test", "path": "/metadata/uid", "value": metadata.uid,
        })];
        match self {
            Self::Add(finalizer) => {
                if finalizers.iter().any(|name| name == finalizer) {
                    return Vec::new();
                }
                if finalizers.is_empty() {
                    // The API server treats an absent field as null, so this test succeeds for an
                    // object without finalizers.
                    let path = "/metadata/finalizers";
                    operations.push(json!({ "op": "test", "path": path, "value": null }));
                    operations.push(json!({ "op": "add", "path": path, "value": [finalizer] }));
                } else {
                    // The finalizer is appended, so a concurrent change of other finalizers causes
                    // no conflict.
                    let path = "/metadata/finalizers/-";
                    operations.push(json!({ "op": "add", "path": path, "value": finalizer }));
                }
            }
            Self::Remove(finalizer) => {
                let found = finalizers.iter().enumerate();
                let found = found.filter(|(_, name)| *name == finalizer);
                // The last occurrence is removed first, so that a removal does not change the
                // indices of the other occurrences.
                for (index, name) in found.rev() {
                    let path = format!("/metadata/finalizers/{index}");
                    operations.push(json!({ "op": "test", "path": path, "value": name }));
                    operations.push(json!({ "op": "remove", "path": path }));
                }
                if operations.len() == 1 {
                    return Vec::new();
                }
            }
        }
        operations
    }
}

/// Returns true if the patch failed because the object changed after it was read. A test or path of
/// the patch did not match (422), or the write had a conflict (409).
fn is_outdated(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 409 | 422))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    const OURS: &str = "core.rukpak.io/delete-installed-objects";
    const FOREIGN: &str = "example.com/hold";

    fn object(uid: &str, finalizers: &[&str]) -> Value {
        json!({
            "apiVersion": "core.rukpak.io/v1alpha1",
            "kind": "BundleDeployment",
            "metadata": { "name": "web", "uid": uid, "finalizers": finalizers },
        })
    }

    fn failure(code: u16) -> (u16, Value) {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
            "reason": if code == 404 { "NotFound" } else { "Invalid" }, "message": "failed",
        });
        (code, status)
    }

    fn metadata(finalizers: &[&str]) -> ObjectMeta {
        serde_json::from_value(object("1", finalizers)["metadata"].clone()).unwrap()
    }

    /// Adds the finalizer to the object with uid `1`, which was read with these finalizers. The
    /// server sends `responses` in this order. Returns the result and the HTTP methods of the
    /// requests.
    async fn add(
        finalizers: &[&str],
        responses: Vec<(u16, Value)>,
    ) -> (Result<(), kube::Error>, String) {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let mut responses = VecDeque::from(responses);
        let serving = tokio::spawn(async move {
            let mut methods = Vec::new();
            while let Some((request, reply)) = server.next_request().await {
                methods.push(request.method().to_string());
                let (code, body) = responses.pop_front().unwrap();
                let body = Body::from(body.to_string().into_bytes());
                reply.send_response(Response::builder().status(code).body(body).unwrap());
            }
            methods.join(" ")
        });
        let resource = ApiResource::erase::<bundle_api::BundleDeployment>(&());
        let stored = serde_json::from_value(object("1", finalizers)).unwrap();
        let client = Client::new(service, "default");
        let change = FinalizerChange::Add(OURS);
        let result = change.apply(&client, &resource, &stored).await;
        drop(client);
        (result, serving.await.unwrap())
    }

    #[test]
    fn patch_tests_uid_and_finalizer_and_no_resource_version() {
        let uid = json!({"op": "test", "path": "/metadata/uid", "value": "1"});
        let path = "/metadata/finalizers";
        assert_eq!(
            FinalizerChange::Add(OURS).operations(&metadata(&[])),
            [
                uid.clone(),
                json!({"op": "test", "path": path, "value": null}),
                json!({"op": "add", "path": path, "value": [OURS]}),
            ]
        );
        assert_eq!(
            FinalizerChange::Add(OURS).operations(&metadata(&[FOREIGN])),
            [
                uid.clone(),
                json!({"op": "add", "path": "/metadata/finalizers/-", "value": OURS}),
            ]
        );
        assert_eq!(
            FinalizerChange::Remove(OURS).operations(&metadata(&[OURS, FOREIGN, OURS])),
            [
                uid,
                json!({"op": "test", "path": "/metadata/finalizers/2", "value": OURS}),
                json!({"op": "remove", "path": "/metadata/finalizers/2"}),
                json!({"op": "test", "path": "/metadata/finalizers/0", "value": OURS}),
                json!({"op": "remove", "path": "/metadata/finalizers/0"}),
            ]
        );
    }

    #[test]
    fn patch_is_empty_if_there_is_nothing_to_change() {
        let added = FinalizerChange::Add(OURS).operations(&metadata(&[OURS]));
        let removed = FinalizerChange::Remove(OURS).operations(&metadata(&[FOREIGN]));
        assert!(added.is_empty() && removed.is_empty());
    }

    #[tokio::test]
    async fn conflict_and_failed_test_are_retried_with_current_metadata() {
        let responses = vec![
            failure(409),
            (200, object("1", &[])),
            failure(422),
            (200, object("1", &[FOREIGN])),
            (200, object("1", &[FOREIGN, OURS])),
        ];
        let (result, requests) = add(&[], responses).await;
        result.unwrap();
        assert_eq!(requests, "PATCH GET PATCH GET PATCH");
    }

    #[tokio::test]
    async fn last_conflict_is_an_error() {
        let attempt = || [(200, object("1", &[])), failure(409)];
        let attempts = (0..MAX_ATTEMPTS).flat_map(|_| attempt());
        let (result, requests) = add(&[FOREIGN], attempts.collect()).await;
        assert!(is_outdated(&result.unwrap_err()));
        assert_eq!(requests.matches("PATCH").count(), MAX_ATTEMPTS);
    }

    #[tokio::test]
    async fn object_that_was_deleted_replaced_or_changed_already_gets_no_patch() {
        for response in [
            failure(404),
            (200, object("2", &[])),
            (200, object("1", &[OURS])),
        ] {
            let (result, requests) = add(&[FOREIGN], vec![response]).await;
            result.unwrap();
            assert_eq!(requests, "GET");
        }
    }

    #[tokio::test]
    async fn patch_that_tests_all_finalizers_is_sent_without_a_read() {
        let replaced = vec![failure(422), (200, object("2", &[]))];
        let changed = vec![failure(422), (200, object("1", &[OURS]))];
        for (responses, expected) in [
            (vec![(200, object("1", &[OURS]))], "PATCH"),
            (vec![failure(404)], "PATCH"),
            (replaced, "PATCH GET"),
            (changed, "PATCH GET"),
        ] {
            let (result, requests) = add(&[], responses).await;
            result.unwrap();
            assert_eq!(requests, expected);
        }
        let (add, remove) = (FinalizerChange::Add(OURS), FinalizerChange::Remove(OURS));
        assert!(add.is_tested(&metadata(&[])));
        assert!(!add.is_tested(&metadata(&[FOREIGN])));
        assert!(remove.is_tested(&metadata(&[FOREIGN, OURS])));
        assert!(!remove.is_tested(&metadata(&[FOREIGN])));
    }
}
