//! Formats of a signature: a Sigstore bundle contains a DSSE envelope, and the envelope contains an
//! in-toto statement.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

/// Media type of a Sigstore bundle. The layer has this media type, and the manifest has it as
/// artifact type.
pub(crate) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// Older spelling of [`BUNDLE`], which the first writers of version 0.3 used.
pub(crate) const BUNDLE_OLD_SPELLING: &str = "application/vnd.dev.sigstore.bundle+json;version=0.3";
/// Payload type of the envelope.
pub(crate) const PAYLOAD: &str = "application/vnd.in-toto+json";
/// Type of the in-toto statement, version 1.
pub(crate) const STATEMENT: &str = "https://in-toto.io/Statement/v1";
/// Type of the in-toto statement, version 0.1, which many attestations still use.
pub(crate) const STATEMENT_OLD: &str = "https://in-toto.io/Statement/v0.1";
/// Predicate type of signatures. All other predicate types are attestations.
pub(crate) const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

/// Returns the bytes to sign: the pre-authentication encoding (PAE) of DSSE, with the type
/// [`PAYLOAD`] and this payload.
pub(crate) fn pre_authentication(payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {PAYLOAD} {} ", PAYLOAD.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// Encodes bytes as Base64, as in the JSON form of protobuf.
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes Base64. Returns `None` if the text is invalid.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Decodes URL-safe Base64 without padding, as in a JWT. Returns `None` if the text is invalid.
pub(crate) fn decode_url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

/// A DSSE envelope.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Envelope {
    pub(crate) payload: String,
    pub(crate) payload_type: String,
    #[serde(default)]
    pub(crate) signatures: Vec<EnvelopeSignature>,
}

/// Signature in an envelope.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnvelopeSignature {
    pub(crate) sig: String,
    /// Name that the signer gave to the key. This name is never used to select a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keyid: Option<String>,
}

impl EnvelopeSignature {
    /// Returns a signature without key ID.
    pub(crate) fn new(signature: &[u8]) -> Self {
        Self {
            sig: encode(signature),
            keyid: None,
        }
    }
}
