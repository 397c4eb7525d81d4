//! Verification of files with a Sigstore bundle, and of signatures without an envelope.

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy::{
    AcceptedSigner, Meaning, RawSignature, Rejection, SignatureResult, ValidSignature,
};
use bundle_core::reference::Digest;
use sha2::{Digest as _, Sha256, Sha512};

use super::{TrustMaterial, VerifiedSignature, described};
use crate::bundle::MessageSignature;
use crate::dsse;
use crate::keys::PublicKey;
use crate::legacy;

/// Signed content: its bytes, or only its digest.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// sha256 of the content.
    pub digest: &'a Digest,
    /// Bytes of the content, if the content is small. Ed25519 needs the bytes, because Ed25519
    /// signs the content instead of its digest.
    pub bytes: Option<&'a [u8]>,
}

impl<'a> Content<'a> {
    /// Returns content for which only the digest is known.
    pub fn named(digest: &'a Digest) -> Self {
        Self {
            digest,
            bytes: None,
        }
    }

    /// Returns the bytes of the digest.
    pub(crate) fn sha256(&self) -> Vec<u8> {
        legacy::bytes_of(self.digest.hex()).unwrap_or_default()
    }
}

/// Verifies the Sigstore bundle of a file, and returns its signature. Returns an error if the
/// signature is invalid, if no signer in `wanted` made it, or if it is an attestation.
pub fn blob(
    bundle: Vec<u8>,
    content: &Content<'_>,
    wanted: &[AcceptedSigner],
    material: &TrustMaterial,
) -> Result<ValidSignature, Finding> {
    let accepted = blob_of_any_kind(bundle, content, wanted, material)?;
    match &accepted.meaning {
        Meaning::Signed => Ok(accepted),
        Meaning::Attested(kind) => Err(refused(
            content,
            wanted,
            &format!("an attestation ({kind}) and not a signature"),
        )),
    }
}

/// Does the same as [`blob`], but accepts attestations too.
pub fn blob_of_any_kind(
    bundle: Vec<u8>,
    content: &Content<'_>,
    wanted: &[AcceptedSigner],
    material: &TrustMaterial,
) -> Result<ValidSignature, Finding> {
    let raw = RawSignature {
        bytes: bundle,
        ..RawSignature::default()
    };
    match examine_one(&raw, content, material).0 {
        Ok(accepted) if wanted.iter().any(|who| who.made(&accepted)) => Ok(accepted),
        Ok(accepted) => Err(refused(
            content,
            wanted,
            &format!("a signature by another {}", accepted.signer),
        )),
        Err(rejection) => Err(refused(
            content,
            wanted,
            &format!("a signature {rejection}"),
        )),
    }
}

/// Verifies one signature over the content.
pub(crate) fn examine_one(
    raw: &RawSignature,
    content: &Content<'_>,
    material: &TrustMaterial,
) -> SignatureResult {
    SignatureResult(
        material
            .examine(raw, content)
            .map(|VerifiedSignature { accepted, .. }| accepted),
    )
}

fn refused(content: &Content<'_>, wanted: &[AcceptedSigner], why: &str) -> Finding {
    let names: Vec<String> = wanted.iter().map(described).collect();
    Finding::error(
        codes::trust::NOT_ACCEPTED,
        format!(
            "not signed by the given {}: the Sigstore bundle contains {why}",
            names.join(", ")
        ),
    )
    .about(content.digest.to_string())
}

/// Verifies that this signature over the content was made with `key`. The digest that the message
/// signature claims must be equal to the digest of the content.
pub(super) fn check(
    message: &MessageSignature,
    key: &PublicKey,
    content: &Content<'_>,
) -> Result<(), Rejection> {
    let unreadable = |why: &str| Rejection::Unreadable(why.to_owned());
    let signature = dsse::decode(&message.signature)
        .ok_or_else(|| unreadable("its signature is not base64"))?;
    let claimed = match &message.message_digest {
        None => None,
        Some(named) if named.algorithm.is_empty() && named.digest.is_empty() => None,
        Some(named) => {
            let bytes = dsse::decode(&named.digest).filter(|bytes| !bytes.is_empty());
            let bytes = bytes.ok_or_else(|| unreadable("its digest is damaged"))?;
            Some((named.algorithm.as_str(), bytes))
        }
    };
    if key.needs_content() {
        let bytes = content.bytes.ok_or_else(|| {
            unreadable(
                "an Ed25519 signature of the content itself, of which only the digest is known",
            )
        })?;
        // If the claimed digest differs, the Sigstore bundle is for another file. If only the
        // signature is invalid, the bundle may be for this file.
        let same = match &claimed {
            None => true,
            Some(("SHA2_256", digest)) => *digest == content.sha256(),
            Some(("SHA2_512", digest)) => digest.as_slice() == Sha512::digest(bytes).as_slice(),
            Some((algorithm, _)) => return Err(other_algorithm(algorithm)),
        };
        if !same {
            return Err(Rejection::OtherDigest("of other content".to_owned()));
        }
        return if key.verifies(bytes, &signature) {
            Ok(())
        } else {
            Err(Rejection::Forged(key.id().clone()))
        };
    }
    let over = match claimed {
        None => content.sha256(),
        Some(("SHA2_256", digest)) if digest.len() == Sha256::output_size() => digest,
        Some(("SHA2_256", _)) => return Err(unreadable("its digest is damaged")),
        Some((algorithm, _)) => return Err(other_algorithm(algorithm)),
    };
    if !key.verifies_digest(&over, &signature) {
        return Err(Rejection::Forged(key.id().clone()));
    }
    let over = Digest::from_hash(&over);
    if over == *content.digest {
        Ok(())
    } else {
        Err(Rejection::OtherDigest(over.to_string()))
    }
}

fn other_algorithm(algorithm: &str) -> Rejection {
    Rejection::OtherDigest(format!("with algorithm {algorithm}"))
}

#[cfg(test)]
mod tests;
