//! Decides on content with its signatures. The result is `Verified<T>`, which the reconciler
//! requires and only this module can construct. The rules are in `bundle_core::policy`. This module
//! verifies the signatures.

mod memory;

use std::{collections::BTreeMap, sync::Arc};

use bundle_core::{
    content::ContentId,
    diagnostic::{Finding, Findings},
    policy::{
        self, ClassSignatures, KeyId, KeyParser, ParsedPolicy, Policy, PolicyDecision,
        RawSignature, RootId, SignatureResult, SignedBy, Unavailable,
    },
    reference::PinnedReference,
    review::{Source, source::PullCredentials},
};
use jiff::Timestamp;

use crate::{keys::PublicKey, root::Root, verify::TrustMaterial};

pub use memory::ExaminationCache;
#[cfg(test)]
pub(crate) use memory::interrupted;

/// Verified content: each matching policy is satisfied, or no policy matches and the class admits
/// unsigned content.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Verified<T>(T);

impl<T> Verified<T> {
    /// Returns the content.
    pub fn get(&self) -> &T {
        &self.0
    }

    /// Returns the content without its proof.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// Decision that admits content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided<T> {
    /// Verified content.
    pub content: Verified<T>,
    /// Signers that satisfied the policies. The list is empty if no policy matched.
    pub signed_by: Vec<SignedBy>,
    /// Warnings.
    pub warnings: Findings,
    /// `true` if the caller may cache the decision. `false` if a warning depends on a failed
    /// lookup.
    pub is_cacheable: bool,
    /// Names of the policies that forbid downgrades.
    pub no_downgrade: Vec<String>,
}

/// Decision that rejects content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// All reasons for the rejection.
    pub findings: Findings,
    /// `true` if a dependency did not respond. The caller may retry, and must not cache the result.
    pub is_unknown: bool,
}

/// Decides on an image. `signatures` are the signatures in the registry for the digest of the
/// image, or the error if they are unavailable. The signatures have no effect if
/// [`policy::matching`] returns no policy. `now` is the time for the validity of trust roots and
/// signatures.
pub fn decide<'a>(
    reference: PinnedReference,
    signatures: &Result<Vec<RawSignature>, Unavailable>,
    policies: impl IntoIterator<Item = &'a Policy>,
    class: ClassSignatures,
    now: Timestamp,
) -> Result<Decided<PinnedReference>, Refusal> {
    ExaminationCache::default().decide(reference, signatures, policies, class, now)
}

/// Decides with the results of [`examine`]. This function is not public: a caller that passes
/// results of its own could construct a `Verified<T>` for any content.
fn conclude_examined(
    reference: PinnedReference,
    examined: &ExaminedImage<'_>,
    class: ClassSignatures,
) -> Result<Decided<PinnedReference>, Refusal> {
    let found = examined.found.as_ref().map(Vec::as_slice);
    let decision = policy::decide(&reference, found, &examined.policies, class);
    conclude(reference, decision)
}

/// Examined signatures of an image, as input of the rules in `bundle_core::policy`.
#[derive(Debug, Clone)]
pub struct ExaminedImage<'a> {
    /// Policies that match the image, with the keys of these policies.
    pub policies: Vec<ParsedPolicy<'a>>,
    /// Result of each signature, or the reason why signatures are unavailable.
    pub found: Result<Vec<SignatureResult>, Unavailable>,
}

/// Verifies the signatures of an image with the keys and trust roots of the matching policies,
/// without a cache. The result is an argument of the admission rules (`bundle_core::review`). A
/// caller of [`decide`] does not need this function.
pub fn examine<'a>(
    reference: &PinnedReference,
    signatures: &Result<Vec<RawSignature>, Unavailable>,
    policies: impl IntoIterator<Item = &'a Policy>,
    now: Timestamp,
) -> ExaminedImage<'a> {
    ExaminationCache::default().examine(reference, signatures, policies, now)
}

/// Returns `policies` with their parsed keys and trust roots. The caller passes only policies that
/// match the image. No signature is verified.
pub fn matching_policies<'a>(
    policies: impl IntoIterator<Item = &'a Policy>,
    now: Timestamp,
) -> Vec<ParsedPolicy<'a>> {
    policies
        .into_iter()
        .map(|policy| ready_policy(policy, now))
        .collect()
}

/// Returns a policy with its parsed keys and trust roots.
pub fn ready_policy(policy: &Policy, now: Timestamp) -> ParsedPolicy<'_> {
    policy.with_keys(&mut Loader::new(now))
}

