//! Enumerations of fields. The published OpenAPI documents do not contain enumerations. The Go code
//! that generates the documents contains the enumerations.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::Definitions;

/// Adds the allowed values in the generated code to the fields of each definition.
pub(super) fn add(code: &str, definitions: &mut Definitions) -> Result<()> {
    let mut name = None;
    let mut field = None;
    let mut within_items = false;
    for line in code.lines() {
        if let Some(function) = line.strip_prefix("func schema_") {
            // The function schema_k8sio_api_core_v1_Container belongs to
            // io.k8s.api.core.v1.Container.
            name = function
                .split_once('(')
                .and_then(|(name, _)| name.strip_prefix("k8sio_api_"))
                .map(|rest| format!("io.k8s.api.{}", rest.replace('_', ".")));
            field = None;
            continue;
        }
        let text = line.trim_start_matches('\t');
        let depth = line.len() - text.len();
        if depth == 5
            && let Some(key) = text
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix("\": {"))
        {
            field = Some(key.to_owned());
            within_items = false;
        }
        within_items |= text.starts_with("Items:");
        let Some(values) = text.strip_prefix("Enum:") else {
            continue;
        };
        let (Some(name), Some(field)) = (&name, &field) else {
            continue;
        };
        let values = values
            .trim()
            .strip_prefix("[]interface{}{")
            .and_then(|rest| rest.strip_suffix("},"))
            .with_context(|| format!("not an enumeration: {line}"))?;
        let values: Value = serde_json::from_str(&format!("[{values}]"))?;
        let pointer = if within_items {
            format!("/properties/{field}/items")
        } else {
            format!("/properties/{field}")
        };
        let schema = definitions
            .get_mut(name)
            .and_then(|definition| definition.pointer_mut(&pointer));
        if let Some(schema) = schema {
            schema["enum"] = values;
        }
    }
    Ok(())
}
