//! Rules of `verify` (keys, an identity, or policies in files): loads the rules and evaluates them.

use bundle_core::diagnostic::Findings;
use bundle_core::policy::{ClassSignatures, Policy, RawSignature, Unavailable};
use bundle_core::reference::PinnedReference;
use bundle_trust::attest::PredicateType;
use bundle_trust::proof;
use jiff::Timestamp;

use super::accepted_signers::LoadedSigners;
use super::signer::Signer;
use super::{VerificationRules, documents};
use crate::failure::Outcome;
use crate::sigstore::root::{SelectedRoot, TrustRootSettings};
use crate::ui::{Progress, Ui};

/// Rules of `verify`, with loaded keys or policies.
pub(super) enum LoadedRules {
    /// Accepted signers.
    Signer(LoadedSigners),
    /// Policies. All policies that match the bundle must be satisfied.
    Policies(Vec<Policy>),
}

/// Opens the trust root, and loads the rules. Also returns a progress line, which begins after all
/// messages of this function.
pub(super) async fn load(
    rules: VerificationRules,
    root: TrustRootSettings,
    now: Timestamp,
    ui: &mut Ui,
) -> Outcome<(SelectedRoot, LoadedRules, Progress)> {
    let root = match &rules {
        VerificationRules::Signer(wanted) => wanted.root(root, ui).await?,
        VerificationRules::Policies(_) => root.open(ui).await?,
    };
    // A KMS plugin can wait for its user. Therefore the rules are read on another thread.
    let read = move || LoadedRules::read(rules, &root, now).map(|rules| (root, rules));
    let (root, rules) = match tokio::task::spawn_blocking(read).await {
        Ok(read) => read?,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    };
    Ok((root, rules, ui.progress("fetching signatures")))
}

impl LoadedRules {
    /// Loads the rules.
    fn read(against: VerificationRules, root: &SelectedRoot, now: Timestamp) -> Outcome<Self> {
        Ok(match against {
            VerificationRules::Signer(wanted) => Self::Signer(wanted.read(root, now)?),
            VerificationRules::Policies(paths) => {
                Self::Policies(documents::read(&paths, root.custom_root_text())?)
            }
        })
    }
}

/// The signers and warnings, or the reasons why verification failed.
pub(super) type Decision = Result<(Vec<Signer>, Findings), Findings>;

/// Evaluates the rules on the signatures of `pinned`.
pub(super) fn decide(
    rules: &LoadedRules,
    kinds: &[PredicateType],
    pinned: &PinnedReference,
    signatures: &Result<Vec<RawSignature>, Unavailable>,
    now: Timestamp,
) -> Decision {
    match rules {
        LoadedRules::Signer(ready) => {
            let signatures = signatures
                .as_ref()
                .map_err(|unavailable| Findings::from(unavailable.0.clone()))?;
            let signers = ready.of_digest(kinds, pinned, signatures)?;
            Ok((signers, Findings::default()))
        }
        LoadedRules::Policies(policies) => {
            let covers = |policy: &Policy| policy.matches(pinned.reference());
            if !policies.iter().any(covers) {
                return Err(documents::no_matching_policy(pinned).into());
            }
            let class = ClassSignatures::Required;
            let decided = proof::decide(pinned.clone(), signatures, policies, class, now)
                .map_err(|refusal| refusal.findings)?;
            let signers = decided.signed_by.into_iter().map(Signer::from);
            Ok((signers.collect(), decided.warnings))
        }
    }
}
