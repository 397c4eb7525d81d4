//! Log entries: requests to Rekor v1 and v2, responses of Rekor, and the format of entries in
//! Sigstore bundles and in annotations. This module does not verify the entry with a trust root.

use std::collections::BTreeMap;

use bundle_core::diagnostic::Finding;
use bundle_core::reference::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{KeylessSignature, SigningInput, pem_of, unusable};
use crate::verify::Content;
use crate::{dsse, legacy};

/// Kind and version of entries of Rekor v2.
const TILED: (&str, &str) = ("hashedrekord", "0.0.2");
/// Rekor's name for the algorithm of ephemeral keys.
const KEY_DETAILS: &str = "PKIX_ECDSA_P256_SHA_256";
/// Maximum number of hashes of an inclusion proof. A log of 2⁶³ entries has 63 hashes.
const MOST_HASHES: usize = 64;
const MAX_RESPONSE_BYTES: usize = 256 * 1024;

/// Major version of Rekor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogVersion {
    /// Rekor v1. Its entries have an SET with the time of integration.
    One,
    /// Rekor v2 (tiles). The log responds after inclusion, and its entries have no time.
    Two,
}

/// Log entry of a signature.
pub struct Entry(LogResponse);

enum LogResponse {
    One(RekorV1Response),
    Two(RekorV2Response),
}

