//! The JSON Schema of a configuration. The content contains the schema, and the webhook evaluates
//! the schema. Therefore the size and the keywords of the schema are limited.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use super::patterns;
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
/// Maximum number of values in the schema. A definition is counted for each `$ref` to the
/// definition.
const VALUES: usize = 20_000;
/// Maximum number of patterns. A definition is counted for each `$ref` to the definition.
const PATTERNS: usize = 100;
/// Maximum nesting of a schema. The nesting of the definitions that it refers to is included.
const DEPTH: usize = 100;
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
/// Supported values of `$schema`, with or without `#`. In older drafts, other keywords change the
/// base of references.
const DRAFTS: [&str; 4] = [
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];
/// Maximum memory of the errors from keywords with alternatives, in bytes. Each error contains a
/// copy of the value.
const ERROR_MEMORY: u64 = 8 << 20;
/// Keywords with alternatives: the error of a value lists the errors of all alternatives.
const ALTERNATIVES: [&str; 2] = ["anyOf", "oneOf"];
/// Maximum product of the number of patterns in the schema and the number of bytes in the
/// configuration.
const MATCHED_BYTES: u64 = 512 << 10;
/// Maximum product of the number of keywords `format` in the schema and the number of bytes in the
/// configuration. A check of a format reads each byte of a text.
const FORMATTED_BYTES: u64 = 16 << 20;
/// Formats of numbers in OpenAPI. The validator ignores these formats, so they are not counted.
const NUMBER_FORMATS: [&str; 4] = ["int32", "int64", "float", "double"];
/// Number of bytes in a text or key that count as one value of a configuration.
const VALUE_BYTES: usize = 64;
/// Unsupported keywords:
/// - keywords of references that depend on the path of the evaluation or on names other than
///   `#/...`
/// - keywords that evaluate a subschema again for each level above it
/// - keywords that parse the text of a value
const UNSUPPORTED: [&str; 10] = [
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords with a map as value. The keys of this map are names, and not keywords.
const NAMED: [&str; 6] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];
/// Maximum number of reported problems.
const MAX_ERRORS: usize = 100;
/// Maximum length of a reported problem, in bytes.
const MAX_MESSAGE: usize = 300;

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
        let pattern_options = PatternOptions::regex()
            .size_limit(COMPILED_PATTERN)
            .dfa_size_limit(PATTERN_CACHE);
        let options = jsonschema::options()
            .with_pattern_options(pattern_options)
            .should_validate_formats(true);
        let validator = options.build(schema);
        let validator = validator.map_err(|error| {
            format!(
                "invalid JSON Schema: {}",
                bounded(&error.to_string(), MAX_MESSAGE)
            )
        })?;
        Ok(Self { validator, size })
    }

    /// Returns the fields of `value` that do not match the schema, each with the reason. `path` is
    /// the path of `value`. If the errors would need too much memory or too much time, only one
    /// error is returned.
    pub fn errors(&self, path: &str, value: &Value) -> Vec<(String, String)> {
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
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
        let copies = Footprint::of(value)
            .0
            .saturating_mul(wide(self.size.alternatives));
        if comparisons <= LISTED_COMPARISONS && copies <= ERROR_MEMORY {
            let errors = self.validator.iter_errors(value).take(MAX_ERRORS);
            return errors.map(|error| described(path, &error)).collect();
        }
        // If the schema has no `anyOf` and `oneOf`, `validate` ends at the first error and copies
        // no values.
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
    (field, bounded(&error.to_string(), MAX_MESSAGE))
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

/// Values and costly keywords of a schema, including the definitions that the schema refers to.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    values: usize,
    patterns: usize,
    alternatives: usize,
    /// Number of keywords `uniqueItems`.
    unique_lists: usize,
    /// Number of keywords `multipleOf`.
    divisors: usize,
    /// Number of keywords `format`, without [`NUMBER_FORMATS`].
    formats: usize,
}

