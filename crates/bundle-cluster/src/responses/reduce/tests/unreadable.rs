//! Values that an API server sends and that this process cannot parse.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;

/// Texts that this process cannot parse as a timestamp: the latest time that Go writes, a time in
/// year 10000 that results from an offset, and an empty text.
const NO_TIMES: [&str; 3] = ["9999-12-31T23:59:59Z", "10000-01-01T23:58:59Z", ""];

fn metadata_of(mut reduced: Vec<Value>) -> ObjectMeta {
    serde_json::from_value(reduced.remove(0)["metadata"].take()).unwrap()
}

fn with(field: &str, value: Value) -> Value {
    let mut object = object("web", 1);
    object["metadata"][field] = value;
    object
}

#[test]
fn times_that_do_not_parse_become_null_and_the_rest_stays() {
    for time in NO_TIMES {
        let entry = |time: Value| json!([{"manager": "x", "time": time, "operation": "Update"}, {"time": time}]);
        for (field, unreadable, expected) in [
            ("managedFields", entry(json!(time)), entry(Value::Null)),
            ("creationTimestamp", json!(time), Value::Null),
            ("deletionTimestamp", json!(time), Value::Null),
        ] {
            let (before, after) = (with(field, unreadable), with(field, expected));
            for rules in [METADATA, ObjectRules::TIMES_ONLY] {
                assert_eq!(
                    reduced(ResponseKind::Object, rules, &text(&before)),
                    vec![after.clone()]
                );
            }
            let list = |object: &Value| json!({"items": [object, object]});
            assert_eq!(
                reduced(ResponseKind::List, METADATA, &text(&list(&before))),
                [list(&after)]
            );
            let event = |object: &Value| json!({"object": object, "type": "MODIFIED"});
            assert_eq!(
                reduced(ResponseKind::Watch, METADATA, &text(&event(&before))),
                [event(&after)]
            );
        }
    }
}

#[test]
fn other_texts_that_look_like_times_stay() {
    let object = json!({
        "data": {"time": NO_TIMES[0], "creationTimestamp": NO_TIMES[0]},
        "metadata": {"annotations": {"time": NO_TIMES[0], "deletionTimestamp": ""}, "name": NO_TIMES[0]},
        "spec": {"metadata": {"creationTimestamp": NO_TIMES[0], "managedFields": [{"time": ""}]}},
    });
    for rules in [METADATA, ObjectRules::TIMES_ONLY] {
        assert_eq!(
            reduced(ResponseKind::Object, rules, &text(&object)),
            vec![object.clone()]
        );
    }
}

#[test]
fn responses_with_other_readers_are_streamed_at_any_depth() {
    let deep = format!(
        r#"{{"a":{}{}{},"metadata":{{"managedFields":[{{"time":"{}"}}]}}}}"#,
        "[{\"a\":".repeat(200),
        "\"x,}]\"",
        "}]".repeat(200),
        NO_TIMES[0]
    );
    let expected = deep.replace(&format!("\"{}\"", NO_TIMES[0]), "null");
    for size in 1..20 {
        let mut reducer = Reducer::new(ResponseKind::Object, ObjectRules::TIMES_ONLY);
        let mut out = Vec::new();
        for piece in deep.as_bytes().chunks(size) {
            reducer.push(piece).unwrap();
            out.append(&mut reducer.take());
        }
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

#[test]
fn metadata_at_the_edges_of_the_types_of_go_is_read() {
    for (field, value) in [
        ("generation", json!(i64::MAX)),
        ("generation", json!(i64::MIN)),
        ("deletionGracePeriodSeconds", json!(i64::MAX)),
        ("deletionGracePeriodSeconds", json!(i64::MIN)),
        ("creationTimestamp", json!("0000-01-01T00:00:00Z")),
        ("creationTimestamp", json!("-0001-12-31T00:01:00Z")),
        ("deletionTimestamp", json!("9999-12-30T22:00:00Z")),
        ("generateName", json!("")),
        ("selfLink", json!("")),
        ("namespace", json!("")),
        ("resourceVersion", json!("")),
        ("labels", Value::Null),
        ("labels", json!({"": ""})),
        ("annotations", Value::Null),
        ("annotations", json!({"a": "\u{0}\u{fffd}\u{10ffff}"})),
        ("finalizers", Value::Null),
        ("finalizers", json!([""])),
        ("ownerReferences", Value::Null),
        (
            "ownerReferences",
            json!([{"apiVersion": "", "kind": "", "name": "", "uid": "", "controller": null, "blockOwnerDeletion": null}]),
        ),
        ("managedFields", Value::Null),
        ("managedFields", json!([{}])),
        (
            "managedFields",
            json!([{"time": null, "fieldsV1": null, "subresource": ""}]),
        ),
        (
            "managedFields",
            json!([{"manager": FIELD_MANAGER, "fieldsV1": {"f:a": {".": {}, "v:9223372036854775807": {}}}}]),
        ),
        ("unknown", json!({"a": [1e300, -0.0, u64::MAX]})),
    ] {
        let object = with(field, value.clone());
        let metadata = metadata_of(reduced(ResponseKind::Object, METADATA, &text(&object)));
        assert_eq!(metadata.uid.as_deref(), Some("u-1"), "{field}: {value}");
        assert_eq!(
            metadata.annotations.unwrap_or_default().get(TOO_LARGE),
            None,
            "{field}: {value}"
        );
    }
}

#[test]
fn objects_that_do_not_parse_are_replaced_by_their_identity() {
    for (field, value) in [
        ("generation", json!("1")),
        ("generation", json!(u64::MAX)),
        ("deletionGracePeriodSeconds", json!(0.5)),
        ("labels", json!({"a": null})),
        ("annotations", json!([])),
        ("finalizers", json!([null])),
        ("ownerReferences", json!({})),
        ("managedFields", json!([1])),
        ("managedFields", json!([{"time": 5}])),
    ] {
        let (unreadable, small) = (with(field, value.clone()), object("small", 1));
        let list = json!({"items": [small, unreadable, small]});
        let mut found = reduced(ResponseKind::List, METADATA, &text(&list));
        let items = found[0]["items"].as_array_mut().unwrap();
        assert_eq!((&items[0], &items[2]), (&small, &small), "{field}: {value}");
        let metadata = metadata_of(vec![items[1].take()]);
        assert_eq!(metadata.uid.as_deref(), Some("u-1"));
        assert_eq!(metadata.resource_version.as_deref(), Some("7"));
        assert!(
            metadata.annotations.unwrap().contains_key(TOO_LARGE),
            "{field}: {value}"
        );
    }
    let number = r#"{"metadata":{"name":"a"},"spec":1e999}"#;
    let found = reduced(ResponseKind::Object, METADATA, number);
    assert_eq!(
        found[0]["metadata"]["annotations"],
        json!({TOO_LARGE: "true"})
    );
}

#[test]
fn events_that_report_an_error_stay_as_they_are() {
    for object in [
        json!({"kind": "Status", "metadata": {}, "code": 410}),
        json!({"kind": "Status", "code": 410}),
    ] {
        let event = json!({"object": object, "type": "ERROR"});
        assert_eq!(
            reduced(ResponseKind::Watch, METADATA, &text(&event)),
            vec![event.clone()]
        );
    }
}
