use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use super::{ConfigSchema, document};
use crate::{
    cancellation::Cancellation,
    diagnostic::{Findings, codes, rendered},
    files::Files,
    format::{self, CommandOutput, RenderInput, RenderTarget},
    object::MAX_OBJECT_JSON,
    yaml::Allowance,
};

const RECORDED: &str = include_str!("messages.txt");
const WEB: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, labels: {}}\nspec: {replicas: 1, template: {spec: {containers: [{name: web, image: a}]}}}\n";
const SCHEMA: &str = r##"{"type": "object", "additionalProperties": false, "required": ["replicas"],
    "properties": {"replicas": {"type": "integer", "minimum": 1}, "labels": {"type": "object", "additionalProperties": {"$ref": "#/$defs/text"}},
        "image": {"$ref": "#/$defs/text"}, "any": {}},
    "$defs": {"text": {"type": "string", "pattern": "^[a-z]+$"}}}"##;
const PATCHES: &str = "[{kind: Deployment.apps, name: web, path: /spec/replicas, value: /replicas}, {kind: Deployment.apps, name: web, path: /metadata/labels, value: /labels}, \
    {kind: Deployment.apps, name: web, path: /spec/template/spec/containers/0/image, value: /image}]";

fn bundle(schema: &str, patches: &str) -> Files {
    let package = format!(
        "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\nconfig: {{schema: config.schema.json, default: config.yaml, patches: {patches}}}\n"
    );
    let files = [
        ("bundle.yaml", package.as_str()),
        ("config.schema.json", schema),
        ("config.yaml", "replicas: 2\nlabels: {tier: front}\n"),
        ("manifests/web.yaml", WEB),
    ];
    let files = files.into_iter();
    files
        .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
        .collect()
}

/// Renders the only object of the bundle.
fn render(files: &Files, config: Option<Value>) -> Result<Value, Findings> {
    let target = RenderTarget {
        config,
        ..RenderTarget::default()
    };
    let input = RenderInput {
        files,
        target: &target,
        output: CommandOutput::Missing,
    };
    let rendered = format::render_objects(&input, |found, _| Ok(found), &Cancellation::default());
    rendered.map(|content| content.objects[0].value.clone())
}

fn configured(config: Value) -> Result<Value, Findings> {
    render(&bundle(SCHEMA, PATCHES), Some(config))
}

