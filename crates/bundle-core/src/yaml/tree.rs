//! Parses one document into a JSON value, as kubectl's YAML parser does.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{Allowance, Document, allowance::NodeCount, keys, limits, problem, split::Part};
use crate::diagnostic::Finding;

/// Parses one document. Returns `None` if the part has only white space and comments.
pub(super) fn read(
    part: Part<'_>,
    file: &str,
    allowance: &mut Allowance,
) -> Result<Option<Document>, Finding> {
    let Some(line) = part.content_line() else {
        return Ok(None);
    };
    allowance.begin_document()?;
    keys::check(part, file, allowance)?;
    let nodes = NodeCount::new(allowance);
    let tree = Tree {
        nodes: &nodes,
        merges: limits::has_merge_key(part.text),
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the only YAML parser of the project"
    )]
    let value = serde_saphyr::with_deserializer_from_str_with_options(
        part.text,
        limits::options(part.text),
        |deserializer| tree.deserialize(deserializer),
    );
    allowance.nodes = nodes.left();
    match value {
        Ok(value) => Ok(Some(Document { value, line })),
        Err(error) => Err(problem::finding(&error, part.line, file)),
    }
}

/// Free stack that one level of nesting requires, in bytes. A debug build uses about 40 KiB.
pub(super) const RED_ZONE: usize = 256 * 1024;
/// Size of a new stack segment, in bytes.
pub(super) const STACK: usize = 4 * 1024 * 1024;

/// Largest integer that a float represents exactly. Floats without fraction up to this value become
/// integers, as in kubectl: `1.0` and `1e3` become `1` and `1000`.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Builds a JSON value with the key rules of kubectl: whole numbers as keys become text.
#[derive(Clone, Copy)]
struct Tree<'a> {
    nodes: &'a NodeCount<'a>,
    /// True if the parser expands merge keys.
    merges: bool,
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.nodes.add()?;
        stacker::maybe_grow(RED_ZONE, STACK, || deserializer.deserialize_any(self))
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
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

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        if value.fract() == 0.0 && value.abs() <= MAX_WHOLE {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the value is whole and has at most 53 bits"
            )]
            return Ok((value as i64).into());
        }
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
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key_seed(Key {
            tree: self,
            map: &map,
        })? {
            let value = entries.next_value_seed(self)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// The next key of a map. The parser adds the line of the key to errors.
struct Key<'a> {
    tree: Tree<'a>,
    /// The entries before this key.
    map: &'a Map<String, Value>,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        let key = match self.tree.deserialize(deserializer)? {
            Value::String(key) => key,
            Value::Number(number) if !number.is_f64() => number.to_string(),
            Value::Array(_) | Value::Object(_) => {
                return Err(D::Error::custom(problem::COMPLEX_KEY));
            }
            other => {
                return Err(D::Error::custom(format_args!(
                    "a key is {other}, but keys must be strings: put it in quotes"
                )));
            }
        };
        if self.map.contains_key(&key) {
            return Err(D::Error::custom(format_args!(
                "{}{key}",
                problem::DUPLICATE_KEY_PREFIX
            )));
        }
        if key == limits::MERGE_KEY && !self.tree.merges {
            return Err(D::Error::custom(
                "a key is `<<` and is written with escapes",
            ));
        }
        Ok(key)
    }
}
