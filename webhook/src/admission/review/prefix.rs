//! The name of the requester in the first bytes of a review, before the whole body has arrived. API
//! servers write `request.userInfo` before `request.object`.
//!
//! This name is only a key of limits. The requester of the review comes from the parsed review.

use std::fmt;

use serde::Deserializer;
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, Unexpected, Visitor};

use super::envelope::USER_NAME_BYTES;

/// The fields that contain the name of the requester, from the review to the name.
const NAME_FIELDS: [&str; 3] = ["request", "userInfo", "username"];

/// The name of the requester in the first bytes of a review.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::admission) enum PrefixRequester {
    /// The name of the requester.
    Known(String),
    /// The bytes end before the end of the name.
    Incomplete,
    /// The bytes contain no valid name, also with any further bytes.
    Unknown,
}

/// Returns the name of the requester of the review that begins with `prefix`. If a field that
/// contains the name occurs twice in `prefix`, the name is unknown.
pub(in crate::admission) fn requester_in_prefix(prefix: &[u8]) -> PrefixRequester {
    let mut name = None;
    let review = NameField {
        fields: &NAME_FIELDS,
        name: &mut name,
    };
    let parsed = review.deserialize(&mut serde_json::Deserializer::from_slice(prefix));
    match (name, parsed) {
        (Some(name), _) => PrefixRequester::Known(name),
        (None, Err(error)) if error.is_eof() => PrefixRequester::Incomplete,
        (None, _) => PrefixRequester::Unknown,
    }
}

/// Parses an object with the first of `fields`, which contains the next of `fields`. Without
/// further fields, parses the name itself. All other fields are ignored.
struct NameField<'a> {
    fields: &'a [&'a str],
    /// The parsed name. It stays recorded if the bytes end later.
    name: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for NameField<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.fields.is_empty() {
            deserializer.deserialize_str(self)
        } else {
            deserializer.deserialize_map(self)
        }
    }
}

