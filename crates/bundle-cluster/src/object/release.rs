//! Release of an object: removes the labels and the creation mark of this project. Mutating
//! admission can change further fields in the same write, although no requester requested these
//! changes. Therefore the result of a dry run is first compared with the object.

use std::collections::BTreeMap;

use bundle_api::names;
use bundle_core::object::ObjectId;
use bundle_core::rights::{DryRunObject, RemovedMetadata, unexpected_changes};
use bundle_core::text::some_of;
use kube::Client;
use kube::api::{Api, DynamicObject, GetParams, Patch, PatchParams};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::whole::ObjectText;
use super::{LABELS, api, is_conflict, is_not_found};
use crate::discovery::Kind;
use crate::{ByName, ObjectUrl};

/// Labels and annotations that a release removes.
const RELEASED: RemovedMetadata<'static> = RemovedMetadata {
    labels: &LABELS,
    annotations: &[names::ANNOTATION_CREATION_MARK],
};
/// Number of attempts while other actors change the object.
const ATTEMPTS: usize = 3;
/// Largest number of fields in a reason.
const MAX_FIELDS: usize = 5;

/// Permits for releases. Each release has two copies of its object in memory, so the number of
/// concurrent releases is limited.
static RELEASES: Semaphore = Semaphore::const_new(2);

/// Result of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseResult {
    /// The object has no labels and no creation mark of this project, or was deleted or replaced.
    Released,
    /// The object still has its labels and its creation mark. Contains the reason.
    Unchanged(String),
}

/// Removes this project's labels and creation mark from the object with this uid. A deleted or
/// replaced object is not an error. Writes nothing if mutating admission would change other fields
/// too, or does not support dry runs.
pub async fn release(
    client: &Client,
    kind: &Kind,
    id: &ObjectId,
    uid: &str,
) -> Result<ReleaseResult, kube::Error> {
    let _permit = RELEASES.acquire().await.ok();
    let mut attempts = 1;
    loop {
        match attempt(client, kind, id, uid).await {
            Err(error) if is_conflict(&error) && attempts < ATTEMPTS => attempts += 1,
            result => return result,
        }
    }
}

async fn attempt(
    client: &Client,
    kind: &Kind,
    id: &ObjectId,
    uid: &str,
) -> Result<ReleaseResult, kube::Error> {
    let namespace = id.namespace.as_deref().filter(|_| kind.namespaced);
    let url =
        ObjectUrl::parse(&kind.resource, namespace, &id.name).map_err(kube::Error::BuildRequest)?;
    let request = url.requests().get(url.name(), &GetParams::default());
    let Some(before) = send(client, request).await? else {
        return Ok(ReleaseResult::Released);
    };
    let version = before.version()?;
    if version.uid != uid {
        return Ok(ReleaseResult::Released);
    }
    let patch = Patch::Merge(patch(uid, &version.resource_version));
    let parameters = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let dry_run = PatchParams {
        dry_run: true,
        ..parameters.clone()
    };
    let request = url.requests().patch(url.name(), &dry_run, &patch);
    let after = match send(client, request).await {
        Ok(Some(after)) => after,
        Ok(None) => return Ok(ReleaseResult::Released),
        // An admission webhook does not support dry runs.
        Err(kube::Error::Api(status)) if status.code == 400 => {
            return Ok(ReleaseResult::Unchanged(status.message));
        }
        Err(error) => return Err(error),
    };
    if let Some(why) = unexpected(&before, &after).await? {
        return Ok(ReleaseResult::Unchanged(why));
    }
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
    use http::{Request, Response, StatusCode};
    use kube::core::discovery::ApiResource;

    use super::*;

    /// Releases ConfigMap `web` with uid `ours`. The server sends `answers` in this order. Returns
    /// the result, and query and body of each patch.
    async fn released(
        answers: Vec<(u16, Value)>,
    ) -> (Result<ReleaseResult, kube::Error>, Vec<(String, Value)>) {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let answering = tokio::spawn(async move {
            let mut patches = Vec::new();
            for (status, body) in answers {
                let (request, reply) = server.next_request().await.unwrap();
                let query = request.uri().query().unwrap_or_default().to_owned();
                if request.method() == http::Method::PATCH {
                    let sent = request.into_body().collect_bytes().await.unwrap();
                    patches.push((query, serde_json::from_slice(&sent).unwrap()));
                }
                let mut response = Response::new(Body::from(body.to_string().into_bytes()));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                reply.send_response(response);
            }
            patches
        });
        let kind = Kind {
            resource: ApiResource {
                group: String::new(),
                version: "v1".to_owned(),
                api_version: "v1".to_owned(),
                kind: "ConfigMap".to_owned(),
                plural: "configmaps".to_owned(),
            },
            namespaced: true,
        };
        let id = ObjectId {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: Some("team-a".to_owned()),
            name: "web".to_owned(),
        };
        let client = Client::new(service, "default");
        let result = release(&client, &kind, &id, "ours").await;
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
        let [(dry_run, first), (query, second)] = &patches[..] else {
            panic!("{patches:?}")
        };
        assert!(dry_run.contains("dryRun=All") && !query.contains("dryRun"));
        assert_eq!(first, second);
        assert_eq!(first["metadata"]["uid"], "ours");
        assert_eq!(first["metadata"]["resourceVersion"], "7");
        let labels = first["metadata"]["labels"].as_object().unwrap();
        assert_eq!(labels.get(names::LABEL_OWNER_NAME), Some(&Value::Null));
    }

    #[tokio::test]
    async fn object_that_admission_would_change_is_not_released() {
        let mutated = object("ours", &json!({}), "y");
        let mut moved = object("ours", &json!({}), "x");
        moved["metadata"]["resourceVersion"] = "8".into();
        let named = "mutating admission would also change these fields: data.text";
        for (answer, why) in [
            ((200, mutated), named),
            ((200, moved), "the object changed during the comparison"),
            (failure(400), "no"),
        ] {
            let (result, patches) = released(vec![(200, labelled()), answer]).await;
            assert_eq!(result.unwrap(), ReleaseResult::Unchanged(why.to_owned()));
            assert_eq!(patches.len(), 1, "{why}");
        }
    }

    #[tokio::test]
    async fn deleted_and_replaced_objects_are_released_and_conflicts_are_repeated() {
        let plain = || (200, object("ours", &json!({}), "x"));
        let ours = || (200, labelled());
        let theirs = || (200, object("theirs", &json!({}), "x"));
        for answers in [
            vec![failure(404)],
            vec![theirs()],
            vec![ours(), failure(404)],
            vec![ours(), plain(), failure(404)],
            vec![ours(), failure(409), theirs()],
            vec![ours(), plain(), failure(409), ours(), plain(), plain()],
        ] {
            let (result, _) = released(answers).await;
            assert_eq!(result.unwrap(), ReleaseResult::Released);
        }
        let refused = vec![ours(), failure(403)];
        assert!(released(refused).await.0.is_err());
        let conflicts: Vec<_> = (0..ATTEMPTS).flat_map(|_| [ours(), failure(409)]).collect();
        assert!(is_conflict(&released(conflicts).await.0.unwrap_err()));
    }
}
