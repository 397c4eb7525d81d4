//! Release of an object: removes the labels and the creation mark of this project. Mutating
//! admission can change further fields in the same write, although no requester requested these
//! changes. Therefore the result of a dry run is first compared with the object.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use bundle_api::names;
use bundle_core::object::ObjectId;
use bundle_core::rights::{DryRunObject, RemovedMetadata, unexpected_changes};
use bundle_core::text::some_of;
use kube::Client;
use kube::api::{Api, DynamicObject, GetParams, Patch, PatchParams};
use kube::client::Body;
use serde_json::{Value, json};

use super::whole::ObjectText;
use super::{LABELS, api, is_not_found};
use crate::discovery::Kind;
use crate::{ByName, ObjectUrl};

/// Labels and annotations that a release removes.
const RELEASED: RemovedMetadata<'static> = RemovedMetadata {
    labels: &LABELS,
    annotations: &[names::ANNOTATION_CREATION_MARK],
};
/// Largest number of fields in a reason.
const MAX_FIELDS: usize = 5;
/// Largest duration of a release. Slow admission or conversion webhooks can delay its requests.
const TIME_LIMIT: Duration = Duration::from_secs(15);
/// Status codes of a GET that cannot succeed later: the user of the client has no permission to
/// read the object, or the object is too large to be read.
const UNREADABLE: [u16; 2] = [403, 413];
/// Status codes of a dry run that cannot succeed later: an admission webhook does not support dry
/// runs, or the result is too large to be read.
const NOT_COMPARABLE: [u16; 2] = [400, 413];

/// Result of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseResult {
    /// The object has neither labels of this project nor the annotation
    /// [`names::ANNOTATION_CREATION_MARK`], or was deleted or replaced.
    Released,
    /// The object keeps these labels and this annotation. If the release exceeded its time limit,
    /// the API server may still remove them. Contains the reason.
    Unchanged(String),
}

/// Removes this project's labels and creation mark from the object with this uid. A deleted or
/// replaced object is not an error. Writes nothing if mutating admission would also change other
/// fields or add the labels again, if a webhook does not support dry runs, or if the object cannot
/// be read. Fails with a conflict if another actor changes the object at the same time. Ends after
/// 15 s.
///
/// During the comparison, two copies of the object are in memory. `slot` limits the number of
/// concurrent comparisons, and is dropped after the comparison.
pub async fn release(
    client: &Client,
    kind: &Kind,
    id: &ObjectId,
    uid: &str,
    slot: impl Send,
) -> Result<ReleaseResult, kube::Error> {
    let released = compare_and_patch(client, kind, id, uid, slot);
    let released = tokio::time::timeout(TIME_LIMIT, released).await;
    released.unwrap_or_else(|_| {
        Ok(ReleaseResult::Unchanged(format!(
            "the API server did not respond to all requests within {} s",
            TIME_LIMIT.as_secs()
        )))
    })
}

async fn compare_and_patch(
    client: &Client,
    kind: &Kind,
    id: &ObjectId,
    uid: &str,
    slot: impl Send,
) -> Result<ReleaseResult, kube::Error> {
    let parameters = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let compared = compare(client, kind, id, uid, &parameters).await;
    drop(slot);
    let patch = match compared? {
        ControlFlow::Continue(patch) => patch,
        ControlFlow::Break(result) => return Ok(result),
    };
    let api: Api<DynamicObject> = api(client, kind, id.namespace.as_deref())?;
    match ByName(&api)
        .patch_metadata(&id.name, &parameters, &patch)
        .await
    {
        Ok(_) => Ok(ReleaseResult::Released),
        Err(error) if is_not_found(&error) => Ok(ReleaseResult::Released),
        Err(error) => Err(error),
    }
}

