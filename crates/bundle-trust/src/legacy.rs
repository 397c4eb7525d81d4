//! Signatures of cosign 2. The payload is a layer; signature and evidence are annotations. A
//! signature with a certificate is converted into a Sigstore bundle, and its certificate, SCT, SET
//! and timestamps are verified in that form.

use bundle_core::policy::{RawSignature, Rejection};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sigstore_verify::types::Bundle;

use crate::bundle::Bundle as Form;
use crate::dsse::Envelope;
use crate::{certified, der, dsse, json};

/// Media type of the payload.
pub(crate) const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// Media type of an attestation of cosign 2: a DSSE envelope. The certificate and the log entry are
/// in annotations.
pub(crate) const ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";

pub(crate) const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
pub(crate) const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
pub(crate) const CHAIN: &str = "dev.sigstore.cosign/chain";
pub(crate) const LOG: &str = "dev.sigstore.cosign/bundle";
pub(crate) const TIMESTAMP: &str = "dev.sigstore.cosign/rfc3161timestamp";
/// Maximum length of all annotations of one signature, in bytes.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// Returns the signature bytes from the annotation of the layer.
pub(crate) fn signature(raw: &RawSignature) -> Result<Vec<u8>, Rejection> {
    check_annotations(raw)?;
    text(raw, SIGNATURE)
        .and_then(dsse::decode)
        .ok_or_else(|| unreadable("it has no signature in its annotations"))
}

/// Returns an error if the annotations exceed the limit.
pub(crate) fn check_annotations(raw: &RawSignature) -> Result<(), Rejection> {
    let length: usize = raw.annotations.values().map(String::len).sum();
    if length > MAX_ANNOTATION_BYTES {
        return Err(Rejection::TooLarge {
            bytes: length as u64,
            limit: MAX_ANNOTATION_BYTES as u64,
        });
    }
    Ok(())
}

/// Returns `true` if the signature has a certificate annotation.
pub(crate) fn is_certified(raw: &RawSignature) -> bool {
    text(raw, CERTIFICATE).is_some()
}

/// Log entry with its SET, in the annotation that cosign 2 writes.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct LogBundle {
    signed_entry_timestamp: String,
    payload: LogPayload,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogPayload {
    body: String,
    #[serde(rename = "integratedTime")]
    integrated_time: i64,
    #[serde(rename = "logIndex")]
    log_index: u64,
    #[serde(rename = "logID")]
    log_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Timestamped {
    #[serde(rename = "SignedRFC3161Timestamp")]
    timestamp: String,
}

/// Kind and version of a log entry.
#[derive(Deserialize)]
struct LogEntryBody {
    kind: String,
    #[serde(rename = "apiVersion")]
    version: String,
}

/// Converts a signature to a Sigstore bundle.
pub(crate) fn bundle(raw: &RawSignature, signature: &[u8]) -> Result<Bundle, Rejection> {
    let content = json!({
        "messageDigest": {
            "algorithm": "SHA2_256",
            "digest": dsse::encode(&Sha256::digest(&raw.bytes)),
        },
        "signature": dsse::encode(signature),
    });
    bundle_of(raw, "messageSignature", &content)
}

/// Converts an attestation to a Sigstore bundle.
pub(crate) fn bundle_of_envelope(
    raw: &RawSignature,
    envelope: &Envelope,
) -> Result<Bundle, Rejection> {
    // cosign 2 requests a timestamp over the whole envelope. In a Sigstore bundle, a timestamp
    // covers only the signature.
    if text(raw, TIMESTAMP).is_some() {
        return Err(unreadable(
            "an attestation with a timestamp of its envelope, which is not supported",
        ));
    }
    let signatures: Vec<Value> = envelope
        .signatures
        .iter()
        .map(|one| json!({ "sig": one.sig }))
        .collect();
    let content = json!({
        "payload": envelope.payload,
        "payloadType": envelope.payload_type,
        "signatures": signatures,
    });
    bundle_of(raw, "dsseEnvelope", &content)
}

/// Returns a Sigstore bundle of version 0.1 with `content` in the field `field`. This version
/// requires only the SET of a log entry, and cosign 2 stores no other evidence of the log.
fn bundle_of(raw: &RawSignature, field: &str, content: &Value) -> Result<Bundle, Rejection> {
    let mut certificates = certificates(raw, CERTIFICATE)?;
    if certificates.len() != 1 {
        return Err(unreadable("it requires exactly one certificate"));
    }
    // cosign stores the whole chain with the root certificate. Only a trust root may define a root
    // certificate.
    let chain = self::certificates(raw, CHAIN)?;
    certificates.extend(chain.into_iter().filter(|der| !der::is_self_issued(der)));
    let certificates: Vec<Value> = certificates
        .iter()
        .map(|der| json!({"rawBytes": dsse::encode(der)}))
        .collect();
    let log: Vec<Value> = match text(raw, LOG) {
        None => Vec::new(),
        Some(text) => vec![entry(text)?],
    };
    let timestamps: Vec<Value> = match text(raw, TIMESTAMP) {
        None => Vec::new(),
        Some(text) => {
            let found: Timestamped = json::read(text.as_bytes(), "its timestamp is damaged")?;
            vec![json!({"signedTimestamp": found.timestamp})]
        }
    };
    let bundle = json!({
        "mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.1",
        "verificationMaterial": {
            "x509CertificateChain": {"certificates": certificates},
            "tlogEntries": log,
            "timestampVerificationData": {"rfc3161Timestamps": timestamps},
        },
        field: content,
    });
    let (form, version) = Form::read(bundle.to_string().as_bytes())?;
    form.check_certified(version)?;
    certified::read(&form)
}

fn entry(text: &str) -> Result<Value, Rejection> {
    const DAMAGED: &str = "its log entry is damaged";
    let damaged = || unreadable(DAMAGED);
    let log: LogBundle = json::read(text.as_bytes(), DAMAGED)?;
    let body = dsse::decode(&log.payload.body).ok_or_else(damaged)?;
    let body: LogEntryBody = json::read(&body, DAMAGED)?;
    let id = bytes_of(&log.payload.log_id).ok_or_else(damaged)?;
    Ok(json!({
        "logIndex": log.payload.log_index.to_string(),
        "logId": {"keyId": dsse::encode(&id)},
        "kindVersion": {"kind": body.kind, "version": body.version},
        "integratedTime": log.payload.integrated_time.to_string(),
        "inclusionPromise": {"signedEntryTimestamp": log.signed_entry_timestamp},
        "canonicalizedBody": log.payload.body,
    }))
}

/// Decodes hexadecimal digits.
pub(crate) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

fn certificates(raw: &RawSignature, annotation: &str) -> Result<Vec<Vec<u8>>, Rejection> {
    let Some(text) = text(raw, annotation) else {
        return Ok(Vec::new());
    };
    let blocks = pem::parse_many(text).map_err(|_| unreadable("its certificates are not PEM"))?;
    blocks
        .into_iter()
        .map(|block| {
            if block.tag() == "CERTIFICATE" {
                Ok(block.into_contents())
            } else {
                Err(unreadable(
                    "its certificate chain contains a PEM block of another type",
                ))
            }
        })
        .collect()
}

/// Returns the text of an annotation; `None` if the annotation is absent or empty.
fn text<'a>(raw: &'a RawSignature, annotation: &str) -> Option<&'a str> {
    raw.annotations
        .get(annotation)
        .map(String::as_str)
        .filter(|text| !text.trim().is_empty())
}

fn unreadable(why: &str) -> Rejection {
    Rejection::Unreadable(why.to_owned())
}