/// Parses the keys and trust roots of policies, and collects the parsed values for the verification
/// of signatures.
struct Loader {
    keys: BTreeMap<KeyId, PublicKey>,
    roots: BTreeMap<RootId, Arc<Root>>,
    now: Timestamp,
}

impl Loader {
    fn new(now: Timestamp) -> Self {
        Self {
            keys: BTreeMap::new(),
            roots: BTreeMap::new(),
            now,
        }
    }

    /// Returns the policies that match `reference`, and the keys and trust roots of these policies.
    fn load<'a>(
        reference: &PinnedReference,
        policies: impl IntoIterator<Item = &'a Policy>,
        now: Timestamp,
    ) -> (Vec<ParsedPolicy<'a>>, TrustMaterial) {
        let mut loader = Self::new(now);
        let policies = policies
            .into_iter()
            .filter(|policy| policy.matches(reference.reference()))
            .map(|policy| policy.with_keys(&mut loader))
            .collect();
        let material = TrustMaterial {
            keys: loader.keys.into_values().collect(),
            roots: loader.roots.into_values().collect(),
            now,
        };
        (policies, material)
    }
}

impl KeyParser for Loader {
    fn key(&mut self, pem: &str) -> Result<KeyId, Finding> {
        let key = PublicKey::parse(pem)?;
        let id = key.id().clone();
        self.keys.insert(id.clone(), key);
        Ok(id)
    }

    fn root(&mut self, text: Option<&str>) -> Result<RootId, Finding> {
        let root = Root::named(text)?;
        root.check(self.now)?;
        let id = root.id().clone();
        self.roots.insert(id.clone(), root);
        Ok(id)
    }
}

/// Decides on content that cannot be signed, because it does not come from an image. Returns an
/// error for images. Use [`decide`] for images.
pub fn decide_unsignable(
    content: ContentId,
    class: ClassSignatures,
) -> Result<Decided<ContentId>, Refusal> {
    let class = if content.image().is_some() {
        ClassSignatures::Required
    } else {
        class
    };
    let decision = policy::decide_unsignable(content.source().kind(), class);
    conclude(content, decision)
}

impl Decided<PinnedReference> {
    /// Converts the decision on an image to a decision on content. The source of this content is
    /// the image, with `credentials` for its registry.
    pub fn with_credentials(self, credentials: PullCredentials) -> Decided<ContentId> {
        let pinned = self.content.into_inner();
        let source = Source::Image {
            reference: pinned.reference().clone(),
            credentials,
        };
        Decided {
            content: Verified(ContentId::new(&source, pinned.digest().clone())),
            signed_by: self.signed_by,
            warnings: self.warnings,
            is_cacheable: self.is_cacheable,
            no_downgrade: self.no_downgrade,
        }
    }
}

/// Returns the next time at which `policy` may become ready or stop being ready, because one of its
/// trust roots becomes valid or expires. `None` if the state of the policy does not depend on the
/// time.
pub fn changes_after(policy: &Policy, now: Timestamp) -> Option<Timestamp> {
    let mut clock = NextChange { now, next: None };
    policy.with_keys(&mut clock);
    clock.next
}

/// Finds the next time after `now` at which a trust root becomes valid or expires.
struct NextChange {
    now: Timestamp,
    next: Option<Timestamp>,
}

impl KeyParser for NextChange {
    fn key(&mut self, _: &str) -> Result<KeyId, Finding> {
        Ok(KeyId::new(""))
    }

    fn root(&mut self, text: Option<&str>) -> Result<RootId, Finding> {
        let root = Root::named(text)?;
        let next = root.changes_after(self.now);
        self.next = self.next.into_iter().chain(next).min();
        Ok(root.id().clone())
    }
}

/// Returns the reasons why a policy is not ready, including problems of its keys and trust roots,
/// for the condition `Ready`. The list is empty if the policy is ready.
pub fn problems(policy: &Policy, now: Timestamp) -> Findings {
    let ready = ready_policy(policy, now);
    let mut problems = ready.problems;
    problems.extend(ready.unavailable);
    problems
}

fn conclude<T>(content: T, decision: PolicyDecision) -> Result<Decided<T>, Refusal> {
    match decision {
        PolicyDecision::Satisfied(satisfied) => Ok(Decided {
            content: Verified(content),
            signed_by: satisfied.by,
            warnings: satisfied.warnings,
            is_cacheable: satisfied.is_cacheable,
            no_downgrade: satisfied.no_downgrade,
        }),
        PolicyDecision::Refused(findings) => Err(Refusal {
            findings,
            is_unknown: false,
        }),
        PolicyDecision::Unknown(findings) => Err(Refusal {
            findings,
            is_unknown: true,
        }),
    }
}

#[cfg(test)]
mod tests;
