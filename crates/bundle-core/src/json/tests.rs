//! Accepted JSON, and JSON that two parsers could read differently.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outer {
    media_type: String,
    #[serde(default)]
    inner: Option<Inner>,
    #[serde(default)]
    list: Vec<Inner>,
    #[serde(default)]
    names: BTreeMap<String, String>,
    #[serde(default)]
    anything: Value,
    #[serde(default)]
    kind: Option<Kind>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inner {
    a: u64,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Kind {
    Any,
}

fn outer(value: &Value) -> Result<Outer, JsonError> {
    read(value.to_string().as_bytes())
}

#[test]
fn reads_objects_of_the_expected_shape() {
    let value = json!({
        "mediaType": "x",
        "inner": {"a": 1},
        "list": [{"a": 2}, {"a": 3}],
        "names": {"b": "c", "B": "d"},
        "anything": {"a": [1, -2, 3.5, null, true, {"A": {}, "a": {}}]},
        "kind": "ANY",
        "more": [[{}]],
    });
    let read = outer(&value).unwrap();
    assert_eq!(read.inner, Some(Inner { a: 1 }));
    assert_eq!(read.list, [Inner { a: 2 }, Inner { a: 3 }]);
    assert_eq!(read.names.len(), 2);
    assert_eq!(read.anything, value["anything"]);
    assert_eq!(read.kind, Some(Kind::Any));
    let object = object(value.to_string().as_bytes()).unwrap();
    assert_eq!(Value::Object(object), value);
    let null = outer(&json!({"mediaType": "x", "inner": null})).unwrap();
    assert_eq!(null.inner, None);
}

#[test]
fn rejects_structs_by_position_and_keys_that_differ_by_case() {
    for value in [
        json!({"mediaType": "x", "inner": [1]}),
        json!({"mediaType": "x", "list": [[1]]}),
        json!({"mediaType": "x", "list": {"a": 1}}),
        json!({"mediaType": "x", "names": [["b", "c"]]}),
        json!({"mediaType": "x", "kind": {"ANY": null}}),
        json!({"mediaType": "x", "MediaType": "y"}),
        json!({"mediatype": "x"}),
        json!({"mediaType": "x", "inner": {"a": 1, "A": 2}}),
        json!({"mediaType": "x", "inner": {"a": 1, "b": 2}}),
        json!({"mediaType": "x", "\u{212a}ind": "ANY"}),
        json!({"mediaType": "x", "li\u{17f}t": []}),
    ] {
        assert!(matches!(outer(&value), Err(JsonError::Shape(_))), "{value}");
    }
    let list = json!(["x", null, [], {}, null, null]);
    assert_eq!(outer(&list), Err(JsonError::NotAnObject));
}

#[test]
fn rejects_json_that_two_parsers_read_differently() {
    for bytes in [
        br#"{"a":1,"a":2}"#.as_slice(),
        br#"{"a":1,"\u0061":1}"#,
        br#"{"x":[{"y":{"a":1,"b":2,"a":1}}]}"#,
    ] {
        assert_eq!(object(bytes), Err(JsonError::Repeated));
    }
    for bytes in [
        b"{\"a\":\"\xff\"}".as_slice(),
        br#"{"a":"\ud800"}"#,
        br#"{"a":1e999}"#,
        br#"{"a":1} {}"#,
        b"\xef\xbb\xbf{}",
        b"{'a':1}",
        b"{\"a\":1,}",
        b"{\"a\":01}",
        b"{\"a\":NaN}",
        b"{\"a\":1}\0",
        b"",
    ] {
        let text = String::from_utf8_lossy(bytes);
        let found = object(bytes);
        assert!(matches!(found, Err(JsonError::Malformed(_))), "{text}");
    }
    for text in ["[]", "1", "\"x\"", "null", "[{}]"] {
        assert_eq!(object(text.as_bytes()), Err(JsonError::NotAnObject));
    }
}

#[test]
fn bounds_depth_and_values_before_allocation() {
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        object(format!("{{\"a\":{open}{close}}}").as_bytes())
    };
    nested(DEEPEST - 1).unwrap();
    for deeper in [DEEPEST, 100_000] {
        assert!(matches!(nested(deeper), Err(JsonError::Malformed(_))));
    }
    let many = |count: usize| object(format!("{{\"a\":[{}0]}}", "0,".repeat(count)).as_bytes());
    many(MOST_VALUES - 3).unwrap();
    assert_eq!(
        many(MOST_VALUES - 2),
        Err(JsonError::TooManyValues(MOST_VALUES))
    );
    let few: Result<Value, _> = read_bounded(b"{\"a\":[1,2]}", 3);
    assert_eq!(few, Err(JsonError::TooManyValues(3)));
}
