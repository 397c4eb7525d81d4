//! Admission stamp: the requester of each part of a spec, with a MAC. Only the pod has the key of
//! the MAC. A stamp is valid for one write, and expires. A seal does not expire. The webhook passes
//! the key and the time to the functions of this module.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use sha2::Sha256;

use super::{canonical, parts::PartRequesters};
use crate::footprint::{self, Footprint};
use crate::reference::Digest;

/// Stored object that a write changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampTarget {
    /// Uid of the object.
    pub uid: String,
    /// Generation after the write.
    pub generation: i64,
}

/// BundleDeployment of a generated Bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratedFor {
    /// Uid of the BundleDeployment.
    pub uid: String,
    /// Hash of the template.
    pub hash: String,
}

/// Content of a stamp. A stamp (annotation `core.rukpak.io/stamp`) is valid for one write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Start of the review, in milliseconds since 1970.
    pub time: i64,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Object that an UPDATE changes; `None` for a CREATE, because the object has no uid yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<StampTarget>,
    /// Digest of the spec as written ([`canonical::written_digest`]).
    pub spec: Digest,
    /// Requester of each part of the spec.
    pub parts: PartRequesters,
    /// Digest of the approved terms of the BundleDeployment ([`super::approval_terms`]); `None` if
    /// the object is not a BundleApproval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approves: Option<Digest>,
    /// BundleDeployment that a Bundle was generated for; `None` for other objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generated_for: Option<GeneratedFor>,
    /// Digest of the reviewed owner references ([`super::owners::owners_digest`]); `None` if the
    /// object had no owner references. Stamps of earlier versions have no such digest, and cover no
    /// owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owners: Option<Digest>,
    /// Start of the review of the write that admitted the spec by the annotation
    /// `core.rukpak.io/admit`, in milliseconds since 1970. A write that only renews the stamp keeps
    /// this time. Stamps of other writes, and of earlier versions, have no such time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted_at: Option<i64>,
}

/// Reason why a stamp or seal is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StampError {
    /// The object has no stamp.
    #[error("the object has no admission stamp: it was written while admission was disabled")]
    Missing,
    /// The stamp cannot be parsed.
    #[error("invalid admission stamp: the annotation was changed, or an earlier version wrote it")]
    Unreadable,
    /// The MAC is invalid. The stamp was made with another key or for another object.
    #[error("the admission stamp was created by another installation or for another object")]
    Forged,
    /// The stamp is for another spec.
    #[error(
        "the admission stamp is for another spec: this spec was written while admission was disabled"
    )]
    OtherSpec,
    /// The stamp is for another write of the object.
    #[error(
        "the admission stamp is for another write: this generation of the object was written while admission was disabled"
    )]
    OtherWrite,
    /// The object was not written at the time of the stamp.
    #[error(
        "the admission stamp and the write have different times: the stamp is from another request, or the clocks of the API server and the webhook differ"
    )]
    OutOfTime,
    /// The stamp expired before the leader made a seal from the stamp.
    #[error("the admission stamp has expired: it is older than 5 minutes")]
    Expired,
    /// The registrations were missing or altered after the stamp was created.
    #[error(
        "the webhook configurations were missing or changed after the admission stamp was created"
    )]
    Gap,
}

const VERSION: u8 = 2;
/// Maximum memory of a parsed stamp or seal, in bytes.
const MOST: Footprint = Footprint(2 << 20);
const STAMP: &str = "core.rukpak.io/stamp";

impl Stamp {
    /// Returns the stamp with its MAC, as the text of the annotation.
    pub fn text(&self, key: &[u8]) -> String {
        sign(key, STAMP, self)
    }

    /// Parses an annotation and verifies its MAC with `key`. The caller checks that the stamp is
    /// for this object and this write.
    pub fn read(key: &[u8], annotation: Option<&str>) -> Result<Self, StampError> {
        verify(key, STAMP, annotation.ok_or(StampError::Missing)?)
    }