impl Size {
    fn add(&mut self, other: Self) -> Result<(), String> {
        self.values = self.values.saturating_add(other.values);
        self.patterns = self.patterns.saturating_add(other.patterns);
        self.alternatives = self.alternatives.saturating_add(other.alternatives);
        self.unique_lists = self.unique_lists.saturating_add(other.unique_lists);
        self.divisors = self.divisors.saturating_add(other.divisors);
        self.formats = self.formats.saturating_add(other.formats);
        for (count, most, what) in [
            (self.values, VALUES, "values"),
            (self.patterns, PATTERNS, "patterns"),
        ] {
            if count > most {
                return Err(format!(
                    "the schema has more than {most} {what}, with a definition counted at each reference to it"
                ));
            }
        }
        Ok(())
    }
}

/// Counts the values of a schema, so that a schema with too many values is not compiled. If each
/// definition of a chain refers several times to the next definition, a compilation would need
/// exponential time.
struct Counter<'a> {
    root: &'a Value,
    counted: BTreeMap<&'a str, Size>,
    open: BTreeSet<&'a str>,
}

impl<'a> Counter<'a> {
    fn new(root: &'a Value) -> Self {
        Self {
            root,
            counted: BTreeMap::new(),
            open: BTreeSet::new(),
        }
    }

    fn count(&mut self, schema: &'a Value, depth: usize) -> Result<Size, String> {
        if depth > DEPTH {
            return Err(format!("the schema is nested deeper than {DEPTH} levels"));
        }
        let mut size = Size {
            values: 1,
            ..Size::default()
        };
        match schema {
            Value::Array(items) => {
                for item in items {
                    size.add(self.count(item, depth + 1)?)?;
                }
            }
            Value::Object(map) => {
                for (key, value) in map {
                    if let (true, Value::Object(named)) = (NAMED.contains(&key.as_str()), value) {
                        size.values += 1;
                        if key == "patternProperties" {
                            size.patterns += named.len();
                        }
                        for schema in named.values() {
                            size.add(self.count(schema, depth + 2)?)?;
                        }
                        continue;
                    }
                    let is_of_root = ["$id", "$schema"].contains(&key.as_str());
                    if UNSUPPORTED.contains(&key.as_str()) || (is_of_root && depth > 0) {
                        return Err(format!("the keyword `{key}` is not supported here"));
                    }
                    let draft = value.as_str().unwrap_or_default().trim_end_matches('#');
                    if key == "$schema" && !DRAFTS.contains(&draft) {
                        return Err(format!(
                            "the draft `{}` is not supported",
                            bounded(draft, MAX_MESSAGE)
                        ));
                    }
                    if key == "format" && value == "regex" {
                        return Err("the format `regex` is not supported".to_owned());
                    }
                    if ALTERNATIVES.contains(&key.as_str()) {
                        size.alternatives += value.as_array().map_or(0, Vec::len);
                    }
                    size.patterns += usize::from(key == "pattern" && value.is_string());
                    size.unique_lists += usize::from(key == "uniqueItems");
                    size.divisors += usize::from(key == "multipleOf");
                    if let ("format", Value::String(format)) = (key.as_str(), value) {
                        let is_checked = !NUMBER_FORMATS.contains(&format.as_str());
                        size.formats += usize::from(is_checked);
                    }
                    if let ("$ref", Value::String(reference)) = (key.as_str(), value) {
                        size.add(self.definition(reference, depth + 1)?)?;
                    } else {
                        size.add(self.count(value, depth + 1)?)?;
                    }
                }
            }
            _ => {}
        }
        Ok(size)
    }

    fn definition(&mut self, reference: &'a str, depth: usize) -> Result<Size, String> {
        if let Some(size) = self.counted.get(reference) {
            return Ok(*size);
        }
        // A validator decodes the `%` in a reference, and would use another definition than this
        // function.
        if reference.contains('%') {
            return Err(format!(
                "the reference `{}` has a percent-encoded name: write the name itself",
                bounded(reference, MAX_MESSAGE)
            ));
        }
        let pointer = reference.strip_prefix('#');
        let Some(definition) = pointer.and_then(|pointer| self.root.pointer(pointer)) else {
            return Err(format!(
                "the schema has no definition `{}`",
                bounded(reference, MAX_MESSAGE)
            ));
        };
        if !self.open.insert(reference) {
            return Err(format!(
                "the definition `{}` refers to itself",
                bounded(reference, MAX_MESSAGE)
            ));
        }
        let size = self.count(definition, depth)?;
        self.open.remove(reference);
        self.counted.insert(reference, size);
        Ok(size)
    }
}