/// Compares the object with a dry run of its release. Returns the patch to send, or the result of
/// the release if no patch must be sent.
async fn compare(
    client: &Client,
    kind: &Kind,
    id: &ObjectId,
    uid: &str,
    parameters: &PatchParams,
) -> Result<ControlFlow<ReleaseResult, Patch<Value>>, kube::Error> {
    let namespace = id.namespace.as_deref().filter(|_| kind.namespaced);
    let url =
        ObjectUrl::parse(&kind.resource, namespace, &id.name).map_err(kube::Error::BuildRequest)?;
    let request = url.requests().get(url.name(), &GetParams::default());
    let before = match send(client, request).await {
        Ok(Some(before)) => before,
        Ok(None) => return Ok(ControlFlow::Break(ReleaseResult::Released)),
        Err(error) => return unchanged(error, &UNREADABLE).map(ControlFlow::Break),
    };
    let version = before.version()?;
    if version.uid != uid {
        return Ok(ControlFlow::Break(ReleaseResult::Released));
    }
    let patch = Patch::Merge(patch(uid, &version.resource_version));
    let dry_run = PatchParams {
        dry_run: true,
        ..parameters.clone()
    };
    let request = url.requests().patch(url.name(), &dry_run, &patch);
    let after = match send(client, request).await {
        Ok(Some(after)) => after,
        Ok(None) => return Ok(ControlFlow::Break(ReleaseResult::Released)),
        Err(error) => return unchanged(error, &NOT_COMPARABLE).map(ControlFlow::Break),
    };
    Ok(match unexpected(&before, &after).await? {
        Some(why) => ControlFlow::Break(ReleaseResult::Unchanged(why)),
        None => ControlFlow::Continue(patch),
    })
}

/// Returns [`ReleaseResult::Unchanged`] if the API server responded with one of these status codes.
/// Otherwise returns `error`.
fn unchanged(error: kube::Error, codes: &[u16]) -> Result<ReleaseResult, kube::Error> {
    match error {
        kube::Error::Api(status) if codes.contains(&status.code) => {
            Ok(ReleaseResult::Unchanged(status.message))
        }
        error => Err(error),
    }
}

/// Returns the patch of a release. The patch contains uid and resourceVersion. The API server
/// rejects the patch with a conflict (409) if the object was replaced or changed.
fn patch(uid: &str, resource_version: &str) -> Value {
    let nulls = |names: &[&'static str]| -> BTreeMap<&'static str, Option<&'static str>> {
        names.iter().map(|name| (*name, None)).collect()
    };
    json!({ "metadata": {
        "uid": uid,
        "resourceVersion": resource_version,
        "labels": nulls(RELEASED.labels),
        "annotations": nulls(RELEASED.annotations),
    }})
}

