//! The JSON Schema of a configuration, within limits: it comes from content that nobody reviewed,
//! and the webhook evaluates it.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::{
    diagnostic::{Finding, Findings, codes},
    files::Files,
    footprint::Footprint,
    yaml::Allowance,
};

/// Maximum size of the schema, in bytes.
const BYTES: usize = 256 << 10;
/// Maximum number of values in the schema. A definition counts at each `$ref` to it.
const VALUES: usize = 20_000;
/// Maximum number of patterns. A definition counts at each `$ref` to it.
const PATTERNS: usize = 100;
/// Maximum nesting of a schema, including that of its references.
const DEPTH: usize = 100;
/// Maximum size of a compiled pattern, in bytes.
const COMPILED_PATTERN: usize = 32 << 10;
/// Maximum size of the cache of a pattern, in bytes.
const PATTERN_CACHE: usize = 64 << 10;
/// Maximum memory of the errors of alternatives, in bytes. Each error contains a copy of the value.
const ERROR_MEMORY: u64 = 8 << 20;
/// Keywords with alternatives: the error of a value lists the errors of all of them.
const ALTERNATIVES: [&str; 2] = ["anyOf", "oneOf"];
/// Keywords whose references depend on the path of the evaluation, or change the base of others.
const UNSUPPORTED: [&str; 5] = [
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
];
/// Maximum number of reported problems.
const MAX_ERRORS: usize = 100;
/// Maximum length of a reported problem, in characters.
const MAX_MESSAGE: usize = 300;

/// A compiled schema.
#[derive(Debug)]
pub struct ConfigSchema {
    validator: Validator,
    /// Number of alternatives. A definition counts at each `$ref` to it.
    alternatives: usize,
}

impl ConfigSchema {
    /// Reads the schema at `path`, which `config.schema` of `bundle.yaml` names.
    pub fn read(path: &str, files: &Files, allowance: &mut Allowance) -> Result<Self, Findings> {
        let schema = super::document("config.schema", path, files, allowance)?;
        let bytes = files.get(path).map_or(0, Vec::len);
        Self::compile(&schema, bytes).map_err(|message| {
            Finding::error(codes::check::BAD_CONFIG_SCHEMA, message)
                .in_file(path)
                .hint("write a complete JSON Schema: `$ref` refers only to `#/...`")
                .into()
        })
    }

    fn compile(schema: &Value, bytes: usize) -> Result<Self, String> {
        if bytes > BYTES {
            return Err(format!("the schema is larger than {BYTES} bytes"));
        }
        let size = Counter::new(schema).count(schema, 0)?;
        let patterns = PatternOptions::regex()
            .size_limit(COMPILED_PATTERN)
            .dfa_size_limit(PATTERN_CACHE);
        let options = jsonschema::options()
            .with_pattern_options(patterns)
            .should_validate_formats(true);
        let validator = options.build(schema);
        let validator =
            validator.map_err(|error| format!("it is not a JSON Schema: {}", short(&error)))?;
        Ok(Self {
            validator,
            alternatives: size.alternatives,
        })
    }

    /// Returns the fields of `value` that do not match the schema, each with the reason. The field
    /// of the whole value is empty. Only one error is returned for a value whose errors would need
    /// too much memory.
    pub fn errors(&self, value: &Value) -> Vec<(String, String)> {
        if self.validator.is_valid(value) {
            return Vec::new();
        }
        let copies = u64::try_from(self.alternatives).unwrap_or(u64::MAX);
        if Footprint::of(value).0.saturating_mul(copies) > ERROR_MEMORY {
            let message = "it does not match the schema, and is too large to list the errors";
            return vec![(String::new(), message.to_owned())];
        }
        let errors = self.validator.iter_errors(value).take(MAX_ERRORS);
        errors
            .map(|error| (field(error.instance_path().as_str()), short(&error)))
            .collect()
    }
}

/// Values and patterns of a schema, with the definitions that it refers to.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    values: usize,
    patterns: usize,
    alternatives: usize,
}

impl Size {
    fn add(&mut self, other: Self) -> Result<(), String> {
        self.values = self.values.saturating_add(other.values);
        self.patterns = self.patterns.saturating_add(other.patterns);
        self.alternatives = self.alternatives.saturating_add(other.alternatives);
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

/// Counts a schema before it is compiled. Without this limit, definitions that refer to others
/// several times would need exponential time.
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
                    if UNSUPPORTED.contains(&key.as_str()) || (key == "$id" && depth > 0) {
                        return Err(format!("the keyword `{key}` is not supported"));
                    }
                    if key == "format" && value == "regex" {
                        return Err("the format `regex` is not supported".to_owned());
                    }
                    if ALTERNATIVES.contains(&key.as_str()) {
                        size.alternatives += value.as_array().map_or(0, Vec::len);
                    }
                    size.patterns += match (key.as_str(), value) {
                        ("pattern", Value::String(_)) => 1,
                        ("patternProperties", Value::Object(patterns)) => patterns.len(),
                        _ => 0,
                    };
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
        let pointer = reference.strip_prefix('#');
        let Some(definition) = pointer.and_then(|pointer| self.root.pointer(pointer)) else {
            return Err(format!("the schema has no definition `{}`", cut(reference)));
        };
        if !self.open.insert(reference) {
            return Err(format!(
                "the definition `{}` refers to itself",
                cut(reference)
            ));
        }
        let size = self.count(definition, depth)?;
        self.open.remove(reference);
        self.counted.insert(reference, size);
        Ok(size)
    }
}

/// Converts a JSON pointer to a field path: `/a/0/b` becomes `a[0].b`.
fn field(pointer: &str) -> String {
    let mut path = String::new();
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$');
        let is_index = !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
        if is_index || step.is_empty() || !step.bytes().all(plain) {
            path.push_str(&format!("[{step}]"));
        } else if path.is_empty() {
            path = step;
        } else {
            path.push_str(&format!(".{step}"));
        }
    }
    path
}

fn short(text: &impl ToString) -> String {
    cut(&text.to_string())
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_MESSAGE).collect()
}
