//! What goes wrong with a registry, and how it is told. "Is not there", "may not be seen" and "cannot be told" are different answers.
//! Not here: archives that are at fault themselves (unpack).

use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy::Unavailable;
use bundle_core::reference::Digest;

use crate::limits::human;
use crate::unpack::UnpackError;

/// A failure: what was tried, on what, and why it did not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {doing} {subject}: {reason}")]
pub struct RegistryError {
    /// What was tried, as a verb: `read the manifest of`.
    pub doing: &'static str,
    /// The reference or registry.
    pub subject: String,
    /// Why it did not work.
    pub reason: Reason,
}

/// Why it did not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// No connection.
    #[error("{registry} does not answer ({cause})")]
    Unreachable {
        /// Host and port.
        registry: String,
        /// The system's words.
        cause: String,
    },
    /// A connection, but no trust in who is at its other end.
    #[error("the certificate of {registry} is not trusted ({cause})")]
    Certificate {
        /// Host and port.
        registry: String,
        /// Why not.
        cause: String,
    },
    /// A connection that ended in the middle of an answer.
    #[error("the connection to {registry} broke off ({cause})")]
    Cut {
        /// Host and port.
        registry: String,
        /// The system's words.
        cause: String,
    },
    /// Bytes stopped coming, or the whole took too long.
    #[error("the registry stopped answering ({})", seconds(.after))]
    Stalled {
        /// The deadline that passed.
        after: Duration,
    },
    /// The caller has no memory for what the registry answers.
    #[error("there is no memory left for the registry's answer")]
    NoMemory,
    /// A blob that comes more slowly than is waited for.
    #[error(
        "the registry is too slow: {came} bytes came within {}, and at least {slowest} a second are needed",
        seconds(.window)
    )]
    TooSlow {
        /// How many bytes came.
        came: u64,
        /// The time that was measured.
        window: Duration,
        /// What is needed, in bytes a second.
        slowest: u64,
    },
    /// 404.
    #[error("the registry does not have it")]
    NotFound,
    /// 401 or 403.
    #[error("the registry refuses access, {who} ({status}{detail})")]
    Denied {
        /// `as nobody in particular` or `as NAME`.
        who: String,
        /// HTTP status.
        status: u16,
        /// What it said, with a separator before it, or nothing.
        detail: String,
    },
    /// The login itself is not accepted.
    #[error("{place} does not accept the login, {who} ({status}{detail})")]
    LoginRefused {
        /// The registry or its token service.
        place: String,
        /// `as NAME`.
        who: String,
        /// HTTP status.
        status: u16,
        /// What it said, with a separator before it, or nothing.
        detail: String,
    },
    /// A token that was given is not accepted, or not any more.
    #[error(
        "{place} does not accept the token: it has expired, was taken back, or is for another registry"
    )]
    TokenRefused {
        /// The registry.
        place: String,
    },
    /// The other side wants a client certificate, or not the one that it got.
    #[error("{registry} {}", if *.given { "does not accept the client certificate" } else { "wants a client certificate" })]
    ClientCertificate {
        /// Host and port.
        registry: String,
        /// Whether it got one.
        given: bool,
    },
    /// The configuration of registries forbids it.
    #[error("the configuration of registries blocks `{prefix}`")]
    Blocked {
        /// The entry's prefix.
        prefix: String,
    },
    /// 429 or 5xx, after a few tries.
    #[error("the registry cannot answer now ({status}{detail})")]
    Busy {
        /// HTTP status.
        status: u16,
        /// What it said, with a separator before it, or nothing.
        detail: String,
    },
    /// Any other status.
    #[error("the registry refuses the request ({status}{detail})")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What it said, with a separator before it, or nothing.
        detail: String,
    },
    /// The bytes are not those that were asked for.
    #[error("the registry lies about a digest: {expected} was asked for, {found} arrived")]
    DigestMismatch {
        /// The digest that was asked for.
        expected: Digest,
        /// The digest of what arrived.
        found: Digest,
    },
    /// Another number of bytes than was announced.
    #[error("the registry lies about a size: {expected} bytes were named, and {found} arrive")]
    SizeMismatch {
        /// What was named.
        expected: u64,
        /// What arrives, or at least that much.
        found: u64,
    },
    /// More than is read.
    #[error("{what} is larger than the limit of {}", human(*.limit))]
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// More of something than is read.
    #[error("there are more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: String,
        /// The limit.
        limit: usize,
    },
    /// Something else than was asked for.
    #[error("the registry sent {found}, not {wanted}")]
    WrongMediaType {
        /// What came.
        found: String,
        /// What was asked for.
        wanted: &'static str,
    },
    /// A document that cannot be read; the text says which and why.
    #[error("{0}")]
    Malformed(String),
    /// A redirect that is not followed.
    #[error("the registry redirects to {to}, {why}")]
    Redirect {
        /// Where to, without query.
        to: String,
        /// Why it is not followed.
        why: &'static str,
    },
    /// Credentials that are stored and cannot be read.
    #[error("the stored credentials for {registry} cannot be read: {cause}")]
    Credentials {
        /// Host and port.
        registry: String,
        /// Which file or helper, and why.
        cause: String,
    },
    /// Other content has the tag.
    #[error("the tag names other content, {found}")]
    TagTaken {
        /// What the tag names.
        found: Digest,
    },
    /// Others kept overwriting the list of referrers.
    #[error("other writers kept overwriting the list of referrers, {tag}")]
    SignatureLost {
        /// The tag that is the list.
        tag: String,
    },
    /// The client itself cannot be made.
    #[error("{0}")]
    Settings(String),
    /// What was to be sent cannot be had.
    #[error("{}", .0.message)]
    Source(Finding),
    /// The content does not unpack.
    #[error(transparent)]
    Content(UnpackError),
}