    /// Returns the BundleDeployment that a Bundle was generated for, without a check of the MAC.
    /// Only clients use this function, because they do not have the key. As long as the
    /// registrations exist, admission replaces or rejects each stamp that another client writes.
    pub fn unverified_generated_for(annotation: &str) -> Option<GeneratedFor> {
        let stamp: Value = serde_json::from_str(annotation).ok()?;
        GeneratedFor::deserialize(stamp.get("generated_for")?).ok()
    }
}

/// Returns the value of annotation `core.rukpak.io/admit` for exactly this spec of this object.
/// Only the pod can compute this value, so no client can prepare two specs with the same value.
pub fn admit_token(key: &[u8], kind: &str, name: &str, uid: &str, spec: &Value) -> String {
    let text = serde_json::json!([kind, name, uid, canonical::written_digest(spec)]);
    let mac = mac(key, "core.rukpak.io/admit", &text).finalize();
    hex::encode(&mac.into_bytes()[..8])
}

/// Returns six hexadecimal digits for the name of a Bundle if another Bundle already has its usual
/// name. Only the pod can compute these digits.
pub fn alternative_hash(key: &[u8], uid: &str, template_hash: &str, attempt: u8) -> String {
    let text = serde_json::json!([uid, template_hash, attempt]);
    let mac = mac(key, "core.rukpak.io/bundle-name", &text).finalize();
    hex::encode(&mac.into_bytes()[..3])
}

/// Returns `body` with version and MAC, as text. `domain` separates texts of different purposes.
pub(super) fn sign<T: Serialize>(key: &[u8], domain: &str, body: &T) -> String {
    let mut value = serde_json::to_value(body).unwrap_or_default();
    value["v"] = VERSION.into();
    let mac = mac(key, domain, &value).finalize().into_bytes();
    value["mac"] = hex::encode(mac).into();
    canonical::bytes(&value)
}

/// Returns the memory of a parsed stamp or seal. Returns `None` for a text that is never parsed: it
/// is not JSON, or it needs more memory than [`MOST`].
pub(super) fn parsed_memory(text: &str) -> Option<Footprint> {
    let memory = footprint::of_json(text.as_bytes()).ok()?;
    (memory <= MOST).then_some(memory)
}

/// Verifies and parses the output of [`sign`].
pub(super) fn verify<T: DeserializeOwned>(
    key: &[u8],
    domain: &str,
    text: &str,
) -> Result<T, StampError> {
    // The memory is limited, because any user with write permission can set the annotation.
    if parsed_memory(text).is_none() {
        return Err(StampError::Unreadable);
    }
    let mut value: Value = serde_json::from_str(text).map_err(|_| StampError::Unreadable)?;
    let claimed = value
        .as_object_mut()
        .and_then(|members| members.remove("mac"));
    let claimed = claimed.as_ref().and_then(Value::as_str);
    let claimed =
        hex::decode(claimed.ok_or(StampError::Unreadable)?).map_err(|_| StampError::Unreadable)?;
    if value["v"] != VERSION {
        return Err(StampError::Unreadable);
    }
    // The comparison takes constant time.
    mac(key, domain, &value)
        .verify_slice(&claimed)
        .map_err(|_| StampError::Forged)?;
    serde_json::from_value(value).map_err(|_| StampError::Unreadable)
}

