//! Tests of the stamps of writes, and of the requesters that stamps prove.

use super::*;

#[tokio::test]
async fn write_without_change_of_the_spec_keeps_the_stamp_without_lookups() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &bundle()).await;
    server.questions();
    for annotations in [
        json!({}),
        json!({ANNOTATION_STAMP: "forged", "a": "b"}),
        Value::Null,
    ] {
        let mut changed = stored.clone();
        changed["metadata"]["annotations"] = annotations;
        let (answer, object) = server.write("ben", Some(&stored), &changed).await;
        assert_eq!(answer["allowed"], true, "{answer}");
        assert_eq!(requester(&object).as_deref(), Some("ana"));
    }
    assert_eq!(server.questions(), 0);
}

#[tokio::test]
async fn foreign_stamp_is_ignored() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &bundle()).await;
    // Ben creates the object again with ana's stamp. The mutating call removes the stamp, and the
    // validating call rejects the request.
    let (answer, object) = server.write("ben", None, &stored).await;
    assert_eq!(answer["allowed"], false);
    assert_eq!(stamp(&object), None);
    // The object with the forged stamp is sent only to the validating call. The stamp is JSON in a
    // string.
    let text = stored.to_string();
    let other = text.replace(r#"\"ana\""#, r#"\"eve\""#);
    assert_ne!(other, text);
    let other: Value = serde_json::from_str(&other).unwrap();
    let answer = server.ask("/validate", &review("ana", None, &other)).await;
    assert_eq!(
        answer["status"]["details"]["causes"][0]["reason"], "BUNDLE-REVIEW-025",
        "{answer}"
    );
    let mut forged = bundle();
    forged["metadata"]["annotations"] = json!({ANNOTATION_STAMP: "{}"});
    let answer = server.ask("/validate", &review("ana", None, &forged)).await;
    assert_eq!(
        answer["status"]["details"]["causes"][0]["reason"],
        "BUNDLE-REVIEW-025"
    );
}

#[tokio::test]
async fn name_of_an_object_with_generate_name_is_part_of_the_stamp() {
    let server = server(Fake::default());
    let mut object = bundle();
    object["metadata"] = json!({"generateName": "web-"});
    let (answer, stored) = server.write("ana", None, &object).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let name = stored["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_eq!(requester(&stored).as_deref(), Some("ana"));
    object["metadata"]["generateName"] = "x".repeat(80).into();
    let (answer, stored) = server.write("ana", None, &object).await;
    assert_eq!(
        (
            &answer["allowed"],
            stored["metadata"]["name"].as_str().unwrap().len()
        ),
        (&json!(true), 52)
    );
}

/// Returns the Bundle that the pod generates for the BundleDeployment `web`.
pub(super) fn generated_bundle(deployment: &Value) -> Value {
    let hash = template_hash(&deployment["spec"]["template"]);
    let mut generated = bundle();
    generated["metadata"] = json!({
        "name": format!("web-{hash}"),
        "labels": {LABEL_TEMPLATE_HASH: hash},
        "ownerReferences": [{"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment", "name": "web", "uid": "u1", "controller": true}],
    });
    generated
}

#[tokio::test]
async fn verdict_on_a_generated_bundle_is_unknown_while_its_deployment_cannot_be_read() {
    let server = server(Fake {
        deployment_error: Some(Finding::error(codes::cluster::UNREACHABLE, "no response")),
        ..Fake::default()
    });
    let generated = generated_bundle(&json!({}));
    for path in ["/mutate", "/validate"] {
        let answer = server.ask(path, &review(OWN, None, &generated)).await;
        assert_eq!(answer["status"]["code"], 503, "{path}: {answer}");
        let message = answer["status"]["message"].as_str().unwrap();
        assert!(message.contains("no response"), "{message}");
    }
}

#[tokio::test]
async fn bundle_of_a_template_inherits_the_stamp_of_its_deployment() {
    let mut deployment = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": "web", "uid": "u1"},
        "spec": {"provisionerClassName": "plain", "template": {"spec": bundle()["spec"]}},
    });
    let (answer, stored) = server(Fake::default())
        .write("ana", None, &deployment)
        .await;
    assert_eq!(answer["allowed"], true, "{answer}");
    deployment = stored;

    let child = generated_bundle(&deployment);
    let ours = |deployment: Value| {
        server(Fake {
            deployment: Some(deployment),
            ..Fake::default()
        })
    };
    let there = ours(deployment.clone());
    let (answer, stored) = there.write(OWN, None, &child).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    assert_eq!(requester(&stored).as_deref(), Some("ana"));
    assert_eq!(there.questions(), 0);

    // Another user creates the same Bundle. Only the permissions of this user are checked.
    let (answer, stored) = there.write("ana", None, &child).await;
    assert_eq!(
        (&answer["allowed"], requester(&stored).as_deref()),
        (&json!(true), Some("ana"))
    );
    assert_eq!(there.write("ben", None, &child).await.0["allowed"], false);

    // A Bundle inherits no stamp if its BundleDeployment has another uid, no stamp, or another
    // template.
    let mut other_uid = deployment.clone();
    other_uid["metadata"]["uid"] = "u2".into();
    let mut unstamped = deployment.clone();
    unstamped["metadata"]["annotations"] = Value::Null;
    let mut forged = deployment.clone();
    forged["spec"]["template"]["spec"]["source"]["image"]["ref"] =
        "registry.example.com/evil:1".into();
    for deployment in [other_uid, unstamped, forged] {
        assert_eq!(
            ours(deployment).write(OWN, None, &child).await.0["allowed"],
            false
        );
    }
    let mut other_spec = child.clone();
    other_spec["spec"]["source"]["image"]["ref"] = "registry.example.com/evil:1".into();
    assert_eq!(
        ours(deployment).write(OWN, None, &other_spec).await.0["allowed"],
        false
    );
}

