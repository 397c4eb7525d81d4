//! Tests of the deadlines, sizes and kinds of reviews.

use bundle_core::review::size::ObjectPart;

use super::*;
use crate::clients::cluster::weigh;
use crate::server::admission_listener::BODY_LIMIT;

#[tokio::test(start_paused = true)]
async fn review_ends_at_its_deadline_if_a_dependency_stalls() {
    let server = server(Fake::default());
    server.fake.stalled.store(true, Ordering::SeqCst);
    let (answer, stored) = server.write("ana", None, &bundle()).await;
    assert_eq!((&answer["allowed"], stamp(&stored)), (&json!(false), None));
    assert_eq!(
        (&answer["status"]["code"], &answer["status"]["reason"]),
        (&json!(503), &json!("ServiceUnavailable"))
    );
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("BUNDLE-REVIEW-021: the review did not finish within 8s")
            && message.contains("retry; the result is not cached"),
        "{message}"
    );
    // The unknown result is not cached.
    server.fake.stalled.store(false, Ordering::SeqCst);
    assert_eq!(
        server.write("ana", None, &bundle()).await.0["allowed"],
        true
    );
}

#[tokio::test]
async fn admits_only_valid_classes_and_policies() {
    let server = server(Fake::default());
    let object = |kind: &str, spec: Value| json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": spec});
    for (object, code) in [
        (
            object(
                "ProvisionerClass",
                json!({"provisioner": "core.rukpak.io/plain"}),
            ),
            None,
        ),
        (
            object("ProvisionerClass", json!({"signatures": "Sometimes"})),
            Some("BUNDLE-REVIEW-011"),
        ),
        (
            object(
                "SignaturePolicy",
                json!({"images": [{"glob": "a.example.com/**"}], "authorities": [{"name": "k", "key": {"secretRef": {"name": "later"}}}]}),
            ),
            None,
        ),
        (
            object(
                "SignaturePolicy",
                json!({"images": [{"glob": "a.example.com/**"}], "authorities": [{"name": "k", "key": {"data": "not PEM"}}]}),
            ),
            Some("BUNDLE-TRUST-003"),
        ),
    ] {
        let (answer, stored) = server.write("admin", None, &object).await;
        assert_eq!(answer["allowed"], code.is_none(), "{answer}");
        assert_eq!(
            answer["status"]["details"]["causes"][0]["reason"].as_str(),
            code
        );
        assert_eq!(stamp(&stored), None);
        // A stored invalid object can still be labelled and deleted.
        let mut labelled = object.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(
            server.write("admin", Some(&object), &labelled).await.0["allowed"],
            true
        );
    }
}

#[tokio::test]
async fn malformed_reviews_get_an_admission_response() {
    let server = server(Fake::default());
    let mut no_object = review("ana", None, &bundle());
    no_object["request"]["object"] = Value::Null;
    let mut old_version = review("ana", None, &bundle());
    old_version["apiVersion"] = "admission.k8s.io/v1beta1".into();
    let mut long_uid = review("ana", None, &bundle());
    long_uid["request"]["uid"] = "u".repeat(129).into();
    // The error of the parser contains the whole value.
    let mut long_value = review("ana", None, &bundle());
    long_value["request"]["kind"] = "k".repeat(1 << 20).into();
    for (body, text) in [
        (long_uid.to_string(), "request.uid of the AdmissionReview"),
        (
            long_value.to_string(),
            "not an AdmissionReview: invalid type",
        ),
        (String::new(), "not an AdmissionReview: EOF"),
        ("not json".to_owned(), "not an AdmissionReview"),
        ("[]".to_owned(), "not an AdmissionReview"),
        (
            "{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}".to_owned(),
            "kind Pod and apiVersion v1, not AdmissionReview",
        ),
        (
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string(),
            "has no request",
        ),
        (no_object.to_string(), "has no object"),
        (old_version.to_string(), "v1beta1"),
        (
            format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)),
            "not an AdmissionReview",
        ),
    ] {
        for path in ["/validate", "/mutate"] {
            let (status, answer) = server.post(path, body.clone()).await;
            assert_eq!(status, StatusCode::OK);
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer["response"]["allowed"], false);
            let message = answer["response"]["status"]["message"].as_str().unwrap();
            assert!(
                message.starts_with("BUNDLE-REVIEW-022: ") && message.contains(text),
                "{message}"
            );
            assert!(message.len() < 700, "{} bytes", message.len());
        }
    }
}

