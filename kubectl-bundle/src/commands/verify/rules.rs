//! What `verify` holds signatures against: keys, an identity, or policies from files, and what each makes of them.
//! Not here: the decision itself (bundle-trust), or fetching signatures.

use std::path::Path;
use std::sync::Arc;

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::policy::{
    self, Accepted, ClassSignatures, Identity, Policy, RawSignature, Unavailable, Who,
};
use bundle_core::reference::PinnedReference;
use bundle_trust::attest::PredicateType;
use bundle_trust::keys::PublicKey;
use bundle_trust::root::Root;
use bundle_trust::{proof, verify};
use jiff::Timestamp;

use super::signer::Signer;
use super::{Against, documents};
use crate::failure;
use crate::failure::{Failure, Outcome};
use crate::kms::Place;

/// What was read of the files.
pub(super) enum Rules {
    /// Any of these keys, with where they are; the root only says when.
    Keys(Vec<(Place, PublicKey)>, Arc<Root>),
    /// A certificate for this identity under this root.
    Identity(Identity, Arc<Root>),
    /// Every one that matches.
    Policies(Vec<Policy>),
}

impl Rules {
    /// Reads the files.
    pub(super) fn read(
        against: Against,
        trusted_root: Option<&Path>,
        now: Timestamp,
    ) -> Outcome<Self> {
        let text = super::root_text(trusted_root)?;
        let root = || -> Outcome<Arc<Root>> {
            let root = match &text {
                Some(text) => Root::from_text(text),
                None => Root::public(),
            };
            let located = |finding| match trusted_root {
                Some(path) => failure::in_file(finding, path),
                None => finding,
            };
            root.map_err(|finding| Failure::from(located(finding)))
        };
        Ok(match against {
            Against::Keys(places) => Self::Keys(read_keys(places)?, root()?),
            Against::Identity(identity) => {
                let root = root()?;
                root.check(now)?;
                Self::Identity(identity, root)
            }
            Against::Policies(paths) => Self::Policies(documents::read(&paths, text.as_deref())?),
        })
    }
}

/// Who signed and what is to be told, or why it is not verified.
pub(super) type Decision = Result<(Vec<Signer>, Findings), Findings>;

/// Decides.
pub(super) fn decide(
    rules: &Rules,
    kinds: &[PredicateType],
    pinned: &PinnedReference,
    signatures: &Result<Vec<RawSignature>, Unavailable>,
    now: Timestamp,
) -> Decision {
    match rules {
        Rules::Keys(keys, root) => {
            let against = verify::Against {
                keys: keys.iter().map(|(_, key)| key.clone()).collect(),
                roots: vec![Arc::clone(root)],
                now,
            };
            let wanted: Vec<Who> = keys
                .iter()
                .map(|(_, key)| Who::Key(key.id().clone()))
                .collect();
            let place = |accepted: &Accepted| {
                keys.iter()
                    .find(|(_, key)| policy::Signer::Key(key.id().clone()) == accepted.signer)
                    .map(|(place, _)| place.to_string())
                    .unwrap_or_default()
            };
            found(signatures, kinds, pinned, &wanted, &against, place)
        }
        Rules::Identity(identity, root) => {
            let against = verify::Against {
                keys: Vec::new(),
                roots: vec![Arc::clone(root)],
                now,
            };
            let wanted = [Who::Identities {
                identities: vec![identity.clone()],
                root: root.id().clone(),
            }];
            let issuer = |accepted: &Accepted| match &accepted.signer {
                policy::Signer::Identity { name, .. } => name.issuer.clone(),
                policy::Signer::Key(_) => String::new(),
            };
            found(signatures, kinds, pinned, &wanted, &against, issuer)
        }
        Rules::Policies(policies) => {
            let covers = |policy: &Policy| policy.matches(pinned.reference());
            if !policies.iter().any(covers) {
                return Err(uncovered(pinned).into());
            }
            let class = ClassSignatures::Required;
            let decided = proof::decide(pinned.clone(), signatures, policies, class, now)
                .map_err(|refusal| refusal.findings)?;
            let signers = decided.signed_by.into_iter().map(Signer::from);
            Ok((signers.collect(), decided.warnings))
        }
    }
}

fn found(
    signatures: &Result<Vec<RawSignature>, Unavailable>,
    kinds: &[PredicateType],
    pinned: &PinnedReference,
    wanted: &[Who],
    against: &verify::Against,
    by: impl Fn(&Accepted) -> String,
) -> Decision {
    let signatures = signatures
        .as_ref()
        .map_err(|unavailable| Findings::from(unavailable.0.clone()))?;
    let signers = if kinds.is_empty() {
        verify::by(signatures, pinned, wanted, against)?
            .into_iter()
            .map(|one| Signer::found(by(&one), one))
            .collect()
    } else {
        verify::attested(signatures, pinned, wanted, kinds, against)?
            .into_iter()
            .map(|one| Signer::attested(by(&one.accepted), one))
            .collect()
    };
    Ok((signers, Findings::default()))
}

fn uncovered(pinned: &PinnedReference) -> Finding {
    Finding::error(
        codes::trust::NO_POLICY,
        format!(
            "none of these SignaturePolicies covers {}, so nothing was verified",
            pinned.reference().name()
        ),
    )
    .about(pinned.without_tag())
    .hint("check images[].glob in the policies")
}

fn read_keys(places: Vec<Place>) -> Outcome<Vec<(Place, PublicKey)>> {
    places
        .into_iter()
        .map(|place| {
            let key = place.public()?;
            Ok((place, key))
        })
        .collect()
}
