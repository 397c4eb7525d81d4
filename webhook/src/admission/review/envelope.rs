//! The parts of an AdmissionReview that the webhook reads before it parses the whole review: the
//! length of each text, and the memory of the parsed review.

use std::fmt;

use bundle_core::footprint::Footprint;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

/// Maximum length of the uid of a request, in bytes. API servers send UUIDs with a length of 36
/// bytes.
const UID_BYTES: usize = 128;
/// Maximum length of each other short text of a request, in bytes: namespaces, kinds, operations
/// and field managers. Names of namespaces and API groups have at most 253 bytes. A longer name of
/// an object is shortened to this length, because API servers validate this name after the mutating
/// call.
pub(super) const TEXT_BYTES: usize = 512;
/// Maximum length of the user name, in bytes. Stamps, caches and limits contain the user name.
pub(super) const USER_NAME_BYTES: usize = 1 << 10;
/// Maximum memory of the identity of a requester: about 2,000 groups with names of 40 characters.
/// API servers read identities from tokens, certificates and headers, which are far smaller.
const MAX_USER: Footprint = Footprint(256 << 10);
/// Maximum number of copies of the requester's identity in memory during a review:
///
/// - two copies in the request and in the reviewed write
/// - two copies in the facts for the rules
/// - two copies in each of twelve parallel access reviews: one in the request, and one in its text.
///   The access reviews are for eight ConfigMaps, two classes, a Secret and a ServiceAccount.
///
/// The creation of the stamp needs fewer copies, because no access review runs at that time.
const USER_COPIES: u64 = 2 + 2 + 2 * 12;

/// The parts of a review that are read before the review is parsed.
#[derive(Debug, Deserialize)]
pub(in crate::admission) struct Envelope {
    /// `None` if the body is not a review with a request.
    pub(in crate::admission) request: Option<RequestEnvelope>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::admission) struct RequestEnvelope {
    #[serde(default, deserialize_with = "uid_text")]
    pub(in crate::admission) uid: String,
    #[serde(default)]
    pub(in crate::admission) user_info: UserEnvelope,
    #[serde(default)]
    kind: Option<TypeEnvelope>,
    #[serde(default)]
    resource: Option<TypeEnvelope>,
    #[serde(default)]
    request_kind: Option<TypeEnvelope>,
    #[serde(default)]
    request_resource: Option<TypeEnvelope>,
    #[serde(default)]
    sub_resource: Footprint,
    #[serde(default)]
    request_sub_resource: Footprint,
    #[serde(default)]
    namespace: Footprint,
    #[serde(default)]
    operation: Footprint,
    #[serde(default)]
    options: Option<OptionsEnvelope>,
    /// Memory that the object needs after parsing.
    #[serde(default)]
    pub(in crate::admission) object: Footprint,
    #[serde(default)]
    pub(in crate::admission) old_object: Footprint,
}

/// Memory of the texts of a kind or resource.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TypeEnvelope {
    group: Footprint,
    version: Footprint,
    kind: Footprint,
    resource: Footprint,
}

/// Memory of the texts of [`super::WriteOptions`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OptionsEnvelope {
    #[serde(default)]
    field_manager: Footprint,
}

/// Name of the requester, and the memory of the other fields of its identity.
#[derive(Debug, Default, Deserialize)]
pub(in crate::admission) struct UserEnvelope {
    #[serde(default, deserialize_with = "user_name_text")]
    pub(in crate::admission) username: String,
    #[serde(default)]
    uid: Footprint,
    #[serde(default)]
    groups: Footprint,
    #[serde(default)]
    extra: Footprint,
}

/// Parses the uid of a request.
fn uid_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    deserializer.deserialize_str(BoundedText { limit: UID_BYTES })
}

/// Parses a user name.
fn user_name_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let limit = USER_NAME_BYTES;
    deserializer.deserialize_str(BoundedText { limit })
}

