//! Accepted JSON, and rejected JSON, such as JSON that two parsers could read differently.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::reference::Digest;

/// Maximum nesting of lists and objects.
const DEEPEST: usize = 127;

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
fn bounds_depth_before_allocation() {
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        object(format!("{{\"a\":{open}{close}}}").as_bytes())
    };
    nested(DEEPEST - 1).unwrap();
    let maps = format!("{}0{}", "{\"\":".repeat(DEEPEST), "}".repeat(DEEPEST));
    object(maps.as_bytes()).unwrap();
    for deeper in [DEEPEST, 100_000] {
        assert!(matches!(nested(deeper), Err(JsonError::Malformed(_))));
    }
}

/// Returns an object with a list that repeats `item` in at least `length` bytes.
fn repeated(item: &str, length: usize) -> Vec<u8> {
    let items = vec![item; length / (item.len() + 1) + 1];
    format!("{{\"a\":[{}]}}", items.join(",")).into_bytes()
}

#[test]
fn rejects_documents_that_need_far_more_memory_than_text() {
    let nested = format!("{}0{}", "{\"\":".repeat(100), "}".repeat(100));
    let lists = format!("{}0{}", "[".repeat(100), "]".repeat(100));
    for item in [
        &nested,
        &lists,
        "{\"\":0}",
        "[[]]",
        "[0]",
        "\"x\"",
        "0",
        "[{\"\":\"\"}]",
    ] {
        for length in [100, 1 << 10, 16 << 10, 256 << 10, 1 << 20] {
            let document = repeated(item, length);
            let most = max_memory(document.len()).min(MAX_MEMORY);
            let needed = footprint::of_json(&document).unwrap().0;
            let found = object(&document);
            if needed > most {
                assert_eq!(found, Err(JsonError::TooLarge(most)), "{length} of {item}");
            } else {
                assert!(found.is_ok(), "{length} of {item}");
            }
        }
        // A long document of many tiny values always exceeds the limit, whichever item the list
        // repeats.
        let found = object(&repeated(item, 1 << 20));
        assert!(matches!(found, Err(JsonError::TooLarge(_))), "{item}");
    }
}

#[test]
fn limit_of_the_caller_applies_to_long_documents() {
    let document = repeated("\"some text\"", 64 << 10);
    assert!(object(&document).is_ok());
    let most = 256 << 10;
    let found: Result<Value, _> = read_bounded(&document, most);
    assert_eq!(found, Err(JsonError::TooLarge(most)));
}

#[test]
fn rejected_documents_need_no_memory() {
    let small = br#"{"a": "b"}"#;
    assert_eq!(memory_to_read(small), footprint::of_json(small).unwrap().0);
    let nested = r#"{"":{"":0}}"#;
    for rejected in [repeated(nested, 1 << 20), b"{".to_vec()] {
        assert!(object(&rejected).is_err());
        assert_eq!(memory_to_read(&rejected), 0);
    }
}

#[test]
fn reads_long_signed_documents() {
    let hash = "0".repeat(64);
    let component = json!({
        "type": "library",
        "bom-ref": "pkg:cargo/serde_json@1.0.149",
        "name": "serde_json",
        "version": "1.0.149",
        "purl": "pkg:cargo/serde_json@1.0.149",
        "hashes": [{"alg": "SHA-256", "content": hash}],
        "licenses": [{"license": {"id": "MIT"}}],
        "externalReferences": [{"type": "vcs", "url": "https://github.com/serde-rs/json"}],
    });
    let document = repeated(&component.to_string(), 700 << 10);
    assert!(object(&document).is_ok());
    // A component of an SBOM without hashes, as many tools write it.
    let component = json!({
        "type": "library",
        "bom-ref": "pkg:cargo/serde_json@1.0.149",
        "name": "serde_json",
        "version": "1.0.149",
        "purl": "pkg:cargo/serde_json@1.0.149",
        "licenses": [{"license": {"id": "MIT"}}],
    });
    let document = repeated(&component.to_string(), 300 << 10);
    assert!(object(&document).is_ok());
    // A statement in the format OpenVEX.
    let statement = json!({
        "vulnerability": {"name": "CVE-2024-0001"},
        "products": [{"@id": "pkg:cargo/serde_json@1.0.149"}],
        "status": "not_affected",
        "justification": "vulnerable_code_not_present",
    });
    let document = repeated(&statement.to_string(), 300 << 10);
    assert!(object(&document).is_ok());
    let entry = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": format!("sha256:{hash}"),
        "size": 1234,
        "platform": {"architecture": "amd64", "os": "linux"},
        "annotations": {"a": "b"},
    });
    let document = repeated(&entry.to_string(), 128 << 10);
    assert!(object(&document).is_ok());
}

#[test]
fn length_and_hash_are_those_of_the_json_text() {
    for value in [
        json!(null),
        json!({"b": [1, 0.1, 1e300, u64::MAX, -1, true, null], "a": {"": "\u{7}\u{1f}\"\\é\u{2028}"}}),
        json!("\u{7}".repeat(1_000)),
    ] {
        let text = value.to_string();
        assert_eq!(length(&value), text.len(), "{text}");
        assert_eq!(digest(&value), Digest::of(text.as_bytes()), "{text}");
        let expected = (text.len(), sha256(&value));
        assert_eq!(length_and_sha256(&value), expected, "{text}");
        assert!(!is_longer_than(&value, text.len()), "{text}");
        assert!(is_longer_than(&value, text.len() - 1), "{text}");
    }
}
