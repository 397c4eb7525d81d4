//! Configuration of an installation: `spec.config` merged over the default of the package. The
//! result is validated with the schema of the package. `config.patches` of `bundle.yaml` names the
//! fields of objects that receive the values.

mod patches;
mod patterns;
mod schema;
mod schema_size;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use crate::{
    diagnostic::{Finding, Findings, codes},
    files::Files,
    json,
    package::{self, Config},
    yaml::{self, Allowance},
};

pub use patches::apply;
pub use schema::ConfigSchema;

/// Field of a BundleDeployment that contains the configuration.
pub const FIELD: &str = "spec.config";
/// Maximum size of a configuration as JSON, in bytes. The limit applies to `spec.config`, and to
/// the result after the merge with the default of the package.
pub const MAX_BYTES: usize = 64 << 10;
/// Memory of a configuration, of its validation, and of its values in the objects, in bytes. The
/// schema and the default configuration are not included, because they are part of the memory of
/// the files.
pub const MEMORY: u64 = 16 << 20;

/// Returns the configuration of an installation: `given`, merged over the default of the package by
/// RFC 7386. A map is merged by its keys, null removes a key, and any other value replaces the
/// default. Returns an error for each value that does not match the schema. If `given` is `None`,
/// the configuration is unknown. In this case, returns the default without validation.
pub fn resolve(
    config: &Config,
    files: &Files,
    given: Option<&Value>,
    allowance: &mut Allowance,
) -> Result<Value, Findings> {
    resolve_at(config, files, given, FIELD, allowance)
}

/// Like [`resolve`], for a configuration in the field `place` instead of `spec.config`.
pub fn resolve_at(
    config: &Config,
    files: &Files,
    given: Option<&Value>,
    place: &str,
    allowance: &mut Allowance,
) -> Result<Value, Findings> {
    let default = config.default.as_deref();
    let default = default.map(|path| document("config.default", path, files, allowance));
    let mut value = default
        .transpose()?
        .unwrap_or_else(|| Value::Object(Map::new()));
    let Some(given) = given else {
        return Ok(value);
    };
    let bytes = json::length(given);
    if bytes > MAX_BYTES {
        return Err(invalid(
            place,
            format!("the configuration has {bytes} bytes, more than the limit of {MAX_BYTES}"),
            "shorten the configuration",
        )
        .into());
    }
    json_patch::merge(&mut value, given);
    if json::length(&value) > MAX_BYTES {
        return Err(invalid(
            place,
            format!("the configuration and the default of the package together have more than the limit of {MAX_BYTES} bytes"),
            "shorten them",
        )
        .into());
    }
    if let Some(path) = &config.schema {
        let schema = ConfigSchema::read(path, files, allowance)?;
        let mut findings = Findings::default();
        let hint = format!("the schema of the configuration is {path} in the bundle");
        for (field, message) in schema.errors(place, &value) {
            findings.push(invalid(field, message, &hint));
        }
        if findings.has_errors() {
            return Err(findings);
        }
    }
    Ok(value)
}

/// Returns the only document in the file at `path`. The field `key` of `bundle.yaml` contains this
/// path.
pub(crate) fn document(
    key: &str,
    path: &str,
    files: &Files,
    allowance: &mut Allowance,
) -> Result<Value, Findings> {
    let code = codes::check::BAD_CONFIG_SCHEMA;
    let Some(text) = files.get(path) else {
        let message = format!("the bundle has no file `{path}`");
        return Err(Finding::error(code, message)
            .in_file(package::FILE)
            .at_field(key)
            .hint("write the path relative to bundle.yaml")
            .into());
    };
    let mut documents = yaml::documents_within(text, path, allowance)?;
    if documents.len() > 1 {
        let message = "the file has several documents, but only one is allowed";
        return Err(Finding::error(code, message)
            .in_file(path)
            .hint("keep one of them")
            .into());
    }
    Ok(documents
        .pop()
        .map_or(Value::Null, |document| document.value))
}

fn invalid(field: impl Into<String>, message: impl Into<String>, hint: &str) -> Finding {
    Finding::error(codes::format::INVALID_CONFIGURATION, message)
        .at_field(field)
        .hint(hint)
}
