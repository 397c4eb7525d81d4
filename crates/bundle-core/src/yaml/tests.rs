//! Accepted and rejected YAML, with messages.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::*;
use crate::cancellation::Cancellation;

fn read(text: &str) -> Value {
    let documents = documents(text.as_bytes(), "f.yaml").unwrap();
    assert_eq!(documents.len(), 1, "{text}");
    documents[0].value.clone()
}

fn refused(text: &str) -> Finding {
    let findings = documents(text.as_bytes(), "f.yaml").unwrap_err();
    assert_eq!(findings.len(), 1, "{findings}");
    findings.first().unwrap().clone()
}

/// The parser of kubectl, `sigs.k8s.io/yaml` 1.6.0, returns the expected values.
#[test]
fn reads_scalars_as_kubectl_does() {
    for (text, value) in [
        ("0644", json!(420)),
        ("-0644", json!(-420)),
        ("0o17", json!(15)),
        ("0x1F", json!(31)),
        ("0b11", json!(3)),
        ("08", json!(8)),
        ("1_000", json!(1000)),
        ("1.0", json!(1)),
        ("1e3", json!(1000)),
        ("-0", json!(0)),
        (".5", json!(0.5)),
        ("18446744073709551615", json!(u64::MAX)),
        ("y", json!(true)),
        ("yes", json!(true)),
        ("On", json!(true)),
        ("off", json!(false)),
        ("N", json!(false)),
        ("~", json!(null)),
        ("", json!(null)),
        ("nUll", json!("nUll")),
        ("=", json!("=")),
        ("1:30", json!("1:30")),
        ("2001-01-01", json!("2001-01-01")),
        ("0b12", json!("0b12")),
        ("1.2.3", json!("1.2.3")),
        ("\"on\"", json!("on")),
        ("!!str 12", json!("12")),
        ("!!binary aGk=", json!("hi")),
    ] {
        assert_eq!(
            read(&format!("a: {text}\n")),
            json!({ "a": value }),
            "{text}"
        );
    }
}

#[test]
fn merges_aliases_and_turns_number_keys_into_text() {
    assert_eq!(
        read("x: &x {a: 1, b: 2}\ny_: {<<: *x, b: 3}\n"),
        json!({"x": {"a": 1, "b": 2}, "y_": {"a": 1, "b": 3}})
    );
    assert_eq!(
        read("8080: web\n0644: x\n"),
        json!({"8080": "web", "420": "x"})
    );
}

#[test]
fn reads_json() {
    assert_eq!(
        read("{\n\t\"a\": [1, 2.5, \"\\ud83d\\ude00\"],\n\t\"b\": {}\n}"),
        json!({"a": [1, 2.5, "😀"], "b": {}})
    );
}

#[test]
fn skips_documents_without_content_and_keeps_lines() {
    let found = documents(
        b"# head\n---\n\na: 1\n---\n# nothing\n---\n\nb: 2\n",
        "f.yaml",
    )
    .unwrap();
    let lines: Vec<usize> = found.iter().map(|document| document.line).collect();
    assert_eq!(lines, [4, 9]);
    assert_eq!(
        documents(b"\xef\xbb\xbfa: 1", "f").unwrap()[0].value,
        json!({"a": 1})
    );
}

#[test]
fn reports_yaml_errors_with_line_and_hint() {
    for (text, place, said) in [
        (
            "a: 1\n---\nb:\n  c: 1\n  c: 2\n",
            "f.yaml:5",
            "the key `c` appears twice",
        ),
        (
            "a:\n  1: x\n  '1': y\n",
            "f.yaml:3",
            "the key `1` appears twice",
        ),
        (
            "{\"a\": 1,\n\"a\": 2}",
            "f.yaml:2",
            "the key `a` appears twice",
        ),
        (
            "on: 1\n",
            "f.yaml:1",
            "a key is true, but keys must be strings: put it in quotes",
        ),
        ("? [a]\n: b\n", "f.yaml:1", "a key is a list or map"),
        (
            "a: {b: 1}\n\"\\x3c<\": {c: 1}\n",
            "f.yaml:2",
            "a key is `<<` and is written with escapes",
        ),
        (
            "a: 1\nb: c: d\n",
            "f.yaml:2",
            "invalid YAML: mapping values are not allowed",
        ),
        ("a: [1, 2\n", "f.yaml:1", "invalid YAML: unclosed bracket"),
        ("a: *nope\n", "f.yaml:1", "unknown anchor"),
        (
            "a: &a\n  b: *a\n",
            "f.yaml:2",
            "an anchor that refers to itself",
        ),
        ("a: .inf\n", "f.yaml:1", "is not finite"),
        ("a: !Ref b\n", "f.yaml:1", "unknown YAML tag `!Ref`"),
        (
            "a: 1\n...\nb: 2\n",
            "f.yaml:3",
            "a separator between two documents is missing",
        ),
        ("{\"a\":1}\n{\"b\":2}\n", "f.yaml:2", "invalid YAML"),
        ("a: \u{0}\n", "f.yaml:1", "the file has a NUL byte"),
        ("", "f.yaml", "the file has no document"),
        ("# only this\n---\n", "f.yaml", "the file has no document"),
    ] {
        let finding = refused(text);
        assert_eq!(finding.place.to_string(), place, "{text}: {finding}");
        assert!(finding.message.contains(said), "{text}: {finding}");
        assert!(finding.hint.is_some(), "{text}");
        for leak in ["Options", "at line", "budget", "policy"] {
            assert!(!finding.message.contains(leak), "{finding}");
        }
    }
}

