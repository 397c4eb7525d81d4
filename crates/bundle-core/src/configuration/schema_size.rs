//! Size of the JSON Schema of a configuration: values, costly keywords, and the memory of JSON
//! pointers and copies. The limits apply before the validator compiles the schema.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{footprint::Footprint, text::bounded};

/// Maximum number of values in the schema. A definition is counted for each `$ref` to the
/// definition.
const VALUES: usize = 20_000;
/// Maximum number of patterns. A definition is counted for each `$ref` to the definition.
const PATTERNS: usize = 100;
/// Maximum nesting of a schema. The nesting of the definitions that it refers to is included.
const DEPTH: usize = 100;
/// Supported values of `$schema`, with or without `#`. In older drafts, other keywords change the
/// base of references.
const DRAFTS: [&str; 4] = [
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];
/// Keywords with alternatives: the error of a value lists the errors of all alternatives.
const ALTERNATIVES: [&str; 2] = ["anyOf", "oneOf"];
/// Formats of numbers in OpenAPI. The validator ignores these formats, so they are not counted.
const NUMBER_FORMATS: [&str; 4] = ["int32", "int64", "float", "double"];
/// Number of bytes in a text or key that count as one value of a configuration or of a
/// schema.
pub(super) const VALUE_BYTES: usize = 64;
/// Maximum length of the JSON pointers of all values in the schema together, in bytes. The
/// validator stores the JSON pointer of each value.
const POINTERS: usize = 2 << 20;
/// Maximum memory of the values of all keywords `not` together, in bytes. The validator copies the
/// value of each `not`, also of a `not` in another `not`.
const NEGATED_MEMORY: usize = 4 << 20;
/// Maximum length of the index of an item in a JSON pointer, in bytes.
pub(super) const INDEX_BYTES: usize = 8;
/// Maximum length of a reported problem, in bytes.
pub(super) const MAX_MESSAGE: usize = 300;
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

/// Converts a number to 64 bits.
pub(super) fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Returns the length of `key` in a JSON pointer, with the separator, in bytes.
pub(super) fn key_bytes(key: &str) -> usize {
    let escaped = key.bytes().filter(|byte| matches!(byte, b'~' | b'/'));
    1 + key.len() + escaped.count()
}

/// Values and costly keywords of a schema, including the definitions that the schema refers to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Size {
    /// Number of values. A long text or key counts as several values.
    pub(super) values: usize,
    pub(super) patterns: usize,
    /// Number of values in keywords with alternatives.
    pub(super) alternatives: usize,
    /// Number of keywords `uniqueItems`.
    pub(super) unique_lists: usize,
    /// Number of keywords `multipleOf`.
    pub(super) divisors: usize,
    /// Number of keywords `format`, without [`NUMBER_FORMATS`].
    pub(super) formats: usize,
    /// Length of the JSON pointers of all values together, in bytes. The pointers of a definition
    /// begin with the pointer of the reference to it.
    pub(super) pointers: usize,
    /// Length of all texts together, in bytes.
    pub(super) texts: usize,
    /// Memory of the values of all keywords `not`, in bytes.
    pub(super) negated: usize,
}

impl Size {
    fn add(&mut self, other: Self) -> Result<(), String> {
        self.values = self.values.saturating_add(other.values);
        self.patterns = self.patterns.saturating_add(other.patterns);
        self.alternatives = self.alternatives.saturating_add(other.alternatives);
        self.unique_lists = self.unique_lists.saturating_add(other.unique_lists);
        self.divisors = self.divisors.saturating_add(other.divisors);
        self.formats = self.formats.saturating_add(other.formats);
        self.pointers = self.pointers.saturating_add(other.pointers);
        self.texts = self.texts.saturating_add(other.texts);
        self.negated = self.negated.saturating_add(other.negated);
        self.check()
    }

    /// Adds a value in this value. `segment` is the length of its part of the JSON pointer.
    fn add_child(&mut self, mut child: Self, segment: usize) -> Result<(), String> {
        let pointers = child.values.saturating_mul(segment);
        child.pointers = child.pointers.saturating_add(pointers);
        self.add(child)
    }

    /// Adds the identifier of the root. For each value, the validator also stores a URI: the
    /// identifier, and the percent-encoded JSON pointer.
    fn add_identifier(&mut self, id: &str) -> Result<(), String> {
        let identifiers = self.values.saturating_mul(id.len());
        let pointers = self.pointers.saturating_mul(4);
        self.pointers = pointers.saturating_add(identifiers);
        self.check()
    }

    fn check(&self) -> Result<(), String> {
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
        if self.pointers > POINTERS {
            return Err(format!(
                "the JSON pointers of all values in the schema have together more than {} KiB, with a definition counted at each reference to it: shorten the keys, or nest fewer levels",
                POINTERS >> 10
            ));
        }
        if self.negated > NEGATED_MEMORY {
            return Err(format!(
                "the values of all keywords `not` together need more than {} KiB of memory, with a definition counted at each reference to it",
                NEGATED_MEMORY >> 10
            ));
        }
        Ok(())
    }
}

/// Counts the values of a schema, so that a schema with too many values is not compiled. If each
/// definition of a chain refers several times to the next definition, a compilation would need
/// exponential time.
pub(super) struct Counter<'a> {
    root: &'a Value,
    counted: BTreeMap<&'a str, Size>,
    open: BTreeSet<&'a str>,
}

impl<'a> Counter<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        Self {
            root,
            counted: BTreeMap::new(),
            open: BTreeSet::new(),
        }
    }

    pub(super) fn count(&mut self, schema: &'a Value, depth: usize) -> Result<Size, String> {
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
                    size.add_child(self.count(item, depth + 1)?, INDEX_BYTES)?;
                }
            }
            Value::Object(map) => {
                for (key, value) in map {
                    size.values += key.len() / VALUE_BYTES;
                    if let (true, Value::Object(named)) = (NAMED.contains(&key.as_str()), value) {
                        size.values += 1;
                        size.pointers = size.pointers.saturating_add(key_bytes(key));
                        if key == "patternProperties" {
                            size.patterns += named.len();
                        }
                        for (name, schema) in named {
                            size.values += name.len() / VALUE_BYTES;
                            let segment = key_bytes(key) + key_bytes(name);
                            size.add_child(self.count(schema, depth + 2)?, segment)?;
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
                    if key == "not" {
                        let memory = Footprint::of(value).0;
                        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
                        size.negated = size.negated.saturating_add(memory);
                    }
                    size.patterns += usize::from(key == "pattern" && value.is_string());
                    size.unique_lists += usize::from(key == "uniqueItems");
                    size.divisors += usize::from(key == "multipleOf");
                    if let ("format", Value::String(format)) = (key.as_str(), value) {
                        let is_checked = !NUMBER_FORMATS.contains(&format.as_str());
                        size.formats += usize::from(is_checked);
                    }
                    if let ("$ref", Value::String(reference)) = (key.as_str(), value) {
                        let segment = key_bytes(key) + key_bytes(reference);
                        size.add_child(self.definition(reference, depth + 1)?, segment)?;
                    } else {
                        let mut child = self.count(value, depth + 1)?;
                        if ALTERNATIVES.contains(&key.as_str()) {
                            child.alternatives = child.values;
                        }
                        size.add_child(child, key_bytes(key))?;
                    }
                }
                if let (0, Some(Value::String(id))) = (depth, map.get("$id")) {
                    size.add_identifier(id)?;
                }
            }
            Value::String(text) => {
                size.values += text.len() / VALUE_BYTES;
                size.texts = text.len();
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
