//! Reasons for rejecting a signature, one variant for each fault or forgery.

use std::fmt;

use super::key_id::KeyId;

/// Maximum number of certificates, log entries and timestamps of one signature in total.
pub const MOST_EVIDENCE: usize = 16;

/// Invalid part of a signature that was made with a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The certificate is invalid or of an unsupported kind.
    Unreadable,
    /// The chain does not end at an authority of the trust root.
    Chain,
    /// The certificate was not valid at signing time.
    Validity,
    /// The certificate has no valid SCT.
    Sct,
    /// The log is not in the trust root.
    UnknownLog,
    /// The log entry is missing.
    NoLog,
    /// The inclusion proof of the log entry is invalid.
    InclusionProof,
    /// The checkpoint of the log entry is not signed by the log.
    Checkpoint,
    /// The SET of the log entry is invalid: the SET or its time was altered.
    Set,
    /// The log entry does not contain this signature, this key and this content.
    Entry,
    /// The time of the log entry is in the future, or outside of the certificate's validity.
    LogTime,
    /// No timestamp authority of the trust root made the timestamp, or the timestamp does not
    /// belong to this signature.
    Timestamp,
    /// No trusted log or timestamp authority confirms the signing time.
    NoTime,
    /// The signing time is in the future.
    Future,
    /// The certificate has no subject or no issuer.
    NoIdentity,
    /// The signature is invalid for the certificate: altered or forged.
    Forged,
    /// The signature covers other content.
    Content,
    /// The trust root is unusable for this signature.
    Root,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "with a malformed certificate or evidence",
            Self::Chain => "by a certificate that no trusted authority issued",
            Self::Validity => "by a certificate that was not valid at the signing time",
            Self::Sct => "by a certificate without a valid signed certificate timestamp (SCT)",
            Self::UnknownLog => "with an entry of an untrusted log",
            Self::NoLog => "without an entry in a transparency log",
            Self::InclusionProof => "with a log entry that has an invalid inclusion proof",
            Self::Checkpoint => "with a log entry that has an invalid checkpoint",
            Self::Set => "with a log entry that has an invalid inclusion promise",
            Self::Entry => "with a log entry for other content",
            Self::LogTime => "with an invalid time of the log entry",
            Self::Timestamp => "with an invalid timestamp",
            Self::NoTime => "by a certificate, without a trusted time",
            Self::Future => "with a signing time in the future",
            Self::NoIdentity => "by a certificate without an identity",
            Self::Forged => "that does not verify with its certificate",
            Self::Content => "by a certificate, for other content",
            Self::Root => "that the trust root cannot verify",
        })
    }
}

/// Reason for rejecting a signature of a digest. In messages the text follows "one …" or "2 …".
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rejection {
    /// The signature exceeds the size limit.
    TooLarge {
        /// Size of the signature in bytes.
        bytes: u64,
        /// Maximum size in bytes.
        limit: u64,
    },
    /// The signature was not verified, because the number of signatures exceeds the limit.
    NotExamined {
        /// Number of signatures that are verified.
        limit: usize,
    },
    /// Duplicate of another signature.
    Duplicate,
    /// The verification of the signature requires more public-key operations than allowed.
    TooCostly {
        /// Number of public-key operations that the verification requires.
        operations: usize,
    },
    /// The signatures before this signature have reached the limit of the total size.
    TotalSizeLimit {
        /// Maximum total size of all signatures, in bytes.
        limit: u64,
    },
    /// The content is not JSON in the expected format.
    Unreadable(String),
    /// The content is JSON of another kind or version.
    OtherForm(String),
    /// The signature has a certificate (keyless), but no identities are accepted.
    Keyless,
    /// The signature has more log entries, timestamps and certificates than the limit. Contains
    /// their number.
    TooMuchEvidence(usize),
    /// The signature has a certificate, and a part of the certificate is invalid.
    Certificate {
        /// Invalid part of the certificate or of its evidence.
        fault: Fault,
        /// Message of the verifier.
        why: String,
    },
    /// The DSSE envelope has no signature or several signatures. Contains their number.
    SignatureCount(usize),
    /// The payload of the envelope is not an in-toto statement. Contains its type.
    PayloadType(String),
    /// The key of the signature is not accepted.
    OtherKey(KeyId),
    /// The signature is not valid with any accepted key, and has no key hint.
    NoSuchKey,
    /// The signature is not valid with the accepted key that its key hint names: the signature was
    /// altered or forged.
    Forged(KeyId),
    /// The in-toto statement has an unsupported type or version. Contains the type.
    StatementType(String),
    /// The payload of cosign 2 is not an image signature. Contains its type.
    PayloadKind(String),
    /// The statement has no subject or several subjects. Contains their number.
    SubjectCount(usize),
    /// The signature is for another digest. Contains this digest.
    OtherDigest(String),
}

