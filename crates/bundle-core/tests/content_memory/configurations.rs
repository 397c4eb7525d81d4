//! Configurations and values of charts: the memory for reading and validating them.

use bundle_core::configuration;
use bundle_core::diagnostic::codes;
use bundle_core::files::Files;
use bundle_core::format::{self, ReadFiles, RenderTarget};
use bundle_core::package::Config;
use bundle_core::yaml::Allowance;
use serde_json::{Value, json};

use super::{CONSTANT, alone, peak};

#[test]
fn configurations_need_no_more_than_the_memory_that_is_counted_for_them() {
    let _alone = alone();
    let patterns = |pattern: &str| {
        let properties = (0..100).map(|n| (format!("p{n}"), json!({"pattern": pattern})));
        json!({"properties": properties.collect::<serde_json::Map<_, _>>()})
    };
    let texts = |length: usize| {
        let texts = (0..100).map(|n| (format!("p{n}"), json!("a1".repeat(length / 2))));
        Value::Object(texts.collect())
    };
    let branches: Vec<Value> = (0..6_000).map(|n| json!({"const": n})).collect();
    let maps = |count: usize| json!({"all": vec![json!({"": 0}); count]});
    let empty_maps = json!({"all": vec![json!({}); 4_990]});
    let of_items = |schema: Value| json!({"properties": {"all": {"items": schema}}});
    let nested = |levels: usize, inner: Value, outer: &dyn Fn(Value) -> Value| {
        (0..levels).fold(inner, |schema, _| outer(schema))
    };
    for (name, schema, config) in [
        (
            "patterns with many states",
            patterns("^([a-f][0-9]|[g-z][0-9]?|[0-9]){12}$"),
            texts(600),
        ),
        ("unlimited texts", patterns("^[a-z0-9]*[0-9]$"), texts(600)),
        ("Unicode class", patterns(r"\p{L}"), texts(600)),
        (
            "Unicode class in any case",
            patterns(r"(?i:\p{L})"),
            texts(600),
        ),
        (
            "as many Unicode classes as possible",
            patterns(&r"\p{L}".repeat(64)),
            texts(600),
        ),
        (
            "as many Unicode classes in any case as possible",
            patterns(&format!("(?i:{})", r"\p{L}".repeat(16))),
            texts(600),
        ),
        (
            "too many Unicode classes",
            json!({"pattern": r"\p{L}".repeat(40_000)}),
            texts(600),
        ),
        (
            "too many Unicode classes in any case",
            json!({"pattern": format!("(?i:{})", r"\p{L}".repeat(40_000))}),
            texts(600),
        ),
        ("many branches", json!({"anyOf": branches}), maps(100)),
        ("many small maps", json!({}), maps(7_000)),
        (
            "many errors of many values",
            json!({"properties": {"all": {"items": {"allOf": vec![json!({"type": "string"}); 9_000]}}}}),
            json!({"all": vec![0; 30_000]}),
        ),
        (
            "errors of one alternative",
            json!({"anyOf": [{"properties": {"all": {"items": {"allOf": vec![json!({"type": "string"}); 900]}}}}]}),
            json!({"all": vec![0; 10_000]}),
        ),
        (
            "errors of alternatives of items",
            json!({"properties": {"all": {"items": {"anyOf": vec![json!({"type": "string"}); 65]}}}}),
            json!({"all": vec![0; 4_000]}),
        ),
        (
            "as many listed errors as possible",
            json!({"properties": {"all": {"items": {"allOf": vec![json!({"type": "string"}); 10]}}}}),
            json!({"all": vec![0; 1_000]}),
        ),
        (
            "as many errors",
            json!({"properties": {"all": {"items": {"type": "string"}}}}),
            maps(7_000),
        ),
        (
            "errors with a long path",
            json!({"additionalProperties": {"items": {"type": "string"}}}),
            json!({"a".repeat(44_000): vec![0; 6_800]}),
        ),
        (
            "errors with a long name",
            of_items(json!({"required": ["a".repeat(250_000)]})),
            empty_maps.clone(),
        ),
        (
            "errors with a long title",
            of_items(json!({"not": {"title": "a".repeat(250_000)}})),
            empty_maps.clone(),
        ),
        (
            "invalid schema with long paths",
            nested(
                48,
                json!({"type": vec![0; 19_800]}),
                &|schema| json!({"properties": {"a".repeat(1_000): schema}}),
            ),
            json!({}),
        ),
        (
            "invalid schema with many errors",
            json!({"type": vec![0; 19_800]}),
            json!({}),
        ),
        (
            "invalid schema with copies of the value at each level",
            json!({
                "$schema": "http://json-schema.org/draft-07/schema#",
                "items": nested(
                    90,
                    json!({"type": 5, "enum": vec![json!({"": 0}); 1_000]}),
                    &|schema| json!({"items": schema}),
                ),
            }),
            json!({}),
        ),
        (
            "schema with copies for each `not`",
            nested(
                90,
                json!({"enum": vec!["a"; 10_000]}),
                &|schema| json!({"not": schema}),
            ),
            json!({}),
        ),
        (
            "schema with a long identifier",
            json!({
                "$id": format!("https://example.com/{}", "a".repeat(100_000)),
                "allOf": vec![json!({"type": "object"}); 3_000],
            }),
            json!({}),
        ),
    ] {
        let files = Files::from_iter([("schema.json".to_owned(), schema.to_string().into_bytes())]);
        let package = Config {
            schema: Some("schema.json".to_owned()),
            ..Config::default()
        };
        let mut allowance = Allowance::default();
        let resolve = || configuration::resolve(&package, &files, Some(&config), &mut allowance);
        let (peak, resolved) = peak(resolve);
        if let Err(findings) = resolved {
            let may_be_rejected = name.contains("Unicode class") || name.contains("schema");
            let codes: Vec<_> = findings.errors().map(|finding| finding.code).collect();
            assert!(
                codes.iter().all(|code| {
                    *code == codes::format::INVALID_CONFIGURATION
                        || *code == codes::check::BAD_CONFIG_SCHEMA && may_be_rejected
                }),
                "{name}: {findings}"
            );
        }
        assert!(
            peak < usize::try_from(configuration::MEMORY).unwrap(),
            "{name}: {} KiB",
            peak >> 10
        );
    }
}

