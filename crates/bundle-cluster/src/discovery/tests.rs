//! Tests of the list cache. Each test decides when the API server responds.

use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::json;
use tower_test::mock::{Handle, SendResponse};

use super::*;

type Server = Handle<Request<Body>, Response<Body>>;

fn apis() -> (Apis, Server) {
    let (service, server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    (Apis::new(Client::new(service, "default")), server)
}

/// Receives a request for the list at `path`. Returns the handle to respond.
async fn asked(server: &mut Server, path: &str) -> SendResponse<Response<Body>> {
    let (request, reply) = server.next_request().await.unwrap();
    assert_eq!(request.uri().path(), path);
    reply
}

fn answer(reply: SendResponse<Response<Body>>, code: StatusCode, kind: &str) {
    let body = if code.is_success() {
        json!({
            "kind": "APIResourceList", "groupVersion": "v1", "resources": [
                {"name": "things", "singularName": "", "namespaced": true, "kind": kind, "verbs": []},
                {"name": "things/status", "singularName": "", "namespaced": true, "kind": kind, "verbs": []},
            ],
        })
    } else {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16()})
    };
    let mut response = Response::new(Body::from(body.to_string().into_bytes()));
    *response.status_mut() = code;
    reply.send_response(response);
}

/// Returns the response with the list of these groups. Each group has version `v1`.
fn groups(names: &[&str]) -> Response<Body> {
    let group = |name: &&str| {
        let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
        json!({"name": name, "versions": [version], "preferredVersion": version})
    };
    let groups: Vec<_> = names.iter().map(group).collect();
    let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
    Response::new(Body::from(list.to_string().into_bytes()))
}

#[test]
fn distinguishes_groups_of_definitions_and_of_kubernetes() {
    for (api_version, expected) in [
        ("v1", false),
        ("apps/v1", false),
        ("networking.k8s.io/v1", false),
        ("gateway.networking.k8s.io/v1", true),
        ("shop.example.com/v1", true),
    ] {
        assert_eq!(is_custom(api_version), expected, "{api_version}");
    }
}

#[tokio::test]
async fn lists_of_several_versions_are_requested_at_the_same_time_and_each_of_them_once() {
    let (apis, mut server) = apis();
    let answering = tokio::spawn(async move {
        let (first, one) = server.next_request().await.unwrap();
        let (second, other) = server.next_request().await.unwrap();
        let mut paths = [first, second].map(|request| request.uri().path().to_owned());
        paths.sort();
        assert_eq!(paths, ["/apis/a.example.com/v1", "/apis/b.example.com/v1"]);
        answer(one, StatusCode::OK, "Thing");
        answer(other, StatusCode::OK, "Thing");
        assert!(server.next_request().await.is_none());
    });
    let find = |group| apis.find(group, "v1", "Thing");
    let (one, again, other) = futures::join!(
        find("a.example.com"),
        find("a.example.com"),
        find("b.example.com")
    );
    assert!(one.as_ref().unwrap().is_some());
    assert_eq!(one.unwrap(), again.unwrap());
    let other = other.unwrap().unwrap();
    assert_eq!(other.qualified_plural(), "things.b.example.com");
    assert_eq!(other.group_kind().to_string(), "Thing.b.example.com");
    drop(apis);
    answering.await.unwrap();
}

#[tokio::test]
async fn kinds_of_a_version_need_one_request_also_if_it_is_not_served() {
    let (apis, mut server) = apis();
    let answering = tokio::spawn(async move {
        let absent = asked(&mut server, "/apis/a.example.com/v1").await;
        answer(absent, StatusCode::NOT_FOUND, "");
        let asked_for = asked(&mut server, "/apis/b.example.com/v1").await;
        answer(asked_for, StatusCode::OK, "Thing");
        assert!(server.next_request().await.is_none());
    });
    assert!(apis.kinds("a.example.com", "v1").await.unwrap().is_empty());
    let found = apis.kinds("b.example.com", "v1").await.unwrap();
    assert_eq!(found, BTreeSet::from(["Thing".to_owned()]));
    drop(apis);
    answering.await.unwrap();
}

#[tokio::test]
async fn versions_that_are_not_served_or_do_not_answer_are_not_kept() {
    let (apis, mut server) = apis();
    let path = "/apis/a.example.com/v1";
    let answering = tokio::spawn(async move {
        for code in [StatusCode::NOT_FOUND, StatusCode::NOT_FOUND] {
            answer(asked(&mut server, path).await, code, "");
        }
        answer(
            asked(&mut server, path).await,
            StatusCode::INTERNAL_SERVER_ERROR,
            "",
        );
        answer(asked(&mut server, path).await, StatusCode::OK, "Thing");
        answer(asked(&mut server, path).await, StatusCode::OK, "Other");
    });
    let find = || apis.find("a.example.com", "v1", "Thing");
    assert_eq!(find().await.unwrap(), None);
    assert!(apis.lists.lock().await.is_empty());
    assert!(find().await.is_err());
    assert!(apis.lists.lock().await.is_empty());
    assert!(find().await.unwrap().is_some());
    // The cached list contains the kind.
    assert!(find().await.unwrap().is_some());
    apis.forget_custom().await;
    let now = apis.find_uncached("a.example.com", "v1", "Thing").await;
    assert_eq!(now.unwrap(), None);
    answering.await.unwrap();
}

