//! Identity of a signer, as verifiers report it. Finds existing signatures of the same signer, and
//! verifies a new signature before it is uploaded.

use std::sync::Arc;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy::{IdentityName, Meaning, RawSignature, Signer, ValidSignature, summary};
use bundle_core::reference::Digest;
use jiff::Timestamp;

use super::Annotations;
use crate::attest::Predicate;
use crate::keys::PublicKey;
use crate::root::Root;
use crate::verify::{self, Content, TrustMaterial};

/// Identity of a signer, as verifiers report it.
pub enum SignerIdentity {
    /// Public key of the signer.
    Key(PublicKey),
    /// Identity in a certificate.
    Certificate {
        /// Identity.
        name: IdentityName,
        /// Trust root of the signing services.
        root: Arc<Root>,
        /// Time of the verification.
        now: Timestamp,
    },
}

impl SignerIdentity {
    /// Returns `true` if `found` contains a signature by this signer over `digest`, in `form`
    /// (`verify::BUNDLE` or `verify::LEGACY`), with at least these annotations.
    pub fn has_signed(
        &self,
        found: &[RawSignature],
        digest: &Digest,
        form: &str,
        annotations: &Annotations,
    ) -> bool {
        let says = |accepted: &ValidSignature| {
            let mut wanted = annotations.iter();
            wanted.all(|(name, value)| accepted.annotations.get(name) == Some(value))
        };
        verify::examine(found, digest, &self.material())
            .iter()
            .filter_map(|found| found.accepted())
            .any(|accepted| accepted.form == form && self.is(&accepted.signer) && says(accepted))
    }

    /// Returns `true` if `found` contains an attestation by this signer with the same predicate
    /// over the same content.
    pub fn has_attested(
        &self,
        found: &[RawSignature],
        digest: &Digest,
        predicate: &Predicate,
    ) -> bool {
        verify::all_attested(found, digest, &self.material())
            .iter()
            .any(|(accepted, said)| {
                self.is(&accepted.signer)
                    && accepted.meaning == Meaning::Attested(predicate.kind().as_str().to_owned())
                    && predicate.is_same_predicate(said)
            })
    }

    /// Verifies a new signature before it is uploaded.
    pub fn check(&self, made: &RawSignature, content: &Content<'_>) -> Result<(), Finding> {
        let found = [verify::examine_one(made, content, &self.material())];
        let holds = |accepted: &ValidSignature| self.is(&accepted.signer);
        if found.iter().filter_map(|found| found.valid()).any(holds) {
            return Ok(());
        }
        let (under, hint) = match self {
            Self::Key(_) => (
                "the signer's own public key",
                "nothing was stored; check the signing device or plugin, which returned a wrong signature",
            ),
            Self::Certificate { .. } => (
                "the trust root",
                "nothing was stored; use the trust root of the signing services",
            ),
        };
        Err(Finding::error(
            codes::trust::SIGNING_FAILED,
            format!(
                "the new signature does not verify with {under}: {}",
                summary(&found, holds)
            ),
        )
        .hint(hint))
    }

    fn material(&self) -> TrustMaterial {
        match self {
            Self::Key(key) => TrustMaterial {
                keys: vec![key.clone()],
                roots: Vec::new(),
                now: Timestamp::UNIX_EPOCH,
            },
            Self::Certificate { root, now, .. } => TrustMaterial {
                keys: Vec::new(),
                roots: vec![Arc::clone(root)],
                now: *now,
            },
        }
    }

    fn is(&self, signer: &Signer) -> bool {
        match (self, signer) {
            (Self::Key(key), Signer::Key(id)) => key.id() == id,
            (Self::Certificate { name, .. }, Signer::Identity { name: made, .. }) => name == made,
            _ => false,
        }
    }
}
