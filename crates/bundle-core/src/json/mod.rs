//! Strict JSON parser for all input that trust depends on: an object at the top level, unique keys
//! at every depth, valid Unicode, no text after the end. Depth and number of values are bounded
//! before memory is allocated for them.
//!
//! Structs are read only from objects, never by position from lists. A key that differs from a
//! field's name only by case is rejected, because Go's parser accepts it for that field. Each type
//! decides on unknown keys (`deny_unknown_fields`).

mod tree;
mod typed;

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Maximum number of values (texts, numbers, lists, objects) in one document, which need about 10
/// MB. The longest signed list of components has 700 KiB and about 50,000 values.
pub const MOST_VALUES: usize = 262_144;
/// Maximum nesting of lists and objects, equal to the limit of the parser.
pub const DEEPEST: usize = 127;

/// Reason for rejecting JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonError {
    /// The text is not JSON, has text after the end, or is nested deeper than [`DEEPEST`]; with
    /// location and reason.
    Malformed(String),
    /// An object has a duplicate key.
    Repeated,
    /// The JSON is not an object.
    NotAnObject,
    /// Number of values in a document that exceeds the limit.
    TooManyValues(usize),
    /// The object does not match the type, with field and reason.
    Shape(String),
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "invalid JSON: {why}"),
            Self::Repeated => f.write_str("duplicate key in JSON"),
            Self::NotAnObject => f.write_str("not a JSON object"),
            Self::TooManyValues(most) => write!(f, "the JSON has more than {most} values"),
            Self::Shape(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for JsonError {}

/// Parses a typed object. The type must not use `flatten` or `untagged`, because serde parses the
/// content of those by its own rules.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    read_bounded(bytes, MOST_VALUES)
}

/// Like [`read`], with a lower limit on the number of values.
pub fn read_bounded<T: DeserializeOwned>(bytes: &[u8], most: usize) -> Result<T, JsonError> {
    typed(Value::Object(object_bounded(bytes, most)?))
}

/// Parses an object with any fields.
pub fn object(bytes: &[u8]) -> Result<Map<String, Value>, JsonError> {
    object_bounded(bytes, MOST_VALUES)
}

fn object_bounded(bytes: &[u8], most: usize) -> Result<Map<String, Value>, JsonError> {
    match tree::read(bytes, most)? {
        Value::Object(object) => Ok(object),
        _ => Err(JsonError::NotAnObject),
    }
}

/// Converts a value to a type, by the rules of [`read`].
pub fn typed<T: DeserializeOwned>(value: Value) -> Result<T, JsonError> {
    T::deserialize(typed::Strict(value)).map_err(|error| JsonError::Shape(error.to_string()))
}

/// Normalizes a name as Go's `encoding/json` compares it: without case, and with two non-ASCII
/// letters equal to `s` and `k`.
pub fn folded(name: &str) -> String {
    name.replace('\u{17f}', "s").to_lowercase()
}

#[cfg(test)]
mod tests;
