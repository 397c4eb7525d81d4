//! Log entries and timestamps of a Sigstore bundle: their fields, the requirements of each bundle
//! version, and the format of the body of an entry. The evidence is verified in
//! [`crate::certified`].

use bundle_core::policy::{Fault, Rejection};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};

use super::{Version, unreadable};
use crate::{dsse, json};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LogEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log_index: Option<Integer>,
    log_id: LogId,
    kind_version: KindVersion,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    integrated_time: Option<Integer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inclusion_promise: Option<Promise>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inclusion_proof: Option<Proof>,
    canonicalized_body: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LogId {
    key_id: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KindVersion {
    kind: String,
    version: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Promise {
    signed_entry_timestamp: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Proof {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log_index: Option<Integer>,
    root_hash: String,
    tree_size: Integer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hashes: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checkpoint: Option<Checkpoint>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Checkpoint {
    #[serde(default)]
    envelope: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Timestamps {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rfc3161_timestamps: Option<Vec<Timestamp>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Timestamp {
    signed_timestamp: String,
}

/// 64-bit integer. In the JSON form of protobuf, a 64-bit integer is a string. Parsers must accept
/// a JSON number too.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Integer(String);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;
        impl Visitor<'_> for Digits {
            type Value = Integer;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Integer, E> {
                Ok(Integer(number.to_string()))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Integer, E> {
                let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                if is_number {
                    Ok(Integer(text.to_owned()))
                } else {
                    Err(E::custom("not a whole number"))
                }
            }
        }
        deserializer.deserialize_any(Digits)
    }
}

/// Kind and version of a log entry. sigstore-verify reads the other fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogEntryBody {
    kind: String,
    api_version: String,
}

impl LogEntry {
    /// Checks that the log entry has the evidence that bundle version `version` requires. Only
    /// Sigstore bundles with a certificate have this requirement.
    pub(super) fn check_evidence(&self, version: Version) -> Result<(), Rejection> {
        let fault = |fault, why: &str| {
            Err(Rejection::Certificate {
                fault,
                why: why.to_owned(),
            })
        };
        match (version, &self.inclusion_proof) {
            (Version::V0_1, _) if self.inclusion_promise.is_none() => {
                fault(Fault::Set, "version 0.1 requires an inclusion promise")
            }
            (Version::V0_1, None) => Ok(()),
            (_, None) => fault(Fault::NoLog, "its entry has no inclusion proof"),
            (_, Some(proof)) => match &proof.checkpoint {
                Some(checkpoint) if !checkpoint.envelope.is_empty() => Ok(()),
                _ => fault(Fault::Checkpoint, "its inclusion proof has no checkpoint"),
            },
        }
    }

    /// Checks the format of the body. Lists are accepted only where the format has lists of
    /// signatures. Any other list is rejected, because a parser could read the fields of an object
    /// from a list by position.
    pub(super) fn check_body(&self) -> Result<(), Rejection> {
        const DAMAGED: &str = "its log entry is damaged";
        let bytes = dsse::decode(&self.canonicalized_body).ok_or_else(|| unreadable(DAMAGED))?;
        let body = json::object(&bytes, DAMAGED)?;
        if !body["spec"].is_object() || !has_objects_alone(&body, "") {
            return Err(unreadable(
                "its log entry has a list where no list is expected",
            ));
        }
        let body: LogEntryBody = json::typed(body, DAMAGED)?;
        if body.kind == self.kind_version.kind && body.api_version == self.kind_version.version {
            Ok(())
        } else {
            Err(Rejection::Certificate {
                fault: Fault::Entry,
                why: "the kind of its entry differs from the kind in the bundle".to_owned(),
            })
        }
    }
}

fn has_objects_alone(value: &serde_json::Value, under: &str) -> bool {
    use serde_json::Value;
    match value {
        Value::Array(values) => {
            under == "signatures"
                && values
                    .iter()
                    .all(|one| one.is_object() && has_objects_alone(one, ""))
        }
        Value::Object(fields) => fields
            .iter()
            .all(|(name, value)| has_objects_alone(value, name)),
        _ => true,
    }
}
