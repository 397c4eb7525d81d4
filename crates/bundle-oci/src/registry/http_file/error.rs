//! Errors of downloads from HTTP servers.

use std::io;
use std::time::Duration;

use reqwest::StatusCode;

use crate::limits::format_size;
use crate::registry::RegistryErrorReason;
use crate::registry::error::seconds;
use crate::registry::http_error::HttpError;
use crate::transfer::archive_file::{self, ArchiveFileError, StoreError};
use crate::unpack::UnpackError;

/// A failed download.
#[derive(Debug, thiserror::Error)]
#[error("GET {url}: {reason}")]
pub struct HttpFileError {
    /// URL without its query.
    pub url: String,
    /// Reason for the failure.
    #[source]
    pub reason: HttpFileReason,
}

/// Reason for the failure of a download.
#[derive(Debug, thiserror::Error)]
pub enum HttpFileReason {
    /// No connection could be established.
    #[error("{host} is unreachable ({source})")]
    Unreachable {
        /// Host and port.
        host: String,
        /// Error of the operating system or the HTTP client.
        source: HttpError,
    },
    /// The connection broke in the middle of a response.
    #[error("the connection to {host} was interrupted ({source})")]
    Cut {
        /// Host and port.
        host: String,
        /// Error of the operating system or the HTTP client.
        source: HttpError,
    },
    /// No bytes arrived within the time limit, or the transfer exceeded its deadline.
    #[error("the server stopped responding ({})", seconds(.after))]
    Stalled {
        /// Deadline that was exceeded.
        after: Duration,
    },
    /// The rate is below the minimum.
    #[error(
        "the server is too slow: it sent {received_bytes} bytes within {}, and the minimum is {min_rate} bytes per second",
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
    /// TLS handshake failed: the server's certificate is not trusted.
    #[error("the certificate of {host} is not trusted ({source})")]
    Certificate {
        /// Host and port.
        host: String,
        /// Reason why the certificate is rejected.
        source: HttpError,
    },
    /// The server requires a client certificate, or rejects the certificate that was sent.
    #[error("{host} requires another client certificate")]
    ClientCertificate {
        /// Host and port.
        host: String,
    },
    /// The server responded with a status other than 200. The error message is the same as in
    /// RukPak.
    #[error("unexpected status {text:?}")]
    Status {
        /// Status code.
        code: u16,
        /// Status code and its meaning.
        text: String,
    },
    /// The address of the server is not allowed.
    #[error("the request to {to} is not allowed: {why}")]
    Address {
        /// Host and port.
        to: String,
        /// Reason, such as `the target is in a private network`.
        why: &'static str,
    },
    /// The URL or the target of a redirect has no TLS, and plain HTTP is not allowed for its host.
    #[error("{host} is not an allowed insecure host, and the URL has no TLS")]
    NoTls {
        /// Host and port.
        host: String,
    },
    /// A rejected redirect.
    #[error("the server redirects to {to}: {why}")]
    Redirect {
        /// Host and port of the target.
        to: String,
        /// Reason for the rejection.
        why: &'static str,
    },
    /// The response has more bytes than the limit.
    #[error("the archive is larger than the limit of {}", format_size(*.limit))]
    TooLarge {
        /// Limit in bytes.
        limit: u64,
    },
    /// The response is not compressed with gzip. The beginning of the message is the same as in
    /// RukPak.
    #[error(
        "gzip: invalid header: the response is not a gzipped tar archive{}",
        if .media_type.is_empty() { String::new() } else { format!(" (media type {media_type:?})") }
    )]
    NotGzip {
        /// Media type in the response. The text can be empty.
        media_type: String,
    },
    /// The archive cannot be unpacked.
    #[error(transparent)]
    Content(UnpackError),
    /// The temporary file cannot be written or read.
    #[error("cannot store the archive: {0}")]
    Storage(#[source] io::Error),
    /// Invalid URL, credentials or settings.
    #[error("{0}")]
    Settings(String),
}

impl HttpFileReason {
    pub(super) fn status(status: StatusCode) -> Self {
        let code = status.as_u16();
        let text = match status.canonical_reason() {
            Some(meaning) => format!("{code} {meaning}"),
            None => code.to_string(),
        };
        Self::Status { code, text }
    }

    /// Returns `true` if the download can succeed later without a change by the user.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Cut { .. }
            | Self::Stalled { .. }
            | Self::TooSlow { .. } => true,
            Self::Status { code, .. } => *code == 429 || *code >= 500,
            _ => false,
        }
    }
}

impl From<StoreError<Self>> for HttpFileReason {
    fn from(error: StoreError<Self>) -> Self {
        match error {
            StoreError::Stream(reason) => reason,
            StoreError::Storage(error) => Self::Storage(error),
            StoreError::Stopped => Self::Content(archive_file::stopped()),
        }
    }
}

impl From<ArchiveFileError> for HttpFileReason {
    fn from(error: ArchiveFileError) -> Self {
        match error {
            ArchiveFileError::Storage(error) => Self::Storage(error),
            ArchiveFileError::Content(error) => Self::Content(error),
        }
    }
}

impl From<RegistryErrorReason> for HttpFileReason {
    fn from(reason: RegistryErrorReason) -> Self {
        match reason {
            RegistryErrorReason::Unreachable { registry, source } => Self::Unreachable {
                host: registry,
                source,
            },
            RegistryErrorReason::Cut { registry, source } => Self::Cut {
                host: registry,
                source,
            },
            RegistryErrorReason::Certificate { registry, source } => Self::Certificate {
                host: registry,
                source,
            },
            RegistryErrorReason::ClientCertificate { registry, .. } => {
                Self::ClientCertificate { host: registry }
            }
            RegistryErrorReason::Stalled { after } => Self::Stalled { after },
            RegistryErrorReason::TooSlow {
                received_bytes,
                window,
                min_rate,
            } => Self::TooSlow {
                received_bytes,
                window,
                min_rate,
            },
            RegistryErrorReason::Redirect { to, why } => Self::Redirect { to, why },
            other => Self::Settings(other.to_string()),
        }
    }
}
