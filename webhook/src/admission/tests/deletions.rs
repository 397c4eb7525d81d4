//! Tests of reviews of deletions, and of updates that require the permissions of a deletion. The
//! rule itself has its own tests.

use super::*;

fn deletion(user: &str, old: &Value) -> Value {
    let mut review = review(user, Some(old), old);
    review["request"]["operation"] = "DELETE".into();
    review["request"]["object"] = Value::Null;
    review
}

#[tokio::test]
async fn only_the_recorded_requester_can_delete() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &bundle()).await;
    let answer = server.ask("/validate", &deletion("ana", &stored)).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let answer = server.ask("/validate", &deletion("ben", &stored)).await;
    assert_eq!(answer["status"]["code"], 403);
    let reasons = answer["auditAnnotations"]["codes"].as_str().unwrap();
    assert!(reasons.starts_with("BUNDLE-REVIEW-040"), "{reasons}");
    // The object has no stamp or seal, and ana does not have verb `manage`.
    let answer = server.ask("/validate", &deletion("ana", &bundle())).await;
    assert_eq!(answer["status"]["code"], 403);
}

#[tokio::test]
async fn only_the_pod_and_users_with_permission_to_delete_change_owners_and_the_finalizer() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &bundle()).await;
    let mut owned = stored.clone();
    owned["metadata"]["ownerReferences"] = json!([{"name": "gone"}]);
    for (old, new) in [(&owned, &stored), (&stored, &owned)] {
        for (user, allowed) in [("ana", true), ("ben", false), (OWN, true)] {
            let (answer, _) = server.write(user, Some(old), new).await;
            assert_eq!(answer["allowed"], allowed, "{user}: {answer}");
        }
    }
    let mut labelled = stored.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let (answer, _) = server.write("ben", Some(&stored), &labelled).await;
    assert_eq!(answer["allowed"], true, "{answer}");
}

#[tokio::test]
async fn only_the_pod_and_users_with_permission_to_delete_write_a_spec_in_another_notation() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &bundle()).await;
    let mut empty = stored.clone();
    empty["spec"]["source"]["image"]["pullSecret"] = "".into();
    for (user, allowed) in [("ana", true), ("ben", false), ("eve", true), (OWN, true)] {
        let (answer, object) = server.write(user, Some(&stored), &empty).await;
        assert_eq!(answer["allowed"], allowed, "{user}: {answer}");
        if allowed {
            assert_eq!(requester(&object).as_deref(), Some("ana"), "{user}");
        } else {
            let message = answer["status"]["message"].as_str().unwrap();
            let expected = "has no permission to delete or change Bundle web";
            assert!(message.contains(expected), "{message}");
        }
    }
    // A change of the image reference is rejected with the message of RukPak, without any access
    // review.
    server.questions();
    let mut changed = stored.clone();
    changed["spec"]["source"]["image"]["ref"] = "registry.example.com/web:2".into();
    let (answer, _) = server.write("ben", Some(&stored), &changed).await;
    assert_eq!(answer["status"]["message"], "bundle.spec is immutable");
    assert_eq!(server.questions(), 0);
}

fn deployment() -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": "web"},
        "spec": {"provisionerClassName": "plain", "template": {"spec": bundle()["spec"]}},
    })
}

#[tokio::test]
async fn only_the_pod_and_users_with_permission_to_delete_change_the_last_applied_configuration() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &deployment()).await;
    let name = "kubectl.kubernetes.io/last-applied-configuration";
    let mut annotated = stored.clone();
    annotated["metadata"]["annotations"][name] = "{}".into();
    for (old, new) in [(&stored, &annotated), (&annotated, &stored)] {
        for (user, allowed) in [("ana", true), ("ben", false), ("eve", true), (OWN, true)] {
            let (answer, _) = server.write(user, Some(old), new).await;
            assert_eq!(answer["allowed"], allowed, "{user}: {answer}");
        }
    }
    // `kubectl apply` changes the annotation and the spec together.
    let mut applied = annotated.clone();
    applied["metadata"]["annotations"][name] = r#"{"spec":{"collision":"Adopt"}}"#.into();
    applied["spec"]["collision"] = "Adopt".into();
    let (answer, _) = server.write("ana", Some(&annotated), &applied).await;
    assert_eq!(answer["allowed"], true, "{answer}");
}

#[tokio::test]
async fn only_the_pod_and_users_with_permission_to_delete_change_the_applyset_of_a_deployment() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &deployment()).await;
    let mut annotated = stored.clone();
    annotated["metadata"]["annotations"]["applyset.kubernetes.io/contains-group-kinds"] =
        "ConfigMap".into();
    for (old, new) in [(&stored, &annotated), (&annotated, &stored)] {
        for (user, allowed) in [("ana", true), ("ben", false), ("eve", true), (OWN, true)] {
            let (answer, _) = server.write(user, Some(old), new).await;
            assert_eq!(answer["allowed"], allowed, "{user}: {answer}");
        }
    }
}

#[tokio::test]
async fn rejects_a_deletion_without_the_deleted_object() {
    let server = server(Fake::default());
    let mut review = deletion("ana", &bundle());
    review["request"]["oldObject"] = Value::Null;
    let answer = server.post("/validate", review.to_string()).await.1;
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["response"]["allowed"], false);
}