#[tokio::test]
async fn served_apis_are_groups_with_versions_and_the_kinds_of_those_that_respond() {
    let (apis, mut server) = apis();
    let answering = tokio::spawn(async move {
        while let Some((request, reply)) = server.next_request().await {
            match request.uri().path() {
                "/apis" => reply.send_response(groups(&["apps", "gone.example.com"])),
                "/api/v1" => answer(reply, StatusCode::OK, "Pod"),
                "/apis/apps/v1" => answer(reply, StatusCode::OK, "Deployment"),
                _ => answer(reply, StatusCode::SERVICE_UNAVAILABLE, ""),
            }
        }
    });
    let listed = apis.served().await.unwrap();
    let expected = [
        "apps/v1",
        "apps/v1/Deployment",
        "gone.example.com/v1",
        "v1",
        "v1/Pod",
    ];
    assert_eq!(listed.list, expected);
    assert_eq!(
        listed.unlisted_groups,
        ["gone.example.com".to_owned()].into()
    );
    drop(apis);
    answering.await.unwrap();
}

#[tokio::test]
async fn lists_of_all_served_versions_are_requested_at_the_same_time() {
    let (apis, mut server) = apis();
    let answering = tokio::spawn(async move {
        asked(&mut server, "/apis")
            .await
            .send_response(groups(&["apps"]));
        let (first, one) = server.next_request().await.unwrap();
        let (second, other) = server.next_request().await.unwrap();
        let mut paths = [first, second].map(|request| request.uri().path().to_owned());
        paths.sort();
        assert_eq!(paths, ["/api/v1", "/apis/apps/v1"]);
        answer(one, StatusCode::OK, "Thing");
        answer(other, StatusCode::OK, "Thing");
    });
    let listed = apis.served().await.unwrap();
    assert_eq!(listed.list, ["apps/v1", "apps/v1/Thing", "v1", "v1/Thing"]);
    assert_eq!(listed.unlisted_groups, BTreeSet::new());
    answering.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn kinds_of_custom_groups_whose_list_fails_or_stalls_are_omitted() {
    let (apis, mut server) = apis();
    let answering = tokio::spawn(async move {
        let mut stalled = Vec::new();
        while let Some((request, reply)) = server.next_request().await {
            match request.uri().path() {
                "/apis" => reply.send_response(groups(&[
                    "apps",
                    "closed.example.com",
                    "page.example.com",
                    "slow.example.com",
                ])),
                "/apis/closed.example.com/v1" => reply.send_error("connection reset"),
                "/apis/page.example.com/v1" => {
                    reply.send_response(Response::new(Body::from(b"<html>".to_vec())));
                }
                "/apis/slow.example.com/v1" => stalled.push(reply),
                _ => answer(reply, StatusCode::OK, "Thing"),
            }
        }
        stalled.len()
    });
    let expected = [
        "apps/v1",
        "apps/v1/Thing",
        "closed.example.com/v1",
        "page.example.com/v1",
        "slow.example.com/v1",
        "v1",
        "v1/Thing",
    ];
    // The omitted lists are not cached, so the second call requests them again.
    for _ in 0..2 {
        let began = clock::runtime_instant();
        let kinds = apis.served().await.unwrap();
        assert_eq!(kinds.list, expected);
        assert_eq!(kinds.unlisted_groups.len(), 3);
        let duration = clock::runtime_instant() - began;
        let limits = CUSTOM_LIST_TIMEOUT..2 * CUSTOM_LIST_TIMEOUT;
        assert!(limits.contains(&duration), "{duration:?}");
    }
    drop(apis);
    assert_eq!(answering.await.unwrap(), 2);
}

#[tokio::test]
async fn failed_list_of_a_built_in_group_is_an_error() {
    for failing in ["/api/v1", "/apis/apps/v1"] {
        let (apis, mut server) = apis();
        let answering = tokio::spawn(async move {
            while let Some((request, reply)) = server.next_request().await {
                match request.uri().path() {
                    "/apis" => reply.send_response(groups(&["apps"])),
                    path if path == failing => reply.send_error("connection reset"),
                    _ => answer(reply, StatusCode::OK, "Thing"),
                }
            }
        });
        assert!(apis.served().await.is_err(), "{failing}");
        drop(apis);
        answering.await.unwrap();
    }
}