impl<'de> Visitor<'de> for NameField<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a review with the name of its requester")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        if text.len() > USER_NAME_BYTES {
            return Err(de::Error::custom("the user name is too long"));
        }
        *self.name = Some(text.to_owned());
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((field, further)) = self.fields.split_first() else {
            return Err(de::Error::invalid_type(Unexpected::Map, &self));
        };
        let mut is_found = false;
        while let Some(key) = map.next_key::<String>()? {
            if key != *field {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if is_found {
                *self.name = None;
                return Err(de::Error::custom("a field occurs twice"));
            }
            is_found = true;
            map.next_value_seed(NameField {
                fields: further,
                name: &mut *self.name,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(name: &str) -> PrefixRequester {
        PrefixRequester::Known(name.to_owned())
    }

    /// Returns the first bytes of a review as API servers write them: with the name of an object
    /// and of a requester, and with a part of the object.
    fn of_api_server(object: &str, requester: &str) -> String {
        let (object, requester) = (json!(object), json!(requester));
        let kind = r#"{"group":"core.rukpak.io","version":"v1alpha1","kind":"Bundle"}"#;
        format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"1","kind":{kind},"requestKind":{kind},"name":{object},"operation":"CREATE","userInfo":{{"username":{requester},"groups":["a"],"extra":{{"username":["eve"]}}}},"object":{{"spec":{{"userInfo":{{"username":"eve"}},"number":-"#
        )
    }

    #[test]
    fn name_is_known_from_its_last_byte_on() {
        let requester = "j\u{fc}rgen \"x\"\\\u{1}\u{1f600}";
        let text = of_api_server("web", requester);
        let written = json!(requester).to_string();
        let end = text.find(&written).unwrap() + written.len();
        for length in 0..=text.len() {
            let expected = if length < end {
                PrefixRequester::Incomplete
            } else {
                known(requester)
            };
            let found = requester_in_prefix(&text.as_bytes()[..length]);
            assert_eq!(found, expected, "{length}");
        }
        // The name ends in the middle of an escape sequence.
        for name in ["\\", "\\u00", "\\ud83d", "\\ud83d\\u"] {
            let text = format!(r#"{{"request":{{"userInfo":{{"username":"{name}"#);
            let found = requester_in_prefix(text.as_bytes());
            assert_eq!(found, PrefixRequester::Incomplete, "{name}");
        }
    }

    #[test]
    fn texts_and_other_fields_do_not_change_the_name() {
        for object in [
            r#"","userInfo":{"username":"eve"},"x":""#,
            r#""}},"request":{"userInfo":{"username":"eve"}}"#,
            r"\",
            r#"\","userInfo":{"username":"eve"},"x":"\"#,
            "\u{0}\n\u{2028}",
        ] {
            let text = of_api_server(object, "ana");
            assert_eq!(requester_in_prefix(text.as_bytes()), known("ana"));
        }
        for text in [
            r#"{"username":"eve","userInfo":{"username":"eve"},"request":{"userInfo":{"username":"ana"#,
            r#"{"request":{"username":"eve","request":{"userInfo":{"username":"eve"}},"userInfo":{"username":"ana"#,
            r#"{"request":{"kind":{"userInfo":{"username":"eve"}},"userInfo":{"request":{"username":"eve"},"username":"ana"#,
            r#"{"request":{"object":{"userInfo":{"username":"eve"}},"userInfo":{"username":"ana"#,
            r#"{"r\u0065quest":{"userInf\u006f":{"user":"eve","Username":"eve","username":"\u0061na"#,
        ] {
            let incomplete = requester_in_prefix(text.as_bytes());
            assert_eq!(incomplete, PrefixRequester::Incomplete, "{text}");
            let complete = format!("{text}\"");
            let found = requester_in_prefix(complete.as_bytes());
            assert_eq!(found, known("ana"), "{text}");
        }
    }

    #[test]
    fn name_after_an_object_that_has_not_arrived_is_not_known() {
        let text = r#"{"request":{"object":{"userInfo":{"username":"eve"},"#;
        let found = requester_in_prefix(text.as_bytes());
        assert_eq!(found, PrefixRequester::Incomplete);
    }

    #[test]
    fn name_is_unknown_if_a_field_occurs_twice() {
        for text in [
            r#"{"request":{},"request":{"userInfo":{"username":"ana"}}}"#,
            r#"{"request":{"userInfo":{"username":"ana"}},"request":"#,
            r#"{"request":{"userInfo":{"username":"ana"}},"r\u0065quest":{}}"#,
            r#"{"request":{"userInfo":{},"userInfo":{"username":"ana"}}}"#,
            r#"{"request":{"userInfo":{"username":"ana"},"userInfo":{"username":"eve"}}}"#,
            r#"{"request":{"userInfo":{"username":"ana","username":"eve"}}}"#,
            r#"{"request":{"userInfo":{"username":"ana","username":"ana"}}}"#,
        ] {
            let found = requester_in_prefix(text.as_bytes());
            assert_eq!(found, PrefixRequester::Unknown, "{text}");
        }
    }

    #[test]
    fn name_is_unknown_in_invalid_reviews_and_if_it_is_too_long() {
        for text in [
            "[]",
            r#"[{"userInfo":{"username":"ana"}}]"#,
            r#""request""#,
            "null",
            "1",
            "x",
            "{}",
            r#"{"request":null}"#,
            r#"{"request":[{"username":"ana"}]}"#,
            r#"{"request":{"userInfo":"ana"}}"#,
            r#"{"request":{"userInfo":["ana"]}}"#,
            r#"{"request":{"userInfo":{"username":1}}}"#,
            r#"{"request":{"userInfo":{"username":{"username":"ana"}}}}"#,
            r#"{"request":{"userInfo":{"groups":["ana"]}}}"#,
            r#"{"request":{"name":"a"b","userInfo":{"username":"ana"}}}"#,
            r#"{"request":{"name":x,"userInfo":{"username":"ana"}}}"#,
            "{\"request\":{\"userInfo\":{\"username\":\"a\nb\"}}}",
        ] {
            let found = requester_in_prefix(text.as_bytes());
            assert_eq!(found, PrefixRequester::Unknown, "{text}");
        }
        let longest = "x".repeat(USER_NAME_BYTES);
        let text = of_api_server("web", &longest);
        assert_eq!(requester_in_prefix(text.as_bytes()), known(&longest));
        let text = of_api_server("web", &format!("{longest}x"));
        let found = requester_in_prefix(text.as_bytes());
        assert_eq!(found, PrefixRequester::Unknown);
    }

    #[test]
    fn bytes_that_are_no_text_give_no_name() {
        for name in [&b"a\xff"[..], b"\xc3", b"\xed\xa0\x80"] {
            let review = [
                &br#"{"request":{"userInfo":{"username":""#[..],
                name,
                b"\"}}}",
            ]
            .concat();
            assert_eq!(requester_in_prefix(&review), PrefixRequester::Unknown);
        }
        let mut deep = br#"{"request":{"object":"#.to_vec();
        deep.resize(10_000, b'[');
        assert_eq!(requester_in_prefix(&deep), PrefixRequester::Incomplete);
    }
}