/// Response of Rekor v1.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RekorV1Response {
    body: String,
    integrated_time: i64,
    #[serde(rename = "logID")]
    log_id: String,
    log_index: u64,
    verification: Verification,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Verification {
    signed_entry_timestamp: String,
    inclusion_proof: Proof,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Proof {
    checkpoint: String,
    hashes: Vec<String>,
    log_index: u64,
    root_hash: String,
    tree_size: u64,
}

/// Response of Rekor v2: the entry in the form that a Sigstore bundle contains. Empty fields of the
/// entry (a time of zero, an empty promise) are omitted.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct RekorV2Response {
    #[serde(default = "zero")]
    log_index: String,
    log_id: TiledLogId,
    kind_version: KindVersion,
    inclusion_proof: TiledProof,
    canonicalized_body: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct TiledLogId {
    key_id: String,
}

#[derive(Deserialize, Serialize)]
struct KindVersion {
    kind: String,
    version: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct TiledProof {
    #[serde(default = "zero")]
    log_index: String,
    root_hash: String,
    tree_size: String,
    #[serde(default)]
    hashes: Vec<String>,
    checkpoint: Checkpoint,
}

#[derive(Deserialize, Serialize)]
struct Checkpoint {
    envelope: String,
}

/// Returns the default of a number field, because the JSON form of protobuf can omit zeros.
fn zero() -> String {
    "0".to_owned()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogEntryBody {
    kind: String,
    api_version: String,
}

impl LogVersion {
    /// Parses the version number of a signing config.
    pub fn of(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            _ => None,
        }
    }

    /// Returns the version number of a signing config.
    pub fn number(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// Returns the URL path for new entries.
    pub fn path(self) -> &'static str {
        match self {
            Self::One => "api/v1/log/entries",
            Self::Two => "api/v2/log/entries",
        }
    }
}

impl KeylessSignature {
    /// Returns the body of the request to Rekor that logs this signature.
    pub fn entry_request(&self, log: LogVersion) -> Vec<u8> {
        match log {
            LogVersion::One => self.request_one(),
            LogVersion::Two => json!({ "hashedRekordRequestV002": {
                "digest": dsse::encode(&self.digest()),
                "signature": self.recorded(),
            } }),
        }
        .to_string()
        .into_bytes()
    }

    fn request_one(&self) -> Value {
        let verifier = dsse::encode(pem_of(&self.certificates.0[0]).as_bytes());
        let signature = dsse::encode(&self.signature);
        match &self.what {
            SigningInput::Statement(payload) => json!({
                "apiVersion": "0.0.1",
                "kind": "dsse",
                "spec": { "proposedContent": {
                    "envelope": self.envelope(payload).to_string(),
                    "verifiers": [verifier],
                } },
            }),
            SigningInput::Bytes(_) | SigningInput::Digest(_) => json!({
                "apiVersion": "0.0.1",
                "kind": "hashedrekord",
                "spec": {
                    "data": { "hash": { "algorithm": "sha256", "value": Digest::from_hash(&self.digest()).hex() } },
                    "signature": { "content": signature, "publicKey": { "content": verifier } },
                },
            }),
        }
    }

    /// Returns the sha256 of the signed bytes.
    pub(super) fn digest(&self) -> Vec<u8> {
        match &self.what {
            SigningInput::Statement(payload) => {
                Sha256::digest(dsse::pre_authentication(payload)).to_vec()
            }
            SigningInput::Bytes(bytes) => Sha256::digest(bytes).to_vec(),
            SigningInput::Digest(digest) => Content::named(digest).sha256(),
        }
    }

    /// Returns the signature with its certificate, in the format of requests and entries of Rekor
    /// v2.
    fn recorded(&self) -> Value {
        json!({
            "content": dsse::encode(&self.signature),
            "verifier": {
                "keyDetails": KEY_DETAILS,
                "x509Certificate": { "rawBytes": dsse::encode(&self.certificates.0[0]) },
            },
        })
    }

    /// Parses the response of a Rekor log of version `log`. For Rekor v2, returns an error if the
    /// entry is for another signature.
    pub fn entered(&self, log: LogVersion, answer: &[u8]) -> Result<Entry, Finding> {
        match log {
            LogVersion::One => Entry::promised(answer),
            LogVersion::Two => self.tiled(answer),
        }
    }

    fn tiled(&self, answer: &[u8]) -> Result<Entry, Finding> {
        let wrong = |why: &str| unusable("the transparency log", why);
        let entry: RekorV2Response = bundle_core::json::read(answer).map_err(|_| {
            wrong("it is not the JSON of an entry with inclusion proof and checkpoint")
        })?;
        let proof = &entry.inclusion_proof;
        if proof.hashes.len() > MOST_HASHES
            || proof.checkpoint.envelope.len() > MAX_RESPONSE_BYTES
            || entry.canonicalized_body.len() > MAX_RESPONSE_BYTES
        {
            return Err(wrong("the entry exceeds the size limit of the log"));
        }
        let is = (
            entry.kind_version.kind.as_str(),
            entry.kind_version.version.as_str(),
        );
        if is != TILED {
            return Err(wrong("the kind of the entry differs from the request"));
        }
        let body: Value = dsse::decode(&entry.canonicalized_body)
            .and_then(|bytes| bundle_core::json::read(&bytes).ok())
            .ok_or_else(|| wrong("the entry is malformed"))?;
        let record = &body["spec"]["hashedRekordV002"];
        let expected = json!({ "algorithm": "SHA2_256", "digest": dsse::encode(&self.digest()) });
        if record["data"] != expected || record["signature"] != self.recorded() {
            return Err(wrong("the entry is for another signature"));
        }
        Ok(Entry(LogResponse::Two(entry)))
    }
}

impl Entry {
    /// Parses the response of Rekor v1: a map with one entry.
    fn promised(answer: &[u8]) -> Result<Self, Finding> {
        let wrong = |why: &str| unusable("the transparency log", why);
        let entries: BTreeMap<String, RekorV1Response> =
            bundle_core::json::read(answer).map_err(|_| {
                wrong("it is not the JSON of an entry with inclusion promise and proof")
            })?;
        let mut entries = entries.into_values();
        match (entries.next(), entries.next()) {
            (Some(entry), None) => Ok(Self(LogResponse::One(entry))),
            _ => Err(wrong("it is not exactly one entry")),
        }
    }

    /// Returns the entry in the format of a Sigstore bundle.
    pub(super) fn in_bundle(&self) -> Result<Value, Finding> {
        match &self.0 {
            LogResponse::One(entry) => entry.in_bundle(),
            LogResponse::Two(entry) => serde_json::to_value(entry)
                .map_err(|_| unusable("the transparency log", "the entry cannot be encoded")),
        }
    }

    /// Returns the entry in the format of cosign 2's annotation, which has an SET and no inclusion
    /// proof.
    pub(super) fn in_annotation(&self) -> Option<Value> {
        let LogResponse::One(RekorV1Response {
            body,
            integrated_time,
            log_id,
            log_index,
            verification,
        }) = &self.0
        else {
            return None;
        };
        Some(json!({
            "SignedEntryTimestamp": verification.signed_entry_timestamp,
            "Payload": { "body": body, "integratedTime": integrated_time, "logIndex": log_index, "logID": log_id },
        }))
    }
}

impl RekorV1Response {
    fn in_bundle(&self) -> Result<Value, Finding> {
        let wrong = |why: &str| unusable("the transparency log", why);
        let kind: LogEntryBody = dsse::decode(&self.body)
            .and_then(|bytes| bundle_core::json::read(&bytes).ok())
            .ok_or_else(|| wrong("the entry is malformed"))?;
        let base64 = |text: &str| {
            legacy::bytes_of(text)
                .map(|bytes| dsse::encode(&bytes))
                .ok_or_else(|| wrong("a hash is malformed"))
        };
        let proof = &self.verification.inclusion_proof;
        let hashes: Vec<String> = proof
            .hashes
            .iter()
            .map(|hash| base64(hash))
            .collect::<Result<_, _>>()?;
        Ok(json!({
            "logIndex": self.log_index.to_string(),
            "logId": { "keyId": base64(&self.log_id)? },
            "kindVersion": { "kind": kind.kind, "version": kind.api_version },
            "integratedTime": self.integrated_time.to_string(),
            "inclusionPromise": { "signedEntryTimestamp": self.verification.signed_entry_timestamp },
            "inclusionProof": {
                "logIndex": proof.log_index.to_string(),
                "rootHash": base64(&proof.root_hash)?,
                "treeSize": proof.tree_size.to_string(),
                "hashes": hashes,
                "checkpoint": { "envelope": proof.checkpoint },
            },
            "canonicalizedBody": self.body,
        }))
    }
}
