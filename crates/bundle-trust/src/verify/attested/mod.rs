//! Attestations with their predicates. `verify --attestation` uses them, and `attest` finds an
//! existing attestation with the same predicate.

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::policy::{
    AcceptedSigner, Meaning, RawSignature, SignatureResult, ValidSignature, summary_of_attestations,
};
use bundle_core::reference::{Digest, PinnedReference};
use serde_json::Value;

use super::{Content, TrustMaterial, described, each};
use crate::attest::PredicateType;
use crate::statement;

/// Valid attestation.
#[derive(Debug, Clone, PartialEq)]
pub struct Attestation {
    /// Signer, time and performed checks.
    pub accepted: ValidSignature,
    /// URI of the predicate type.
    pub predicate_type: String,
    /// Predicate: JSON text.
    pub predicate: Value,
}

/// Returns the attestations of `reference` that have a predicate type in `kinds` and that a signer
/// in `wanted` made, for `verify --attestation`. Returns an error if there is no such attestation
/// for one of the types. Signatures do not count as attestations.
pub fn attested(
    signatures: &[RawSignature],
    reference: &PinnedReference,
    wanted: &[AcceptedSigner],
    kinds: &[PredicateType],
    material: &TrustMaterial,
) -> Result<Vec<Attestation>, Findings> {
    let is_wanted = |accepted: &ValidSignature| wanted.iter().any(|who| who.made(accepted));
    let mut found = Vec::new();
    let mut attestations: Vec<Attestation> = Vec::new();
    for result in each(signatures, reference.digest(), material) {
        if let Ok(opened) = &result
            && is_wanted(&opened.accepted)
            && let Meaning::Attested(kind) = &opened.accepted.meaning
            && kinds.iter().any(|wanted| wanted.as_str() == kind)
            && let Some(predicate) = statement::predicate(&opened.payload)
        {
            attestations.push(Attestation {
                accepted: opened.accepted.clone(),
                predicate_type: kind.clone(),
                predicate,
            });
        }
        found.push(SignatureResult(result.map(|opened| opened.accepted)));
    }
    let names: Vec<String> = wanted.iter().map(described).collect();
    let is_there = |kind: &&PredicateType| {
        let mut there = attestations.iter();
        there.any(|one| one.predicate_type == kind.as_str())
    };
    let missing: Findings = kinds
        .iter()
        .filter(|kind| !is_there(kind))
        .map(|kind| {
            Finding::error(
                codes::trust::UNATTESTED,
                format!(
                    "no attestation with predicate type {} by the given {}: {}",
                    kind.as_str(),
                    names.join(", "),
                    summary_of_attestations(&found, is_wanted)
                ),
            )
            .about(reference.to_string())
            .hint(format!(
                "attest it: kubectl bundle attest {reference} --type {} --predicate FILE",
                kind.as_str()
            ))
        })
        .collect();
    if missing.is_empty() {
        Ok(attestations)
    } else {
        Err(missing)
    }
}

/// Returns the attestation in a Sigstore bundle if the attestation has the requested type, for
/// `verify FILE --bundle --attestation`.
pub fn blob_attested(
    bundle: Vec<u8>,
    content: &Content<'_>,
    wanted: &[AcceptedSigner],
    kinds: &[PredicateType],
    material: &TrustMaterial,
) -> Result<Attestation, Finding> {
    let raw = RawSignature {
        bytes: bundle,
        ..RawSignature::default()
    };
    let is_wanted = |accepted: &ValidSignature| wanted.iter().any(|who| who.made(accepted));
    let why = match material.examine(&raw, content) {
        Ok(opened) if !is_wanted(&opened.accepted) => {
            format!("a signature by another {}", opened.accepted.signer)
        }
        Ok(opened) => match (
            &opened.accepted.meaning,
            statement::predicate(&opened.payload),
        ) {
            (Meaning::Attested(kind), Some(predicate))
                if kinds.iter().all(|wanted| wanted.as_str() == kind) =>
            {
                return Ok(Attestation {
                    predicate_type: kind.clone(),
                    accepted: opened.accepted,
                    predicate,
                });
            }
            (Meaning::Attested(kind), _) => format!("an attestation of type {kind}"),
            (Meaning::Signed, _) => "a signature and not an attestation".to_owned(),
        },
        Err(rejection) => format!("a signature {rejection}"),
    };
    let names: Vec<String> = wanted.iter().map(described).collect();
    let kinds: Vec<&str> = kinds.iter().map(PredicateType::as_str).collect();
    Err(Finding::error(
        codes::trust::UNATTESTED,
        format!(
            "no attestation with predicate type {} by the given {}: the Sigstore bundle contains {why}",
            kinds.join(", "),
            names.join(", ")
        ),
    )
    .about(content.digest.to_string()))
}

/// Returns every valid attestation with its predicate.
pub(crate) fn all_attested(
    signatures: &[RawSignature],
    digest: &Digest,
    material: &TrustMaterial,
) -> Vec<(ValidSignature, Value)> {
    each(signatures, digest, material)
        .filter_map(Result::ok)
        .filter(|opened| opened.accepted.meaning != Meaning::Signed)
        .filter_map(|opened| Some((opened.accepted, statement::predicate(&opened.payload)?)))
        .collect()
}

#[cfg(test)]
mod tests;
