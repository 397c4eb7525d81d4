//! Tests of the responses to a deletion.

use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

use super::*;

/// Returns the kind ConfigMap, and ConfigMap `web` in namespace `team-a`.
pub(super) fn config_map() -> (Kind, ObjectId) {
    let kind = Kind {
        resource: ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&()),
        namespaced: true,
    };
    let id = ObjectId {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: Some("team-a".to_owned()),
        name: "web".to_owned(),
    };
    (kind, id)
}

/// Deletes ConfigMap `web` with uid `ours`. The server sends `answers` in this order.
async fn deleted(answers: Vec<(u16, Value)>) -> Result<bool, kube::Error> {
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let answering = tokio::spawn(async move {
        for (status, body) in answers {
            let (_, reply) = server.next_request().await.unwrap();
            let mut response = Response::new(Body::from(body.to_string().into_bytes()));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            reply.send_response(response);
        }
    });
    let (kind, id) = config_map();
    let client = Client::new(service, "default");
    let result = delete(&client, &kind, &id, "ours").await;
    drop(client);
    answering.abort();
    result
}

fn failure(code: u16) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": "x", "message": "guard says no"});
    (code, status)
}

fn live(uid: &str) -> (u16, Value) {
    let metadata = json!({"name": "web", "namespace": "team-a", "uid": uid});
    let object = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
    (200, object)
}

#[tokio::test]
async fn deletion_that_admission_refuses_is_an_error_with_its_words() {
    for code in [400, 403, 422] {
        let refused = deleted(vec![failure(code), live("ours")]).await;
        assert_eq!(
            error_message(&refused.unwrap_err()),
            "guard says no",
            "{code}"
        );
    }
}

#[tokio::test]
async fn deletion_of_a_deleted_or_replaced_object_is_complete_and_a_conflict_is_not() {
    for (answers, expected) in [
        (vec![failure(404)], true),
        (vec![failure(409), failure(404)], true),
        (vec![failure(409), live("theirs")], true),
        (vec![failure(409), live("ours")], false),
    ] {
        assert_eq!(deleted(answers).await.unwrap(), expected);
    }
}