/// Copies a text. If the text has more than `limit` bytes, copies only its start, which also has
/// more than `limit` bytes. Therefore the memory of a text is limited before its length is checked.
struct BoundedText {
    limit: usize,
}

impl Visitor<'_> for BoundedText {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        let mut ends = self.limit + 1..text.len();
        let end = ends.find(|end| text.is_char_boundary(*end));
        Ok(text[..end.unwrap_or(text.len())].to_owned())
    }
}

impl RequestEnvelope {
    /// Returns the memory of the parsed request, with all copies of the identity of its requester.
    /// The short texts of the request are not included.
    pub(in crate::admission) fn memory(&self) -> Footprint {
        let objects = self.object.plus(self.old_object);
        let identity = self.user_info.memory().0.saturating_mul(USER_COPIES);
        objects.plus(Footprint(identity))
    }

    /// Returns the first field, except the name, that contains a text of more than [`TEXT_BYTES`]
    /// bytes.
    fn long_text(&self) -> Option<&'static str> {
        let longest = |named: Option<&TypeEnvelope>| {
            named.map_or(Footprint::default(), TypeEnvelope::longest)
        };
        let options = self.options.as_ref();
        let manager = options.map_or(Footprint::default(), |options| options.field_manager);
        let texts = [
            ("kind", longest(self.kind.as_ref())),
            ("resource", longest(self.resource.as_ref())),
            ("requestKind", longest(self.request_kind.as_ref())),
            ("requestResource", longest(self.request_resource.as_ref())),
            ("subResource", self.sub_resource),
            ("requestSubResource", self.request_sub_resource),
            ("namespace", self.namespace),
            ("operation", self.operation),
            ("options.fieldManager", manager),
        ];
        let mut texts = texts.into_iter();
        let (field, _) = texts.find(|(_, text)| *text > Footprint::of_text(TEXT_BYTES))?;
        Some(field)
    }
}

impl TypeEnvelope {
    /// Returns the memory of the longest text.
    fn longest(&self) -> Footprint {
        let texts = [self.group, self.version, self.kind, self.resource];
        texts.into_iter().max().unwrap_or_default()
    }
}

impl UserEnvelope {
    /// Returns the memory of one copy of the identity.
    fn memory(&self) -> Footprint {
        let name = Footprint::of_text(self.username.len());
        name.plus(self.uid).plus(self.groups).plus(self.extra)
    }
}

