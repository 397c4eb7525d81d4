//! `docs/reference/api.md`: the fields of all custom resources, from their schemas.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Returns the page for `crds`.
pub(super) fn page(crds: &[Value]) -> Result<String> {
    let mut text = String::from(
        "<!-- Written by `cargo xtask gen` from crates/bundle-api. -->\n\
         # API\n\n\
         All kinds belong to `core.rukpak.io/v1alpha1` and are cluster-scoped. `kubectl explain KIND.FIELD` prints the same descriptions.\n\
         `[]` marks the elements of a list.\n",
    );
    for crd in crds {
        let names = &crd["spec"]["names"];
        let kind = names["kind"].as_str().context("a CRD without a kind")?;
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let _ = write!(text, "\n## {kind}\n\n{}\n", description(schema));
        for part in ["spec", "status"] {
            let fields = &schema["properties"][part];
            if fields["properties"].is_object() {
                let _ = write!(
                    text,
                    "\n### {part} of {kind}\n\n| Field | Type | Description |\n|---|---|---|\n"
                );
                rows(&mut text, part, fields);
            }
        }
    }
    Ok(text)
}

/// Appends one row for each field below `schema`, depth first.
fn rows(text: &mut String, path: &str, schema: &Value) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (name, field) in properties {
        let path = format!("{path}.{name}");
        let _ = writeln!(
            text,
            "| `{path}` | {} | {} |",
            type_name(field),
            description(field)
        );
        rows(text, &path, field);
        rows(text, &format!("{path}[]"), &field["items"]);
    }
}

/// Returns the type of a field: its enumerated values, or the name of its type.
fn type_name(field: &Value) -> String {
    if let Some(values) = field["enum"].as_array() {
        let values = values.iter().filter_map(Value::as_str);
        return values
            .map(|value| format!("`{value}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    let name = field["type"].as_str().unwrap_or("any");
    match (name, field["items"]["type"].as_str()) {
        ("array", Some(items)) => format!("list of {items}"),
        ("object", _) if field["additionalProperties"].is_object() => "map".to_owned(),
        _ => name.to_owned(),
    }
}

/// Returns the description of a schema in one line, for the cell of a table.
fn description(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn page_lists_nested_fields_and_elements_of_lists() {
        let schema = json!({"properties": {"spec": {"properties": {"sources": {
            "type": "object",
            "description": "Allowed\nsources.",
            "properties": {"hosts": {"type": "array", "items": {"type": "object", "properties": {
                "mode": {"type": "string", "enum": ["a", "b"], "description": "a | b"}
            }}}}
        }}}}});
        let crd = json!({"spec": {
            "names": {"kind": "Class"},
            "versions": [{"schema": {"openAPIV3Schema": schema}}]
        }});
        let page = page(&[crd]).unwrap();
        let rows: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        assert_eq!(
            rows,
            [
                "| `spec.sources` | object | Allowed sources. |",
                "| `spec.sources.hosts` | list of object |  |",
                "| `spec.sources.hosts[].mode` | `a`, `b` | a \\| b |",
            ]
        );
    }
}
