//! JSON of a trust root. Unknown fields at the top level are ignored, because they could only add
//! trusted parties. Unknown fields below the top level are rejected, because they could restrict a
//! trusted party.

use serde::{Deserialize, Serialize};
use sigstore_verify::trust_root::TrustedRoot;

use crate::json::printable;

/// Parses a trust root. sigstore-verify gets the JSON of the parsed root, so that sigstore-verify
/// and this crate read the same fields.
pub(super) fn read(text: &str) -> Result<TrustedRoot, String> {
    let shape: Shape = bundle_core::json::read(text.as_bytes()).map_err(printable)?;
    let value = serde_json::to_value(shape).map_err(printable)?;
    TrustedRoot::deserialize(value).map_err(printable)
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    media_type: String,
    #[serde(default)]
    tlogs: Vec<Log>,
    #[serde(default)]
    certificate_authorities: Vec<Authority>,
    #[serde(default)]
    ctlogs: Vec<Log>,
    #[serde(default)]
    timestamp_authorities: Vec<Authority>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Log {
    base_url: String,
    hash_algorithm: String,
    public_key: PublicKey,
    #[serde(rename = "logId")]
    id: LogId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checkpoint_key_id: Option<LogId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PublicKey {
    raw_bytes: String,
    key_details: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    valid_for: Option<Window>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LogId {
    key_id: String,
}

/// Validity period. `start` is required by the format.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Window {
    start: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Authority {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<Subject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
    cert_chain: Chain,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    valid_for: Option<Window>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Subject {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    organization: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    common_name: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Chain {
    certificates: Vec<Certificate>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Certificate {
    raw_bytes: String,
}
