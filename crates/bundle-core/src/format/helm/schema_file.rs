//! `values.schema.json` of a chart. Schemas for which helm would read other files or URLs are
//! rejected.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Deserializer, Map, Value};

use crate::diagnostic::{Finding, codes};

/// Maximum size of a schema, in bytes.
const BYTES: usize = 1 << 20;
/// Keywords of references.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keyword of identifiers since draft 6. An identifier is the base URL of all references in its
/// object. helm can read this URL even if all references begin with `#`.
const IDENTIFIER: &str = "$id";
/// Keywords of identifiers in all drafts. In draft 4, the keyword is `id`. Old versions of helm use
/// `id` as an identifier in each draft.
const IDENTIFIERS: [&str; 2] = [IDENTIFIER, "id"];
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

/// Returns the schema that is written for helm: `text` without the identifiers at the root. Returns
/// an error if helm could read other files or URLs for the schema at `path`.
pub(super) fn prepare(path: &str, text: Vec<u8>) -> Result<Vec<u8>, Finding> {
    let reject = |message: String, hint: &str| {
        Finding::error(codes::format::BAD_CHART, message)
            .in_file(path)
            .hint(hint)
    };
    if text.len() > BYTES {
        let message = format!("the schema is larger than {BYTES} bytes");
        return Err(reject(message, "shorten the schema"));
    }
    let schema: Value = serde_json::from_slice(&text)
        .map_err(|error| reject(format!("invalid JSON: {error}"), "correct the file"))?;
    check_value(&schema, true).map_err(|found| found.finding().in_file(path))?;
    if !schema.as_object().is_some_and(has_base) {
        return Ok(text);
    }
    let kept = without_identifiers(&text);
    kept.ok_or_else(|| reject("invalid JSON".to_owned(), "correct the file"))
}

/// A keyword with which helm could read another file or URL.
#[derive(Debug)]
struct ExternalKeyword<'a> {
    /// JSON pointer of the object with the keyword.
    pointer: String,
    keyword: &'a str,
    text: &'a str,
}

impl<'a> ExternalKeyword<'a> {
    fn new(keyword: &'a str, text: &'a str) -> Self {
        Self {
            pointer: String::new(),
            keyword,
            text,
        }
    }

    /// Returns the keyword with its pointer in the surrounding object or list. `key` is the key or
    /// the index of the value that contains the keyword.
    fn inside(self, key: &str) -> Self {
        let key = key.replace('~', "~0").replace('/', "~1");
        Self {
            pointer: format!("/{key}{}", self.pointer),
            ..self
        }
    }

    fn finding(&self) -> Finding {
        let (keyword, text) = (self.keyword, shortened(self.text));
        if !IDENTIFIERS.contains(&keyword) {
            let message = format!("{keyword} refers to `{text}`, which is outside of the file");
            let hint = "copy the schema into the file: `$ref` refers only to `#/...`, and `$schema` to a draft from 4 to 2020-12";
            return Finding::error(codes::format::BAD_CHART, message).hint(hint);
        }
        let message = format!(
            "the identifier `{text}` changes the base URL of references, so helm could read another file or URL"
        );
        let field = format!("{}/{keyword}", shortened(&self.pointer));
        let hint = "remove the identifier: `$ref` can refer to each object by `#/...`; only the root of the schema can have an identifier that does not begin with `#`";
        Finding::error(codes::format::BAD_CHART, message)
            .at_field(field)
            .hint(hint)
    }
}

/// Returns the first 200 characters of `text`, with control characters escaped.
fn shortened(text: &str) -> String {
    text.escape_debug().take(200).collect()
}

/// Checks a value of a schema and all values in it. Returns `true` if the value contains a
/// reference. Values that are data, such as defaults, are checked too, because a reference can use
/// them as schemas.
fn check_value(value: &Value, is_root: bool) -> Result<bool, ExternalKeyword<'_>> {
    let mut has_reference = false;
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let found = check_value(item, false);
                has_reference |= found.map_err(|found| found.inside(&index.to_string()))?;
            }
        }
        Value::Object(object) => {
            for (key, value) in object {
                let Some(text) = value.as_str() else {
                    let found = check_value(value, false);
                    has_reference |= found.map_err(|found| found.inside(key))?;
                    continue;
                };
                let is_reference = REFERENCES.contains(&key.as_str());
                let is_external = if is_reference {
                    !text.starts_with('#')
                } else {
                    key == "$schema" && !is_draft(text)
                };
                if is_external {
                    return Err(ExternalKeyword::new(key, text));
                }
                has_reference |= is_reference;
            }
            if !is_root {
                check_identifiers(object, has_reference)?;
            }
        }
        _ => {}
    }
    Ok(has_reference)
}

/// Rejects identifiers of an object below the root. Data often contains the key `id`, so `id` is
/// rejected only if the object contains a reference. Without a reference, an identifier has no
/// effect.
fn check_identifiers(
    object: &Map<String, Value>,
    has_reference: bool,
) -> Result<(), ExternalKeyword<'_>> {
    for keyword in IDENTIFIERS {
        let is_checked = keyword == IDENTIFIER || has_reference;
        if let Some(text) = base(object, keyword).filter(|_| is_checked) {
            return Err(ExternalKeyword::new(keyword, text));
        }
    }
    Ok(())
}

/// Returns the identifier `keyword` of an object; `None` if it does not change the base URL of
/// references.
fn base<'a>(object: &'a Map<String, Value>, keyword: &str) -> Option<&'a str> {
    let text = object.get(keyword)?.as_str()?;
    changes_base(text).then_some(text)
}

/// Returns `true` if an identifier of the object changes the base URL of references.
fn has_base(object: &Map<String, Value>) -> bool {
    let mut keywords = IDENTIFIERS.iter();
    keywords.any(|keyword| base(object, keyword).is_some())
}

