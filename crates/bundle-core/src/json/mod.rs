//! Strict JSON parser for all input that trust depends on: an object at the top level, unique keys
//! at every depth, valid Unicode, no text after the end. Depth and memory are bounded before memory
//! is allocated: a first pass over the text only computes its [`footprint`].
//!
//! Structs are read only from objects, never by position from lists. A key that differs from a
//! field's name only by case is rejected, because Go's parser would accept the key for that field.
//! Each type decides on unknown keys (`deny_unknown_fields`).
//!
//! The module also computes the length and the hash of the JSON of a value.

mod output;
mod tree;
mod typed;

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::footprint;

pub(crate) use output::HashWriter;
pub use output::{digest, is_longer_than, length, length_and_sha256, sha256, update_hash};

/// Maximum memory of a parsed document, in bytes. The largest known SBOM attestation has 700 KiB
/// and about 50,000 values, which need up to 10 MiB.
pub const MAX_MEMORY: u64 = 12 << 20;
/// Maximum memory of a parsed document, in bytes for each byte of its text. Manifests need up to 10
/// bytes for each byte. SBOMs and VEX documents need up to 24 bytes. Nested objects can need more
/// than 100 bytes.
const MEMORY_PER_BYTE: u64 = 32;
/// Memory that every document may use in addition to [`MEMORY_PER_BYTE`], in bytes. With this
/// memory, every short document can be parsed, even with the maximum nesting.
const MEMORY_FLOOR: u64 = 128 << 10;

/// Reason for rejecting JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonError {
    /// The text is not JSON, has text after the end, or is nested deeper than 127 levels, the limit
    /// of the parser. Contains the location and the reason.
    Malformed(String),
    /// An object has a duplicate key.
    Repeated,
    /// The JSON is not an object.
    NotAnObject,
    /// The parsed document needs more memory than this limit, in bytes.
    TooLarge(u64),
    /// The object does not match the type. Contains the field and the reason.
    Shape(String),
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "invalid JSON: {why}"),
            Self::Repeated => f.write_str("duplicate key in JSON"),
            Self::NotAnObject => f.write_str("not a JSON object"),
            Self::TooLarge(most) => write!(f, "the JSON needs more than {most} bytes when parsed"),
            Self::Shape(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for JsonError {}

/// Parses a typed object. The type must not use `flatten` or `untagged`, because serde does not
/// parse the content of such types by the rules of this module.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    read_bounded(bytes, MAX_MEMORY)
}

/// Like [`read`], with a lower limit for the memory of the parsed document: `most`, in bytes.
pub fn read_bounded<T: DeserializeOwned>(bytes: &[u8], most: u64) -> Result<T, JsonError> {
    typed(Value::Object(object_bounded(bytes, most)?))
}

/// Parses an object with any fields.
pub fn object(bytes: &[u8]) -> Result<Map<String, Value>, JsonError> {
    object_bounded(bytes, MAX_MEMORY)
}

fn object_bounded(bytes: &[u8], most: u64) -> Result<Map<String, Value>, JsonError> {
    weighed(bytes, most)?;
    match tree::read(bytes)? {
        Value::Object(object) => Ok(object),
        _ => Err(JsonError::NotAnObject),
    }
}

/// Returns the memory that [`read`] needs for this text, in bytes. Returns 0 if [`read`] rejects
/// the text before it allocates memory.
pub fn memory_to_read(bytes: &[u8]) -> u64 {
    weighed(bytes, MAX_MEMORY).unwrap_or(0)
}

/// Returns the memory of the parsed document, in bytes. Returns an error if this memory exceeds
/// `most` or the limit for the length of the text.
fn weighed(bytes: &[u8], most: u64) -> Result<u64, JsonError> {
    let most = max_memory(bytes.len()).min(most);
    let needed =
        footprint::of_json(bytes).map_err(|error| JsonError::Malformed(error.to_string()))?;
    if needed.0 > most {
        return Err(JsonError::TooLarge(most));
    }
    Ok(needed.0)
}

/// Returns the maximum memory of the parsed document, in bytes. `length` is the length of its text.
fn max_memory(length: usize) -> u64 {
    let length = length as u64;
    MEMORY_FLOOR.saturating_add(length.saturating_mul(MEMORY_PER_BYTE))
}

/// Converts a value to a type, by the rules of [`read`].
pub fn typed<T: DeserializeOwned>(value: Value) -> Result<T, JsonError> {
    T::deserialize(typed::Strict(value)).map_err(|error| JsonError::Shape(error.to_string()))
}

/// Normalizes a name as Go's `encoding/json` compares it: ignores case, and treats the letters
/// U+017F and U+212A like `s` and `k`.
pub fn folded(name: &str) -> String {
    name.replace('\u{17f}', "s").to_lowercase()
}

#[cfg(test)]
mod tests;
