//! Requests to a plugin and their responses: JSON in an argument, the message on stdin, JSON on
//! stdout.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bundle_core::diagnostic::{Finding, codes};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::KmsKey;
use crate::system::process::{self, ProcessError, ProcessGroup, ProcessLimits};
use crate::ui::safe;

/// Version of the protocol.
const VERSION: &str = "v1";
/// SHA-256 in Go's enumeration of hash functions.
const SHA256: u32 = 5;

/// Request to a plugin.
pub(super) enum PluginRequest<'a> {
    /// Request for the public key as PEM text.
    PublicKey,
    /// Request for the signature of this message. The plugin hashes the message if its algorithm
    /// requires a hash.
    Signature(&'a [u8]),
    /// Request for the signature of the content that has this SHA-256 digest.
    SignatureOfDigest(&'a [u8]),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PluginError {
    #[serde(default)]
    error_message: String,
    public_key: Option<PublicKeyAnswer>,
    sign_message: Option<SignatureAnswer>,
}

#[derive(Deserialize)]
struct PublicKeyAnswer {
    #[serde(rename = "publicKeyPEM")]
    pem: String,
}

#[derive(Deserialize)]
struct SignatureAnswer {
    signature: String,
}

/// Hint for a plugin whose response does not follow the protocol.
const WRONG_PROTOCOL: &str = "nothing was stored; check that the plugin implements version v1 of sigstore's KMS plugin protocol";

/// Limits of a plugin. The timeout is sufficient for a user to find and touch a hardware token. The
/// output limit is above the size of the largest response. Stderr is truncated to a readable
/// length.
pub(super) const LIMITS: ProcessLimits = ProcessLimits {
    time: Duration::from_secs(60),
    output: 256 << 10,
    stderr: 4096,
};

/// Sends a request and returns the bytes of the response.
pub(super) fn send_request(
    key: &KmsKey,
    program: &Path,
    what: &PluginRequest<'_>,
    limits: ProcessLimits,
) -> Result<Vec<u8>, Finding> {
    let (question, message): (_, &[u8]) = match what {
        PluginRequest::PublicKey => (public_key_request(), b""),
        PluginRequest::Signature(message) => (signature_request(&json!({})), message),
        PluginRequest::SignatureOfDigest(sha256) => {
            let digest = json!({ "digest": STANDARD.encode(sha256), "hashFunc": SHA256 });
            (signature_request(&digest), b"")
        }
    };
    let deadline = Timestamp::now() + limits.time;
    let arguments = arguments(key, deadline, question).to_string();
    let mut command = Command::new(program);
    command.args([VERSION, &arguments]);
    // The plugin reads the credentials of its KMS from the environment. Therefore only the secrets
    // of this program are removed from the environment.
    crate::system::secrets::remove_own_secrets(&mut command);
    // If a user is present, the plugin may use the terminal.
    let group = if key.attended {
        ProcessGroup::Terminal
    } else {
        ProcessGroup::Own
    };
    let finished = process::run(command, Some(message.to_vec()), group, limits)
        .map_err(|error| failed(key, &error, limits))?;
    let Ok(answer) = serde_json::from_slice::<PluginError>(&finished.output) else {
        let why = match finished.stderr.as_str() {
            "" => format!("it exited with {} and without a response", finished.status),
            stderr => format!("it exited with {}: {}", finished.status, safe(stderr)),
        };
        return Err(invalid_response(key, &why));
    };
    // According to the protocol, the exit status is ignored.
    if !answer.error_message.is_empty() {
        return Err(Finding::error(
            codes::trust::KEY_REFUSED,
            format!(
                "`{}` returned an error for {key}: {}",
                key.program(),
                safe(&answer.error_message)
            ),
        )
        .hint("nothing was stored; check the name of the key, and the credentials and settings of the plugin"));
    }
    let text = match what {
        PluginRequest::PublicKey => answer.public_key.map(|answer| answer.pem),
        PluginRequest::Signature(_) | PluginRequest::SignatureOfDigest(_) => {
            answer.sign_message.map(|answer| answer.signature)
        }
    };
    let text = text
        .filter(|text| !text.is_empty())
        .ok_or_else(|| invalid_response(key, "it is the response to another request"))?;
    STANDARD
        .decode(text)
        .map_err(|_| invalid_response(key, "it is not base64"))
}

fn arguments(key: &KmsKey, deadline: Timestamp, question: Value) -> Value {
    let mut arguments = json!({
        "initOptions": {
            "ctxDeadline": deadline.to_string(),
            "protocolVersion": VERSION,
            "keyResourceID": key.resource(),
            "hashFunc": SHA256,
            "rpcOptions": { "ctxDeadline": deadline.to_string() },
        },
    });
    if let (Value::Object(arguments), Value::Object(question)) = (&mut arguments, question) {
        arguments.extend(question);
    }
    arguments
}

fn public_key_request() -> Value {
    json!({
        "methodName": "publicKey",
        "publicKey": { "publicKeyOptions": { "rpcOptions": {} } },
    })
}

fn signature_request(message: &Value) -> Value {
    json!({
        "methodName": "signMessage",
        "signMessage": { "signOptions": {
            "rpcOptions": {},
            "messageOptions": message,
        } },
    })
}

fn failed(key: &KmsKey, error: &ProcessError, limits: ProcessLimits) -> Finding {
    let (why, hint) = match error {
        ProcessError::Io(error) => (
            format!("cannot be run: {error}"),
            "nothing was stored; check that the plugin is an executable for this platform",
        ),
        ProcessError::Timeout => (
            format!("did not exit within {} s", limits.time.as_secs()),
            "nothing was stored; check that the plugin can reach its KMS or device",
        ),
        ProcessError::OutputLimit => (
            format!("wrote more than {} KiB", limits.output >> 10),
            WRONG_PROTOCOL,
        ),
    };
    Finding::error(
        codes::usage::PROGRAM_FAILED,
        format!("`{}`, which is required for {key}, {why}", key.program()),
    )
    .hint(hint)
}

/// Returns the finding for a response that does not follow the protocol.
pub(super) fn invalid_response(key: &KmsKey, why: &str) -> Finding {
    Finding::error(
        codes::usage::PROGRAM_FAILED,
        format!(
            "the response of `{}` for {key} is invalid: {why}",
            key.program()
        ),
    )
    .hint(WRONG_PROTOCOL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_format_of_sigstore() {
        let key = KmsKey::parse("my-hsm://slot/1", false).unwrap().unwrap();
        let deadline = "2026-04-01T02:47:00Z";
        let init = json!({
            "ctxDeadline": deadline,
            "protocolVersion": "v1",
            "keyResourceID": "slot/1",
            "hashFunc": 5,
            "rpcOptions": { "ctxDeadline": deadline },
        });
        let asked = |question| arguments(&key, deadline.parse().unwrap(), question);
        assert_eq!(
            asked(public_key_request()),
            json!({
                "initOptions": init,
                "methodName": "publicKey",
                "publicKey": { "publicKeyOptions": { "rpcOptions": {} } },
            })
        );
        assert_eq!(
            asked(signature_request(&json!({}))),
            json!({
                "initOptions": init,
                "methodName": "signMessage",
                "signMessage": { "signOptions": {
                    "rpcOptions": {},
                    "messageOptions": {},
                } },
            })
        );
    }
}
