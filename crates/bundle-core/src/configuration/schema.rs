//! The JSON Schema of a configuration. The content contains the schema, and the webhook evaluates
//! the schema. Therefore the size and the keywords of the schema are limited.

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use super::{
    patterns,
    schema_size::{Counter, INDEX_BYTES, MAX_MESSAGE, Size, VALUE_BYTES, key_bytes, wide},
};
use crate::{
    diagnostic::{Finding, Findings, codes},
    field_path,
    files::Files,
    footprint::Footprint,
    text::bounded,
    yaml::Allowance,
};

/// Maximum size of the schema, in bytes.
const BYTES: usize = 256 << 10;
/// Maximum size of a compiled pattern, in bytes.
const COMPILED_PATTERN: usize = 32 << 10;
/// Maximum size of the cache of a pattern, in bytes.
const PATTERN_CACHE: usize = 64 << 10;
/// Maximum number of comparisons of a validation: the number of values in the schema, multiplied by
/// the number of values in the configuration. Each value of the schema can be compared with each
/// value of the configuration.
const COMPARISONS: u64 = 50_000_000;
/// Maximum number of divisions of a validation: the number of keywords `multipleOf`, multiplied by
/// the number of values in the configuration. A division of very large numbers takes several
/// microseconds.
const DIVISIONS: u64 = 200_000;
/// Maximum number of comparisons of a validation that lists all errors. This limit is lower than
/// `COMPARISONS`, because each comparison can result in an error.
const LISTED_COMPARISONS: u64 = 30_000;
/// Maximum memory of the errors of a validation that lists all errors, in bytes. The validator
/// collects all errors before it returns the first error.
const ERROR_MEMORY: u64 = 10 << 20;
/// Memory of an error without its paths and copied texts, in bytes.
const ERROR_BYTES: u64 = 300;
/// Maximum number of errors about one value of a schema that does not match the metaschema. The
/// metaschema of a draft consists of up to eight schemas.
const METASCHEMA_ERRORS: u64 = 8;
/// Maximum length of the path in the metaschema of an error, in bytes for each level of the schema.
const METASCHEMA_PATH: u64 = 70;
/// Maximum product of the number of patterns in the schema and the number of bytes in the
/// configuration.
const MATCHED_BYTES: u64 = 512 << 10;
/// Maximum product of the number of keywords `format` in the schema and the number of bytes in the
/// configuration. A check of a format reads each byte of a text.
const FORMATTED_BYTES: u64 = 16 << 20;
/// Maximum number of reported problems.
const MAX_ERRORS: usize = 100;
/// Maximum length of the path of a reported problem, in bytes.
const MAX_FIELD: usize = 512;

/// Hint for a schema that is not valid or has unsupported parts.
const SCHEMA_HINT: &str = "write a complete JSON Schema: `$ref` refers only to `#/...`";
/// Hint for a schema with patterns that exceed a limit.
const PATTERN_HINT: &str = "shorten the pattern, or use `maxLength` or `enum`; write a repeated class such as `\\p{L}` only once, as in `\\p{L}{2}`";

/// Reason why a schema is rejected.
struct SchemaError {
    message: String,
    hint: &'static str,
}

impl From<String> for SchemaError {
    fn from(message: String) -> Self {
        Self {
            message,
            hint: SCHEMA_HINT,
        }
    }
}

/// JSON Schema of a configuration, compiled for validation.
#[derive(Debug)]
pub struct ConfigSchema {
    validator: Validator,
    size: Size,
}

impl ConfigSchema {
    /// Reads the schema at `path`, which `config.schema` of `bundle.yaml` names.
    pub fn read(path: &str, files: &Files, allowance: &mut Allowance) -> Result<Self, Findings> {
        let schema = super::document("config.schema", path, files, allowance)?;
        let bytes = files.get(path).map_or(0, Vec::len);
        allowance.check_now()?;
        Self::build(&schema, bytes).map_err(|error| {
            Finding::error(codes::check::BAD_CONFIG_SCHEMA, error.message)
                .in_file(path)
                .hint(error.hint)
                .into()
        })
    }