#[test]
fn values_are_merged_over_the_default_and_written_into_the_fields() {
    let object = configured(json!({"replicas": 5, "labels": {"team": "web"}})).unwrap();
    assert_eq!(object["spec"]["replicas"], 5);
    assert_eq!(
        object["metadata"]["labels"],
        json!({"team": "web", "tier": "front"})
    );
    let container = &object["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "a", "the configuration has no image");
    let object = configured(json!({"labels": {"tier": null}, "image": "b"})).unwrap();
    assert_eq!(object["spec"]["replicas"], 2);
    assert_eq!(object["metadata"]["labels"], json!({}));
    let container = &object["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "b");
}

#[test]
fn unknown_configuration_is_the_default_without_validation() {
    let schema = SCHEMA.replace("\"replicas\"]", "\"replicas\", \"image\"]");
    let files = bundle(&schema, PATCHES);
    assert_eq!(render(&files, None).unwrap()["spec"]["replicas"], 2);
    let error = render(&files, Some(json!({}))).unwrap_err().to_string();
    assert!(
        error.contains("\"image\" is a required property"),
        "{error}"
    );
}

#[test]
fn objects_without_patches_do_not_depend_on_the_configuration() {
    let files = bundle(SCHEMA, "[]");
    let object = render(&files, Some(json!({"replicas": "x"}))).unwrap();
    assert_eq!(object["spec"]["replicas"], 1);
}

#[test]
fn messages_of_configurations_are_recorded() {
    let invalid =
        configured(json!({"replicas": 0, "labels": {"a": 5, "b/c": "B"}, "colour": "red"}));
    let large = configured(json!({"any": "x".repeat(70_000)}));
    let patched = |patch: &str, config: Value| {
        let patches = format!("[{{{patch}}}]");
        render(&bundle(SCHEMA, &patches), Some(config)).unwrap_err()
    };
    let missing = "kind: Deployment.apps, name: shop, path: /spec/replicas, value: /replicas";
    let parent = "kind: Deployment.apps, name: web, path: /spec/strategy/type, value: /any";
    let identity = "kind: Deployment.apps, name: web, path: /metadata/name, value: /any";
    let kind = "kind: Deployment.apps, name: web, path: /metadata, value: /any";
    let text: String = [
        invalid.unwrap_err(),
        large.unwrap_err(),
        patched(missing, json!({})),
        patched(parent, json!({"any": "Recreate"})),
        patched(identity, json!({"any": "shop"})),
        patched(kind, json!({"any": {"name": "Web_"}})),
    ]
    .iter()
    .map(rendered)
    .collect();
    assert_eq!(text, RECORDED, "copy the left side to messages.txt");
}

#[test]
fn values_of_many_patches_are_limited_in_memory() {
    let patch = |n: usize| {
        format!("{{kind: Deployment.apps, name: web, path: /metadata/labels/l{n}, value: /any}}")
    };
    let patches: Vec<String> = (0..400).map(patch).collect();
    let files = bundle(SCHEMA, &format!("[{}]", patches.join(", ")));
    let error = render(&files, Some(json!({"any": "x".repeat(4000)}))).unwrap_err();
    assert!(
        error.to_string().contains("write more than 1024 KiB"),
        "{error}"
    );
}

#[test]
fn object_that_a_value_makes_too_large_is_rejected() {
    let patch = "[{kind: ConfigMap, name: large, path: /data/b, value: /any}]";
    let mut files = bundle(SCHEMA, patch);
    let text = "x".repeat(MAX_OBJECT_JSON - 2_000);
    let object = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: large}}\ndata: {{a: {text}}}\n"
    );
    files.insert("manifests/large.yaml".to_owned(), object.into_bytes());
    assert!(render(&files, Some(json!({"any": "x"}))).is_ok());
    let findings = render(&files, Some(json!({"any": "x".repeat(4_000)}))).unwrap_err();
    let found: Vec<_> = findings.errors().map(|finding| finding.code).collect();
    assert_eq!(found, [codes::format::OBJECT_TOO_LARGE]);
}

