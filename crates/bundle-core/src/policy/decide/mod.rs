//! Decision on a reference: matching policies, and the signatures that satisfy them.
//!
//! Every policy that matches must be satisfied. A policy is satisfied if `threshold` distinct
//! authorities have signed, and for each of these authorities one signature meets all requirements
//! of the authority. If signatures are unavailable, content that requires them is rejected for now,
//! and the result must not be cached.

use std::sync::Arc;

use super::{
    document::{Mode, Policy},
    found::{SignatureResult, SignedAt, Signer, Unavailable, ValidSignature, summary},
    reader::subject,
    ready::{AcceptedSigner, ParsedAuthority, ParsedPolicy},
    threshold,
};
use crate::{
    diagnostic::{Finding, Findings, Severity, codes},
    reference::{PinnedReference, Reference},
};

/// Signatures that a class requires (`ProvisionerClass.spec.signatures`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClassSignatures {
    /// Every image requires a signature that a policy accepts.
    Required,
    /// Signatures are only required by policies. Content that no policy matches is admitted with a
    /// warning.
    IfPolicy,
}

/// Signature that satisfied a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBy {
    /// Policy that the signature satisfied.
    pub policy: String,
    /// Authority of the policy.
    pub authority: String,
    /// Key or identity that signed.
    pub signer: Signer,
    /// Signing time, if a trusted log or timestamp authority confirms it.
    pub signed_at: Option<SignedAt>,
    /// Names of the checks that succeeded.
    pub checked: Vec<&'static str>,
    /// Required attestations that were found.
    pub attestations: Vec<String>,
}

/// Result for content that is admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmittedContent {
    /// Signers for each matching policy; empty if no policy matched.
    pub by: Vec<SignedBy>,
    /// Warnings about the content.
    pub warnings: Findings,
    /// `false` if a lookup failed and only warnings depend on this lookup. In this case the result
    /// must not be cached.
    pub is_cacheable: bool,
    /// Policies that forbid downgrades.
    pub no_downgrade: Vec<String>,
}

/// Decision on a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyDecision {
    /// The content is admitted.
    Satisfied(AdmittedContent),
    /// The content is rejected. Contains all reasons.
    Refused(Findings),
    /// The result is unknown because a dependency did not respond. The content is rejected for now,
    /// and the result must not be cached.
    Unknown(Findings),
}

/// Returns the policies that match `reference`, in the order of `policies`. If no policy matches,
/// the decision does not depend on the signatures of `reference`, and the signatures do not have to
/// be fetched.
pub fn matching<'a>(
    reference: &Reference,
    policies: impl IntoIterator<Item = &'a Arc<Policy>>,
) -> Vec<Arc<Policy>> {
    let policies = policies.into_iter();
    let matching = policies.filter(|policy| policy.matches(reference));
    matching.cloned().collect()
}

/// Result of one policy.
enum PolicyResult {
    Satisfied(Vec<SignedBy>),
    NotSatisfied(Findings),
    Unknown(Findings),
}

