//! Tests of the requests of dry runs, as the server receives them.

use bundle_core::rights::DryRunVerdict;
use http::{Method, Request, Response};
use serde_json::Value;

use super::*;
use crate::connection::guarded;

type Sent = (Method, String, HeaderMap, Vec<u8>);

fn config_map() -> (ApiResource, ObjectId) {
    let resource = ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&());
    let id = ObjectId {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: Some("team-a".to_owned()),
        name: "web".to_owned(),
    };
    (resource, id)
}

fn ana() -> Requester {
    Requester {
        user: "ana".to_owned(),
        groups: vec!["dev".to_owned()],
        ..Requester::default()
    }
}

/// Returns a guarded client, and the requests that it sends. The server responds to every request
/// with `code` and `body`.
fn client(code: u16, body: &'static str) -> (Client, tokio::sync::mpsc::UnboundedReceiver<Sent>) {
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some((request, reply)) = server.next_request().await {
            let (head, sent) = request.into_parts();
            let sent = sent.collect_bytes().await.unwrap().to_vec();
            tell.send((head.method, head.uri.to_string(), head.headers, sent))
                .unwrap();
            let answer = Response::builder()
                .status(code)
                .body(Body::from(body.as_bytes().to_vec()));
            reply.send_response(answer.unwrap());
        }
    });
    (guarded(Client::new(service, "default")), told)
}

fn body(json: &[u8]) -> ApplyBody {
    ApplyBody {
        json: json.to_vec(),
        ..ApplyBody::default()
    }
}

#[tokio::test]
async fn name_of_the_requester_can_have_characters_that_are_not_ascii() {
    let requester = Requester {
        user: "j\u{fc}rgen".to_owned(),
        ..ana()
    };
    let (client, _told) = client(201, "{}");
    let run = RequesterDryRun::new(client, &requester).unwrap();
    assert_eq!(run.user(), "j\u{fc}rgen");
}

#[tokio::test]
async fn apply_and_delete_are_sent_as_the_requester_and_as_dry_runs() {
    let (client, mut told) = client(201, "{}");
    let run = RequesterDryRun::new(client, &ana()).unwrap();
    let (resource, id) = config_map();
    let body = body(br#"{"data":{"a":"b"}}"#);
    assert_eq!(run.user(), "ana");
    let answer = run
        .apply(&resource, &id, (body, true), Detail::Metadata)
        .await;
    assert_eq!(
        answer,
        DryRunAnswer {
            verdict: DryRunVerdict::Allowed,
            code: 201,
            causes: Vec::new(),
            object: None,
        }
    );
    let (method, uri, headers, body) = told.recv().await.unwrap();
    assert_eq!(method, Method::PATCH);
    assert!(
        uri.starts_with("/api/v1/namespaces/team-a/configmaps/web?"),
        "{uri}"
    );
    for pair in ["dryRun=All", "force=true", "fieldManager=bundle-webhook"] {
        assert!(uri.contains(pair), "{uri}");
    }
    assert_eq!(
        (&headers["impersonate-user"], &headers["impersonate-group"]),
        (&"ana".parse().unwrap(), &"dev".parse().unwrap())
    );
    assert_eq!(body, br#"{"data":{"a":"b"}}"#);

    assert_eq!(
        run.delete(&resource, &id, "7").await,
        DryRunVerdict::Allowed
    );
    let (method, uri, headers, body) = told.recv().await.unwrap();
    assert_eq!(
        (method, uri.as_str()),
        (
            Method::DELETE,
            "/api/v1/namespaces/team-a/configmaps/web?dryRun=All"
        )
    );
    assert_eq!(headers["impersonate-user"], "ana");
    let options: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (&options["dryRun"], &options["preconditions"]["uid"]),
        (&json!(["All"]), &json!("7"))
    );
}

#[tokio::test]
async fn patch_is_sent_as_a_dry_run_and_returns_the_requested_part_of_the_object() {
    let (client, mut told) = client(200, r#"{"data":{"a":"b"}}"#);
    let run = RequesterDryRun::new(client, &ana()).unwrap();
    let (resource, id) = config_map();
    let operations = json!([{"op": "test", "path": "/metadata/uid", "value": "7"}]);
    let patch: json_patch::Patch = serde_json::from_value(operations.clone()).unwrap();
    for (detail, is_whole) in [(Detail::Metadata, false), (Detail::Object, true)] {
        let answer = run.patch(&resource, &id, &patch, detail).await;
        assert_eq!(answer.verdict, DryRunVerdict::Allowed);
        assert_eq!(answer.object.is_some(), is_whole);
        let (method, uri, headers, body) = told.recv().await.unwrap();
        assert_eq!(method, Method::PATCH);
        for pair in ["dryRun=All", "fieldManager=bundle-webhook"] {
            assert!(uri.contains(pair), "{uri}");
        }
        assert_eq!(headers["impersonate-user"], "ana");
        assert_eq!(headers["content-type"], "application/json-patch+json");
        assert_eq!(headers["accept"] == "application/json", is_whole);
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body, operations);
    }
}

#[tokio::test]
async fn refusals_keep_the_words_of_the_api_server() {
    let denied = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"admission webhook \"w\" does not support dry run","code":400}"#;
    let (client, _told) = client(400, denied);
    let run = RequesterDryRun::new(client, &ana()).unwrap();
    let (resource, id) = config_map();
    let body = (body(b"{}"), false);
    let answer = run.apply(&resource, &id, body, Detail::Object).await;
    let words = r#"admission webhook "w" does not support dry run"#;
    assert_eq!(answer.verdict, DryRunVerdict::Unsupported(words.to_owned()));
}

