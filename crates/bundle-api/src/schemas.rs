//! Schemas of fields whose derived schema is not suitable.

use schemars::{Schema, SchemaGenerator};

/// Returns the schema of a free-form field.
pub(crate) fn free_form(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Returns the schema of a field that allows or denies a feature. A derived schema would use the
/// description of the type instead of the description of the field.
pub(crate) fn allow_or_deny(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({"type": "string", "enum": ["Allow", "Deny"]})
}