#[tokio::test]
async fn object_written_while_admission_was_off_is_admitted_only_by_its_own_annotation() {
    let server = server(Fake::default());
    let mut old = bundle();
    old["metadata"]["uid"] = "u1".into();
    old["metadata"]["generation"] = 1.into();
    let annotated = |value: &str| {
        let mut new = old.clone();
        new["metadata"]["annotations"] = json!({ANNOTATION_ADMIT: value});
        new
    };
    let token = admit_token(KEY, "Bundle", "web", "u1", &old["spec"]);
    for (user, new) in [
        (OWN, annotated(&token)),
        ("eve", annotated("yes")),
        (
            "eve",
            annotated(&admit_token(KEY, "Bundle", "web", "u2", &old["spec"])),
        ),
    ] {
        let (answer, object) = server.write(user, Some(&old), &new).await;
        assert_eq!(
            (&answer["allowed"], stamp(&object)),
            (&json!(true), None),
            "{user}"
        );
    }
    // The permission for the class is not sufficient: nothing proves that this user requested the
    // object, so verb `manage` is required.
    for user in ["ana", "ben"] {
        let (answer, _) = server.write(user, Some(&old), &annotated(&token)).await;
        assert_eq!(answer["status"]["code"], 403, "{user}");
    }
    let (answer, object) = server.write("eve", Some(&old), &annotated(&token)).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    assert_eq!(requester(&object).as_deref(), Some("eve"));
    // An annotation that was set before this write is ignored.
    let there = annotated(&token);
    let mut again = there.clone();
    again["metadata"]["labels"] = json!({"a": "b"});
    let (answer, object) = server.write("eve", Some(&there), &again).await;
    assert_eq!((&answer["allowed"], stamp(&object)), (&json!(true), None));
}

#[tokio::test]
async fn stamp_of_another_time_or_before_a_gap_is_invalid() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &bundle()).await;
    let later = |seconds: i64| {
        let then = Timestamp::constant(1_800_000_000 + seconds, 0);
        server.fake.state.lock().unwrap().now = then;
    };
    // A later write is rejected by the validating call if no mutating call has stamped this write.
    later(61);
    let answer = server.ask("/validate", &review("ana", None, &stored)).await;
    assert_eq!(
        answer["status"]["details"]["causes"][0]["reason"],
        "BUNDLE-REVIEW-025"
    );
    let answer = server
        .ask("/validate", &review("ana", None, &bundle()))
        .await;
    assert_eq!(
        answer["status"]["details"]["causes"][0]["reason"],
        "BUNDLE-REVIEW-025"
    );
    // The registrations were altered after the object was stamped, and the object has no seal. A
    // change of this object gets no stamp.
    later(1);
    let mut changed = stored.clone();
    changed["spec"]["source"]["git"] = Value::Null;
    let (_, object) = server.write("eve", Some(&stored), &changed).await;
    assert_eq!(requester(&object).as_deref(), Some("ana"));
    server.fake.state.lock().unwrap().intact_since = Some(Timestamp::constant(1_800_000_000, 1));
    let (answer, object) = server.write("eve", Some(&stored), &changed).await;
    assert_eq!((&answer["allowed"], stamp(&object)), (&json!(true), None));
}

#[tokio::test]
async fn each_part_of_a_deployment_keeps_its_requester_until_it_changes() {
    let server = server(Fake::default());
    let deployment = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": "web"},
        "spec": {"provisionerClassName": "plain", "template": {"spec": bundle()["spec"]}},
    });
    let (_, mut stored) = server.write("ana", None, &deployment).await;
    let moment = SealCheckContext {
        now: Timestamp::constant(1_800_000_000, 0).as_millisecond(),
        intact_since: Some(0),
    };
    let users = |object: &Value| {
        let found = stamping::confirmed_facts(KEY, Kind::BundleDeployment, "web", object, &moment);
        let parts = found.unwrap().parts;
        [
            parts.class,
            parts.template,
            parts.config,
            parts.service_account,
        ]
        .map(|who| who.user.clone())
    };
    for (member, value, expected) in [
        ("drift", json!({"mode": "Report"}), ["ana"; 4]),
        ("config", json!({"a": 1}), ["ana", "ana", "eve", "ana"]),
    ] {
        let mut changed = stored.clone();
        changed["spec"][member] = value;
        let (answer, object) = server.write("eve", Some(&stored), &changed).await;
        assert_eq!(answer["allowed"], true, "{answer}");
        assert_eq!(users(&object), expected);
        stored = object;
    }
}