fn seconds(duration: &Duration) -> String {
    if duration.as_secs() == 0 {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{} s", duration.as_secs())
    }
}

impl RegistryError {
    /// Whether trying again later, with nothing changed, can help.
    pub fn is_passing(&self) -> bool {
        matches!(
            self.reason,
            Reason::Unreachable { .. }
                | Reason::Cut { .. }
                | Reason::Stalled { .. }
                | Reason::NoMemory
                | Reason::TooSlow { .. }
                | Reason::Busy { .. }
                | Reason::SignatureLost { .. }
        )
    }

    /// What a person is told.
    pub fn finding(&self) -> Finding {
        use codes::registry as code;
        let (code, hint) = match &self.reason {
            Reason::Unreachable { registry, .. } | Reason::Cut { registry, .. } => (
                code::UNREACHABLE,
                format!("check that {registry} is the right host and port, and reachable from here"),
            ),
            Reason::Certificate { .. } => (
                code::CERTIFICATE,
                "give the authority's certificate as a PEM file (--registry-ca)".to_owned(),
            ),
            Reason::Stalled { .. } | Reason::TooSlow { .. } => {
                (code::STALLED, "try again".to_owned())
            }
            Reason::NotFound => (
                code::NOT_FOUND,
                "check the repository, and the tag or digest; some registries hide what these credentials may not see".to_owned(),
            ),
            Reason::Denied { .. } => (
                code::DENIED,
                "log in with credentials that reach this repository (docker login), or name a pull secret that does".to_owned(),
            ),
            Reason::LoginRefused { .. } => (
                code::LOGIN_REFUSED,
                "check name and password, and log in again (docker login)".to_owned(),
            ),
            Reason::TokenRefused { .. } => (
                code::LOGIN_REFUSED,
                "get a new token, or log in with name and password".to_owned(),
            ),
            Reason::ClientCertificate { .. } => (
                code::CLIENT_CERTIFICATE,
                "give a certificate and its key (--registry-cert, --registry-key), or put them as client.cert and client.key into the registry's folder of certs.d".to_owned(),
            ),
            Reason::Blocked { .. } => (
                code::BLOCKED,
                "whoever keeps registries.conf does not want it used; take the content from elsewhere".to_owned(),
            ),
            Reason::NoMemory | Reason::Busy { .. } => (code::BUSY, "try again later".to_owned()),
            Reason::Refused { .. } => (
                code::REFUSED,
                "the registry's log says more".to_owned(),
            ),
            Reason::DigestMismatch { .. } | Reason::SizeMismatch { .. } => (
                code::DIGEST_MISMATCH,
                "the registry, its storage or a proxy between is at fault; nothing was used".to_owned(),
            ),
            Reason::TooLarge { .. } | Reason::TooMany { .. } => (
                code::TOO_LARGE,
                "check that the reference names a bundle".to_owned(),
            ),
            Reason::WrongMediaType { .. } => (
                code::WRONG_MEDIA_TYPE,
                "check that the reference names a bundle, and that no proxy answers in the registry's place".to_owned(),
            ),
            Reason::Malformed(_) => (
                code::MALFORMED,
                "push it again with `kubectl bundle push`".to_owned(),
            ),
            Reason::Redirect { .. } => (
                code::REDIRECT,
                "the registry's configuration is at fault; nothing was sent there".to_owned(),
            ),
            Reason::Credentials { .. } => (
                code::BAD_CREDENTIALS,
                "repair or remove that entry, or log in again (docker login)".to_owned(),
            ),
            Reason::TagTaken { .. } => (
                code::TAG_TAKEN,
                "push under another tag, or say that the tag shall move (--overwrite-tag)".to_owned(),
            ),
            Reason::SignatureLost { .. } => (code::SIGNATURE_LOST, "sign again".to_owned()),
            Reason::Settings(_) => (
                codes::usage::BAD_ARGUMENT,
                "check the settings for registries".to_owned(),
            ),
            Reason::Source(inner) => {
                return Finding {
                    message: self.to_string(),
                    ..inner.clone()
                };
            }
            Reason::Content(error) => {
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

/// The last cause, which has the system's words.
pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}
