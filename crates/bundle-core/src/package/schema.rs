//! JSON Schema (draft 2020-12) of `bundle.yaml`, generated from the table of its fields, for
//! editors and other programs. The parser rejects more than the schema, for example a baseline
//! outside of the range.

use serde_json::{Map, Value, json};

use super::shape::{Field, FieldType, MAX_ITEMS, MAX_TEXT, PACKAGE, Shape, Text};

/// `$id` of the schema.
pub const SCHEMA_ID: &str = "https://bundle.core.rukpak.io/v1alpha1/package.schema.json";

/// Returns the schema.
pub fn schema() -> Value {
    let mut schema = map(&PACKAGE, "A package of Kubernetes content: bundle.yaml.");
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["$id"] = json!(SCHEMA_ID);
    schema["title"] = json!("Package");
    schema
}

fn map(shape: &Shape, doc: &str) -> Value {
    let properties: Map<String, Value> = shape
        .fields
        .iter()
        .map(|field| (field.name.to_owned(), property(field)))
        .collect();
    let required: Vec<&str> = shape
        .fields
        .iter()
        .filter(|field| field.required)
        .map(|field| field.name)
        .collect();
    let mut schema = json!({
        "type": "object",
        "description": doc,
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if shape.least > 0 {
        schema["minProperties"] = json!(shape.least);
    }
    schema
}

fn property(field: &Field) -> Value {
    let list = |items: Value| json!({"type": "array", "description": field.doc, "maxItems": MAX_ITEMS, "items": items});
    match &field.holds {
        FieldType::Text(kind) => {
            let mut schema = text(*kind);
            schema["description"] = json!(field.doc);
            if !field.example.is_empty() && !matches!(kind, Text::Only(_)) {
                schema["examples"] = json!([field.example]);
            }
            schema
        }
        FieldType::Texts(kind) => list(text(*kind)),
        FieldType::Map(shape) => map(shape, field.doc),
        FieldType::Maps(shape) => {
            let mut items = map(shape, "");
            if let Value::Object(items) = &mut items {
                items.remove("description");
            }
            list(items)
        }
    }
}

/// Pattern of one line without control characters, equal to the rule of the parser.
const LINE: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";
const TITLE: &str = r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$";
const VERSION: &str = r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$";
const API: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?v([-a-z0-9]*[a-z0-9])?/[A-Z]([-A-Za-z0-9]*[A-Za-z0-9])?$";
const PART: &str = r"(?!\.{1,2}(/|$))[^/\\\u0000]+";
const HTTP: &str = r"^https?://[^\s/?#\u0000-\u001f\u007f-\u009f][^\s\u0000-\u001f\u007f-\u009f]*$";

fn text(kind: Text) -> Value {
    let pattern =
        |pattern: &str| json!({"type": "string", "pattern": pattern, "maxLength": MAX_TEXT});
    match kind {
        Text::Only(value) => json!({"const": value}),
        Text::OneOf(values) => json!({"enum": values}),
        Text::Line => pattern(LINE),
        Text::Title => pattern(TITLE),
        Text::Name => json!({
            "type": "string",
            "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            "maxLength": super::MAX_NAME,
        }),
        Text::Version => pattern(VERSION),
        Text::Minor => pattern(r"^[0-9]+\.[0-9]+$"),
        // The schema checks only the characters of a range. The parser checks its grammar.
        Text::Range => pattern(r"^[-0-9A-Za-z.*<>=!~^|,+ ]+$"),
        Text::Api => pattern(API),
        Text::Kind => pattern(
            r"^[A-Z][0-9A-Za-z]*(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$",
        ),
        Text::BareKind => pattern("^[A-Z][0-9A-Za-z]*$"),
        Text::Group => {
            pattern(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
        }
        Text::Any => json!({"type": "string", "maxLength": MAX_TEXT}),
        Text::Pointer => pattern(r"^/([^~]|~[01])+$"),
        Text::Digest => pattern("^sha256:[0-9a-f]{64}$"),
        Text::Path => pattern(&format!("^{PART}(/{PART})*/*$")),
        Text::Url => pattern(HTTP),
        Text::PathOrUrl => json!({"anyOf": [
            {"type": "string", "pattern": HTTP.replacen("https?", "https", 1), "maxLength": MAX_TEXT},
            {"type": "string", "pattern": format!("^(?!https?:){PART}(/{PART})*/*$"), "maxLength": MAX_TEXT},
        ]}),
        Text::Email => pattern(r"^[^\s@<>,]+@[^\s@<>,]+$"),
    }
}
