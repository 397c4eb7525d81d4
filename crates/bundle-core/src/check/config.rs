//! Validation of a package's default configuration against its JSON schema.

use jsonschema::PatternOptions;
use serde_json::Value;

use crate::{
    diagnostic::{Code, Finding, Findings, codes},
    format::Files,
    package::{FILE, Package},
    yaml,
};

/// Maximum number of reported problems of one file.
const MAX_ERRORS: usize = 100;
/// Maximum size of the schema, in bytes.
const SCHEMA: usize = 1 << 20;
/// Maximum size of a compiled pattern, in bytes.
const PATTERN: usize = 4 << 20;

pub(super) fn check(package: Option<&Package>, files: &Files, findings: &mut Findings) {
    let Some(config) = package.and_then(|package| package.config.as_ref()) else {
        return;
    };
    let schema = config.schema.as_deref();
    let schema =
        schema.and_then(|path| Some((path, read("config.schema", path, files, findings)?)));
    let default = config.default.as_deref();
    let default =
        default.and_then(|path| Some((path, read("config.default", path, files, findings)?)));
    let Some((path, schema)) = schema else {
        return;
    };
    let bad = |message: String| {
        Finding::error(codes::check::BAD_CONFIG_SCHEMA, message)
            .in_file(path)
            .hint("write a complete JSON Schema: `$ref` refers only to `#/...`")
    };
    if files.get(path).is_some_and(|text| text.len() > SCHEMA) {
        findings.push(bad(format!("the schema is larger than {SCHEMA} bytes")));
        return;
    }
    let options = jsonschema::options()
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN))
        .should_validate_formats(true);
    let validator = match options.build(&schema) {
        Ok(validator) => validator,
        Err(error) => {
            findings.push(bad(format!(
                "it is not a JSON Schema: {}",
                short(&error.to_string())
            )));
            return;
        }
    };
    let Some((path, default)) = default else {
        return;
    };
    for error in validator.iter_errors(&default).take(MAX_ERRORS) {
        let finding = Finding::error(codes::check::BAD_CONFIG, short(&error.to_string()))
            .in_file(path)
            .hint("change the default, or the schema in config.schema");
        let place = field(error.instance_path().as_str());
        findings.push(if place.is_empty() {
            finding
        } else {
            finding.at_field(place)
        });
    }
}

fn read(key: &str, path: &str, files: &Files, findings: &mut Findings) -> Option<Value> {
    let code: Code = codes::check::BAD_CONFIG_SCHEMA;
    let Some(text) = files.get(path) else {
        findings.push(
            Finding::error(code, format!("the bundle has no file `{path}`"))
                .in_file(FILE)
                .at_field(key)
                .hint("write the path relative to bundle.yaml"),
        );
        return None;
    };
    match yaml::documents(text, path) {
        Ok(mut documents) if documents.len() == 1 => documents.pop().map(|document| document.value),
        Ok(_) => {
            findings.push(
                Finding::error(
                    code,
                    "the file has several documents, but only one is allowed",
                )
                .in_file(path)
                .hint("keep one of them"),
            );
            None
        }
        Err(errors) => {
            findings.extend(errors);
            None
        }
    }
}

/// Converts a JSON pointer to a field path: `/a/0/b` becomes `a[0].b`.
fn field(pointer: &str) -> String {
    let mut path = String::new();
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        if !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit()) {
            path = super::structural::item(&path, step.parse().unwrap_or_default());
        } else {
            path = super::structural::child(&path, &step);
        }
    }
    path
}

fn short(text: &str) -> String {
    text.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::told;

    const PACKAGE: &str = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\nconfig: {schema: config.schema.json, default: config.yaml}\n";
    const OBJECT: (&str, &str) = (
        "manifests/a.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\n",
    );

    #[test]
    fn default_configuration_must_satisfy_its_schema() {
        let schema = r##"{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": false,
            "properties": {"ports": {"type": "array", "items": {"$ref": "#/$defs/port"}}, "host": {"type": "string", "pattern": "^[a-z.]+$"}},
            "$defs": {"port": {"type": "integer", "minimum": 1}}}"##;
        let with = |default: &str| {
            told(
                PACKAGE,
                &[
                    OBJECT,
                    ("config.schema.json", schema),
                    ("config.yaml", default),
                ],
            )
        };
        assert_eq!(with("ports: [80]\nhost: a.b\n"), [""; 0]);
        assert_eq!(
            with("ports: [80, 0]\nhost: A\nother: 1\n"),
            [
                "error: config.yaml: host: \"A\" does not match \"^[a-z.]+$\" (change the default, or the schema in config.schema)",
                "error: config.yaml: ports[1]: 0 is less than the minimum of 1 (change the default, or the schema in config.schema)",
                "error: config.yaml: Additional properties are not allowed ('other' was unexpected) (change the default, or the schema in config.schema)",
            ]
        );
    }

    #[test]
    fn rejects_invalid_schemas_and_references_to_other_files() {
        for (schema, said) in [
            (r#"{"type": "objekt"}"#, "it is not a JSON Schema"),
            (
                r#"{"$ref": "https://example.com/a.json"}"#,
                "it is not a JSON Schema",
            ),
            (
                r#"{"$ref": "file:///etc/passwd"}"#,
                "it is not a JSON Schema",
            ),
            (
                r#"{"properties": {"a": {"pattern": "(a"}}}"#,
                "it is not a JSON Schema",
            ),
        ] {
            let all = told(
                PACKAGE,
                &[
                    OBJECT,
                    ("config.schema.json", schema),
                    ("config.yaml", "a: 1\n"),
                ],
            );
            assert!(all.len() == 1 && all[0].contains(said), "{schema}: {all:?}");
        }
        let none = told(PACKAGE, &[OBJECT]);
        assert!(
            none.len() == 2 && none[0].contains("has no file"),
            "{none:?}"
        );
    }
}