/// Sends a request and returns the object in the response. Returns `None` if the object does not
/// exist.
async fn send(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<Option<ObjectText>, kube::Error> {
    let request = request.map_err(kube::Error::BuildRequest)?;
    let response = client.send(request.map(Body::from)).await?;
    ObjectText::receive_response(response).await
}

/// Returns the reason if the release would change more than labels and creation mark. Otherwise
/// returns `None`.
async fn unexpected(
    before: &ObjectText,
    after: &ObjectText,
) -> Result<Option<String>, kube::Error> {
    ObjectText::with_parsed(&[before, after], |objects| {
        let [old, new] = objects else {
            return None;
        };
        if !DryRunObject::have_one_version(objects) {
            return Some("the object changed during the comparison".to_owned());
        }
        let fields = unexpected_changes(old, new, RELEASED);
        (!fields.is_empty()).then(|| {
            let fields = some_of(&fields, MAX_FIELDS);
            format!("mutating admission would also change these fields: {fields}")
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{Request, Response, StatusCode};

    use super::*;
    use crate::object::is_conflict;
    use crate::object::tests::config_map;

    /// One patch that the server received.
    #[derive(Debug)]
    struct SentPatch {
        query: String,
        body: Value,
        /// True if the release still had its slot when the server received the patch.
        has_slot: bool,
    }

    /// Releases ConfigMap `web` with uid `ours`. The server sends `answers` in this order. Returns
    /// the result and all patches.
    async fn released(
        answers: Vec<(u16, Value)>,
    ) -> (Result<ReleaseResult, kube::Error>, Vec<SentPatch>) {
        let slot = Arc::new(());
        let held = Arc::downgrade(&slot);
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let answering = tokio::spawn(async move {
            let mut patches = Vec::new();
            for (status, body) in answers {
                let (request, reply) = server.next_request().await.unwrap();
                let query = request.uri().query().unwrap_or_default().to_owned();
                if request.method() == http::Method::PATCH {
                    let sent = request.into_body().collect_bytes().await.unwrap();
                    patches.push(SentPatch {
                        query,
                        body: serde_json::from_slice(&sent).unwrap(),
                        has_slot: held.strong_count() > 0,
                    });
                }
                let mut response = Response::new(Body::from(body.to_string().into_bytes()));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                reply.send_response(response);
            }
            patches
        });
        let (kind, id) = config_map();
        let client = Client::new(service, "default");
        let result = release(&client, &kind, &id, "ours", slot).await;
        drop(client);
        (result, answering.await.unwrap())
    }

    fn object(uid: &str, labels: &Value, data: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"text": data},
            "metadata": {
                "name": "web", "namespace": "team-a", "labels": labels,
                "uid": uid, "resourceVersion": "7",
            },
        })
    }

    fn labelled() -> Value {
        object("ours", &json!({names::LABEL_OWNER_NAME: "web"}), "x")
    }

    fn failure(code: u16) -> (u16, Value) {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": code, "reason": "x", "message": "no",
        });
        (code, status)
    }

    #[tokio::test]
    async fn release_writes_only_after_a_dry_run_without_other_changes() {
        let plain = object("ours", &json!({}), "x");
        let answers = vec![(200, labelled()), (200, plain.clone()), (200, plain)];
        let (result, patches) = released(answers).await;
        assert_eq!(result.unwrap(), ReleaseResult::Released);
        let [dry_run, write] = &patches[..] else {
            panic!("{patches:?}")
        };
        assert!(dry_run.query.contains("dryRun=All") && !write.query.contains("dryRun"));
        assert_eq!(dry_run.body, write.body);
        let metadata = &write.body["metadata"];
        assert_eq!(metadata["uid"], "ours");
        assert_eq!(metadata["resourceVersion"], "7");
        let labels = metadata["labels"].as_object().unwrap();
        assert_eq!(labels.get(names::LABEL_OWNER_NAME), Some(&Value::Null));
        // The texts of the objects are dropped before the write is sent.
        assert!(dry_run.has_slot && !write.has_slot);
    }

    #[tokio::test]
    async fn object_that_admission_would_change_is_not_released() {
        let mutated = object("ours", &json!({}), "y");
        let mut moved = object("ours", &json!({}), "x");
        moved["metadata"]["resourceVersion"] = "8".into();
        let named = "mutating admission would also change these fields: data.text";
        let added_again = "mutating admission would also change these fields: metadata.labels";
        for (answer, why) in [
            ((200, mutated), named),
            ((200, labelled()), added_again),
            ((200, moved), "the object changed during the comparison"),
            (failure(400), "no"),
            (failure(413), "no"),
        ] {
            let (result, patches) = released(vec![(200, labelled()), answer]).await;
            assert_eq!(result.unwrap(), ReleaseResult::Unchanged(why.to_owned()));
            assert_eq!(patches.len(), 1, "{why}");
        }
    }

    #[tokio::test]
    async fn object_that_cannot_be_read_is_not_released() {
        for code in [403, 413] {
            let (result, patches) = released(vec![failure(code)]).await;
            assert_eq!(result.unwrap(), ReleaseResult::Unchanged("no".to_owned()));
            assert!(patches.is_empty());
        }
        assert!(released(vec![failure(500)]).await.0.is_err());
    }

    #[tokio::test]
    async fn deleted_and_replaced_objects_are_released_and_conflicts_are_returned() {
        let plain = || (200, object("ours", &json!({}), "x"));
        let ours = || (200, labelled());
        let theirs = || (200, object("theirs", &json!({}), "x"));
        for answers in [
            vec![failure(404)],
            vec![theirs()],
            vec![ours(), failure(404)],
            vec![ours(), plain(), failure(404)],
        ] {
            let (result, _) = released(answers).await;
            assert_eq!(result.unwrap(), ReleaseResult::Released);
        }
        let refused = vec![ours(), failure(403)];
        assert!(released(refused).await.0.is_err());
        for conflict in [
            vec![ours(), failure(409)],
            vec![ours(), plain(), failure(409)],
        ] {
            assert!(is_conflict(&released(conflict).await.0.unwrap_err()));
        }
    }
}
