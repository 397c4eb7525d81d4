//! Turns the text of one document into a JSON value, as kubectl's YAML reader would.
//! Not here: splitting files into documents (split), limits.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{Document, limits, split::Part};
use crate::diagnostic::{Finding, codes};

/// Reads one document; none if the part holds only white space and comments.
pub(super) fn read(part: Part<'_>, file: &str) -> Result<Option<Document>, Finding> {
    let Some(line) = part.content_line() else {
        return Ok(None);
    };
    #[expect(clippy::disallowed_methods, reason = "this is the one door")]
    let tree = serde_saphyr::from_str_with_options::<Tree>(part.text, limits::options());
    match tree {
        Ok(Tree(value)) => Ok(Some(Document { value, line })),
        Err(error) => Err(finding(&error, part, file)),
    }
}

fn finding(error: &serde_saphyr::Error, part: Part<'_>, file: &str) -> Finding {
    let message = error.to_string();
    let finding = Finding::error(codes::format::UNREADABLE, message).in_file(file);
    match error.location() {
        Some(at) => {
            finding.at_line(part.line + usize::try_from(at.line()).unwrap_or(1).saturating_sub(1))
        }
        None => finding.at_line(part.line),
    }
}

/// A JSON value, read with the key rules of kubectl: integer keys become strings.
struct Tree(Value);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Tree)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can hold")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i128<E: serde::de::Error>(self, value: i128) -> Result<Value, E> {
        Err(E::custom(format_args!(
            "the number {value} does not fit into 64 bits"
        )))
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Value, E> {
        Err(E::custom(format_args!(
            "the number {value} does not fit into 64 bits"
        )))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("JSON has no number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Tree(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(Tree(key)) = entries.next_key()? {
            let key = match key {
                Value::String(key) => key,
                Value::Number(number) if !number.is_f64() => number.to_string(),
                other => {
                    return Err(A::Error::custom(format_args!(
                        "a key reads as {other}, and keys are text: put it in quotes"
                    )));
                }
            };
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!(
                    "the key `{key}` is there twice"
                )));
            }
            let Tree(value) = entries.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