impl Rejection {
    /// Returns the rejection with truncated texts of the signature. Rejections are cached, and a
    /// signature can have 1 MiB of text.
    #[must_use]
    pub fn shortened(self) -> Self {
        const MAX_REASON_LENGTH: usize = 200;
        let cut = |text: String| text.chars().take(MAX_REASON_LENGTH).collect::<String>();
        let cut_id = |key: KeyId| {
            KeyId::new(
                key.as_str()
                    .chars()
                    .take(MAX_REASON_LENGTH)
                    .collect::<String>(),
            )
        };
        match self {
            Self::Unreadable(text) => Self::Unreadable(cut(text)),
            Self::OtherForm(text) => Self::OtherForm(cut(text)),
            Self::Certificate { fault, why } => Self::Certificate {
                fault,
                why: cut(why),
            },
            Self::PayloadType(text) => Self::PayloadType(cut(text)),
            Self::OtherKey(hint) => Self::OtherKey(cut_id(hint)),
            Self::Forged(hint) => Self::Forged(cut_id(hint)),
            Self::StatementType(text) => Self::StatementType(cut(text)),
            Self::PayloadKind(text) => Self::PayloadKind(cut(text)),
            Self::OtherDigest(text) => Self::OtherDigest(cut(text)),
            Self::TooLarge { .. }
            | Self::NotExamined { .. }
            | Self::Duplicate
            | Self::TooCostly { .. }
            | Self::TotalSizeLimit { .. }
            | Self::Keyless
            | Self::TooMuchEvidence(_)
            | Self::SignatureCount(_)
            | Self::NoSuchKey
            | Self::SubjectCount(_) => self,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, limit } => {
                write!(f, "with {bytes} bytes, more than the limit of {limit}")
            }
            Self::NotExamined { limit } => {
                write!(f, "not verified, because only the first {limit} are")
            }
            Self::Duplicate => f.write_str("that duplicates an earlier one"),
            Self::TooCostly { operations } => write!(
                f,
                "not verified, because its {operations} public-key operations exceed the remaining limit for all signatures"
            ),
            Self::TotalSizeLimit { limit } => {
                write!(f, "not verified, because only the first {limit} bytes are")
            }
            Self::Unreadable(why) => write!(f, "that is malformed ({why})"),
            Self::OtherForm(form) => write!(f, "of an unknown format ({})", shown(form)),
            Self::Keyless => f.write_str("by a certificate instead of a key"),
            Self::TooMuchEvidence(count) => write!(
                f,
                "with {count} certificates, log entries and timestamps, more than the limit of {MOST_EVIDENCE}"
            ),
            Self::Certificate { fault, why } => write!(f, "{fault} ({})", shown(why)),
            Self::SignatureCount(count) => {
                write!(f, "with {count} signatures in one envelope instead of one")
            }
            Self::PayloadType(found) => {
                write!(f, "over a payload of another type ({})", shown(found))
            }
            Self::OtherKey(key) => write!(f, "by another key (key hint {})", shown(key.as_str())),
            Self::NoSuchKey => f.write_str("by another key, or altered"),
            Self::Forged(key) => write!(
                f,
                "that claims an accepted key (key hint {}) but does not verify with it",
                shown(key.as_str())
            ),
            Self::StatementType(found) => {
                write!(f, "with a statement of another type ({})", shown(found))
            }
            Self::PayloadKind(found) => {
                write!(
                    f,
                    "over a payload that is not an image signature ({})",
                    shown(found)
                )
            }
            Self::SubjectCount(count) => write!(f, "about {count} subjects instead of one"),
            Self::OtherDigest(digest) => write!(f, "for another digest ({})", shown(digest)),
        }
    }
}

/// Shortens a text of a signature for a message: on one line, without control characters.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 96;
    let mut shown: String = text
        .chars()
        .take(LONGEST)
        .map(|c| {
            if c.is_control() || !c.is_ascii() {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    if shown.is_empty() {
        shown.push_str("empty");
    }
    shown
}
