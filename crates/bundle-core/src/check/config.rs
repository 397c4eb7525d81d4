//! Validation of a package's default configuration against its JSON schema.

use crate::{
    configuration::{self, ConfigSchema},
    diagnostic::{Finding, Findings, codes},
    format::Files,
    package::Package,
    yaml::Allowance,
};

pub(super) fn check(package: Option<&Package>, files: &Files, findings: &mut Findings) {
    let Some(config) = package.and_then(|package| package.config.as_ref()) else {
        return;
    };
    let allowance = &mut Allowance::default();
    let schema = config.schema.as_deref();
    let schema = schema.map(|path| ConfigSchema::read(path, files, allowance));
    let default = config.default.as_deref();
    let default = default.map(|path| {
        let value = configuration::document("config.default", path, files, allowance);
        value.map(|value| (path, value))
    });
    match (schema, default) {
        (Some(Ok(schema)), Some(Ok((path, default)))) => {
            for (field, message) in schema.errors("", &default) {
                let finding = Finding::error(codes::check::BAD_CONFIG, message)
                    .in_file(path)
                    .hint("change the default, or the schema in config.schema");
                findings.push(if field.is_empty() {
                    finding
                } else {
                    finding.at_field(field)
                });
            }
        }
        (schema, default) => {
            findings.extend(schema.and_then(Result::err).into_iter().flatten());
            findings.extend(default.and_then(Result::err).into_iter().flatten());
        }
    }
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
            (r#"{"type": "objekt"}"#, "invalid JSON Schema"),
            (
                r#"{"$ref": "https://example.com/a.json"}"#,
                "the schema has no definition `https://example.com/a.json`",
            ),
            (
                r#"{"$ref": "file:///etc/passwd"}"#,
                "the schema has no definition `file:///etc/passwd`",
            ),
            (
                r#"{"properties": {"a": {"pattern": "(a"}}}"#,
                "invalid JSON Schema",
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