/// Parses only the parts of a review from which the memory of the parsed review is computed. The
/// error is the message for the client.
pub(in crate::admission) fn weigh(body: &[u8]) -> Result<Envelope, String> {
    let envelope: Envelope = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not an AdmissionReview: {error}"))?;
    // The response contains the uid, so the length of the uid is limited.
    let uid = envelope.request.as_ref().map_or("", |request| &request.uid);
    if uid.len() > UID_BYTES {
        return Err(format!(
            "request.uid of the AdmissionReview has more than {UID_BYTES} bytes"
        ));
    }
    let long = envelope
        .request
        .as_ref()
        .and_then(RequestEnvelope::long_text);
    if let Some(field) = long {
        return Err(format!(
            "request.{field} of the AdmissionReview has a text of more than {TEXT_BYTES} bytes"
        ));
    }
    let user = envelope.request.as_ref().map(|request| &request.user_info);
    if user.is_some_and(|user| user.username.len() > USER_NAME_BYTES) {
        return Err(format!(
            "the user name in userInfo has more than {USER_NAME_BYTES} bytes"
        ));
    }
    if user.is_some_and(|user| user.memory() > MAX_USER) {
        return Err(format!(
            "the uid, groups and extra fields of userInfo need more than {} bytes when parsed",
            MAX_USER.0
        ));
    }
    Ok(envelope)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn weighed(user: &Value) -> Result<Envelope, String> {
        let review = json!({"request": {"uid": "1", "userInfo": user, "object": {"a": "b"}}});
        weigh(review.to_string().as_bytes())
    }

    #[test]
    fn short_texts_of_a_request_are_limited() {
        for (field, pointer) in [
            ("kind", "/kind/group"),
            ("kind", "/kind/version"),
            ("kind", "/kind/kind"),
            ("resource", "/resource/resource"),
            ("requestKind", "/requestKind/kind"),
            ("requestResource", "/requestResource/resource"),
            ("subResource", "/subResource"),
            ("requestSubResource", "/requestSubResource"),
            ("namespace", "/namespace"),
            ("operation", "/operation"),
            ("options.fieldManager", "/options/fieldManager"),
        ] {
            for (bytes, is_limited) in [(TEXT_BYTES, false), (TEXT_BYTES + 1, true)] {
                let mut request = json!({
                    "uid": "1",
                    "kind": {"group": "", "version": "", "kind": ""},
                    "resource": {"resource": ""},
                    "requestKind": {"kind": ""},
                    "requestResource": {"resource": ""},
                    "subResource": "",
                    "requestSubResource": "",
                    "name": "",
                    "namespace": "",
                    "operation": "",
                    "options": {"fieldManager": ""},
                    "object": {"a": "b"},
                });
                *request.pointer_mut(pointer).unwrap() = "x".repeat(bytes).into();
                let review = json!({"request": request}).to_string();
                let error = weigh(review.as_bytes()).err();
                let expected = format!(
                    "request.{field} of the AdmissionReview has a text of more than 512 bytes"
                );
                assert_eq!(error, is_limited.then_some(expected), "{pointer}");
            }
        }
        let absent = json!({"request": {"uid": "1", "requestKind": null, "options": null}});
        assert!(weigh(absent.to_string().as_bytes()).is_ok());
    }

    #[test]
    fn only_the_start_of_a_long_uid_and_user_name_is_copied() {
        for (bytes, is_long) in [(100, false), (4 << 20, true)] {
            let text = "é".repeat(bytes / 2);
            let review = json!({"request": {"uid": text, "userInfo": {"username": text}}});
            let envelope: Envelope = serde_json::from_str(&review.to_string()).unwrap();
            let request = envelope.request.unwrap();
            for (copy, limit) in [
                (&request.uid, UID_BYTES),
                (&request.user_info.username, USER_NAME_BYTES),
            ] {
                assert_eq!(copy.len() > limit, is_long);
                assert!(text.starts_with(copy.as_str()) && copy.capacity() <= limit + 4);
            }
            let error = weigh(review.to_string().as_bytes()).err();
            assert_eq!(error.is_some(), is_long, "{error:?}");
        }
    }

    #[test]
    fn groups_of_the_requester_count_and_are_limited() {
        let memory = |envelope: Envelope| envelope.request.unwrap().memory().0;
        let alone = memory(weighed(&json!({"username": "ana"})).unwrap());
        let groups: Vec<String> = (0..2_000).map(|number| format!("team-{number}")).collect();
        let copy = 2_000 * size_of::<String>() as u64;
        let user = json!({"username": "ana", "groups": groups, "extra": {"scopes": ["a", "b"]}});
        let memory_with_groups = memory(weighed(&user).unwrap());
        assert!(memory_with_groups > alone + USER_COPIES * copy);
        assert!(memory_with_groups < 8 << 20);
        let empty = vec![""; 100_000];
        let long = "x".repeat(256 << 10);
        for user in [
            json!({"groups": empty}),
            json!({"extra": {"a": empty}}),
            json!({"uid": long}),
            json!({"username": long}),
            json!({"username": "x".repeat(USER_NAME_BYTES + 1)}),
        ] {
            let why = weighed(&user).unwrap_err();
            assert!(why.contains("userInfo"), "{why}");
        }
        let longest = json!({"username": "x".repeat(USER_NAME_BYTES)});
        assert!(weighed(&longest).is_ok());
    }
}