fn mac(key: &[u8], domain: &str, value: &Value) -> Hmac<Sha256> {
    // `new_from_slice` cannot fail, because HMAC accepts keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .unwrap_or_else(|_| Hmac::<Sha256>::new(&hmac::digest::Key::<Hmac<Sha256>>::default()));
    mac.update(domain.as_bytes());
    mac.update(&[0]);
    mac.update(canonical::bytes(value).as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::review::Requester;

    const KEY: &[u8] = b"a key of the pod";

    fn ana() -> Requester {
        Requester {
            user: "ana".into(),
            uid: "7".into(),
            groups: vec!["dev".into(), "system:authenticated".into()],
            extra: BTreeMap::from([("scopes".into(), vec!["read".into()])]),
        }
    }

    fn stamp() -> Stamp {
        Stamp {
            time: 1_800_000_000_000,
            kind: "Bundle".into(),
            name: "web".into(),
            target: None,
            spec: canonical::written_digest(&json!({"a": 1})),
            parts: PartRequesters::all(&ana()),
            approves: None,
            generated_for: None,
            owners: None,
            admitted_at: None,
        }
    }

    #[test]
    fn stamp_is_read_as_it_was_made() {
        let updated = Stamp {
            target: Some(StampTarget {
                uid: "u".into(),
                generation: 3,
            }),
            approves: Some(Digest::of(b"terms")),
            generated_for: Some(GeneratedFor {
                uid: "d".into(),
                hash: "abcdef".into(),
            }),
            owners: Some(Digest::of(b"owners")),
            admitted_at: Some(1_800_000_000_000),
            ..stamp()
        };
        for stamp in [stamp(), updated] {
            assert_eq!(Stamp::read(KEY, Some(&stamp.text(KEY))), Ok(stamp));
        }
    }

    #[test]
    fn clients_read_the_deployment_of_a_generated_bundle() {
        let generated = GeneratedFor {
            uid: "d".into(),
            hash: "abcdef".into(),
        };
        let of_pod = Stamp {
            generated_for: Some(generated.clone()),
            ..stamp()
        };
        for (annotation, expected) in [
            (of_pod.text(KEY).as_str(), Some(generated)),
            (&stamp().text(KEY), None),
            ("", None),
            ("[]", None),
            (r#"{"generated_for": "d"}"#, None),
        ] {
            let found = Stamp::unverified_generated_for(annotation);
            assert_eq!(found, expected, "{annotation}");
        }
    }

    #[test]
    fn rejects_stamps_that_were_changed_or_made_with_another_key() {
        let text = stamp().text(KEY);
        let with = |from: &str, to: &str| {
            let changed = text.replace(from, to);
            assert_ne!(changed, text, "{from}");
            Stamp::read(KEY, Some(&changed))
        };
        for (from, to) in [
            ("\"ana\"", "\"root\""),
            ("dev", "system:masters"),
            ("\"read\"", "\"write\""),
            ("1800000000000", "1800000009000"),
            ("\"web\"", "\"other\""),
            ("\"Bundle\"", "\"BundleDeployment\""),
            (
                "\"time\":",
                "\"target\":{\"uid\":\"u\",\"generation\":2},\"time\":",
            ),
        ] {
            assert_eq!(with(from, to), Err(StampError::Forged), "{from}");
        }
        assert_eq!(with("\"v\":2", "\"v\":1"), Err(StampError::Unreadable));
        assert_eq!(
            with("\"mac\":\"", "\"mac\":\"zz"),
            Err(StampError::Unreadable)
        );
        assert_eq!(
            Stamp::read(b"another key", Some(&text)),
            Err(StampError::Forged)
        );
        assert_eq!(Stamp::read(KEY, None), Err(StampError::Missing));
        for bad in ["", "{}", "[]", "null", "{\"v\":2,\"mac\":\"zz\"}"] {
            assert_eq!(
                Stamp::read(KEY, Some(bad)),
                Err(StampError::Unreadable),
                "{bad}"
            );
        }
    }

    #[test]
    fn rejects_mac_of_another_purpose() {
        let sealed = sign(KEY, "core.rukpak.io/seal", &stamp());
        assert_eq!(Stamp::read(KEY, Some(&sealed)), Err(StampError::Forged));
    }

    #[test]
    fn admit_tokens_are_for_one_spec_of_one_object_and_need_the_key() {
        let token = |key: &[u8], name: &str, uid: &str, spec: Value| {
            admit_token(key, "Bundle", name, uid, &spec)
        };
        let one = token(KEY, "web", "u", json!({"a": 1}));
        assert_eq!(one.len(), 16);
        for other in [
            token(b"other", "web", "u", json!({"a": 1})),
            token(KEY, "web2", "u", json!({"a": 1})),
            token(KEY, "web", "u2", json!({"a": 1})),
            token(KEY, "web", "u", json!({"a": 1, "b": null})),
        ] {
            assert_ne!(one, other);
        }
    }
}
