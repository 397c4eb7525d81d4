use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;
use crate::ByName;

/// Returns a client and a task. `respond` creates the response to each request of the client. The
/// task returns the URLs of the requests after the client is dropped.
fn server(
    respond: impl Fn(&Uri) -> (u16, String) + Send + 'static,
) -> (Api<ConfigMap>, JoinHandle<Vec<String>>) {
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let answering = tokio::spawn(async move {
        let mut urls = Vec::new();
        while let Some((request, reply)) = server.next_request().await {
            let (code, text) = respond(request.uri());
            let mut response = Response::new(Body::from(text.into_bytes()));
            response.headers_mut().insert(
                http::header::CONTENT_TYPE,
                http::HeaderValue::from_static("application/json"),
            );
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            reply.send_response(response);
            urls.push(request.uri().to_string());
        }
        urls
    });
    let client = bounded(Client::new(service, "team-a"));
    (Api::default_namespaced(client), answering)
}

fn config_map(name: usize, labels: usize) -> Value {
    let labels: serde_json::Map<String, Value> = (0..labels)
        .map(|n| (format!("label-{n}"), json!("")))
        .collect();
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {
        "name": format!("map-{name}"), "namespace": "team-a", "uid": format!("u-{name}"), "resourceVersion": "5", "labels": labels,
    }})
}

/// Returns a server function for lists of eight objects, each with `labels` labels. The continue
/// token of a page is the number of the next object.
fn paged(labels: usize) -> impl Fn(&Uri) -> (u16, String) {
    move |uri| {
        let number = |key| query(uri, key).map_or(0, |text| text.parse().unwrap());
        let (first, limit) = (number("continue"), number("limit"));
        let next = (first + limit).min(8);
        let items: Vec<Value> = (first..next).map(|name| config_map(name, labels)).collect();
        let token = if next < 8 {
            next.to_string()
        } else {
            String::new()
        };
        let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {"continue": token, "resourceVersion": "9"}, "items": items});
        (200, list.to_string())
    }
}

async fn list_all(api: &Api<ConfigMap>) -> Vec<String> {
    let mut names = Vec::new();
    let mut parameters = ListParams::default().limit(8);
    loop {
        let page = api.list_metadata(&parameters).await.unwrap();
        names.extend(page.items.into_iter().filter_map(|item| item.metadata.name));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return names,
        }
    }
}

#[tokio::test]
async fn page_that_takes_too_much_is_read_again_with_fewer_objects() {
    for (labels, requests) in [(10, 1), (20_000, 5), (75_000, 1)] {
        let (api, answering) = server(paged(labels));
        let names = list_all(&api).await;
        let expected: Vec<String> = (0..8).map(|name| format!("map-{name}")).collect();
        assert_eq!(names, expected);
        drop(api);
        let urls = answering.await.unwrap();
        assert_eq!(urls.len(), requests, "{labels} labels: {urls:?}");
    }
}

#[tokio::test]
async fn list_without_pages_that_takes_too_much_fails_with_413() {
    let (api, _answering) = server(|_| {
        let items: Vec<Value> = (0..8).map(|name| config_map(name, 20_000)).collect();
        (200, json!({"metadata": {}, "items": items}).to_string())
    });
    let error = api.list_metadata(&ListParams::default()).await.unwrap_err();
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == 413),
        "{error}"
    );
}