#[tokio::test]
async fn rejects_reviews_above_the_size_limit() {
    let server = server(Fake::default());
    let mut large = bundle();
    // The fields of other managers in `managedFields` do not count towards the memory of the
    // object.
    large["metadata"]["managedFields"] =
        json!([{"manager": "kubectl", "fieldsV1": "x".repeat(5 << 20)}]);
    assert_eq!(server.write("ana", None, &large).await.0["allowed"], true);
    let (status, body) = server.post("/validate", vec![b'['; BODY_LIMIT + 1]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(
        String::from_utf8(body).unwrap(),
        "the review is larger than the limit of 8388608 bytes\n"
    );
}

#[tokio::test]
async fn admits_subresources_and_other_groups_without_review() {
    let server = server(Fake::default());
    let mut status = review("ben", Some(&bundle()), &bundle());
    status["request"]["subResource"] = "status".into();
    let mut pod = review(
        "ben",
        None,
        &json!({"kind": "Pod", "metadata": {"name": "x"}}),
    );
    pod["request"]["kind"] = json!({"group": "", "version": "v1", "kind": "Pod"});
    for review in [status, pod] {
        for path in ["/validate", "/mutate"] {
            let answer = server.ask(path, &review).await;
            assert_eq!(answer["allowed"], true);
            assert!(answer["patch"].is_null());
        }
    }
    assert_eq!(server.questions(), 0);
}

#[tokio::test]
async fn rejects_objects_with_many_small_values_before_they_are_parsed() {
    let server = server(Fake::default());
    for tiny in ["[]", "{\"\":0}", "[[0]]"] {
        let mut large = bundle();
        large["spec"]["tiny"] = "@".into();
        let list = format!(
            "[{}{tiny}]",
            format!("{tiny},").repeat((7 << 20) / (tiny.len() + 1))
        );
        let body = review("ana", None, &large)
            .to_string()
            .replace("\"@\"", &list);
        let (status, answer) = server.post("/validate", body).await;
        assert_eq!(status, StatusCode::OK);
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let message = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(message.contains("BUNDLE-REVIEW-042"), "{message}");
        let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
        assert_eq!(answer["response"]["uid"], uid);
    }
}

#[tokio::test]
async fn rejects_review_that_needs_more_than_seven_eighths_of_the_limit_of_an_address() {
    let server = server(Fake::default());
    let trees = server.budget.parsed_objects.capacity();
    let mut large = bundle();
    // The lists need 18.4 MiB. The long text is in memory twice, as received and as parsed, and
    // needs 8.6 MiB.
    large["spec"]["other"] = "x".repeat(4_500_000).into();
    large["status"]["lists"] = json!(vec![json!([0]); 90_000]);
    assert!(trees > 28 << 20 && server.budget.largest_review() < 20 << 20);
    let answer = server.ask("/validate", &review("ana", None, &large)).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains("BUNDLE-REVIEW-042"), "{message}");
    assert!(message.contains("limit of a review is 19 MiB"), "{message}");
    assert_eq!(server.questions(), 0);
}

#[tokio::test(start_paused = true)]
async fn object_that_is_too_large_causes_no_lookup() {
    let server = server(Fake::default());
    server.fake.stalled.store(true, Ordering::SeqCst);
    let mut large = bundle();
    large["spec"]["other"] = "x".repeat(3 << 20).into();
    let (answer, stored) = server.write("ana", None, &large).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains("BUNDLE-REVIEW-063"), "{message}");
    assert_eq!((server.questions(), stamp(&stored)), (0, None));
}

#[tokio::test]
async fn reviews_update_with_two_objects_of_three_mebibytes() {
    let server = server(Fake::default());
    let mut large = bundle();
    let fields: Vec<Value> = (0..27)
        .map(|number| json!({"manager": format!("m{number}"), "fieldsV1": {"f:text": "x".repeat(110_000)}}))
        .collect();
    large["metadata"]["managedFields"] = fields.into();
    assert!(large.to_string().len() > (14 << 20) / 5);
    let (response, _) = server.write("ana", Some(&large), &large).await;
    assert_eq!(response["allowed"], true, "{response}");
}

#[tokio::test]
async fn labels_of_another_user_prevent_no_write_of_a_requester_or_of_the_pod() {
    let server = server(Fake::default());
    let deployment = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": "web"},
        "spec": {"provisionerClassName": "plain", "template": {"spec": bundle()["spec"]}},
    });
    let (answer, stored) = server.write("ana", None, &deployment).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let labelled = |count: usize| {
        let labels = (0..count).map(|number| (format!("label-{number:05}"), json!("")));
        let mut object = stored.clone();
        object["metadata"]["labels"] = labels.collect::<serde_json::Map<_, _>>().into();
        object
    };
    let weight = |count| {
        let weight = weigh(&labelled(count), &Cancellation::default());
        weight.unwrap().of(ObjectPart::Metadata)
    };
    let each = weight(2) - weight(1);
    let count = 1 + (ObjectPart::Metadata.limit() - weight(1)) / each;
    let (answer, full) = server.write("ben", Some(&stored), &labelled(count)).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let (answer, _) = server.write("ben", Some(&full), &labelled(count + 1)).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains("BUNDLE-REVIEW-063"), "{message}");

    // The next write adds a long annotation, and the stamp gets a second requester.
    let mut changed = full.clone();
    changed["spec"]["collision"] = "Adopt".into();
    let applied = "x".repeat(90 << 10);
    changed["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] =
        applied.into();
    let (answer, changed) = server.write("eve", Some(&full), &changed).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    assert!(stamp(&changed).unwrap().len() > stamp(&full).unwrap().len());
    let mut finalized = changed.clone();
    finalized["metadata"]["finalizers"] = json!(["core.rukpak.io/delete-installed-objects"]);
    let (answer, _) = server.write(OWN, Some(&changed), &finalized).await;
    assert_eq!(answer["allowed"], true, "{answer}");
}