/// Returns `true` if this identifier changes the base URL of references. A fragment, such as `#a`,
/// only names its object.
fn changes_base(identifier: &str) -> bool {
    !identifier.is_empty() && !identifier.starts_with('#')
}

/// Returns the text of a JSON object without the identifiers that change the base URL. All other
/// members keep their exact text. Returns `None` if `text` is not an object with members.
fn without_identifiers(text: &[u8]) -> Option<Vec<u8>> {
    let mut rest = text.trim_ascii_start().strip_prefix(b"{")?;
    let mut kept = vec![b'{'];
    loop {
        let (key, value) = first_value::<String>(rest)?;
        let value = value.trim_ascii_start().strip_prefix(b":")?;
        let (_, end) = first_value::<IgnoredAny>(value)?;
        let is_identifier = IDENTIFIERS.contains(&key.as_str())
            && first_value::<String>(value).is_some_and(|(text, _)| changes_base(&text));
        if !is_identifier {
            if kept.len() > 1 {
                kept.push(b',');
            }
            kept.extend_from_slice(&rest[..rest.len() - end.len()]);
        }
        let Some(next) = end.trim_ascii_start().strip_prefix(b",") else {
            kept.push(b'}');
            return Some(kept);
        };
        rest = next;
    }
}

/// Returns the first JSON value in `text`, and the text after this value. Returns `None` if the
/// value is invalid or has another type.
fn first_value<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Option<(T, &'a [u8])> {
    let mut values = Deserializer::from_slice(text).into_iter::<T>();
    let value = values.next()?.ok()?;
    Some((value, text.get(values.byte_offset()..)?))
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

    /// Returns the schema that is written for helm.
    fn prepared(schema: &str) -> Result<String, Finding> {
        let text = prepare("values.schema.json", schema.as_bytes().to_vec())?;
        Ok(String::from_utf8(text).unwrap())
    }

    #[test]
    fn references_to_files_and_urls_are_rejected() {
        let accepted = r##"{"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}"##;
        assert_eq!(prepared(accepted).unwrap(), accepted);
        for rejected in [
            r#"{"$schema": "https://example.com/schema"}"#,
            r#"{"properties": {"a": {"$schema": "https://example.com/schema"}}}"#,
            r#"{"properties": {"a": {"$ref": "file:///etc/passwd"}}}"#,
            r#"{"allOf": [{"\u0024ref": "http://127.0.0.1/x"}]}"#,
            r#"{"$dynamicRef": "other.json#/a"}"#,
            r#"{"default": {"$recursiveRef": "other.json"}}"#,
            "{",
        ] {
            let found = prepared(rejected).unwrap_err();
            assert_eq!(found.code, codes::format::BAD_CHART, "{rejected}");
        }
        let large = vec![b' '; BYTES + 1];
        assert!(prepare("values.schema.json", large).is_err());
    }

    #[test]
    fn identifiers_below_the_root_are_rejected_if_they_change_the_base_of_references() {
        for (schema, field) in [
            (
                r##"{"properties": {"a": {"$id": "http://10.0.0.5/x?", "$ref": "#"}}}"##,
                "/properties/a/$id",
            ),
            (
                r##"{"allOf": [{}, {"\u0024id": "x", "anyOf": [{"$ref": "#"}]}]}"##,
                "/allOf/1/$id",
            ),
            (
                r##"{"definitions": {"a/b~": {"id": "file:///dev/x?", "items": {"$ref": "#"}}}}"##,
                "/definitions/a~1b~0/id",
            ),
            (
                r##"{"properties": {"a": {"$ref": "#/default"}}, "default": {"$id": "//x/?"}}"##,
                "/default/$id",
            ),
            (
                r##"{"examples": [{"id": "x?", "not": {"$recursiveRef": "#"}}]}"##,
                "/examples/0/id",
            ),
        ] {
            let found = prepared(schema).unwrap_err();
            assert_eq!(found.code, codes::format::BAD_CHART, "{schema}");
            assert_eq!(found.place.field.as_deref(), Some(field), "{schema}");
        }
        for accepted in [
            r##"{"properties": {"id": {"type": "string"}, "$id": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}"##,
            r##"{"properties": {"a": {"$id": "#a", "$ref": "#b"}, "b": {"$id": "#b", "id": ""}}}"##,
            r##"{"default": {"id": "web-1"}, "examples": [{"id": "web-2"}], "properties": {"a": {"$ref": "#"}}}"##,
            r#"{"enum": [{"id": "web-1"}], "const": {"id": ["$ref"]}}"#,
        ] {
            assert_eq!(prepared(accepted).unwrap(), accepted);
        }
    }

    #[test]
    fn identifiers_at_the_root_are_removed_and_all_other_bytes_are_kept() {
        for (schema, expected) in [
            (
                r##"{"$id": "http://10.0.0.5/x?", "$ref": "#"}"##,
                r##"{ "$ref": "#"}"##,
            ),
            (
                "\n{\n  \"maximum\": 18446744073709551617 ,\n  \"id\" : \"a,}\\\"\" ,\"a\":{\"b\":[1.10,{}]}}\n",
                "{\n  \"maximum\": 18446744073709551617,\"a\":{\"b\":[1.10,{}]}}",
            ),
            (
                r#"{"a": true, "\u0024id": "x", "$id": "y", "id": 7}"#,
                r#"{"a": true, "id": 7}"#,
            ),
            (r#"{"$id": "https://example.com/a"}"#, "{}"),
            (r##"{"$id":  "#a"}"##, r##"{"$id":  "#a"}"##),
            ("true", "true"),
        ] {
            assert_eq!(prepared(schema).unwrap(), expected, "{schema}");
        }
    }
}