#[tokio::test]
async fn watch_goes_on_after_an_object_that_is_too_large() {
    let (api, _answering) = server(|_| {
        let events = [(1, 1), (2, 75_000), (3, 1)].map(|(name, labels)| {
            format!(
                "{}\n",
                json!({"type": "ADDED", "object": config_map(name, labels)})
            )
        });
        (200, events.concat())
    });
    let events = api
        .watch_metadata(&WatchParams::default(), "0")
        .await
        .unwrap();
    let events: Vec<_> = events.try_collect().await.unwrap();
    let seen: Vec<(String, bool)> = events
        .into_iter()
        .map(|event| match event {
            WatchEvent::Added(object) => {
                let annotations = object.metadata.annotations.unwrap_or_default();
                (
                    object.metadata.name.unwrap(),
                    annotations.contains_key(TOO_LARGE),
                )
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [("map-1", false), ("map-2", true), ("map-3", false)];
    assert_eq!(seen, expected.map(|(name, large)| (name.to_owned(), large)));
}

#[tokio::test]
async fn metadata_of_one_object_that_is_too_large_is_its_identity() {
    let (api, _answering) = server(|_| (200, config_map(1, 75_000).to_string()));
    let found = ByName(&api)
        .get_metadata_opt("map-1")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.metadata.uid.as_deref(), Some("u-1"));
    assert_eq!(found.metadata.labels, None);
}

#[tokio::test]
async fn other_answers_end_at_their_limit_and_failures_keep_their_words() {
    let (api, _answering) = server(|uri| {
        let name = uri.path().rsplit('/').next().unwrap_or_default();
        match name {
            "large" => (200, json!({"metadata": {}, "data": {"a": "x".repeat(9 << 20)}}).to_string()),
            "refused" => (403, json!({"kind": "Status", "code": 403, "message": "no", "reason": "Forbidden", "status": "Failure"}).to_string()),
            _ => (500, "x".repeat(2 << 20)),
        }
    });
    let api = ByName(&api);
    let error = crate::chain(&api.get("large").await.unwrap_err());
    assert!(error.contains("has more than 8388608 bytes"), "{error}");
    let error = api.get("refused").await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.message == "no"));
    let error = crate::chain(&api.get("failing").await.unwrap_err());
    assert!(error.contains("has more than 1048576 bytes"), "{error}");
}

#[tokio::test]
async fn error_responses_of_all_kinds_of_requests_are_shortened() {
    let message = "x".repeat(400 << 10);
    let (api, _answering) = server(move |_| {
        let status = json!({"kind": "Status", "code": 403, "message": message, "reason": "Forbidden", "status": "Failure"});
        (403, status.to_string())
    });
    let by_name = ByName(&api);
    let list = api.list_metadata(&ListParams::default()).await;
    let watch = api.watch_metadata(&WatchParams::default(), "0").await;
    for error in [
        by_name.get("web").await.unwrap_err(),
        by_name.get_metadata_opt("web").await.unwrap_err(),
        list.unwrap_err(),
        watch.err().unwrap(),
    ] {
        let kube::Error::Api(status) = &error else {
            panic!("{error}");
        };
        assert_eq!(status.code, 403);
        let size = status.message.len();
        assert!(size <= failure::MESSAGE_LIMIT, "{size}");
    }
}

#[test]
fn distinguishes_paths_of_collections_and_objects() {
    for (path, expected) in [
        ("/api/v1/configmaps", true),
        ("/api/v1/namespaces", true),
        ("/api/v1/namespaces/team-a", false),
        ("/api/v1/namespaces/team-a/configmaps", true),
        ("/api/v1/namespaces/team-a/configmaps/web", false),
        ("/apis/core.rukpak.io/v1alpha1/bundles", true),
        ("/apis/core.rukpak.io/v1alpha1/bundles/web", false),
        ("/apis/core.rukpak.io/v1alpha1/bundles/web/status", false),
        ("/apis/core.rukpak.io/v1alpha1", false),
        ("/apis", false),
        ("/version", false),
    ] {
        assert_eq!(is_collection(path), expected, "{path}");
    }
}

#[tokio::test]
async fn reads_whole_objects_with_invalid_times() {
    let (api, _answering) = server(|_| {
        let entries = json!([{"manager": "x", "time": "9999-12-31T23:59:59Z"}]);
        let metadata = json!({"name": "map-1", "managedFields": entries});
        let data = json!({"time": "9999-12-31T23:59:59Z"});
        (200, json!({"metadata": metadata, "data": data}).to_string())
    });
    let found = ByName(&api).get("map-1").await.unwrap();
    assert_eq!(found.metadata.managed_fields.unwrap()[0].time, None);
    assert_eq!(found.data.unwrap()["time"], "9999-12-31T23:59:59Z");
}

