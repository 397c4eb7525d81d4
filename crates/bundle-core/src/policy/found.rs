//! What a registry holds beside a digest: raw signatures, and what an examination made of each.
//! Not here: the examination itself (bundle-trust::verify).

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::diagnostic::Finding;

/// A signature as the registry gave it: not looked at yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawSignature {
    /// The bytes of the layer.
    pub bytes: Vec<u8>,
    /// What the registry says it is. It only helps to describe it: the bytes decide.
    pub artifact_type: String,
}

/// Why signatures could not be had at all. Never the same as "there are none".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable(pub Finding);

impl From<Finding> for Unavailable {
    fn from(finding: Finding) -> Self {
        Self(finding)
    }
}

/// The identity of a public key: base64 of the sha256 of its DER form, which is what sigstore bundles call the hint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct KeyId(String);

impl KeyId {
    /// From the hint's text. Two keys are the same when this is the same.
    pub fn new(hint: impl Into<String>) -> Self {
        Self(hint.into())
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A signature that holds: by this key, over our digest, meaning "signed".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The key that made it.
    pub key: KeyId,
    /// What was signed beside the digest (name and version of the package, for instance).
    pub annotations: BTreeMap<String, String>,
}

/// Why something that hangs beside a digest is not a signature of it that we accept. The texts end "one …" or "2 …".
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rejection {
    /// More bytes than a signature may have.
    TooLarge {
        /// How many it has.
        bytes: usize,
        /// How many are read.
        limit: usize,
    },
    /// More signatures than are examined.
    NotExamined {
        /// How many are examined.
        limit: usize,
    },
    /// Not JSON of the expected shape.
    Unreadable(String),
    /// JSON of another kind or version.
    OtherForm(String),
    /// Made with a certificate (keyless), not with a key.
    Keyless,
    /// A DSSE envelope with none or several signatures.
    SignatureCount(usize),
    /// An envelope around something else than an in-toto statement.
    PayloadType(String),
    /// Made by a key that was not asked for.
    OtherKey(KeyId),
    /// Names a key that was asked for, and the signature does not verify with it: altered or forged.
    Forged(KeyId),
    /// A statement of another version.
    StatementType(String),
    /// A statement that means something else than "signed": an attestation.
    Attestation(String),
    /// A statement about none or several subjects.
    SubjectCount(usize),
    /// A statement about another digest.
    OtherDigest(String),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, limit } => {
                write!(f, "with {bytes} bytes, where at most {limit} are read")
            }
            Self::NotExamined { limit } => {
                write!(f, "not looked at, being beyond the first {limit}")
            }
            Self::Unreadable(why) => write!(f, "not readable ({why})"),
            Self::OtherForm(form) => write!(f, "of a form that is not known ({})", shown(form)),
            Self::Keyless => f.write_str("by a certificate instead of a key"),
            Self::SignatureCount(count) => {
                write!(f, "with {count} signatures in one envelope instead of one")
            }
            Self::PayloadType(found) => {
                write!(f, "over a payload of another type ({})", shown(found))
            }
            Self::OtherKey(key) => write!(f, "by another key (hint {})", shown(key.as_str())),
            Self::Forged(key) => write!(
                f,
                "that claims the right key (hint {}) and does not verify with it",
                shown(key.as_str())
            ),
            Self::StatementType(found) => {
                write!(f, "with a statement of another type ({})", shown(found))
            }
            Self::Attestation(predicate) => write!(
                f,
                "that is an attestation ({}) and says nothing about being signed",
                shown(predicate)
            ),
            Self::SubjectCount(count) => write!(f, "about {count} subjects instead of one"),
            Self::OtherDigest(digest) => write!(f, "for another digest ({})", shown(digest)),
        }
    }
}

/// Foreign text in a message: short, on one line, without control characters.
fn shown(text: &str) -> String {
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

/// What an examination made of one raw signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureFound(pub Result<Accepted, Rejection>);

impl SignatureFound {
    /// The signature, if it holds.
    pub fn accepted(&self) -> Option<&Accepted> {
        self.0.as_ref().ok()
    }
}

/// What the registry holds, in words: `the registry holds 2 signatures: one by another key (hint …), one for another digest (sha256:…)`.
///
/// Signatures that are accepted but not by anybody in `wanted` are told as signatures by another key.
pub fn summary(found: &[SignatureFound], wanted: &[&KeyId]) -> String {
    const KINDS_SHOWN: usize = 8;
    if found.is_empty() {
        return "the registry holds no signature for it".to_owned();
    }
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for SignatureFound(result) in found {
        let text = match result {
            Ok(accepted) if wanted.contains(&&accepted.key) => {
                format!("by an accepted key (hint {})", shown(accepted.key.as_str()))
            }
            Ok(accepted) => Rejection::OtherKey(accepted.key.clone()).to_string(),
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
        parts.push(format!("and {more} kinds more"));
    }
    format!(
        "the registry holds {} signature{}: {}",
        found.len(),
        if found.len() == 1 { "" } else { "s" },
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rejection: Rejection) -> SignatureFound {
        SignatureFound(Err(rejection))
    }

    #[test]
    fn says_what_each_signature_is() {
        let ours = KeyId::new("b3Vycw==");
        let found = [
            refused(Rejection::OtherKey(KeyId::new("Zm9yZWlnbg=="))),
            refused(Rejection::OtherDigest("sha256:00".into())),
            refused(Rejection::OtherDigest("sha256:00".into())),
        ];
        assert_eq!(
            summary(&found, &[&ours]),
            "the registry holds 3 signatures: one by another key (hint Zm9yZWlnbg==), 2 for another digest (sha256:00)"
        );
        assert_eq!(
            summary(&[], &[&ours]),
            "the registry holds no signature for it"
        );
    }

    #[test]
    fn foreign_text_cannot_draw_on_the_terminal_or_flood_it() {
        let text = Rejection::Attestation(format!("\u{1b}[31m\n{}", "x".repeat(500))).to_string();
        assert!(!text.contains('\u{1b}') && !text.contains('\n'), "{text:?}");
        assert!(text.len() < 300, "{text}");

        let many: Vec<_> = (0..200)
            .map(|i| refused(Rejection::OtherKey(KeyId::new(format!("key-{i}")))))
            .collect();
        let text = summary(&many, &[]);
        assert!(text.contains("and 192 kinds more"), "{text}");
    }
}
