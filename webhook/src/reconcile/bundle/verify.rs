//! Verification of the signatures of content before it is fetched. This check does not rely on the
//! check at admission. `bundle_trust::proof` contains the rules.

use std::sync::Arc;

use bundle_api::bundle::SignedBy as ApiSignedBy;
use bundle_api::names::{self, reason};
use bundle_core::content::ContentId;
use bundle_core::diagnostic::codes;
use bundle_core::policy::{self, Policy, RawSignature, SignedBy, Signer};
use bundle_core::reference::{PinnedReference, Reference};
use bundle_core::review::Class;
use bundle_trust::proof::{self, Decided, Refusal};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::DynamicObject;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource as _, ResourceExt as _};

use crate::blocking;
use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::status::condition_set;
use crate::reconcile::watched::WatchedObject;
use crate::sources::{ContentSource as _, OpenSource};

/// The SignaturePolicies that were used to verify content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reconcile) struct AppliedPolicies {
    reference: Reference,
    policies: Vec<Arc<Policy>>,
}

impl AppliedPolicies {
    fn current(ctx: &Context, reference: &Reference) -> Self {
        let stored = ctx.shared.policies.all();
        Self {
            reference: reference.clone(),
            policies: policy::matching(reference, stored.values()),
        }
    }

    /// Returns true if the same policies match the reference now.
    pub(in crate::reconcile) fn are_current(&self, ctx: &Context) -> bool {
        *self == Self::current(ctx, &self.reference)
    }

    fn all(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter().map(|policy| &**policy)
    }
}

/// Verified content, with the SignaturePolicies that were used.
pub(in crate::reconcile) struct VerifiedContent {
    pub(in crate::reconcile) decided: Decided<ContentId>,
    /// The policies that were used. `None` for content that cannot be signed.
    pub(in crate::reconcile) policies: Option<AppliedPolicies>,
}

/// The Bundle whose content is verified.
pub(in crate::reconcile) struct BundleToVerify<'a> {
    pub(in crate::reconcile) name: &'a str,
    pub(in crate::reconcile) uid: Option<&'a str>,
    /// Text of the proof annotation. `None` if the Bundle has no proof.
    pub(in crate::reconcile) proof: Option<&'a str>,
}

impl BundleToVerify<'_> {
    /// Returns true if the Bundle is in the cache of the controller, or if the cache does not exist
    /// yet. The verification calls this function repeatedly, and stops after the Bundle was
    /// deleted. A verification of hundreds of signatures can take long, and cancelling the task
    /// does not stop its thread.
    fn exists(&self, ctx: &Context) -> bool {
        let key = ObjectRef::new_with(self.name, ctx.bundles.clone());
        let cache = ctx.bundle_cache.get();
        cache.is_none_or(|cache| is_in(cache, &key, self.uid))
    }
}

fn is_in(cache: &Store<WatchedObject>, key: &ObjectRef<WatchedObject>, uid: Option<&str>) -> bool {
    let seen = cache.get(key);
    seen.is_some_and(|seen| seen.meta().uid.as_deref() == uid)
}

/// Verifies `content` by the rules of the class and of the SignaturePolicies. If the proof of
/// `bundle` is sufficient, uses the signatures in the proof. Otherwise reads the signatures from
/// the registry, and then reads the policies again.
pub(in crate::reconcile) async fn verify(
    ctx: &Context,
    class: &Class,
    source: &OpenSource,
    bundle: &BundleToVerify<'_>,
    content: ContentId,
) -> Result<VerifiedContent, ReconcileError> {
    let Some(image) = content.image() else {
        let decided = proof::decide_unsignable(content, class.signatures);
        return Ok(VerifiedContent {
            decided: decided.map_err(|refusal| refused(&refusal))?,
            policies: None,
        });
    };
    let (pinned, credentials) = (image.pinned(), image.credentials.clone());
    if !ctx.shared.policies.is_synced() {
        return Err(ReconcileError::new(
            codes::trust::CANNOT_TELL,
            reason::UNPACK_FAILED,
            "the SignaturePolicies are not loaded yet",
            RetryPolicy::Soon,
        ));
    }
    let reference = pinned.reference().clone();
    let (now, examinations) = (jiff::Timestamp::now(), &ctx.shared.examinations);
    let exists = || bundle.exists(ctx);
    let decide = |pinned, policies: &AppliedPolicies, signatures: &_| {
        let (all, class) = (|| policies.all(), class.signatures);
        blocking::run(|| examinations.decide_while(pinned, signatures, all(), class, now, &exists))
    };
    let verified = |decided: Decided<PinnedReference>, policies| VerifiedContent {
        decided: decided.with_credentials(credentials.clone()),
        policies: Some(policies),
    };
    let policies = AppliedPolicies::current(ctx, &reference);
    let needed = !policies.policies.is_empty();
    if needed
        && let Some(signatures) = bundle
            .proof
            .and_then(|proof| proof_signatures(proof, &pinned))
        && let Ok(decided) = decide(pinned.clone(), &policies, &Ok(signatures))
    {
        return Ok(verified(decided, policies));
    }
    let (signatures, policies) = if needed {
        let signatures = source.signatures(&content).await;
        // A policy can change while the registry responds, so the policies are read again
        // afterwards.
        (signatures, AppliedPolicies::current(ctx, &reference))
    } else {
        (Ok(Vec::new()), policies)
    };
    match decide(pinned, &policies, &signatures) {
        Ok(decided) => Ok(verified(decided, policies)),
        Err(refusal) => Err(refused(&refusal)),
    }
}