#[tokio::test]
async fn object_without_data_has_its_other_fields() {
    let data = "x".repeat(1 << 20);
    let (api, _answering) = server(move |_| {
        let map = json!({"metadata": {"name": "map-1"}, "data": {"a": data}, "immutable": true});
        (200, map.to_string())
    });
    let client = api.clone().into_client();
    let read = async |without_data: bool| {
        let request = Request::get("/api/v1/namespaces/team-a/configmaps/map-1");
        let mut request = request.body(Vec::new()).unwrap();
        if without_data {
            request.extensions_mut().insert(WithoutData);
        }
        let text = client.request_text(request).await.unwrap();
        let map: ConfigMap = serde_json::from_str(&text).unwrap();
        assert_eq!(map.immutable, Some(true));
        (text.len(), map.data.unwrap_or_default().len())
    };
    let (length, entries) = read(true).await;
    assert!(length < 200 && entries == 0, "{length}");
    let (length, entries) = read(false).await;
    assert!(length > 1 << 20 && entries == 1, "{length}");
}

/// Returns an API of Bundles on the server of `api`.
fn bundles(api: &Api<ConfigMap>) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<bundle_api::Bundle>(&());
    Api::all_with(api.clone().into_client(), &resource)
}

#[tokio::test]
async fn own_object_that_is_too_large_fails_with_413_and_is_an_identity_in_lists() {
    let (api, _answering) = server(|uri| {
        let lists = vec![json!([]); 200_000];
        let bundle = json!({"metadata": {"name": "web", "uid": "u-1", "generation": 3}, "spec": {"a": lists}});
        let list = json!({"metadata": {}, "items": [bundle]});
        let answer = if uri.path().ends_with("/web") {
            bundle
        } else {
            list
        };
        (200, answer.to_string())
    });
    let bundles = bundles(&api);
    let error = ByName(&bundles).get_opt("web").await.unwrap_err();
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == 413),
        "{error}"
    );
    let found = bundles.list(&ListParams::default()).await.unwrap();
    let metadata = &found.items[0].metadata;
    assert_eq!(metadata.uid.as_deref(), Some("u-1"));
    assert_eq!(metadata.generation, None);
}

/// Returns the result of a request whose response begins with `begin` and does not end.
async fn stalled(begin: String, uri: &str) -> Result<Vec<u8>, BoxError> {
    let service = service_fn(move |_: Request<Body>| {
        let begin = Bytes::from(begin.clone());
        let pieces = stream::once(future::ready(Ok::<_, BoxError>(Frame::data(begin))));
        let body = StreamBody::new(pieces.chain(stream::pending()));
        future::ready(Ok::<_, BoxError>(Response::new(body)))
    });
    let client = bounded(Client::new(service, "team-a"));
    let answer = client.send(Request::get(uri).body(Body::empty())?).await?;
    Ok(answer.into_body().collect().await?.to_bytes().to_vec())
}

#[tokio::test(start_paused = true)]
async fn responses_that_stall_fail() {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [config_map(1, 75_000)]});
    let cut = |text: String| text[..text.len() - 10].to_owned();
    for (begin, uri, most) in [
        // In this order: a response that is not reduced, a small list, and a list that needs a
        // permit.
        ("{".to_owned(), "/api/v1", READ_TIMEOUT),
        ("{".to_owned(), "/api/v1/configmaps?limit=8", READ_TIMEOUT),
        (
            cut(list.to_string()),
            "/api/v1/configmaps?limit=8",
            PERMIT_TIMEOUT,
        ),
    ] {
        let result = tokio::time::timeout(most * 2, stalled(begin, uri)).await;
        assert!(result.unwrap().is_err(), "{uri}");
    }
}
