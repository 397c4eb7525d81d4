//! Tests of applies of objects that are too large. Either the metadata in the response is too large
//! to read, or the object is too large to store.

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