#[test]
fn reports_list_or_map_as_key_of_a_large_document_with_line() {
    let padding = "# comment\n".repeat(2_000);
    for key in ["? [a]\n", "? a: b\n", "? {a: b}\n", "{b: 1, [c]: 2}: 3\n"] {
        let finding = refused(&format!("a: 1\n{padding}{key}: b\n"));
        let place = (finding.place.to_string(), finding.message);
        let message = "invalid YAML: a key is a list or map, but keys must be strings";
        assert_eq!(place, ("f.yaml:2002".to_owned(), message.to_owned()));
    }
    let values = format!("a: 1\n{padding}b: [{{a: [c]}}, [d]]\nc: &d {{e: [1]}}\nf: *d\n");
    assert!(documents(values.as_bytes(), "f.yaml").is_ok());
}

#[test]
fn reports_every_invalid_document_of_a_file() {
    let findings = documents(b"a: [\n---\nb: 1\n---\nc: 1\nc: 2\n", "f.yaml").unwrap_err();
    assert_eq!(findings.len(), 2, "{findings}");
}

#[test]
fn rejects_binary_and_too_large_files() {
    let binary = documents(b"a: 1\n\xff\xfe", "f.yaml").unwrap_err();
    assert_eq!(
        binary.to_string(),
        "f.yaml:2: invalid YAML: the file is not UTF-8"
    );
    let large = documents(&vec![b'#'; MAX_FILE_BYTES + 1], "f.yaml").unwrap_err();
    assert_eq!(large.first().unwrap().code, codes::format::FILE_TOO_LARGE);
    assert!(
        large.first().unwrap().message.contains("(10 MiB)"),
        "{large}"
    );
}

#[test]
fn errors_of_a_large_document_are_reported_with_line() {
    let lines = "# c\n".repeat(97);
    let long = format!("a: {}\n", "x".repeat(20_000));
    let list = format!("[{}]", "[0],".repeat(5_000));
    let (flow, block) = ("[".repeat(200), nested(200, " ", "a:"));
    let key = "a key is a list or map, but keys must be strings";
    for (text, line, message) in [
        (format!("a:\n{lines}  b\n? {list}\n: 0\n"), 100, key),
        (format!("a:\n{lines}- {list}\n? {list}\n: 0\n"), 100, key),
        (format!("{long}b: c: d\n"), 2, "mapping values"),
        (format!("{long}b: [1, 2\n"), 2, "unclosed bracket"),
        (format!("{long}b: *nope\n"), 2, "unknown anchor"),
        (format!("{long}b: {flow}\n"), 2, "nested lists and maps"),
        (format!("{long}{block}"), 130, "nested lists and maps"),
    ] {
        let head: String = text.chars().take(40).collect();
        let finding = refused(&text);
        let place = finding.place.to_string();
        assert_eq!(place, format!("f.yaml:{line}"), "{head}");
        assert!(finding.message.contains(message), "{head}: {finding}");
        let weighed = weigh(text.as_bytes(), "f.yaml", &mut Allowance::default());
        assert_eq!(weighed, Err(finding), "{head}");
    }
    let valid = format!("a:\n{lines}  b\nc: {list}\n");
    assert!(documents(valid.as_bytes(), "f.yaml").is_ok());
    let aliases = "*a,".repeat(2 * limits::MAX_NODES);
    let finding = refused(&format!("a: &a 0\nb: [{aliases}]\n"));
    let message = "the document has more than 500000 values";
    assert_eq!(finding.message, message);
    assert_eq!(finding.code, codes::format::TOO_COMPLEX);
}

#[test]
fn small_documents_are_weighed_before_they_are_parsed() {
    let within = |text: &str, nodes: &mut Allowance| {
        small_documents(text.as_bytes(), "f.yaml", 1 << 20, nodes).map(|found| found.len())
    };
    let mut nodes = Allowance::default();
    let text = "x".repeat(50_000);
    let expanding = |count| format!("a: &a {text}\nb: [*a, *a]\n---\n").repeat(count);
    assert_eq!(within(&expanding(4), &mut nodes), Ok(4));
    let findings = within(&expanding(8), &mut nodes).unwrap_err();
    let finding = findings.first().unwrap();
    assert_eq!(finding.code, codes::format::TOO_COMPLEX);
    assert!(finding.message.contains("more than 1 MiB"), "{finding}");
    // `small_documents` first weighs the file. Weighing does not reduce the allowance.
    let mut nodes = Allowance::of_nodes(10, &Cancellation::default());
    assert_eq!(within("[1, 2, 3, 4, 5, 6]", &mut nodes), Ok(1));
    within("[1, 2, 3]", &mut nodes).unwrap_err();
}

