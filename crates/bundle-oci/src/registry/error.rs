//! Errors of registry requests. "Not found", "denied" and "unknown result" are different errors.

use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy::Unavailable;
use bundle_core::reference::Digest;

use crate::limits::format_size;
use crate::registry::credential_error::CredentialError;
use crate::registry::http_error::HttpError;
use crate::transfer::rate::TooSlow;
use crate::unpack::UnpackError;

/// Error of a registry operation: the operation, the reference or registry, and the reason.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {doing} {subject}: {reason}")]
pub struct RegistryError {
    /// Operation as a verb: `read the manifest of`.
    pub doing: &'static str,
    /// Reference or registry.
    pub subject: String,
    /// Reason for the failure.
    #[source]
    pub reason: RegistryErrorReason,
}

/// Reason for the failure of a request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RegistryErrorReason {
    /// No connection could be established.
    #[error("{registry} is unreachable ({source})")]
    Unreachable {
        /// Host and port.
        registry: String,
        /// Error of the operating system or the HTTP client.
        source: HttpError,
    },
    /// TLS handshake failed: the registry's certificate is not trusted.
    #[error("the certificate of {registry} is not trusted ({source})")]
    Certificate {
        /// Host and port.
        registry: String,
        /// Reason why the certificate is rejected.
        source: HttpError,
    },
    /// The connection broke in the middle of a response.
    #[error("the connection to {registry} was interrupted ({source})")]
    Cut {
        /// Host and port.
        registry: String,
        /// Error of the operating system or the HTTP client.
        source: HttpError,
    },
    /// No bytes arrived within the time limit, or the call exceeded its deadline.
    #[error("the registry stopped responding ({})", seconds(.after))]
    Stalled {
        /// Deadline that was exceeded.
        after: Duration,
    },
    /// The caller has no memory for the response.
    #[error("no memory is available for the response of the registry")]
    NoMemory,
    /// The download rate of a blob is below the minimum.
    #[error(
        "the registry is too slow: it sent {received_bytes} bytes within {}, and the minimum is {min_rate} bytes per second",
        seconds(.window)
    )]
    TooSlow {
        /// Bytes that arrived.
        received_bytes: u64,
        /// Time over which the rate was measured.
        window: Duration,
        /// Minimum rate, in bytes per second.
        min_rate: u64,
    },
    /// The registry responded with status 404.
    #[error("not found in the registry")]
    NotFound,
    /// The registry responded with status 401 or 403.
    #[error("the registry denies access {who} ({status}{detail})")]
    Denied {
        /// User of the request: `without a login` or `as NAME`.
        who: String,
        /// HTTP status.
        status: u16,
        /// Message of the registry after a separator, such as `: MESSAGE`. Empty if the registry
        /// sent no message.
        detail: String,
    },
    /// The credentials are rejected.
    #[error("{service} rejects the login {who} ({status}{detail})")]
    LoginRefused {
        /// Registry or token service.
        service: String,
        /// User of the login: `as NAME`.
        who: String,
        /// HTTP status.
        status: u16,
        /// Message of the service after a separator, such as `: MESSAGE`. Empty if the service sent
        /// no message.
        detail: String,
    },
    /// A token is rejected or has expired.
    #[error("{service} rejects the token: it has expired, was revoked, or is for another registry")]
    TokenRefused {
        /// Registry.
        service: String,
    },
    /// The registry requires a client certificate, or rejects the certificate that was sent.
    #[error("{registry} {}", if *.given { "rejects the client certificate" } else { "requires a client certificate" })]
    ClientCertificate {
        /// Host and port.
        registry: String,
        /// `true` if a certificate was sent.
        given: bool,
    },
    /// registries.conf blocks the registry.
    #[error("registries.conf blocks `{prefix}`")]
    Blocked {
        /// Prefix of the entry in registries.conf.
        prefix: String,
    },
    /// The registry responded with status 429 or 5xx to the request and to all its retries.
    #[error("the registry is overloaded or failing ({status}{detail})")]
    Busy {
        /// HTTP status.
        status: u16,
        /// Message of the registry after a separator, such as `: MESSAGE`. Empty if the registry
        /// sent no message.
        detail: String,
    },
    /// The registry responded with any other error status.
    #[error("the registry rejects the request ({status}{detail})")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Message of the registry after a separator, such as `: MESSAGE`. Empty if the registry
        /// sent no message.
        detail: String,
    },
    /// The content does not match its digest.
    #[error(
        "the registry returned content with another digest: expected {expected}, received {found}"
    )]
    DigestMismatch {
        /// Expected digest.
        expected: Digest,
        /// Digest of the received bytes.
        found: Digest,
    },
    /// The content does not match its size.
    #[error(
        "the registry returned content of another size: expected {expected} bytes, received {found}"
    )]
    SizeMismatch {
        /// Expected size, in bytes.
        expected: u64,
        /// Number of received bytes. The content may have more bytes.
        found: u64,
    },
    /// The content has more bytes than the limit.
    #[error("{what} is larger than the limit of {}", format_size(*.limit))]
    TooLarge {
        /// Object that is too large.
        what: String,
        /// Limit in bytes.
        limit: u64,
    },
    /// The number of objects of one kind exceeds the limit.
    #[error("there are more than {limit} {what}")]
    TooMany {
        /// Kind of the objects, in the plural.
        what: String,
        /// Limit.
        limit: usize,
    },
    /// Unexpected media type.
    #[error("the registry sent {found}, not {wanted}")]
    WrongMediaType {
        /// Media type of the response.
        found: String,
        /// Expected kind of document.
        wanted: &'static str,
    },
    /// The digest belongs to an image index, and not to an image manifest.
    #[error("the registry sent an index of several images, not one image manifest")]
    Index,
    /// Invalid document or response. The text is the whole message.
    #[error("{0}")]
    Malformed(String),
    /// A rejected redirect.
    #[error("the registry redirects to {to}: {why}")]
    Redirect {
        /// Target without query.
        to: String,
        /// Reason for the rejection.
        why: &'static str,
    },
    /// Stored credentials cannot be read.
    #[error("cannot read the stored credentials for {registry}: {source}")]
    Credentials {
        /// Host and port.
        registry: String,
        /// File or credential helper, and the reason.
        source: CredentialError,
    },
    /// The tag refers to other content.
    #[error("the tag refers to other content, {found}")]
    TagTaken {
        /// Digest to which the tag refers.
        found: Digest,
    },
    /// Concurrent writers kept overwriting the list of referrers.
    #[error("other clients kept overwriting tag {tag}, which lists the signatures")]
    SignatureLost {
        /// Fallback tag of the list.
        tag: String,
    },
    /// Invalid settings of the client.
    #[error("{0}")]
    Settings(String),
    /// The content to upload cannot be read.
    #[error("{}", .0.message)]
    Source(Finding),
    /// The content cannot be unpacked.
    #[error(transparent)]
    Content(UnpackError),
}

