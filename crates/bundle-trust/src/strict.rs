//! JSON that reads the same to everybody: a key stands once, text is Unicode, and nothing follows. What two readers could take for two different
//! things is refused before anybody looks at what it says. Not here: what any of it means.

use std::collections::HashSet;
use std::fmt;

use bundle_core::policy::Rejection;
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

/// Reads `bytes`, if they can only be read in one way. `otherwise` says what they are if they are something else.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8], otherwise: &str) -> Result<T, Rejection> {
    if let Err(error) = serde_json::from_slice::<Once>(bytes) {
        let why = if error.is_data() {
            "a key stands twice in its JSON"
        } else {
            otherwise
        };
        return Err(Rejection::Unreadable(why.to_owned()));
    }
    serde_json::from_slice(bytes).map_err(|_| Rejection::Unreadable(otherwise.to_owned()))
}

/// Any value in which no key stands twice.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Walk)
    }
}

struct Walk;

impl<'de> Visitor<'de> for Walk {
    type Value = Once;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Once, A::Error> {
        while list.next_element::<Once>()?.is_some() {}
        Ok(Once)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Once, A::Error> {
        let mut seen: HashSet<String> = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<Once>()?;
            if !seen.insert(key) {
                return Err(A::Error::custom("a key stands twice"));
            }
        }
        Ok(Once)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    fn read(bytes: &[u8]) -> Option<Value> {
        super::read(bytes, "other").ok()
    }

    #[test]
    fn reads_what_reads_the_same_to_everybody() {
        for text in [
            r#"{"a":{"b":[1,-2,3.5,null,true,"x\u00e9"]},"b":{}}"#,
            "[]",
            " 1 ",
        ] {
            assert!(read(text.as_bytes()).is_some(), "{text}");
        }
        let same_name_elsewhere = r#"{"a":{"a":1},"b":[{"a":1},{"a":2}]}"#;
        assert_eq!(
            read(same_name_elsewhere.as_bytes()),
            Some(json!({"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}))
        );
    }

    #[test]
    fn refuses_what_two_readers_could_take_for_two_things() {
        for bytes in [
            br#"{"a":1,"a":2}"#.as_slice(),
            br#"{"a":1,"\u0061":1}"#,
            br#"{"x":[{"y":{"a":1,"b":2,"a":1}}]}"#,
            b"{\"a\":\"\xff\"}",
            br#"{"a":"\ud800"}"#,
            br#"{"a":1e999}"#,
            br#"{"a":1} {}"#,
            b"\xef\xbb\xbf{}",
            b"{'a':1}",
            b"{\"a\":1,}",
            b"{\"a\":01}",
            b"{\"a\":NaN}",
            b"",
        ] {
            let text = String::from_utf8_lossy(bytes);
            assert!(read(bytes).is_none(), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(read(deep.as_bytes()).is_none());
    }
}