    /// Compiles a schema. `bytes` is the length of its text in bytes.
    pub(crate) fn compile(schema: &Value, bytes: usize) -> Result<Self, String> {
        Self::build(schema, bytes).map_err(|error| error.message)
    }

    fn build(schema: &Value, bytes: usize) -> Result<Self, SchemaError> {
        if bytes > BYTES {
            return Err(format!("the schema is larger than {BYTES} bytes").into());
        }
        let size = Counter::new(schema).count(schema, 0)?;
        patterns::check(schema).map_err(|message| SchemaError {
            message,
            hint: PATTERN_HINT,
        })?;
        check_metaschema(schema)?;
        let pattern_options = PatternOptions::regex()
            .size_limit(COMPILED_PATTERN)
            .dfa_size_limit(PATTERN_CACHE);
        let options = jsonschema::options()
            .with_pattern_options(pattern_options)
            .should_validate_formats(true);
        let validator = options.build(schema);
        let validator = validator.map_err(|error| invalid_schema(&error))?;
        Ok(Self { validator, size })
    }

    /// Returns the fields of `value` that do not match the schema, each with the reason. `path` is
    /// the path of `value`. If the errors would need too much memory or too much time, only one
    /// error is returned.
    pub fn errors(&self, path: &str, value: &Value) -> Vec<(String, String)> {
        let comparisons = wide(self.size.values).saturating_mul(wide(values(value)));
        let only = |message: &str| vec![(path.to_owned(), message.to_owned())];
        // For `uniqueItems`, each item of a list can be compared with every other item.
        let pairs = wide(values(value)).saturating_pow(2);
        let pairs = wide(self.size.unique_lists).saturating_mul(pairs);
        if comparisons > COMPARISONS || pairs > COMPARISONS {
            return only("it has too many values for a schema of this size");
        }
        let divisions = wide(self.size.divisors).saturating_mul(wide(values(value)));
        if divisions > DIVISIONS {
            return only("it has too many values for a schema with this number of `multipleOf`");
        }
        let bytes = wide(text_bytes(value));
        if wide(self.size.patterns).saturating_mul(bytes) > MATCHED_BYTES {
            return only("its texts are too long for a schema with this number of patterns");
        }
        if wide(self.size.formats).saturating_mul(bytes) > FORMATTED_BYTES {
            return only("its texts are too long for a schema with this number of `format`");
        }
        if self.validator.is_valid(value) {
            return Vec::new();
        }
        if comparisons <= LISTED_COMPARISONS && error_memory(self.size, value) <= ERROR_MEMORY {
            let errors = self.validator.iter_errors(value).take(MAX_ERRORS);
            return errors.map(|error| described(path, &error)).collect();
        }
        // If the schema has no `anyOf` and `oneOf`, `validate` builds only the first error, and
        // copies no values.
        if self.size.alternatives == 0
            && let Err(error) = self.validator.validate(value)
        {
            return vec![described(path, &error)];
        }
        only("it does not match the schema, and is too large to list the errors")
    }
}

fn described(path: &str, error: &ValidationError<'_>) -> (String, String) {
    let field = field_path::of_pointer(path, error.instance_path().as_str());
    (
        bounded(&field, MAX_FIELD),
        bounded(&error.to_string(), MAX_MESSAGE),
    )
}

/// Returns an error if the schema does not match the metaschema of its draft. The validator would
/// collect all errors below each `anyOf` of the metaschema. Therefore the error is only described
/// if the schema is small.
fn check_metaschema(schema: &Value) -> Result<(), String> {
    let metaschema =
        jsonschema::meta::validator_for(schema).map_err(|error| invalid_schema(&error))?;
    if metaschema.is_valid(schema) {
        return Ok(());
    }
    if metaschema_error_memory(schema) <= ERROR_MEMORY
        && let Err(error) = metaschema.validate(schema)
    {
        return Err(invalid_schema(&error));
    }
    Err("invalid JSON Schema: it does not match the metaschema of its draft, and is too large to describe the error".to_owned())
}