pub(in crate::registry) fn seconds(duration: &Duration) -> String {
    if duration.as_secs() == 0 {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{} s", duration.as_secs())
    }
}

impl RegistryError {
    /// Returns `true` if the operation can succeed later without a change by the user.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.reason,
            RegistryErrorReason::Unreachable { .. }
                | RegistryErrorReason::Cut { .. }
                | RegistryErrorReason::Stalled { .. }
                | RegistryErrorReason::NoMemory
                | RegistryErrorReason::TooSlow { .. }
                | RegistryErrorReason::Busy { .. }
                | RegistryErrorReason::SignatureLost { .. }
        )
    }

    /// Returns `true` if the referenced content does not exist or is not a bundle. A retry with the
    /// same digest has the same result, unless the content is pushed later, or a proxy had sent the
    /// response.
    pub fn is_about_content(&self) -> bool {
        match &self.reason {
            RegistryErrorReason::NotFound
            | RegistryErrorReason::Index
            | RegistryErrorReason::Malformed(_)
            | RegistryErrorReason::WrongMediaType { .. }
            | RegistryErrorReason::TooLarge { .. }
            | RegistryErrorReason::TooMany { .. } => true,
            RegistryErrorReason::Content(error) => !matches!(
                error,
                UnpackError::Unwritable { .. } | UnpackError::DigestMismatch { .. }
            ),
            _ => false,
        }
    }

    /// Returns the diagnostic of the error.
    pub fn finding(&self) -> Finding {
        use codes::registry as code;
        let (code, hint) = match &self.reason {
            RegistryErrorReason::Unreachable { registry, .. } | RegistryErrorReason::Cut { registry, .. } => (
                code::UNREACHABLE,
                format!("check that {registry} is the right host and port, and that it is reachable from this machine"),
            ),
            RegistryErrorReason::Certificate { .. } => (
                code::CERTIFICATE,
                "pass the certificate authority as a PEM file (--registry-ca)".to_owned(),
            ),
            RegistryErrorReason::Stalled { .. } | RegistryErrorReason::TooSlow { .. } => {
                (code::STALLED, "try again".to_owned())
            }
            RegistryErrorReason::NotFound => (
                code::NOT_FOUND,
                "check the repository and the tag or digest; some registries report content as missing if the credentials cannot read it".to_owned(),
            ),
            RegistryErrorReason::Denied { .. } => (
                code::DENIED,
                "log in with credentials for this repository (docker login), or use a pull secret for it".to_owned(),
            ),
            RegistryErrorReason::LoginRefused { .. } => (
                code::LOGIN_REFUSED,
                "check name and password, and log in again (docker login)".to_owned(),
            ),
            RegistryErrorReason::TokenRefused { .. } => (
                code::LOGIN_REFUSED,
                "get a new token, or log in with name and password".to_owned(),
            ),
            RegistryErrorReason::ClientCertificate { .. } => (
                code::CLIENT_CERTIFICATE,
                "pass a certificate and its key (--registry-cert, --registry-key), or store them as client.cert and client.key in the registry's folder of certs.d".to_owned(),
            ),
            RegistryErrorReason::Blocked { .. } => (
                code::BLOCKED,
                "use another registry, or ask the administrator of registries.conf to unblock it".to_owned(),
            ),
            RegistryErrorReason::NoMemory | RegistryErrorReason::Busy { .. } => (code::BUSY, "try again later".to_owned()),
            RegistryErrorReason::Refused { .. } => (
                code::REFUSED,
                "see the log of the registry for the reason".to_owned(),
            ),
            RegistryErrorReason::DigestMismatch { .. } | RegistryErrorReason::SizeMismatch { .. } => (
                code::DIGEST_MISMATCH,
                "the content was discarded; check the registry, its storage and proxies".to_owned(),
            ),
            RegistryErrorReason::TooLarge { .. } | RegistryErrorReason::TooMany { .. } => (
                code::TOO_LARGE,
                "check that the reference is that of a bundle".to_owned(),
            ),
            RegistryErrorReason::WrongMediaType { .. } => (
                code::WRONG_MEDIA_TYPE,
                "check that the reference is that of a bundle, and that no proxy responds instead of the registry".to_owned(),
            ),
            RegistryErrorReason::Index => (
                code::WRONG_MEDIA_TYPE,
                "a bundle has no platform, so no image of the index is selected: use the digest of one image in the index (`crane manifest` lists them), push the bundle with `kubectl bundle push`, or build it with `docker buildx build --platform=linux/amd64 --provenance=false`".to_owned(),
            ),
            RegistryErrorReason::Malformed(_) => (
                code::MALFORMED,
                "push it again with `kubectl bundle push`".to_owned(),
            ),
            RegistryErrorReason::Redirect { .. } => (
                code::REDIRECT,
                "no request was sent to the target; correct the configuration of the registry".to_owned(),
            ),
            RegistryErrorReason::Credentials { .. } => (
                code::BAD_CREDENTIALS,
                "correct the file or the credential helper that the message names".to_owned(),
            ),
            RegistryErrorReason::TagTaken { .. } => (
                code::TAG_TAKEN,
                "push under another tag, or move the tag with --overwrite-tag".to_owned(),
            ),
            RegistryErrorReason::SignatureLost { .. } => (code::SIGNATURE_LOST, "sign again".to_owned()),
            RegistryErrorReason::Settings(_) => (
                codes::usage::BAD_ARGUMENT,
                "check the settings for registries".to_owned(),
            ),
            RegistryErrorReason::Source(inner) => {
                return Finding {
                    message: self.to_string(),
                    ..inner.clone()
                };
            }
            RegistryErrorReason::Content(error) => {
                let inner = error.finding();
                return Finding {
                    message: self.to_string(),
                    ..inner
                };
            }
        };
        Finding::error(code, self.to_string()).hint(hint)
    }
}

impl From<TooSlow> for RegistryErrorReason {
    fn from(error: TooSlow) -> Self {
        let TooSlow {
            received_bytes,
            minimum,
        } = error;
        Self::TooSlow {
            received_bytes,
            window: minimum.window,
            min_rate: minimum.min_rate,
        }
    }
}

impl From<RegistryError> for Finding {
    fn from(error: RegistryError) -> Self {
        error.finding()
    }
}

impl From<RegistryError> for Unavailable {
    fn from(error: RegistryError) -> Self {
        Self(error.finding())
    }
}