#[test]
fn schemas_that_need_more_than_linear_time_are_rejected() {
    // Each definition refers twice to the next definition.
    let definitions: Vec<String> = (0..20)
        .map(|n| {
            let next = n + 1;
            format!(
                r##""d{n}": {{"anyOf": [{{"$ref": "#/$defs/d{next}"}}, {{"$ref": "#/$defs/d{next}"}}]}}"##
            )
        })
        .collect();
    let doubled = format!(
        r##"{{"$ref": "#/$defs/d0", "$defs": {{{}, "d20": {{"const": 1}}}}}}"##,
        definitions.join(", ")
    );
    let patterns: Vec<String> = (0..101)
        .map(|n| format!(r#""a{n}": {{"pattern": "{n}"}}"#))
        .collect();
    let patterns = format!(r#"{{"properties": {{{}}}}}"#, patterns.join(", "));
    let deep = format!("{}{{}}{}", r#"{"not": "#.repeat(101), "}".repeat(101));
    for (schema, expected) in [
        (
            doubled.as_str(),
            "with a definition counted at each reference to it",
        ),
        (&patterns, "more than 100 patterns"),
        (&deep, "nested deeper than 100 levels"),
        (r##"{"allOf": [{"$ref": "#"}]}"##, "refers to itself"),
        (
            r##"{"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}"##,
            "refers to itself",
        ),
        (
            r#"{"$ref": "https://example.com/schema.json"}"#,
            "no definition",
        ),
        (r##"{"$ref": "#anchor"}"##, "no definition"),
        (
            r##"{"$dynamicRef": "#a"}"##,
            "`$dynamicRef` is not supported here",
        ),
        (
            r#"{"properties": {"a": {"$id": "https://example.com/a"}}}"#,
            "`$id` is not supported here",
        ),
        // In this draft, `id` changes the base of references.
        (
            r#"{"$schema": "http://json-schema.org/draft-04/schema#"}"#,
            "the draft `http://json-schema.org/draft-04/schema` is not supported",
        ),
        (
            r#"{"not": {"$schema": "http://json-schema.org/draft-04/schema#"}}"#,
            "`$schema` is not supported here",
        ),
        (r#"{"format": "regex"}"#, "`regex` is not supported"),
        // Without the limit, each level would evaluate the levels below it several times.
        (
            r#"{"anyOf": [{"anyOf": [{}], "unevaluatedProperties": {}}]}"#,
            "`unevaluatedProperties` is not supported here",
        ),
        (
            r#"{"unevaluatedItems": {}}"#,
            "`unevaluatedItems` is not supported here",
        ),
        (
            r#"{"contentMediaType": "application/json"}"#,
            "`contentMediaType` is not supported here",
        ),
        // A validator decodes `%62` to `b`, and would use the definition `b`.
        (
            r##"{"$ref": "#/$defs/%62", "$defs": {"%62": true, "b": {"$ref": "#/$defs/%62"}}}"##,
            "the reference `#/$defs/%62` has a percent-encoded name",
        ),
        // If a reference names a map of properties, the validator uses this map as a schema.
        (
            r##"{"$ref": "#/properties", "properties": {"unevaluatedItems": {}}}"##,
            "`unevaluatedItems` is not supported here",
        ),
        (r#"{"pattern": "(a{200}){200}"}"#, "invalid JSON Schema"),
    ] {
        let error = render(&bundle(schema, PATCHES), Some(json!({})));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Without the limits, the first pattern would need more than 200 MiB, and the second pattern more
/// than one minute.
#[test]
fn patterns_are_limited_before_they_are_translated() {
    let properties = |pattern: &str| json!({"properties": {"a": {"pattern": pattern}}});
    for (schema, expected) in [
        (
            properties(&r"\p{L}".repeat(40_000)),
            "the pattern at `#/properties/a/pattern` is longer than 1024 bytes",
        ),
        (
            properties(&r"\d".repeat(32 << 10)),
            "the pattern at `#/properties/a/pattern` is longer than 1024 bytes",
        ),
        (
            properties(&r"\p{L}".repeat(200)),
            "the pattern at `#/properties/a/pattern` needs more than 1024 KiB for its character classes",
        ),
        (
            json!({"propertyNames": {"pattern": r"\cA".repeat(300)}}),
            "the pattern at `#/propertyNames/pattern` needs more than 1024 KiB for its character classes",
        ),
    ] {
        let error = render(&bundle(&schema.to_string(), PATCHES), Some(json!({})));
        let error = error.unwrap_err();
        let found: Vec<_> = error.errors().map(|finding| finding.code).collect();
        assert_eq!(found, [codes::check::BAD_CONFIG_SCHEMA]);
        let error = error.to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn ordinary_patterns_of_schemas_are_evaluated() {
    for (pattern, yes, no) in [
        (
            r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            "a.b-c",
            "-a",
        ),
        (r"^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$", "1.2.3-rc.1", "1.2"),
        (
            r"^((25[0-5]|2[0-4]\d|1\d{2}|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d{2}|[1-9]?\d)$",
            "192.0.2.255",
            "192.0.2.256",
        ),
        (r"^[^\cA\cB]+$", "a", "\u{1}"),
        (r"^[\w.-]+\/[\w.-]+$", "a/b", "a"),
    ] {
        let schema = json!({"properties": {"any": {"pattern": pattern}}});
        let files = bundle(&schema.to_string(), PATCHES);
        let matches = |text: &str| render(&files, Some(json!({"any": text}))).is_ok();
        assert!(matches(yes) && !matches(no), "{pattern}");
    }
}

#[test]
fn cancellation_is_checked_before_a_schema_is_compiled() {
    let files = bundle(SCHEMA, PATCHES);
    let path = "config.schema.json";
    // Returns the number of checks. Each check after the first `most` checks cancels the work.
    let checks = |most: usize, read: &dyn Fn(&mut Allowance) -> Result<(), Findings>| {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = count.clone();
        let is_exceeded = move || counter.fetch_add(1, Ordering::Relaxed) >= most;
        let work = Cancellation::with_limit(is_exceeded);
        let result = read(&mut Allowance::new(&work));
        (count.load(Ordering::Relaxed), result)
    };
    let parse = |allowance: &mut Allowance| {
        let parsed = document("config.schema", path, &files, allowance);
        parsed.map(|_| ())
    };
    let compile = |allowance: &mut Allowance| {
        let compiled = ConfigSchema::read(path, &files, allowance);
        compiled.map(|_| ())
    };
    let (parsing, parsed) = checks(usize::MAX, &parse);
    parsed.unwrap();
    let (compiling, compiled) = checks(usize::MAX, &compile);
    compiled.unwrap();
    assert_eq!(compiling, parsing + 1);
    let (_, cancelled) = checks(parsing, &compile);
    let findings = cancelled.unwrap_err();
    let found: Vec<_> = findings.errors().map(|finding| finding.code).collect();
    assert_eq!(found, [codes::format::CANCELLED]);
}

#[test]
fn schemas_with_long_paths_or_large_copies_are_rejected() {
    let empty = |count: usize| vec![json!({}); count];
    let negated = (0..90).fold(
        json!({"enum": vec!["x"; 3_000]}),
        |schema, _| json!({"not": schema}),
    );
    for (schema, expected) in [
        (
            json!({"properties": {"a".repeat(10_000): {"allOf": empty(300)}}}),
            "the JSON pointers of all values in the schema have together more than 2048 KiB",
        ),
        (
            json!({"$id": format!("https://example.com/{}", "a".repeat(10_000)), "allOf": empty(300)}),
            "the JSON pointers of all values in the schema have together more than 2048 KiB",
        ),
        (
            json!({
                "allOf": vec![json!({"$ref": "#/$defs/text"}); 100],
                "$defs": {"text": {"const": "a".repeat(20_000)}},
            }),
            "more than 20000 values",
        ),
        (
            negated,
            "the values of all keywords `not` together need more than 4096 KiB",
        ),
        (json!({"type": [0]}), "[0] is not valid under any of"),
        (
            json!({"type": vec![0; 5_000]}),
            "it does not match the metaschema of its draft, and is too large to describe the error",
        ),
    ] {
        let error = ConfigSchema::compile(&schema, 0).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn all_errors_are_listed_only_if_they_need_little_memory() {
    let lists = json!({"additionalProperties": {"items": {"type": "string"}}});
    let required = |length: usize| json!({"items": {"required": ["a".repeat(length)]}});
    let alternatives = json!({"items": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}});
    let zeros = |key: usize, count: usize| json!({"a".repeat(key): vec![0; count]});
    let maps = |count: usize| json!(vec![json!({}); count]);
    for (schema, config, count, last) in [
        (&lists, zeros(1, 50), 50, "a[49]"),
        (&lists, zeros(1, 1_000), 100, "a[99]"),
        (&lists, zeros(5_000, 1_000), 1, ""),
        (&required(10), maps(50), 50, "[49]"),
        (&required(100_000), maps(4_000), 1, "[0]"),
        (
            &json!({"items": {"not": {"title": "a".repeat(100_000)}}}),
            maps(4_000),
            1,
            "[0]",
        ),
        (&alternatives, json!(vec![0; 50]), 50, "[49]"),
    ] {
        let schema = ConfigSchema::compile(schema, 0).unwrap();
        let errors = schema.errors("", &config);
        assert_eq!(errors.len(), count, "{last}");
        let (field, message) = errors.last().unwrap();
        assert!(field.ends_with(last), "{field}");
        assert!(field.len() <= 512 && message.len() <= 300, "{field}");
    }
}

#[test]
fn names_of_properties_are_no_keywords() {
    let schema = r#"{"properties": {"contentEncoding": {"type": "string"}, "$id": {}, "properties": {"properties": {"$ref": {}}}},
        "$defs": {"unevaluatedItems": {"const": 1}}, "patternProperties": {"$anchor": true}}"#;
    render(&bundle(schema, PATCHES), Some(json!({}))).unwrap();
}

#[test]
fn long_texts_are_limited_with_the_default_and_by_the_number_of_patterns() {
    let mut files = bundle(SCHEMA, PATCHES);
    let default = format!("replicas: 2\nany: {}\n", "a".repeat(40 << 10));
    files.insert("config.yaml".to_owned(), default.into_bytes());
    render(&files, Some(json!({}))).unwrap();
    let error = render(&files, Some(json!({"more": "a".repeat(30 << 10)})));
    let error = error.unwrap_err().to_string();
    let expected = "the configuration and the default of the package together have more than the limit of 65536 bytes";
    assert!(error.contains(expected), "{error}");

    let patterns: Vec<String> = (0..20)
        .map(|n| format!(r#"{{"pattern": "[ab]*a[ab]{{{n}}}"}}"#))
        .collect();
    let schema = format!(
        r#"{{"properties": {{"any": {{"allOf": [{}]}}}}}}"#,
        patterns.join(", ")
    );
    let files = bundle(&schema, PATCHES);
    render(&files, Some(json!({"any": "a".repeat(20 << 10)}))).unwrap();
    let error = render(&files, Some(json!({"any": "a".repeat(30 << 10)})));
    let error = error.unwrap_err().to_string();
    let expected = "its texts are too long for a schema with this number of patterns";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn long_texts_are_limited_by_the_number_of_formats() {
    let expected = "its texts are too long for a schema with this number of `format`";
    for (format, count, length, is_valid) in [
        ("uri-reference", 200, 50 << 10, true),
        ("uri-reference", 2_000, 1 << 10, true),
        ("uri-reference", 2_000, 50 << 10, false),
        ("int64", 2_000, 20 << 10, true),
    ] {
        let keyword = format!(r#"{{"format": "{format}"}}"#);
        let keywords = vec![keyword; count].join(", ");
        let schema = format!(r#"{{"properties": {{"any": {{"allOf": [{keywords}]}}}}}}"#);
        let files = bundle(&schema, PATCHES);
        let rendered = render(&files, Some(json!({"any": "a".repeat(length)})));
        match rendered {
            Ok(_) => assert!(is_valid, "{format} {count}"),
            Err(error) => {
                let error = error.to_string();
                assert!(!is_valid && error.contains(expected), "{error}");
            }
        }
    }
}

#[test]
fn keywords_that_cost_more_than_one_comparison_limit_the_values() {
    let files = |keyword: &str, count: usize| {
        let keywords = vec![keyword; count].join(", ");
        let schema = format!(
            r#"{{"properties": {{"any": {{"allOf": [{keywords}], "items": {{"allOf": [{keywords}]}}}}}}}}"#
        );
        bundle(&schema, PATCHES)
    };
    // These integers have the same hash, so the validator compares each pair.
    let integers: Vec<u64> = (0..3_000).map(|n| (1 << 63) - 1 - n).collect();
    let large = vec![1e300; 1_000];
    for (keyword, count, any, expected) in [
        (r#"{"uniqueItems": true}"#, 1, json!(integers), None),
        (
            r#"{"uniqueItems": true}"#,
            100,
            json!(integers),
            Some("it has too many values for a schema of this size"),
        ),
        (r#"{"multipleOf": 0.5}"#, 20, json!(large), None),
        (
            r#"{"multipleOf": 0.5}"#,
            200,
            json!(large),
            Some("it has too many values for a schema with this number of `multipleOf`"),
        ),
    ] {
        let rendered = render(&files(keyword, count), Some(json!({ "any": any })));
        match (rendered, expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => {
                let error = error.to_string();
                assert!(error.contains(expected), "{error}");
            }
            (rendered, _) => panic!("{keyword} {count}: {:?}", rendered.map(|_| ())),
        }
    }
}
