//! Verification of signatures: key or certificate, digest, and meaning of the payload. A valid
//! signature is not sufficient to admit content: `bundle_core::policy` decides.

mod attested;
mod blob;
mod budget;
mod signature;

use std::sync::Arc;

use bundle_core::{
    diagnostic::{Finding, Findings, codes},
    policy::{
        AcceptedSigner, NotReadReason, RawSignature, Rejection, SignatureResult, ValidSignature,
        summary,
    },
    reference::{Digest, PinnedReference},
};
use jiff::Timestamp;

use budget::Budget;

use crate::{keys::PublicKey, root::Root};

/// Maximum size of one signature, in bytes.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Maximum number of examined signatures of one digest. Further signatures are reported and not
/// accepted.
pub const MAX_SIGNATURES: usize = 256;

pub(crate) use attested::all_attested;
pub use attested::{Attestation, attested, blob_attested};
pub(crate) use blob::examine_one;
pub use blob::{Content, blob, blob_of_any_kind};
pub use budget::SHARE;

/// Name of the signature form "Sigstore bundle" in output.
pub const BUNDLE: &str = "sigstore bundle";
/// Name of the signature form of cosign 2 (`sha256-….sig` tag) in output.
pub const LEGACY: &str = "cosign 2";

/// Keys and trust roots with which signatures are verified, and the time of the verification.
#[derive(Debug, Clone)]
pub struct TrustMaterial {
    /// Accepted keys.
    pub keys: Vec<PublicKey>,
    /// Trust roots for certificates. For a signature that is made with a key, a trust root only
    /// confirms the signing time.
    pub roots: Vec<Arc<Root>>,
    /// Time of the examination.
    pub now: Timestamp,
}

/// Verifies each signature over `digest`, in order. A valid signature is made with one of the keys
/// in `material`, or is valid under one of its trust roots.
pub fn examine(
    signatures: &[RawSignature],
    digest: &Digest,
    material: &TrustMaterial,
) -> Vec<SignatureResult> {
    each(signatures, digest, material)
        .map(|found| SignatureResult(found.map(|opened| opened.accepted)))
        .collect()
}

/// Does the same as [`examine`], but stops when `go_on` returns `false`. `go_on` is called before
/// each signature. Returns `None` if `go_on` returned `false` before all signatures were verified.
pub(crate) fn examine_while(
    signatures: &[RawSignature],
    digest: &Digest,
    material: &TrustMaterial,
    go_on: &dyn Fn() -> bool,
) -> Option<Vec<SignatureResult>> {
    let mut each = each(signatures, digest, material);
    let mut all = Vec::with_capacity(signatures.len());
    loop {
        if !go_on() {
            return None;
        }
        match each.next() {
            Some(found) => all.push(SignatureResult(found.map(|opened| opened.accepted))),
            None => return Some(all),
        }
    }
}

fn each<'a>(
    signatures: &'a [RawSignature],
    digest: &'a Digest,
    material: &'a TrustMaterial,
) -> impl Iterator<Item = Result<VerifiedSignature, Rejection>> + 'a {
    let examined = signatures.iter().take(MAX_SIGNATURES);
    let waiting = examined.filter(|raw| raw.unread.is_none()).count();
    let mut budget = Budget::new(waiting, material);
    let each = signatures.iter().enumerate();
    each.map(move |(index, raw)| match raw.unread {
        Some(NotReadReason::TooLarge { bytes, limit }) => Err(Rejection::TooLarge { bytes, limit }),
        Some(NotReadReason::TotalSizeLimit { limit }) => Err(Rejection::TotalSizeLimit { limit }),
        Some(NotReadReason::CountLimit { limit }) => Err(Rejection::NotExamined { limit }),
        None if index >= MAX_SIGNATURES => Err(Rejection::NotExamined {
            limit: MAX_SIGNATURES,
        }),
        None => budget
            .charge(raw, material)
            .and_then(|()| material.examine(raw, &Content::named(digest)))
            .map_err(Rejection::shortened),
    })
}

/// Valid signature. `payload` is the signed statement. It is empty if the signed content is not a
/// statement.
struct VerifiedSignature {
    accepted: ValidSignature,
    payload: Vec<u8>,
}

/// Returns the valid signatures of `reference` by any signer in `wanted`, for `verify --key` and
/// `--certificate-identity`. If there is no such signature, returns an error that lists the
/// signatures that were found.
pub fn signatures_by(
    signatures: &[RawSignature],
    reference: &PinnedReference,
    wanted: &[AcceptedSigner],
    material: &TrustMaterial,
) -> Result<Vec<ValidSignature>, Findings> {
    let found = examine(signatures, reference.digest(), material);
    let is_wanted = |accepted: &ValidSignature| wanted.iter().any(|who| who.made(accepted));
    let accepted: Vec<ValidSignature> = found
        .iter()
        .filter_map(SignatureResult::accepted)
        .filter(|accepted| is_wanted(accepted))
        .cloned()
        .collect();
    if !accepted.is_empty() {
        return Ok(accepted);
    }
    let names: Vec<String> = wanted.iter().map(described).collect();
    let code = if found.is_empty() {
        codes::trust::UNSIGNED
    } else {
        codes::trust::NOT_ACCEPTED
    };
    let only_keys = wanted
        .iter()
        .all(|who| matches!(who, AcceptedSigner::Key(_)));
    let hint = if only_keys {
        format!(
            "pass the public key of its signer, or sign it: kubectl bundle sign --key KEY {reference}"
        )
    } else {
        "pass identity and issuer exactly as in the certificate".to_owned()
    };
    Err(Finding::error(
        code,
        format!(
            "not signed by the given {}: {}",
            names.join(", "),
            summary(&found, is_wanted)
        ),
    )
    .about(reference.to_string())
    .hint(hint)
    .into())
}

fn described(who: &AcceptedSigner) -> String {
    match who {
        AcceptedSigner::Key(key) => format!("key (key hint {key})"),
        AcceptedSigner::Identities { identities, .. } => {
            let names: Vec<String> = identities.iter().map(ToString::to_string).collect();
            format!("identity ({})", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests;
