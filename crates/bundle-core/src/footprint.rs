//! Memory estimate for a JSON tree, computed while the text is read, without building the tree.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Size of one value without its heap memory, in bytes.
const VALUE: u64 = size_of::<Value>() as u64;
/// Overhead and rounding of each allocation, in bytes.
const ALLOCATION: u64 = 16;
/// Size of one B-tree node of a map, in bytes: it has capacity for eleven keys and values.
const MAP_NODE: u64 = 11 * (VALUE + 24) + 2 * ALLOCATION;
/// Minimum number of entries in a map node after a split.
const MAP_ENTRIES: u64 = 5;
/// Free stack that one level of nesting requires, in bytes.
const RED_ZONE: usize = 256 << 10;
/// Size of a new stack segment, in bytes.
const STACK: usize = 4 << 20;
/// Minimum capacity of a list, in elements.
const MIN_LIST: u64 = 4;

/// Estimated memory of a JSON tree, in bytes. `Footprint::deserialize` reads a value and keeps only
/// this number.
///
/// The estimate is an upper bound: it includes spare capacity of lists, and assumes half-full nodes
/// in maps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Footprint(pub u64);

impl Footprint {
    /// Returns the footprint of a value in memory.
    pub fn of(value: &Value) -> Self {
        // Reading from a `Value` cannot fail, because a `Value` is always valid.
        Self::deserialize(value).unwrap_or(Self(u64::MAX))
    }

    /// Returns the footprint of a text of `bytes` bytes.
    pub fn of_text(bytes: usize) -> Self {
        match bytes {
            0 => Self(0),
            bytes => Self((bytes as u64).next_multiple_of(ALLOCATION) + ALLOCATION),
        }
    }

    /// Returns the footprint of a list, without its elements. While a list grows, its old and its
    /// new allocation exist together.
    pub fn of_list(elements: u64) -> Self {
        match elements {
            0 => Self(0),
            1..=MIN_LIST => Self(MIN_LIST * VALUE + ALLOCATION),
            elements => {
                let capacity = elements.checked_next_power_of_two().unwrap_or(u64::MAX);
                Self(capacity.saturating_mul(VALUE * 3 / 2))
            }
        }
    }

    /// Returns the footprint of a map, without its keys and values.
    pub fn of_map(entries: u64) -> Self {
        match entries {
            0 => Self(0),
            entries => Self(entries.div_ceil(MAP_ENTRIES).saturating_mul(MAP_NODE)),
        }
    }

    /// Returns the sum of both footprints.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl<'de> Deserialize<'de> for Footprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        stacker::maybe_grow(RED_ZONE, STACK, || deserializer.deserialize_any(Counter))
    }
}

struct Counter;

impl<'de> Visitor<'de> for Counter {
    type Value = Footprint;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Footprint, E> {
        Ok(Footprint(0))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Footprint, E> {
        Ok(Footprint(0))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Footprint, E> {
        Ok(Footprint(0))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Footprint, E> {
        Ok(Footprint(0))
    }

    fn visit_unit<E>(self) -> Result<Footprint, E> {
        Ok(Footprint(0))
    }

    fn visit_str<E>(self, text: &str) -> Result<Footprint, E> {
        Ok(Footprint::of_text(text.len()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Footprint, A::Error> {
        let (mut count, mut all) = (0, Footprint(0));
        while let Some(item) = items.next_element()? {
            all = all.plus(item);
            count += 1;
        }
        Ok(all.plus(Footprint::of_list(count)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Footprint, A::Error> {
        let (mut count, mut all) = (0, Footprint(0));
        while let Some((key, value)) = entries.next_entry::<Footprint, Footprint>()? {
            all = all.plus(key).plus(value);
            count += 1;
        }
        Ok(all.plus(Footprint::of_map(count)))
    }
}

/// Returns the footprint of a JSON text without building the tree. Returns an error if the text is
/// not JSON or nested deeper than 128 levels.
pub fn of_json(text: &[u8]) -> Result<Footprint, serde_json::Error> {
    serde_json::from_slice(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the memory that a parsed tree uses. The tests compare this memory with the estimate.
    fn walked(value: &Value) -> u64 {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.capacity() as u64,
            Value::Array(items) => {
                items.capacity() as u64 * VALUE + items.iter().map(walked).sum::<u64>()
            }
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| 24 + VALUE + key.len() as u64 + walked(value))
                .sum(),
        }
    }

    #[test]
    fn estimate_is_never_below_the_memory_of_the_tree() {
        for text in [
            "[]".to_owned(),
            format!("[{}[]]", "[],".repeat(10_000)),
            format!("[{}0]", "[[1]],".repeat(10_000)),
            format!("[{}0]", r#"{"":0},"#.repeat(10_000)),
            format!(
                "[{}0]",
                r#"{"name":"web","image":"registry/a"},"#.repeat(1_000)
            ),
            format!(
                "{{{}\"z\":0}}",
                (0..1_000).fold(String::new(), |all, n| format!("{all}\"k{n}\":\"v\","))
            ),
            format!("\"{}\"", "x".repeat(100_000)),
        ] {
            let tree: Value = serde_json::from_str(&text).unwrap();
            let counted = of_json(text.as_bytes()).unwrap().0;
            assert!(counted >= walked(&tree), "{}", &text[..20.min(text.len())]);
        }
    }

    #[test]
    fn estimate_of_text_is_close_to_its_length() {
        let text = format!("{{\"data\":\"{}\"}}", "x".repeat(3 << 20));
        let counted = of_json(text.as_bytes()).unwrap().0;
        assert!(counted < (3 << 20) + 2048, "{counted}");
    }

    #[test]
    fn estimate_of_tiny_values_is_a_multiple_of_their_text() {
        let text = format!("[{}[]]", "[],".repeat(1 << 20));
        assert!(of_json(text.as_bytes()).unwrap().0 > 10 * text.len() as u64);
        assert!(of_json(&b"[".repeat(1000)).is_err());
    }
}