fn invalid_schema(error: &ValidationError<'_>) -> String {
    let message = bounded(&error.to_string(), MAX_MESSAGE);
    format!("invalid JSON Schema: {message}")
}

/// Returns an upper estimate of the memory of all errors of `value`, in bytes. In the estimate,
/// each value of the schema results in an error for each value of the configuration.
fn error_memory(size: Size, value: &Value) -> u64 {
    let errors = wide(size.values).saturating_mul(wide(values(value)));
    // Each error contains the path of its value.
    let paths = wide(size.values).saturating_mul(PathTotals::of(value).bytes);
    // An error contains its path in the schema, and the texts of its keyword.
    let texts = [size.pointers, size.texts, size.negated];
    let texts = texts.into_iter().map(wide).fold(0, u64::saturating_add);
    let texts = texts.saturating_mul(wide(values(value)));
    // Below a keyword with alternatives, an error also contains a copy of its value.
    let copies = match size.alternatives {
        0 => 0,
        count => Footprint::of(value).0.saturating_mul(wide(count)),
    };
    let errors = errors.saturating_mul(ERROR_BYTES);
    let all = [errors, paths, texts, copies];
    all.into_iter().fold(0, u64::saturating_add)
}

/// Returns an upper estimate of the memory of all errors if the schema does not match its
/// metaschema, in bytes.
fn metaschema_error_memory(schema: &Value) -> u64 {
    let totals = PathTotals::of(schema);
    let error = ERROR_BYTES.saturating_add(METASCHEMA_PATH.saturating_mul(totals.depth));
    let errors = wide(values(schema)).saturating_mul(error);
    let errors = errors.saturating_add(totals.bytes);
    let errors = errors.saturating_mul(METASCHEMA_ERRORS);
    // The errors of nested alternatives contain a copy of the value at each level.
    let copies = totals.depth.saturating_add(METASCHEMA_ERRORS);
    errors.saturating_add(Footprint::of(schema).0.saturating_mul(copies))
}

/// Totals of the JSON pointers of all values in a value.
#[derive(Debug, Default)]
struct PathTotals {
    /// Length of all JSON pointers together, in bytes.
    bytes: u64,
    /// Maximum nesting.
    depth: u64,
}

impl PathTotals {
    fn of(value: &Value) -> Self {
        let mut totals = Self::default();
        totals.add(value, 0, 0);
        totals
    }

    /// Adds a value at `depth`, whose JSON pointer has `length` bytes, and all values in it.
    fn add(&mut self, value: &Value, length: usize, depth: u64) {
        self.bytes = self.bytes.saturating_add(wide(length));
        self.depth = self.depth.max(depth);
        match value {
            Value::Array(items) => {
                for item in items {
                    self.add(item, length + INDEX_BYTES, depth + 1);
                }
            }
            Value::Object(map) => {
                for (key, value) in map {
                    self.add(value, length + key_bytes(key), depth + 1);
                }
            }
            _ => {}
        }
    }
}

/// Returns the number of JSON values in `value`, including lists and maps. A long text or key
/// counts as several values.
fn values(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Object(map) => {
            let entries = map.iter();
            let entries = entries.map(|(key, value)| key.len() / VALUE_BYTES + values(value));
            entries.sum()
        }
        Value::String(text) => text.len() / VALUE_BYTES,
        _ => 0,
    }
}

/// Returns the number of bytes of all texts and keys.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(map) => {
            let entries = map.iter();
            let entries = entries.map(|(key, value)| key.len() + text_bytes(value));
            entries.sum()
        }
        Value::String(text) => text.len(),
        _ => 0,
    }
}
