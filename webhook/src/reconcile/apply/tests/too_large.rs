//! Tests of applies of large objects: the metadata in the response is too large to read, the object
//! is too large to store, or the body of the request needs much memory.

use futures::FutureExt as _;

use super::*;
use crate::clients::cluster::TOO_LARGE;

#[tokio::test]
async fn object_whose_metadata_is_too_large_may_have_been_applied() {
    for (target, status) in [(Target::Absent, 201), (ours(), 200)] {
        let mut answer = live("ours", "5", "content");
        answer["metadata"]["annotations"] = json!({TOO_LARGE: "true"});
        let answers = vec![(status, json!({})), (status, answer)];
        let (result, is_uncertain, sent) = installed(target, (false, false), answers).await;
        let error = result.unwrap_err();
        assert!(is_uncertain && !error.is_passing(), "{error:?}");
        assert!(
            error.message().contains("too large or invalid"),
            "{error:?}"
        );
        assert_eq!(sent.len(), 2);
    }
}

#[tokio::test]
async fn object_that_is_too_large_for_etcd_is_tried_once_and_not_applied() {
    let refusal = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500, "message": "etcdserver: request is too large"});
    let answers = vec![(201, json!({})), (500, refusal)];
    let (result, is_uncertain, sent) = installed(Target::Absent, (false, false), answers).await;
    let error = result.unwrap_err();
    assert!(!is_uncertain && !error.is_passing(), "{error:?}");
    assert_eq!(sent.len(), 2);
}

#[tokio::test]
async fn body_is_built_after_its_memory_is_reserved() {
    let (client, _sent) = scripted(Vec::new());
    let memory = AllowedDryRuns::default();
    let applies = checking(&client, &memory, (false, false));
    let mut item = PreparedObject::config_map();
    // The body has 2.3 MiB. The memory of large requests is enough for one body of this length.
    item.value["data"]["a"] = "\u{7}".repeat(400_000).into();
    let prepared = applies.preparer.prepare(&item, Target::Absent).await;
    let prepared = prepared.unwrap();
    let first = prepared.body("ana").await;
    assert!(first.json.len() > 6 * 400_000);
    assert!(prepared.body("ben").now_or_never().is_none());
    drop(first);
    assert!(prepared.body("ben").now_or_never().is_some());
}

#[tokio::test]
async fn body_has_the_values_the_mark_and_the_expected_state() {
    let (client, _sent) = scripted(Vec::new());
    let memory = AllowedDryRuns::default();
    let applies = checking(&client, &memory, (false, false));
    let mut item = PreparedObject::config_map();
    let marked = marked("ours");
    let mark = &marked["metadata"]["annotations"]["core.rukpak.io/creation-mark"];
    for (annotations, expected) in [
        (Value::Null, json!({"core.rukpak.io/creation-mark": mark})),
        (
            json!({"a": "b", "core.rukpak.io/creation-mark": "c"}),
            json!({"a": "b", "core.rukpak.io/creation-mark": mark}),
        ),
    ] {
        item.value["metadata"]["annotations"] = annotations;
        for (target, field, value) in [
            (Target::Absent, "resourceVersion", "1"),
            (ours(), "uid", "ours"),
        ] {
            let prepared = applies.preparer.prepare(&item, target).await.unwrap();
            let body = prepared.body("ana").await.json;
            let body: Value = serde_json::from_slice(&body).unwrap();
            let mut object = item.value.clone();
            object["metadata"]["annotations"] = expected.clone();
            object["metadata"][field] = value.into();
            assert_eq!(body, object);
        }
    }
}
