//! `values.schema.json` of a chart: helm reads the files and URLs that the schema refers to.

use serde_json::Value;

use crate::diagnostic::{Finding, codes};

/// Maximum size of a schema, in bytes.
const BYTES: usize = 1 << 20;
/// Keywords of references.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Supported values of `$schema`, without scheme and final `#`. helm contains these schemas and
/// does not download them.
const DRAFTS: [&str; 6] = [
    "json-schema.org/draft-04/schema",
    "json-schema.org/draft-06/schema",
    "json-schema.org/draft-07/schema",
    "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft/2020-12/schema",
    "json-schema.org/schema",
];

/// Returns an error if helm would read other files or URLs for the schema at `path`.
pub(super) fn check(path: &str, text: &[u8]) -> Result<(), Finding> {
    let reject = |message: String, hint: &str| {
        Finding::error(codes::format::BAD_CHART, message)
            .in_file(path)
            .hint(hint)
    };
    if text.len() > BYTES {
        let message = format!("the schema is larger than {BYTES} bytes");
        return Err(reject(message, "shorten the schema"));
    }
    let schema: Value = serde_json::from_slice(text)
        .map_err(|error| reject(format!("invalid JSON: {error}"), "correct the file"))?;
    match external_reference(&schema) {
        None => Ok(()),
        Some((keyword, target)) => {
            let target: String = target.escape_debug().take(200).collect();
            let message = format!("{keyword} refers to `{target}`, which is outside of the file");
            let hint = "copy the schema into the file: `$ref` refers only to `#/...`, and `$schema` to a draft from 4 to 2020-12";
            Err(reject(message, hint))
        }
    }
}

/// Returns the first keyword of the schema that names another file or URL, with its text; `None` if
/// there is no such keyword.
fn external_reference(value: &Value) -> Option<(&str, &str)> {
    match value {
        Value::Array(items) => items.iter().find_map(external_reference),
        Value::Object(map) => map.iter().find_map(|(key, value)| {
            let text = value.as_str();
            let is_external = |text: &str| {
                if key == "$schema" {
                    !is_draft(text)
                } else {
                    REFERENCES.contains(&key.as_str()) && !text.starts_with('#')
                }
            };
            match text.filter(|text| is_external(text)) {
                Some(text) => Some((key.as_str(), text)),
                None => external_reference(value),
            }
        }),
        _ => None,
    }
}

fn is_draft(text: &str) -> bool {
    let text = text.strip_suffix('#').unwrap_or(text);
    let schemes = ["http://", "https://"];
    let mut names = schemes
        .iter()
        .filter_map(|scheme| text.strip_prefix(scheme));
    names.any(|name| DRAFTS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_have_both_schemes_and_at_most_one_fragment() {
        for (schema, is_accepted) in [
            ("https://json-schema.org/draft-07/schema", true),
            ("http://json-schema.org/draft/2020-12/schema#", true),
            ("https://json-schema.org/schema", true),
            ("http://json-schema.org/draft-07/schema##", false),
            ("json-schema.org/schema", false),
            ("https://json-schema.org/other", false),
        ] {
            assert_eq!(is_draft(schema), is_accepted, "{schema}");
        }
    }

    #[test]
    fn references_to_files_and_urls_are_rejected() {
        let accepted = r##"{"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}"##;
        assert_eq!(check("values.schema.json", accepted.as_bytes()), Ok(()));
        for rejected in [
            r#"{"$schema": "https://example.com/schema"}"#,
            r#"{"properties": {"a": {"$ref": "file:///etc/passwd"}}}"#,
            r#"{"allOf": [{"\u0024ref": "http://127.0.0.1/x"}]}"#,
            r#"{"$dynamicRef": "other.json#/a"}"#,
            "{",
        ] {
            let found = check("values.schema.json", rejected.as_bytes()).unwrap_err();
            assert_eq!(found.code, codes::format::BAD_CHART, "{rejected}");
        }
        let large = vec![b' '; BYTES + 1];
        assert!(check("values.schema.json", &large).is_err());
    }
}
