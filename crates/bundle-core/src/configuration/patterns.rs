//! Limits of the patterns in the JSON Schema of a configuration. The limits apply before the
//! validator translates and compiles the patterns.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{regex_limits, text::bounded};

/// Maximum length of a pattern, in bytes.
const MAX_LENGTH: usize = 1 << 10;
/// Maximum length of all different patterns of a schema together, in bytes.
const MAX_TOTAL_LENGTH: usize = 16 << 10;
/// Maximum memory of the character classes of all different patterns of a schema together, in
/// bytes.
const MAX_TOTAL_CLASS_MEMORY: usize = 4 << 20;
/// Maximum length of the path of a pattern in a message, in bytes.
const MAX_PATH: usize = 200;

/// Returns an error if one pattern of the schema exceeds a limit, or all patterns together. The
/// keys of `patternProperties` are patterns too. Patterns with the same text count once, because
/// the validator compiles them once.
///
/// A `pattern` counts anywhere, also in an example or a default, because a `$ref` can use any value
/// as a schema. The nesting of the schema must be limited before.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    PatternTotals::default().add_schema(schema)
}

/// Lengths and memory of the patterns of a schema.
#[derive(Default)]
struct PatternTotals<'a> {
    /// Path of the current value.
    path: Vec<PathSegment<'a>>,
    counted: BTreeSet<&'a str>,
    length: usize,
    class_memory: usize,
}

enum PathSegment<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'a> PatternTotals<'a> {
    fn add_schema(&mut self, schema: &'a Value) -> Result<(), String> {
        match schema {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.path.push(PathSegment::Index(index));
                    self.add_schema(item)?;
                    self.path.pop();
                }
            }
            Value::Object(map) => {
                for (key, value) in map {
                    self.path.push(PathSegment::Key(key));
                    match (key.as_str(), value) {
                        ("pattern", Value::String(pattern)) => self.add_pattern(pattern)?,
                        ("patternProperties", Value::Object(schemas)) => {
                            for pattern in schemas.keys() {
                                self.add_pattern(pattern)?;
                            }
                        }
                        _ => {}
                    }
                    self.add_schema(value)?;
                    self.path.pop();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_pattern(&mut self, pattern: &'a str) -> Result<(), String> {
        if !self.counted.insert(pattern) {
            return Ok(());
        }
        let class_memory = regex_limits::check_length(pattern, MAX_LENGTH)
            .and_then(|()| regex_limits::class_memory(pattern))
            .map_err(|limit| format!("the pattern at `{}` {limit}", self.pointer()))?;
        self.length = self.length.saturating_add(pattern.len());
        self.class_memory = self.class_memory.saturating_add(class_memory);
        if self.length > MAX_TOTAL_LENGTH {
            return Err(format!(
                "the patterns up to `{}` are together longer than {MAX_TOTAL_LENGTH} bytes",
                self.pointer()
            ));
        }
        if self.class_memory > MAX_TOTAL_CLASS_MEMORY {
            return Err(format!(
                "the patterns up to `{}` together need more than {} KiB for character classes",
                self.pointer(),
                MAX_TOTAL_CLASS_MEMORY >> 10
            ));
        }
        Ok(())
    }

    /// Returns the JSON pointer of the current value, as in a `$ref`.
    fn pointer(&self) -> String {
        let mut pointer = "#".to_owned();
        for segment in &self.path {
            pointer.push('/');
            match segment {
                PathSegment::Key(key) => {
                    pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
                }
                PathSegment::Index(index) => pointer.push_str(&index.to_string()),
            }
        }
        bounded(&pointer, MAX_PATH)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a schema with `count` different patterns.
    fn schema_of(count: usize, pattern: impl Fn(usize) -> String) -> Value {
        let schemas = (0..count).map(|number| json!({"pattern": pattern(number)}));
        json!({"allOf": schemas.collect::<Vec<_>>()})
    }

    #[test]
    fn patterns_are_limited_in_length_and_classes() {
        let long = "a".repeat(MAX_LENGTH + 1);
        let classes = r"\p{L}".repeat(100);
        let folded = format!("(?i:{})", r"\pL".repeat(20));
        let digits = r"\d".repeat(400);
        let controls = r"\cA".repeat(300);
        let longer = "is longer than 1024 bytes";
        let large = "needs more than 1024 KiB for its character classes";
        for (schema, expected) in [
            (
                json!({"properties": {"a/b": {"items": [{"pattern": long}]}}}),
                format!("the pattern at `#/properties/a~1b/items/0/pattern` {longer}"),
            ),
            (
                json!({"propertyNames": {"pattern": classes}}),
                format!("the pattern at `#/propertyNames/pattern` {large}"),
            ),
            (
                json!({"patternProperties": {folded: {}}}),
                format!("the pattern at `#/patternProperties` {large}"),
            ),
            (
                json!({"default": {"pattern": digits}}),
                format!("the pattern at `#/default/pattern` {large}"),
            ),
            (
                json!({"pattern": controls}),
                format!("the pattern at `#/pattern` {large}"),
            ),
        ] {
            assert_eq!(check(&schema), Err(expected));
        }
    }

    #[test]
    fn patterns_of_a_schema_are_limited_together() {
        let numbered = |number: usize| format!("{number:0>MAX_LENGTH$}");
        assert_eq!(check(&schema_of(16, numbered)), Ok(()));
        let long = "the patterns up to `#/allOf/16/pattern` are together longer than 16384 bytes";
        assert_eq!(check(&schema_of(17, numbered)), Err(long.to_owned()));
        let same = |_: usize| "a".repeat(MAX_LENGTH);
        assert_eq!(check(&schema_of(100, same)), Ok(()));
        // 1,008 KiB each.
        let classes = |number: usize| format!("{number}{}", r"\pL".repeat(63));
        assert_eq!(check(&schema_of(4, classes)), Ok(()));
        let large = "the patterns up to `#/allOf/4/pattern` together need more than 4096 KiB for character classes";
        assert_eq!(check(&schema_of(5, classes)), Err(large.to_owned()));
    }
}
