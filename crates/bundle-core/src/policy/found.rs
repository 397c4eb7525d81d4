//! Signatures of a digest in a registry: before their verification, and with the result of the
//! verification by `bundle-trust::verify`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Serialize;

use super::identity::IdentityName;
use super::key_id::KeyId;
use super::rejection::{Rejection, shown};
use crate::diagnostic::Finding;

/// Signature as read from the registry, not verified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawSignature {
    /// Content of the layer.
    pub bytes: Vec<u8>,
    /// Media type of the layer. This media type identifies signatures of cosign 2. A Sigstore
    /// bundle contains its own media type.
    pub artifact_type: String,
    /// Annotations of the layer. cosign 2 stores the signature and its evidence in these
    /// annotations.
    pub annotations: BTreeMap<String, String>,
    /// Reason why the content was not read; `None` if the content was read.
    pub unread: Option<NotReadReason>,
}

/// Reason why a signature was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotReadReason {
    /// The declared size exceeds the limit of one signature.
    TooLarge {
        /// Declared size in bytes.
        bytes: u64,
        /// Maximum size of a signature in bytes.
        limit: u64,
    },
    /// The signatures before this signature have reached the limit of the total size.
    TotalSizeLimit {
        /// Maximum total size of all signatures, in bytes.
        limit: u64,
    },
    /// The maximum number of signatures was reached before this signature.
    CountLimit {
        /// Maximum number of signatures.
        limit: usize,
    },
}

/// Reason why signatures could not be fetched. The caller must not treat unavailable signatures as
/// missing signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable(pub Finding);

impl From<Finding> for Unavailable {
    fn from(finding: Finding) -> Self {
        Self(finding)
    }
}

/// ID of a trust root: the sha256 of its text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct RootId(String);

impl RootId {
    /// Creates the ID from the text of a digest.
    pub fn new(digest: impl Into<String>) -> Self {
        Self(digest.into())
    }
}

impl fmt::Display for RootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Signer of a valid signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signer {
    /// Holder of this key.
    Key(KeyId),
    /// Identity in a certificate.
    Identity {
        /// Issuer and subject in the certificate.
        name: IdentityName,
        /// Trust roots under which the signature is valid.
        roots: BTreeSet<RootId>,
    },
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "key (key hint {})", shown(key.as_str())),
            Self::Identity { name, .. } => write!(
                f,
                "identity (subject {}, issuer {})",
                shown(&name.subject),
                shown(&name.issuer)
            ),
        }
    }
}

/// Meaning of a valid signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// Signature, which approves the digest.
    Signed,
    /// Attestation, with its predicate type.
    Attested(String),
}

/// Signing time, confirmed by a log or timestamp authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SignedAt {
    /// Time in RFC 3339.
    pub at: String,
    /// Source of the time.
    pub source: TimeSource,
}

/// Source of a signing time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeSource {
    /// The transparency log, which records the time at which it integrates an entry.
    Log,
    /// A timestamp authority.
    TimestampAuthority,
}

impl fmt::Display for TimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Log => "log",
            Self::TimestampAuthority => "timestamp authority",
        })
    }
}

/// Valid signature or attestation of the digest, with its signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidSignature {
    /// Key or identity that signed.
    pub signer: Signer,
    /// Meaning of the payload.
    pub meaning: Meaning,
    /// Annotations that were signed together with the digest, for example name and version of the
    /// package.
    pub annotations: BTreeMap<String, String>,
    /// Signing time; `None` if no trusted log or timestamp authority confirms it.
    pub signed_at: Option<SignedAt>,
    /// Format in which the signature is stored, as text for messages.
    pub form: &'static str,
    /// Names of the checks that succeeded.
    pub checked: Vec<&'static str>,
}

/// Result of the verification of one signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureResult(pub Result<ValidSignature, Rejection>);

