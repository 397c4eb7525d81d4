//! Values of a chart in `spec.config`: as text in `values`, as in RukPak, or as a map.

use serde_json::{Map, Value};

use crate::{
    configuration::FIELD,
    diagnostic::{Finding, Findings, codes},
    yaml::{self, Allowance},
};

/// Key of the values in `spec.config`, as in RukPak.
const KEY: &str = "values";
/// Maximum memory of the values in a text, in bytes.
const MEMORY: u64 = 16 << 20;
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
/// values.
pub(super) fn given(config: &Value, allowance: &mut Allowance) -> Result<GivenValues, Findings> {
    let own = |values: &Value| GivenValues {
        values: values.clone(),
        field: FIELD,
    };
    let below = |values: Value| GivenValues {
        values,
        field: KEY_FIELD,
    };
    let map = match config {
        Value::Object(map) => map,
        Value::Null => return Ok(own(&Value::Object(Map::new()))),
        _ => return Err(invalid(FIELD, "it is not a map", "write a map of values").into()),
    };
    match map.get(KEY) {
        Some(Value::String(_)) if map.len() > 1 => Err(invalid(
            KEY_FIELD,
            "it is a text, so the other keys of spec.config would have no effect",
            "write all values into the text, or all as keys of spec.config",
        )
        .into()),
        Some(Value::String(text)) => parsed(text, allowance).map(below),
        Some(Value::Null) if map.len() == 1 => Ok(below(Value::Object(Map::new()))),
        Some(values @ Value::Object(_)) if map.len() == 1 => Ok(below(values.clone())),
        _ => Ok(own(config)),
    }
}

/// Parses the text of a YAML document with values. A text without a document contains no values.
fn parsed(text: &str, allowance: &mut Allowance) -> Result<Value, Findings> {
    let hint = "write one YAML document with a map of values";
    // Parsed values can need a hundred times the memory of their text, and no memory is reserved
    // for these values.
    let weighed = yaml::weigh(text.as_bytes(), KEY_FIELD, allowance).map_err(of_field)?;
    if weighed.documents_memory() > MEMORY {
        let message = format!("the values need more than {} MiB of memory", MEMORY >> 20);
        return Err(invalid(KEY_FIELD, message, "write fewer values").into());
    }
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

    #[test]
    fn values_that_need_much_memory_are_rejected() {
        let text = |maps: usize| format!("a: [{}]\n", vec!["{a: 0}"; maps].join(","));
        read(&json!({ "values": text(1_000) })).unwrap();
        for text in [text(60_000), "0\n---\n".repeat(150_000)] {
            let found = read(&json!({ "values": text })).unwrap_err();
            let found = found.first().unwrap().to_string();
            assert!(
                found.contains("the values need more than 16 MiB"),
                "{found}"
            );
        }
    }
}
