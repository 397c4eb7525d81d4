//! JSON parser of this crate. It calls `bundle_core::json`, and converts errors to rejections of a
//! signature.

use bundle_core::json::{self, JsonError};
use bundle_core::policy::Rejection;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses `bytes`. Ambiguous JSON is rejected. `otherwise` is the message of the rejection if the
/// input does not have the format of `T`.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8], otherwise: &str) -> Result<T, Rejection> {
    json::read(bytes).map_err(|error| rejection(&error, otherwise))
}

/// Parses a JSON object with any fields. Ambiguous JSON is rejected. `otherwise` is the message of
/// the rejection if the input is not an object.
pub(crate) fn object(bytes: &[u8], otherwise: &str) -> Result<Value, Rejection> {
    let object = json::object(bytes).map(Value::Object);
    object.map_err(|error| rejection(&error, otherwise))
}

/// Converts a JSON value to a type. `otherwise` is the message if the value does not match the
/// type.
pub(crate) fn typed<T: DeserializeOwned>(value: Value, otherwise: &str) -> Result<T, Rejection> {
    json::typed(value).map_err(|error| rejection(&error, otherwise))
}

pub(crate) fn rejection(error: &JsonError, otherwise: &str) -> Rejection {
    Rejection::Unreadable(match error {
        JsonError::Malformed(_) | JsonError::NotAnObject => otherwise.to_owned(),
        JsonError::Shape(why) => format!("{otherwise}: {}", printable(why)),
        JsonError::Repeated | JsonError::TooLarge(_) => error.to_string(),
    })
}

/// Returns the text of an error about untrusted input. The text is truncated and has no control
/// characters.
pub(crate) fn printable(error: impl std::fmt::Display) -> String {
    const LONGEST: usize = 160;
    let text = error.to_string();
    let safe = |c: char| {
        if c.is_control() || !c.is_ascii() {
            '\u{fffd}'
        } else {
            c
        }
    };
    text.chars().take(LONGEST).map(safe).collect()
}