#[tokio::test]
async fn invalid_object_is_recognized_by_the_causes_of_the_status() {
    let rejected = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ConfigMap \"web\" is invalid: data[a b]: Invalid value: \"a b\"","reason":"Invalid","details":{"name":"web","kind":"ConfigMap","causes":[{"reason":"FieldValueInvalid","message":"Invalid value: \"a b\"","field":"data[a b]"}]},"code":422}"#;
    let (client, _told) = client(422, rejected);
    let run = RequesterDryRun::new(client, &ana()).unwrap();
    let (resource, id) = config_map();
    let body = (body(b"{}"), false);
    let answer = run.apply(&resource, &id, body, Detail::Metadata).await;
    let message = r#"ConfigMap "web" is invalid: data[a b]: Invalid value: "a b""#;
    assert_eq!(answer.verdict, DryRunVerdict::Invalid(message.to_owned()));
    let cause = ("FieldValueInvalid".to_owned(), "data[a b]".to_owned());
    assert_eq!(answer.causes, [cause]);
}

#[tokio::test]
async fn rejects_impersonating_requests_without_dry_run() {
    let (client, mut told) = client(200, "{}");
    let as_person = |method: Method, target: &str, body: &'static str| {
        Request::builder()
            .method(method)
            .uri(target)
            .header("impersonate-user", "ana")
            .body(Body::from(body.as_bytes().to_vec()))
            .unwrap()
    };
    let one = "/api/v1/namespaces/a/configmaps/b";
    let query = format!("{one}?dryRun=All");
    for request in [
        as_person(Method::GET, one, ""),
        as_person(Method::PATCH, one, "{}"),
        as_person(Method::DELETE, &query, "{}"),
        as_person(Method::DELETE, &query, r#"{"dryRun":[]}"#),
        as_person(Method::DELETE, &query, ""),
    ] {
        assert!(client.send(request).await.is_err());
    }
    assert!(told.try_recv().is_err());
    let account = Request::get(one)
        .header("impersonate-user", "system:serviceaccount:a:b")
        .body(Body::empty());
    client.send(account.unwrap()).await.unwrap();
    assert_eq!(told.recv().await.unwrap().0, Method::GET);
}
