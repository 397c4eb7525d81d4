use serde_json::{Value, json};

use super::*;

mod unreadable;

const METADATA: ObjectRules = ObjectRules {
    limit: 10_000,
    keeps_fields: false,
    keeps_data: true,
    is_checked: true,
};

const METADATA_AT_ANY_SIZE: ObjectRules = ObjectRules {
    keeps_fields: false,
    ..ObjectRules::TIMES_ONLY
};

/// Reduces `text` in pieces, and returns the lines of the result. Checks that several piece sizes
/// produce the same result.
fn reduced(kind: ResponseKind, rules: ObjectRules, text: &str) -> Vec<Value> {
    let mut results = Vec::new();
    for size in [1, 2, 7, 100, text.len()] {
        let mut reducer = Reducer::new(kind, rules);
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            for line in piece.split_inclusive(|&byte| byte == b'\n') {
                reducer.push(line).unwrap();
                if kind == ResponseKind::Watch {
                    out.append(&mut reducer.take());
                }
            }
            assert!(reducer.out.len() <= text.len() + 1000);
        }
        out.append(&mut reducer.take());
        results.push(String::from_utf8(out).unwrap());
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    let lines = results[0].lines().filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn object(name: &str, labels: usize) -> Value {
    let labels: serde_json::Map<String, Value> = (0..labels)
        .map(|n| (format!("label-{n}"), json!("x")))
        .collect();
    json!({"metadata": {
        "name": name, "namespace": "team-a", "uid": "u-1", "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
    }, "spec": {"name": "other", "metadata": {"name": "inner"}}})
}

fn with_fields(manager: &str, fields: &Value) -> Value {
    let mut object = object("web", 1);
    object["metadata"]["managedFields"] = json!([
        {"manager": manager, "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields, "z": 1},
    ]);
    object
}

/// Returns the JSON text of an object. In each entry of `metadata.managedFields` the manager is the
/// first key, as in the text of an API server.
fn text(object: &Value) -> String {
    object.to_string()
}

#[test]
fn answers_of_ordinary_objects_stay_as_they_are() {
    let one = json!({"metadata": {"name": "a\"}{][,:\\", "annotations": {"a": "{\"fieldsV1\":[1,2]}", "": ""}, "finalizers": []},
        "a": [1, -2.5e3, true, [], {}, [[{"fieldsV1": {"kept": 1}}]]], "managedFields": [{"fieldsV1": {"kept": 2}}]});
    let list = json!({"kind": "List", "metadata": {"continue": "c"}, "items": [one, one]});
    let event = json!({"type": "ADDED", "object": one});
    for (kind, value) in [
        (ResponseKind::Object, one.clone()),
        (ResponseKind::List, list),
        (ResponseKind::List, json!({"items": []})),
        (ResponseKind::Watch, event),
    ] {
        assert_eq!(reduced(kind, METADATA, &text(&value)), vec![value.clone()]);
    }
}

#[test]
fn fields_of_other_managers_are_dropped() {
    let fields = json!({"f:data": {"f:a": {}, "f:b": [1, "}", {"x": "\\\""}]}});
    let theirs = with_fields("kubectl", &fields);
    let mut without = theirs.clone();
    without["metadata"]["managedFields"][0]["fieldsV1"] = json!({});
    let ours = with_fields(FIELD_MANAGER, &fields);
    for (before, after) in [(&theirs, &without), (&ours, &ours)] {
        // `serde_json` sorts keys, so `fieldsV1` comes before `manager`.
        let typed =
            text(before).replace(&format!("\"fieldsV1\":{fields},\"manager\""), "\"manager\"");
        let typed = typed.replace("\"z\":1", &format!("\"fieldsV1\":{fields}"));
        let mut after = after.clone();
        after["metadata"]["managedFields"][0]["z"].take();
        let entry = after["metadata"]["managedFields"][0]
            .as_object_mut()
            .unwrap();
        entry.remove("z");
        assert_eq!(
            reduced(ResponseKind::Object, METADATA, &typed),
            [after.clone()]
        );
        let list = format!(r#"{{"items":[{typed}]}}"#);
        assert_eq!(
            reduced(ResponseKind::List, METADATA, &list),
            [json!({"items": [after]})]
        );
    }
    let kept = ObjectRules {
        keeps_fields: true,
        ..METADATA
    };
    assert_eq!(
        reduced(ResponseKind::Object, kept, &text(&theirs)),
        [theirs]
    );
}

#[test]
fn data_is_dropped_if_the_caller_does_not_need_it() {
    let data = json!({"a": "x}{,\"", "b": {"data": [1, {"c": ","}]}});
    let object = |data: &Value, binary: &Value| {
        json!({
            "metadata": {"name": "web", "annotations": {"data": "kept"}}, "immutable": true,
            "data": data, "binaryData": binary, "other": {"data": data},
        })
    };
    let before = object(&data, &json!(null));
    let mut after = object(&json!({}), &json!({}));
    after["other"]["data"] = data;
    let without_data = ObjectRules {
        keeps_data: false,
        ..ObjectRules::TIMES_ONLY
    };
    let found = reduced(ResponseKind::Object, without_data, &text(&before));
    assert_eq!(found, [after]);
    let with_data = ObjectRules::TIMES_ONLY;
    let found = reduced(ResponseKind::Object, with_data, &text(&before));
    assert_eq!(found, [before]);
}

#[test]
fn metadata_that_is_too_large_is_replaced_by_its_identity() {
    let identity = json!({"metadata": {
        "name": "large", "namespace": "team-a", "uid": "u-1", "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {TOO_LARGE: "true"},
    }});
    let (large, small) = (object("large", 200), object("small", 1));
    let list = json!({"items": [large, small, large], "metadata": {"continue": "c"}});
    assert_eq!(
        reduced(ResponseKind::List, METADATA, &text(&list)),
        [json!({"items": [identity, small, identity], "metadata": {"continue": "c"}})]
    );
    assert_eq!(
        reduced(ResponseKind::Object, METADATA, &text(&large)),
        vec![identity.clone()]
    );
    let events: String = [&large, &small, &large]
        .map(|object| format!("{}\n", json!({"type": "ADDED", "object": object})))
        .concat();
    assert_eq!(
        reduced(ResponseKind::Watch, METADATA, &events),
        [&identity, &small, &identity].map(|object| json!({"type": "ADDED", "object": object}))
    );
}

#[test]
fn objects_that_are_nested_too_deep_count_as_too_large() {
    let identity = |name| json!({"metadata": {"name": name, "annotations": {TOO_LARGE: "true"}}});
    let deep = format!(
        r#"{{"metadata":{{"name":"deep"}},"spec":{}{}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let list = format!(r#"{{"items":[{deep},{{"metadata":{{"name":"b"}}}}]}}"#);
    assert_eq!(
        reduced(ResponseKind::List, METADATA, &list),
        [json!({"items": [identity("deep"), {"metadata": {"name": "b"}}]})]
    );
    let maps = json!({"metadata": {"name": "maps"}, "spec": vec![json!({"a": 0}); 15]});
    assert_eq!(
        reduced(
            ResponseKind::List,
            METADATA,
            &json!({"items": [maps]}).to_string()
        ),
        [json!({"items": [identity("maps")]})],
        "15 maps take more than 10,000 bytes"
    );
}

/// Returns the start of a list, up to and including `length` bytes of a text in the field `time`.
fn list_up_to_a_long_time(length: usize) -> String {
    let time = "1".repeat(length);
    format!(r#"{{"items":[{{"metadata":{{"managedFields":[{{"time":"{time}"#)
}

#[test]
fn bytes_that_a_long_timestamp_copies_do_not_depend_on_its_length() {
    for length in [64 << 10, 256 << 10] {
        let mut reducer = Reducer::new(ResponseKind::List, METADATA_AT_ANY_SIZE);
        let mut out = Vec::new();
        for piece in list_up_to_a_long_time(length).as_bytes().chunks(100) {
            reducer.push(piece).unwrap();
            out.append(&mut reducer.take());
            // `take` copies the rest of the output.
            assert!(reducer.out.len() <= TEXT_LIMIT + 2, "{}", reducer.out.len());
        }
        reducer.push(br#""}]}}]}"#).unwrap();
        out.append(&mut reducer.take());
        let list: Value = serde_json::from_slice(&out).unwrap();
        let expected = json!({"metadata": {"managedFields": [{"time": null}]}});
        assert_eq!(list, json!({"items": [expected]}));
    }
}

#[test]
fn estimate_stores_no_output_and_counts_each_byte_once() {
    let weight = |length: usize| {
        let mut reducer = Reducer::without_output(ResponseKind::List, METADATA_AT_ANY_SIZE);
        for piece in list_up_to_a_long_time(length).as_bytes().chunks(1) {
            reducer.push(piece).unwrap();
        }
        reducer.push(br#""}]}}]}"#).unwrap();
        assert_eq!(reducer.out.capacity(), 0);
        reducer.weight()
    };
    assert_eq!(weight(4 << 20) - weight(2 << 20), 2 << 20);
}

#[test]
fn rejects_answers_that_are_no_json_objects() {
    for text in ["html", "\"text\"", "[1]", "{\"a\":[}", "{}}", "1"] {
        let mut reducer = Reducer::new(ResponseKind::Object, METADATA);
        assert_eq!(
            reducer.push(text.as_bytes()),
            Err(JsonStreamError::Json),
            "{text}"
        );
    }
    let mut reducer = Reducer::new(ResponseKind::Watch, METADATA);
    let line = format!(r#"{{"type":"{}"#, "x".repeat(30_000));
    assert_eq!(
        reducer.push(line.as_bytes()),
        Err(JsonStreamError::Envelope(METADATA.limit))
    );
}
