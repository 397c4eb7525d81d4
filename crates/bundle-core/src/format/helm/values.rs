//! Values of a chart in `spec.config`: as text in `values`, as in RukPak, or as a map.

use serde_json::{Map, Value};

use crate::{
    configuration::FIELD,
    diagnostic::{Finding, Findings, codes},
    footprint::Footprint,
    json,
    yaml::{self, Allowance},
};

/// Key of the values in `spec.config`, as in RukPak.
const KEY: &str = "values";
/// Maximum memory of the parsed values, in bytes. A text of a few KiB can have values of many MiB,
/// because an alias repeats the values of its anchor. No memory is reserved for these values.
const MEMORY: u64 = 4 << 20;
/// Maximum length of a file with values for helm, in bytes: of the values as JSON, and of the
/// default configuration. A rendering keeps these files while it waits for helm. JSON can have six
/// times the length of a text, because it escapes each control character.
pub(super) const FILE_BYTES: usize = 1 << 20;
/// Field with the values, if they are below [`KEY`].
const KEY_FIELD: &str = "spec.config.values";

/// Values that an installation sets.
#[derive(Debug, PartialEq)]
pub(super) struct GivenValues {
    /// The values, as a map.
    pub(super) values: Value,
    /// Field that contains the values.
    pub(super) field: &'static str,
}

/// Returns the values in `config`. If `config` has only the key `values`, this key contains the
/// values: as a map, or as the text of a YAML document. Otherwise `config` itself contains the
/// values. Returns an error if the values exceed [`MEMORY`] or [`FILE_BYTES`].
pub(super) fn given(config: &Value, allowance: &mut Allowance) -> Result<GivenValues, Findings> {
    let empty = |field| GivenValues {
        values: Value::Object(Map::new()),
        field,
    };
    let map = match config {
        Value::Object(map) => map,
        Value::Null => return Ok(empty(FIELD)),
        _ => return Err(invalid(FIELD, "it is not a map", "write a map of values").into()),
    };
    match map.get(KEY) {
        Some(Value::String(_)) if map.len() > 1 => Err(invalid(
            KEY_FIELD,
            "it is a text, so the other keys of spec.config would have no effect",
            "write all values into the text, or all as keys of spec.config",
        )
        .into()),
        Some(Value::String(text)) => {
            let values = parsed(text, allowance)?;
            check_length(&values, KEY_FIELD)?;
            Ok(GivenValues {
                values,
                field: KEY_FIELD,
            })
        }
        Some(Value::Null) if map.len() == 1 => Ok(empty(KEY_FIELD)),
        Some(values @ Value::Object(_)) if map.len() == 1 => copied(values, KEY_FIELD),
        _ => copied(config, FIELD),
    }
}

/// Returns a copy of the values in `field`.
fn copied(values: &Value, field: &'static str) -> Result<GivenValues, Findings> {
    check_memory(Footprint::of(values).0, field)?;
    check_length(values, field)?;
    Ok(GivenValues {
        values: values.clone(),
        field,
    })
}

/// Returns an error if values that need this memory exceed [`MEMORY`].
fn check_memory(memory: u64, field: &str) -> Result<(), Finding> {
    if memory > MEMORY {
        let message = format!("the values need more than {} MiB of memory", MEMORY >> 20);
        return Err(invalid(field, message, "write fewer values"));
    }
    Ok(())
}

/// Returns an error if the JSON of the values exceeds [`FILE_BYTES`].
fn check_length(values: &Value, field: &str) -> Result<(), Finding> {
    if json::length(values) > FILE_BYTES {
        let limit = FILE_BYTES >> 20;
        let message = format!("the values have more than {limit} MiB as JSON");
        return Err(invalid(field, message, "write fewer values"));
    }
    Ok(())
}

/// Parses the text of a YAML document with values. A text without a document contains no values.
fn parsed(text: &str, allowance: &mut Allowance) -> Result<Value, Findings> {
    let hint = "write one YAML document with a map of values";
    let weighed = yaml::weigh(text.as_bytes(), KEY_FIELD, allowance).map_err(of_field)?;
    check_memory(weighed.documents_memory(), KEY_FIELD)?;
    let documents = match yaml::documents_within(text.as_bytes(), KEY_FIELD, allowance) {
        Ok(documents) => documents,
        Err(findings)
            if findings
                .iter()
                .all(|one| one.code == codes::format::EMPTY_FILE) =>
        {
            Vec::new()
        }
        Err(findings) => return Err(findings.into_iter().map(of_field).collect()),
    };
    let mut documents = documents.into_iter().map(|document| document.value);
    let value = documents.next();
    if documents.next().is_some() {
        return Err(invalid(KEY_FIELD, "the text has more than one document", hint).into());
    }
    match value {
        None | Some(Value::Null) => Ok(Value::Object(Map::new())),
        Some(value @ Value::Object(_)) => Ok(value),
        Some(_) => Err(invalid(KEY_FIELD, "the text is not a map", hint).into()),
    }
}

