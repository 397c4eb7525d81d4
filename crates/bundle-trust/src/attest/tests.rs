//! Tests of predicate types and their required fields.

use bundle_core::reference::Reference;

use super::*;

const NOW: &str = "2026-01-01T00:00:00Z";

fn read(kind: &str, text: &str) -> Result<Predicate, String> {
    let kind = PredicateType::parse(kind).unwrap();
    Predicate::read(kind, text.as_bytes(), NOW).map_err(|findings| {
        let told = findings.iter();
        let told: Vec<String> = told.map(|one| format!("{}: {one}", one.code.id)).collect();
        told.join("\n")
    })
}

#[test]
fn accepts_predicate_types_by_cosign_name_or_uri() {
    for (name, uri) in [
        ("slsaprovenance", "https://slsa.dev/provenance/v0.2"),
        ("slsaprovenance1", "https://slsa.dev/provenance/v1"),
        ("spdxjson", "https://spdx.dev/Document"),
        (
            "https://example.com/kind?v=1",
            "https://example.com/kind?v=1",
        ),
        ("urn:example:kind", "urn:example:kind"),
    ] {
        assert_eq!(PredicateType::parse(name).unwrap().as_str(), uri, "{name}");
    }
    let long = format!("https://example.com/{}", "x".repeat(600));
    for wrong in [
        "",
        "slsa",
        "SPDXJSON",
        "https:",
        ":kind",
        "1a:b",
        "https://example.com/a b",
        "https://example.com/\u{1b}[31m",
        "https://example.com/\u{430}",
        &long,
        "https://sigstore.dev/cosign/sign/v1",
    ] {
        assert!(PredicateType::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn rejects_predicates_without_required_fields_of_their_type() {
    for (kind, text, wrong) in [
        (
            "spdxjson",
            r#"{"spdxVersion":"SPDX-2.3"}"#,
            r#"{"bomFormat":"CycloneDX"}"#,
        ),
        (
            "spdx",
            r#"{"spdxVersion":"SPDX-2.3"}"#,
            r#"{"spdxVersion":23}"#,
        ),
        (
            "cyclonedx",
            r#"{"bomFormat":"CycloneDX"}"#,
            r#"{"bomFormat":"other"}"#,
        ),
        (
            "slsaprovenance",
            r#"{"builder":{},"buildType":""}"#,
            r#"{"builder":{}}"#,
        ),
        (
            "slsaprovenance1",
            r#"{"buildDefinition":{},"runDetails":{}}"#,
            r#"{"builder":{},"buildType":""}"#,
        ),
        (
            "vuln",
            r#"{"scanner":{},"metadata":{}}"#,
            r#"{"scanner":{}}"#,
        ),
        (
            "openvex",
            r#"{"@context":"https://openvex.dev/ns/v0.2.0","statements":[]}"#,
            r#"{"@context":"https://example.com","statements":[]}"#,
        ),
        ("link", r#"{"materials":[],"products":[]}"#, "{}"),
        // The URI of a known type selects that type.
        (
            "https://spdx.dev/Document",
            r#"{"spdxVersion":"SPDX-2.3"}"#,
            "{}",
        ),
        ("https://example.com/kind", "{}", "[]"),
        ("custom", "{}", "1"),
        (
            "https://example.com/kind",
            r#" {"a":1} "#,
            r#"{"a":1}{"b":2}"#,
        ),
        ("https://example.com/kind", "{}", r#"{},"predicate":{"#),
        ("https://example.com/kind", "{}", ""),
    ] {
        let good = read(kind, text);
        assert!(good.is_ok(), "{kind} {text}: {good:?}");
        let bad = read(kind, wrong).unwrap_err();
        assert!(bad.contains("BUNDLE-TRUST-030"), "{kind} {wrong}: {bad}");
    }
    let both = read("slsaprovenance1", "{}").unwrap_err();
    assert!(
        both.contains("`buildDefinition`") && both.contains("`runDetails`"),
        "{both}"
    );
    let twice = read("https://example.com/kind", r#"{"a":{"b":1,"b":2}}"#).unwrap_err();
    assert!(twice.contains("duplicate key"), "{twice}");
    let deep = |depth: usize| {
        format!(
            "{}{}",
            r#"{"a":"#.repeat(depth - 1) + "{",
            "}".repeat(depth)
        )
    };
    read("https://example.com/kind", &deep(126)).unwrap();
    assert!(read("https://example.com/kind", &deep(127)).is_err());
    let quoted = r#"\""#.repeat(MAX_PREDICATE / 2 - 16);
    let quoted = format!(r#"{{"a":"{quoted}"}}"#);
    assert!(quoted.len() < MAX_PREDICATE);
    read("https://example.com/kind", &quoted).unwrap();
    assert!(read("custom", &quoted).unwrap_err().contains("bytes"));
    let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_PREDICATE));
    assert!(read("custom", &large).unwrap_err().contains("bytes"));
}

#[test]
fn signs_predicate_text_unchanged() {
    let text = r#"{ "big": 12345678901234567890123, "float": 1.10, "z": 1, "a": "\u00e9" }"#;
    let predicate = read("https://example.com/kind", text).unwrap();
    let digest = format!("sha256:{}", "0".repeat(64));
    let reference: Reference = "registry.example.com/team/web:1.0.0".parse().unwrap();
    let pinned = reference.pin(digest.parse().unwrap());
    let statement = String::from_utf8(statement(
        &pinned.reference().name(),
        pinned.digest(),
        &predicate,
    ))
    .unwrap();
    assert!(
        statement.ends_with(&format!(r#""predicate":{text}}}"#)),
        "{statement}"
    );
    let read: Value = serde_json::from_str(&statement).unwrap();
    assert_eq!(read["subject"][0]["name"], "registry.example.com/team/web");
    assert_eq!(read["predicateType"], "https://example.com/kind");
}

#[test]
fn custom_predicates_with_equal_data_and_other_times_are_equal() {
    let first = read("custom", r#"{"a":1}"#).unwrap();
    assert!(
        first
            .is_same_predicate(&json!({"Data": r#"{"a":1}"#, "Timestamp": "2020-01-01T00:00:00Z"}))
    );
    assert!(!first.is_same_predicate(&json!({"Data": r#"{"a":2}"#, "Timestamp": NOW})));
    let other = read("https://example.com/kind", r#"{"a":1}"#).unwrap();
    assert!(other.is_same_predicate(&json!({"a": 1})));
    assert!(!other.is_same_predicate(&json!({"a": 1, "b": 2})));
}