#[test]
fn values_of_a_chart_need_no_more_than_a_constant() {
    let _alone = alone();
    let chart = b"name: web\nversion: 1.0.0\n".to_vec();
    let files = Files::from_iter([("Chart.yaml".to_owned(), chart)]);
    let repeated = |text: &str, aliases: usize| {
        let aliases = "*a,".repeat(aliases);
        format!("a: &a \"{text}\"\nb: [{aliases}]\n")
    };
    let control = |count| "\\x01".repeat(count);
    for (name, values, is_valid) in [
        (
            "aliases of a text",
            repeated(&"a".repeat(1 << 10), 900),
            true,
        ),
        (
            "aliases of control characters",
            repeated(&control(1 << 10), 900),
            false,
        ),
        (
            "many aliases of control characters",
            repeated(&control(16 << 10), 1_000),
            false,
        ),
    ] {
        let target = RenderTarget {
            config: Some(json!({ "values": values })),
            ..RenderTarget::default()
        };
        let command = || format::command(&files, &target, &mut Allowance::default());
        let (peak, command) = peak(command);
        assert_eq!(command.is_ok(), is_valid, "{name}");
        assert!(peak < CONSTANT, "{name}: {} KiB", peak >> 10);
    }
}

#[test]
fn finding_the_files_of_a_configuration_needs_no_more_than_a_constant() {
    let _alone = alone();
    let list = |item: &str, count| format!("name: web\nkeywords: [{}]\n", item.repeat(count));
    for (name, package) in [
        ("many maps", list("{a: 0},", 150_000)),
        ("many lists", list("[0],", 200_000)),
        ("many documents", "0\n---\n".repeat(150_000)),
    ] {
        let (peak, _) = peak(|| ReadFiles::new(Some(package.as_bytes())));
        assert!(peak < CONSTANT, "{name}: {} KiB", peak >> 10);
    }
}