#[tokio::test]
async fn unsealed_stamp_is_renewed_by_writes_of_metadata() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &bundle()).await;
    let later = Timestamp::constant(1_800_000_020, 0);
    server.fake.state.lock().unwrap().now = later;
    let mut labelled = stored.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let (answer, labelled) = server.write("ben", Some(&stored), &labelled).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    assert_ne!(stamp(&labelled), stamp(&stored));
    let moment = SealCheckContext {
        now: later.as_millisecond(),
        intact_since: Some(0),
    };
    let vouched = stamping::confirmed_facts(KEY, Kind::Bundle, "web", &labelled, &moment).unwrap();
    assert_eq!(vouched.parts.template.user, "ana");
}

#[tokio::test]
async fn only_the_write_that_sets_the_annotation_admits_and_renewals_keep_its_time() {
    let server = server(Fake::default());
    let at = |seconds: i64| Timestamp::constant(1_800_000_000 + seconds, 0);
    let admitted = |object: &Value, seconds: i64| {
        let moment = SealCheckContext {
            now: at(seconds).as_millisecond(),
            intact_since: Some(0),
        };
        let vouched = stamping::confirmed_facts(KEY, Kind::Bundle, "web", object, &moment);
        vouched.unwrap().admitted_at
    };
    let write = async |user: &str, old: &Value, new: &Value, seconds: i64| {
        server.fake.state.lock().unwrap().now = at(seconds);
        let (answer, stored) = server.write(user, Some(old), new).await;
        assert_eq!(answer["allowed"], true, "{answer}");
        stored
    };
    let (_, stored) = server.write("ana", None, &bundle()).await;
    assert_eq!(admitted(&stored, 0), None);
    // The annotation was set while the webhook was not registered. A later write gets a new stamp.
    let token = admit_token(KEY, "Bundle", "web", "u1", &stored["spec"]);
    let mut annotated = stored.clone();
    annotated["metadata"]["annotations"][ANNOTATION_ADMIT] = token.into();
    let mut labelled = annotated.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let renewed = write("ben", &annotated, &labelled, 20).await;
    assert_ne!(stamp(&renewed), stamp(&stored));
    assert_eq!(admitted(&renewed, 20), None);

    let admitting = write("eve", &stored, &annotated, 40).await;
    let time = Some(at(40).as_millisecond());
    assert_eq!(admitted(&admitting, 40), time);
    let mut labelled = admitting.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let renewed = write("ben", &admitting, &labelled, 60).await;
    assert_ne!(stamp(&renewed), stamp(&admitting));
    assert_eq!(admitted(&renewed, 60), time);
    // The admission by annotation does not apply to another spec.
    let mut changed = renewed.clone();
    changed["spec"]["source"]["git"] = Value::Null;
    let changed = write("eve", &renewed, &changed, 80).await;
    assert_eq!(admitted(&changed, 80), None);
}

#[tokio::test]
async fn update_without_another_patch_gets_a_patch_that_changes_nothing() {
    let server = server(Fake::default());
    let mutated = async |user: &str, old: &Value, new: &Value| {
        let answer = server.ask("/mutate", &review(user, Some(old), new)).await;
        assert_eq!(answer["allowed"], true, "{answer}");
        let patch = answer["patch"].as_str().unwrap();
        let patch = base64::engine::general_purpose::STANDARD.decode(patch);
        serde_json::from_slice::<Value>(&patch.unwrap()).unwrap()
    };
    let unchanged = json!([{"op": "test", "path": "/kind", "value": "Bundle"}]);
    // An object without stamp and seal.
    let mut unstamped = bundle();
    unstamped["metadata"]["uid"] = "u1".into();
    unstamped["metadata"]["generation"] = 1.into();
    for user in ["ben", OWN] {
        assert_eq!(mutated(user, &unstamped, &unstamped).await, unchanged);
    }
    // A sealed object.
    let (_, mut sealed) = server.write("ana", None, &bundle()).await;
    let now = Timestamp::constant(1_800_000_000, 0).as_millisecond();
    let moment = SealCheckContext {
        now,
        intact_since: Some(0),
    };
    let vouched = stamping::confirmed_facts(KEY, Kind::Bundle, "web", &sealed, &moment).unwrap();
    let stored = crate::stored_object::from_review(Kind::Bundle, "web", &sealed, now);
    let seal = bundle_core::review::seal(KEY, &stored, &vouched);
    sealed["status"] = json!({"admission": {"seal": seal}});
    assert_eq!(mutated("ben", &sealed, &sealed).await, unchanged);
    let mut labelled = sealed.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(mutated("ben", &sealed, &labelled).await, unchanged);
    let (answer, object) = server.write("ben", Some(&sealed), &labelled).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    assert_eq!(
        (object["kind"].as_str(), requester(&object).as_deref()),
        (Some("Bundle"), Some("ana"))
    );
}