/// Decides on `reference`. `found` contains the results of the verification of its signatures.
/// Policies that do not match are ignored.
pub fn decide(
    reference: &PinnedReference,
    found: Result<&[SignatureResult], &Unavailable>,
    policies: &[ParsedPolicy<'_>],
    class: ClassSignatures,
) -> PolicyDecision {
    let matching: Vec<_> = policies
        .iter()
        .filter(|ready| ready.policy.matches(reference.reference()))
        .collect();
    if matching.is_empty() {
        return without_policy(reference, class);
    }
    let results: Vec<_> = matching
        .iter()
        .map(|ready| (ready.policy.mode(), evaluate(reference, found, ready)))
        .collect();
    // Under `Required`, only a satisfied policy admits content. A policy in mode Warn does not
    // admit unsigned content.
    let proven = results
        .iter()
        .any(|(_, result)| matches!(result, PolicyResult::Satisfied(_)));
    let binding =
        |mode: Mode| mode == Mode::Enforce || (class == ClassSignatures::Required && !proven);

    let mut satisfied = AdmittedContent {
        by: Vec::new(),
        warnings: Findings::default(),
        is_cacheable: true,
        no_downgrade: matching
            .iter()
            .filter(|ready| !ready.policy.allows_downgrade())
            .map(|ready| ready.policy.name().to_owned())
            .collect(),
    };
    let mut refusals = Findings::default();
    let mut unknown = Findings::default();
    for (mode, result) in results {
        match result {
            PolicyResult::Satisfied(by) => satisfied.by.extend(by),
            PolicyResult::NotSatisfied(findings) if binding(mode) => refusals.extend(findings),
            PolicyResult::Unknown(findings) if binding(mode) => unknown.extend(findings),
            PolicyResult::NotSatisfied(findings) => {
                satisfied.warnings.extend(as_warnings(findings));
            }
            PolicyResult::Unknown(findings) => {
                satisfied.is_cacheable = false;
                satisfied.warnings.extend(as_warnings(findings));
            }
        }
    }
    // A rejection has priority over unknown results, because a retry cannot change the rejection.
    if refusals.has_errors() {
        refusals.extend(unknown);
        refusals.extend(satisfied.warnings);
        PolicyDecision::Refused(refusals)
    } else if unknown.has_errors() {
        unknown.extend(satisfied.warnings);
        PolicyDecision::Unknown(unknown)
    } else {
        PolicyDecision::Satisfied(satisfied)
    }
}

/// Decides on content without a reference: content from git, http, configMaps or upload. Such
/// content cannot have signatures. `source` is the source type.
pub fn decide_unsignable(source: &str, class: ClassSignatures) -> PolicyDecision {
    match class {
        ClassSignatures::Required => PolicyDecision::Refused(
            Finding::error(
                codes::trust::UNSIGNABLE,
                format!("the class requires signatures, but content of a source of type `{source}` cannot be signed"),
            )
            .at_field("spec.source.type")
            .hint("build a bundle from the content (kubectl bundle build), push and sign the bundle, then use a source of type image")
            .into(),
        ),
        ClassSignatures::IfPolicy => admit_with_warning(
            Finding::warning(
                codes::trust::UNCHECKED,
                format!("content of a source of type `{source}` cannot be signed: the content is installed without a signature check"),
            )
            .at_field("spec.source.type"),
        ),
    }
}

fn without_policy(reference: &PinnedReference, class: ClassSignatures) -> PolicyDecision {
    let name = reference.reference().name();
    match class {
        ClassSignatures::Required => PolicyDecision::Refused(
            Finding::error(
                codes::trust::NO_POLICY,
                format!("the class requires a signature, but no SignaturePolicy matches {name}"),
            )
            .about(reference.to_string())
            .hint(format!("create a SignaturePolicy with images: [{{glob: \"{name}\"}}] and the key of the signer"))
            .into(),
        ),
        ClassSignatures::IfPolicy => admit_with_warning(
            Finding::warning(
                codes::trust::UNCHECKED,
                format!("no SignaturePolicy matches {name}: the content is installed without a signature check"),
            )
            .about(reference.to_string()),
        ),
    }
}

fn admit_with_warning(warning: Finding) -> PolicyDecision {
    PolicyDecision::Satisfied(AdmittedContent {
        by: Vec::new(),
        warnings: warning.into(),
        is_cacheable: true,
        no_downgrade: Vec::new(),
    })
}

fn evaluate(
    reference: &PinnedReference,
    found: Result<&[SignatureResult], &Unavailable>,
    ready: &ParsedPolicy<'_>,
) -> PolicyResult {
    if ready.problems.has_errors() {
        return PolicyResult::NotSatisfied(ready.problems.clone());
    }
    if !ready.unavailable.is_empty() {
        return PolicyResult::Unknown(ready.unavailable.iter().cloned().collect());
    }
    let policy = subject(ready.policy.name());
    let found = match found {
        Ok(found) => found,
        Err(Unavailable(why)) => {
            return PolicyResult::Unknown(
                Finding::error(
                    codes::trust::CANNOT_TELL,
                    format!(
                        "{policy} requires a signature, but the signatures cannot be read: {why}"
                    ),
                )
                .about(reference.to_string())
                .hint("retry; the result is not cached")
                .into(),
            );
        }
    };
    let holds: Vec<&ValidSignature> = found.iter().filter_map(SignatureResult::valid).collect();
    // The signers of each authority. An authority whose required attestations are incomplete has no
    // signers.
    let mut lacking = Vec::new();
    let candidates: Vec<Vec<&ValidSignature>> = ready
        .authorities
        .iter()
        .map(|authority| {
            let by = holds.iter().copied();
            let by: Vec<_> = by.filter(|accepted| authority.signed(accepted)).collect();
            let unattested = authority.unattested(&holds);
            if by.is_empty() || unattested.is_empty() {
                return by;
            }
            lacking.push((authority, unattested));
            Vec::new()
        })
        .collect();
    let by: Vec<SignedBy> = threshold::distinct(&candidates)
        .into_iter()
        .zip(&ready.authorities)
        .filter_map(|(accepted, authority)| Some((accepted?, authority)))
        .map(|(accepted, authority)| SignedBy {
            policy: ready.policy.name().to_owned(),
            authority: authority.name.clone(),
            signer: accepted.signer.clone(),
            signed_at: accepted.signed_at.clone(),
            checked: accepted.checked.clone(),
            attestations: authority.attestations.clone(),
        })
        .collect();
    if by.len() >= ready.policy.threshold() {
        return PolicyResult::Satisfied(by);
    }
    let mut findings = Findings::from(missing(reference, found, ready, &policy, &by));
    for (authority, unattested) in lacking {
        findings.push(unattested_by(reference, &policy, authority, &unattested));
    }
    PolicyResult::NotSatisfied(findings)
}

fn missing(
    reference: &PinnedReference,
    found: &[SignatureResult],
    ready: &ParsedPolicy<'_>,
    policy: &str,
    by: &[SignedBy],
) -> Finding {
    let names: Vec<String> = ready
        .authorities
        .iter()
        .map(|authority| format!("`{}`", authority.name))
        .collect();
    let names = names.join(", ");
    let threshold = ready.policy.threshold();
    let only_keys = ready
        .authorities
        .iter()
        .all(|authority| matches!(authority.signer, AcceptedSigner::Key(_)));
    let signers = if only_keys { "keys" } else { "signers" };
    let wanted = match (threshold, ready.authorities.len()) {
        (1, 1) => format!("a signature by {names}"),
        (1, _) => format!("a signature by one of {names}"),
        _ => format!(
            "signatures by {threshold} different {signers} of {names} (accepted: {})",
            by.len()
        ),
    };
    let accepted = |accepted: &ValidSignature| {
        let mut authorities = ready.authorities.iter();
        authorities.any(|authority| authority.signer.made(accepted))
    };
    let code = if found.is_empty() {
        codes::trust::UNSIGNED
    } else {
        codes::trust::NOT_ACCEPTED
    };
    let hint = if only_keys {
        format!("sign it with an accepted key: kubectl bundle sign --key KEY {reference}")
    } else {
        "sign it with an identity that the policy accepts".to_owned()
    };
    Finding::error(
        code,
        format!(
            "{policy} requires {wanted}, but {}",
            summary(found, accepted)
        ),
    )
    .about(reference.to_string())
    .hint(hint)
}

fn unattested_by(
    reference: &PinnedReference,
    policy: &str,
    authority: &ParsedAuthority,
    predicates: &[&str],
) -> Finding {
    Finding::error(
        codes::trust::UNATTESTED,
        format!(
            "`{}` has signed the image, but {policy} also requires an attestation of {} by this authority",
            authority.name,
            predicates.join(", ")
        ),
    )
    .about(reference.to_string())
    .hint("attest it with the same key or identity (kubectl bundle attest)")
}

fn as_warnings(findings: Findings) -> impl Iterator<Item = Finding> {
    findings.into_iter().map(|mut finding| {
        finding.severity = Severity::Warning;
        finding
            .message
            .push_str(" (admitted because of mode: warn)");
        finding
    })
}

#[cfg(test)]
mod tests;