/// Returns the error for rejected content. Every rejection is retried after a delay, because a new
/// signature or a changed policy starts no reconcile.
fn refused(refusal: &Refusal) -> ReconcileError {
    ReconcileError::findings(
        reason::UNPACK_FAILED,
        &refusal.findings,
        if refusal.is_unknown {
            RetryPolicy::Soon
        } else {
            RetryPolicy::Slowly
        },
    )
}

/// Returns the text of the proof annotation. Returns `None` if the Bundle has no proof.
pub(in crate::reconcile) fn proof(bundle: &DynamicObject) -> Option<&str> {
    let text = bundle.annotations().get(names::ANNOTATION_PROOF)?;
    Some(text)
}

/// Returns the signatures in the text of a proof annotation. Returns `None` if the proof is for
/// another digest.
fn proof_signatures(text: &str, pinned: &PinnedReference) -> Option<Vec<RawSignature>> {
    let proof = bundle_trust::proof_annotation::decode(text, pinned.digest()).ok()?;
    Some(proof.signatures)
}

/// Converts the signers to the value of the field `status.signedBy`.
pub(in crate::reconcile) fn signed_by(signers: &[SignedBy]) -> Vec<ApiSignedBy> {
    signers
        .iter()
        .map(|signed| {
            let name = match &signed.signer {
                Signer::Identity { name, .. } => Some(name),
                Signer::Key(_) => None,
            };
            ApiSignedBy {
                policy: signed.policy.clone(),
                authority: signed.authority.clone(),
                identity: name.map(|name| name.subject.clone()),
                issuer: name.map(|name| name.issuer.clone()),
                verified_at: Some(Time(condition_set::now())),
            }
        })
        .collect()
}

/// Returns the signers and warnings as text for a message.
pub(in crate::reconcile) fn describe(signers: &[SignedBy], warnings: &[String]) -> String {
    let mut parts: Vec<String> = signers
        .iter()
        .map(|signed| match &signed.signer {
            Signer::Key(_) => format!("signed by {} (policy {})", signed.authority, signed.policy),
            Signer::Identity { name, .. } => format!(
                "signed by {} as {} (policy {})",
                name.subject, signed.authority, signed.policy
            ),
        })
        .collect();
    if parts.is_empty() {
        parts.push("no policy requires a signature".to_owned());
    }
    parts.extend(warnings.iter().cloned());
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::reconcile::context::resource;

    #[test]
    fn bundle_exists_while_the_reflector_has_its_uid() {
        let bundles = resource("Bundle", "bundles");
        let of = |uid: &str| -> WatchedObject {
            let metadata = json!({"name": "web", "uid": uid});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let key = ObjectRef::new_with("web", bundles.clone());
        let mut writer = Writer::new(bundles);
        let cache = writer.as_reader();
        for (event, expected) in [
            (Event::Apply(of("one")), true),
            (Event::Delete(of("one")), false),
            (Event::Apply(of("two")), false),
            (Event::Apply(of("one")), true),
        ] {
            writer.apply_watcher_event(&event);
            assert_eq!(is_in(&cache, &key, Some("one")), expected, "{event:?}");
        }
    }
}