impl SignatureResult {
    /// Returns the signature if it is valid and not an attestation.
    pub fn accepted(&self) -> Option<&ValidSignature> {
        self.valid()
            .filter(|accepted| accepted.meaning == Meaning::Signed)
    }

    /// Returns the signature or attestation if it is valid.
    pub fn valid(&self) -> Option<&ValidSignature> {
        self.0.as_ref().ok()
    }
}

/// Returns a summary of the signatures in the registry: `the registry has 2 signatures: one by
/// another key (key hint …), one for another digest (sha256:…)`. Valid signatures for which
/// `wanted` returns `false` are counted as signatures by another signer.
pub fn summary(found: &[SignatureResult], wanted: impl Fn(&ValidSignature) -> bool) -> String {
    summarize(found, |accepted| match &accepted.meaning {
        Meaning::Attested(predicate) => format!("of an attestation ({})", shown(predicate)),
        Meaning::Signed if wanted(accepted) => format!("by an accepted {}", accepted.signer),
        Meaning::Signed => format!("by another {}", accepted.signer),
    })
}

/// Like [`summary`], for required attestations.
pub fn summary_of_attestations(
    found: &[SignatureResult],
    wanted: impl Fn(&ValidSignature) -> bool,
) -> String {
    summarize(found, |accepted| {
        let another = if wanted(accepted) { "" } else { "another " };
        let ValidSignature {
            meaning, signer, ..
        } = accepted;
        match meaning {
            Meaning::Attested(kind) => {
                format!("of an attestation ({}) by {another}{signer}", shown(kind))
            }
            Meaning::Signed => format!("of the image, not of an attestation, by {another}{signer}"),
        }
    })
}

fn summarize(found: &[SignatureResult], words: impl Fn(&ValidSignature) -> String) -> String {
    const KINDS_SHOWN: usize = 8;
    if found.is_empty() {
        return "the registry has no signature for this digest".to_owned();
    }
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for SignatureResult(result) in found {
        let text = match result {
            Ok(accepted) => words(accepted),
            Err(rejection) => rejection.to_string(),
        };
        *kinds.entry(text).or_default() += 1;
    }
    let more = kinds.len().saturating_sub(KINDS_SHOWN);
    let mut parts: Vec<String> = kinds
        .iter()
        .take(KINDS_SHOWN)
        .map(|(text, count)| match count {
            1 => format!("one {text}"),
            count => format!("{count} {text}"),
        })
        .collect();
    if more > 0 {
        parts.push(format!("and {more} other kinds"));
    }
    format!(
        "the registry has {} signature{}: {}",
        found.len(),
        if found.len() == 1 { "" } else { "s" },
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rejection: Rejection) -> SignatureResult {
        SignatureResult(Err(rejection))
    }

    #[test]
    fn summary_describes_each_signature() {
        let found = [
            refused(Rejection::OtherKey(KeyId::new("Zm9yZWlnbg=="))),
            refused(Rejection::OtherDigest("sha256:00".into())),
            refused(Rejection::OtherDigest("sha256:00".into())),
        ];
        assert_eq!(
            summary(&found, |_| false),
            "the registry has 3 signatures: one by another key (key hint Zm9yZWlnbg==), 2 for another digest (sha256:00)"
        );
        assert_eq!(
            summary(&[], |_| false),
            "the registry has no signature for this digest"
        );
    }

    #[test]
    fn summary_escapes_and_truncates_foreign_text() {
        let text = Rejection::PayloadType(format!("\u{1b}[31m\n{}", "x".repeat(500))).to_string();
        assert!(!text.contains('\u{1b}') && !text.contains('\n'), "{text:?}");
        assert!(text.len() < 300, "{text}");

        let many: Vec<_> = (0..200)
            .map(|i| refused(Rejection::OtherKey(KeyId::new(format!("key-{i}")))))
            .collect();
        let text = summary(&many, |_| false);
        assert!(text.contains("and 192 other kinds"), "{text}");
    }
}