/// Converts a finding about a file to a finding about the field [`KEY_FIELD`].
fn of_field(finding: Finding) -> Finding {
    let line = finding.place.line;
    let message = match line {
        Some(line) => format!("line {line}: {}", finding.message),
        None => finding.message,
    };
    invalid(KEY_FIELD, message, "correct the YAML document of the text")
}

fn invalid(field: &str, message: impl Into<String>, hint: &str) -> Finding {
    Finding::error(codes::format::INVALID_CONFIGURATION, message)
        .at_field(field)
        .hint(hint)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &Value) -> Result<GivenValues, Findings> {
        given(config, &mut Allowance::default())
    }

    #[test]
    fn values_are_text_as_in_rukpak_or_maps() {
        let replicas = json!({"replicas": 2});
        for (config, field, values) in [
            (
                json!({"values": "# two\nreplicas: 2\n"}),
                KEY_FIELD,
                &replicas,
            ),
            (json!({"values": {"replicas": 2}}), KEY_FIELD, &replicas),
            (json!({"replicas": 2}), FIELD, &replicas),
            (json!({"values": ""}), KEY_FIELD, &json!({})),
            (json!({"values": null}), KEY_FIELD, &json!({})),
            (json!({}), FIELD, &json!({})),
            (Value::Null, FIELD, &json!({})),
            (
                json!({"values": {"a": 1}, "b": 2}),
                FIELD,
                &json!({"values": {"a": 1}, "b": 2}),
            ),
        ] {
            let found = read(&config).unwrap();
            assert_eq!((found.field, &found.values), (field, values), "{config}");
        }
    }

    #[test]
    fn other_values_are_rejected_with_their_field() {
        for (config, expected) in [
            (json!("replicas: 2"), "spec.config: it is not a map"),
            (
                json!({"values": "a: 1", "b": 2}),
                "spec.config.values: it is a text, so the other keys of spec.config would have no effect",
            ),
            (
                json!({"values": "a: 1\n---\nb: 1\n"}),
                "spec.config.values: the text has more than one document",
            ),
            (
                json!({"values": "- a"}),
                "spec.config.values: the text is not a map",
            ),
        ] {
            let found = read(&config).unwrap_err();
            assert_eq!(found.first().unwrap().to_string(), expected);
            let code = codes::format::INVALID_CONFIGURATION;
            assert!(found.iter().all(|finding| finding.code == code));
        }
        let found = read(&json!({"values": "a: 1\nb: [\n"})).unwrap_err();
        let found = found.first().unwrap().to_string();
        assert!(found.starts_with("spec.config.values: line "), "{found}");
    }

    fn rejection(config: &Value) -> String {
        let found = read(config).unwrap_err();
        found.first().unwrap().to_string()
    }

    #[test]
    fn values_that_need_much_memory_are_rejected() {
        let text = |maps: usize| format!("a: [{}]\n", vec!["{a: 0}"; maps].join(","));
        read(&json!({ "values": text(1_000) })).unwrap();
        for text in [text(60_000), "0\n---\n".repeat(150_000)] {
            let found = rejection(&json!({ "values": text }));
            assert!(found.contains("the values need more than 4 MiB"), "{found}");
        }
        let maps = |count: usize| json!({ "a": vec![json!({"a": 0}); count] });
        read(&json!({ "values": maps(4_000) })).unwrap();
        for (config, field) in [
            (json!({ "values": maps(10_000) }), KEY_FIELD),
            (maps(10_000), FIELD),
        ] {
            let expected = format!("{field}: the values need more than 4 MiB of memory");
            assert_eq!(rejection(&config), expected);
        }
    }

    #[test]
    fn values_with_long_json_are_rejected() {
        // In JSON, each of these control characters has six bytes.
        let aliases = "*a,".repeat(100);
        let text = |count: usize| {
            let control = "\\x01".repeat(count);
            format!("a: &a \"{control}\"\nb: [{aliases}]\n")
        };
        read(&json!({ "values": text(1 << 10) })).unwrap();
        let control = json!({ "a": "\u{1}".repeat(200 << 10) });
        for (config, field) in [
            (json!({ "values": text(4 << 10) }), KEY_FIELD),
            (json!({ "values": control }), KEY_FIELD),
            (control, FIELD),
        ] {
            let expected = format!("{field}: the values have more than 1 MiB as JSON");
            assert_eq!(rejection(&config), expected);
        }
    }
}