#[test]
fn each_document_asks_for_the_processor_time() {
    let text = "a: 1\n---\n".repeat(10);
    let allowance = || {
        let calls = AtomicUsize::new(0);
        let is_exceeded = move || calls.fetch_add(1, Ordering::Relaxed) == 5;
        Allowance::new(&Cancellation::with_limit(is_exceeded))
    };
    let finding = weigh(text.as_bytes(), "f.yaml", &mut allowance()).unwrap_err();
    assert_eq!(finding.code, codes::format::CANCELLED);
    let findings = documents_within(text.as_bytes(), "f.yaml", &mut allowance()).unwrap_err();
    assert_eq!(findings.first().unwrap().code, codes::format::CANCELLED);
}

/// Returns nested entries. Each entry is on its own line.
fn nested(depth: usize, indent: &str, entry: &str) -> String {
    let lines: Vec<String> = (0..depth)
        .map(|depth| format!("{}{entry}", indent.repeat(depth)))
        .collect();
    lines.join("\n")
}

#[test]
fn rejects_aliases_that_expand_beyond_the_limit() {
    use std::fmt::Write as _;

    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(laughs, "a{level}: &a{level} [{aliases}]").unwrap();
    }
    let texts = [
        laughs,
        format!(
            "a: &a \"{}\"\nb: [{}]\n",
            "x".repeat(1_000_000),
            "*a,".repeat(30)
        ),
        "[".repeat(100_000),
        nested(300, " ", "a:"),
        nested(300, "  ", "- a:"),
        format!("{}a", "? ".repeat(3_000)),
    ];
    for text in texts {
        let findings = documents(text.as_bytes(), "f.yaml").unwrap_err();
        assert_eq!(
            findings.first().unwrap().code,
            codes::format::TOO_COMPLEX,
            "{findings}"
        );
    }
}

#[test]
fn files_share_one_expansion_limit() {
    let file = format!("a: &a [{}]\nb: [*a, *a, *a, *a]\n", "1,".repeat(200));
    let mut allowance = Allowance {
        nodes: 20_000,
        ..Allowance::default()
    };
    let read = (0..1_000)
        .take_while(|_| documents_within(file.as_bytes(), "f.yaml", &mut allowance).is_ok())
        .count();
    assert!((10..30).contains(&read), "{read}");
}

#[test]
fn depth_within_the_limit_is_read() {
    let flow = format!(
        "{}1{}",
        "[".repeat(limits::MAX_DEPTH),
        "]".repeat(limits::MAX_DEPTH)
    );
    let block = nested(limits::MAX_DEPTH / 2, "  ", "- a:");
    assert!(documents(flow.as_bytes(), "f").is_ok());
    assert!(documents(block.as_bytes(), "f").is_ok());
}

#[test]
fn written_yaml_is_safe_for_yaml_1_1_parsers() {
    let value = json!({"a": "on", "b": "0644", "c": "1_000", "d": "", "e": ["y", null, "~", 1.5], "f": {}, "g": "x\ny\n", "on": 1, "h": "1e3", "i": "- x"});
    let text = to_string(&value);
    assert!(text.contains("\"on\"") || text.contains("'on'"), "{text}");
    assert_eq!(read(&text), value, "{text}");
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
            "(on|y|no|0[0-7]{1,3}|1_0|~|null|[-+]?\\.?[0-9]{1,3}(e[0-9])?|<<|=|#|---)"
                .prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z0-9/.~y-]{1,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = documents(&bytes, "f.yaml");
        }

        #[test]
        fn yaml_like_text_never_panics(text in "[-a:&*?|>!%@`'\"\\[\\]{}#,<~0-9. \n\t]{0,80}") {
            let _ = documents(text.as_bytes(), "f.yaml");
        }

        #[test]
        fn written_values_parse_to_the_same_value(value in value()) {
            let value = json!({ "root": value });
            let text = to_string(&value);
            let found = documents(text.as_bytes(), "f.yaml");
            prop_assert!(found.as_ref().is_ok_and(|found| found.len() == 1 && found[0].value == value), "{text:?} {found:?}");
        }

        #[test]
        fn parses_json_to_the_same_value(value in value()) {
            let value = json!({ "root": value });
            let found = documents(value.to_string().as_bytes(), "f.json").unwrap();
            prop_assert_eq!(&found[0].value, &value);
        }
    }
}

#[test]
fn nested_anchors_store_a_bounded_amount_of_text() {
    let nested = |depth: usize, bytes: usize| {
        let scalar = format!("\"\\t{}\"", "x".repeat(bytes));
        (0..depth).fold(scalar, |inner, n| format!("&a{n} [{inner}]"))
    };
    let finding = refused(&nested(100, 64 << 10));
    assert_eq!(finding.code, codes::format::TOO_COMPLEX);
    assert_eq!(
        finding.message,
        "the document has anchors with more than 1 MiB of text"
    );
    assert!(documents(nested(3, 64 << 10).as_bytes(), "f.yaml").is_ok());
}
