//! Signatures and policies on the digest that will be pulled: admission is not the only lock.
//! Not here: the decision itself (bundle_trust::proof).

use bundle_api::bundle::SignedBy as ApiSignedBy;
use bundle_api::names::{self, reason};
use bundle_core::content::ContentId;
use bundle_core::diagnostic::codes;
use bundle_core::policy::{self, RawSignature, SignedBy, Signer};
use bundle_core::reference::PinnedReference;
use bundle_core::review::Class;
use bundle_trust::proof::{self, Decided, Refusal};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use crate::heavy;
use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::status::condition_set;
use crate::sources::{ContentSource as _, OpenSource};

/// Decides on `content` under the policies and class as they are now. `bundle` may carry a proof; where that is not enough, the registry is asked.
pub(in crate::reconcile) async fn verify(
    ctx: &Context,
    class: &Class,
    source: &OpenSource,
    bundle: &DynamicObject,
    content: ContentId,
) -> Result<Decided<ContentId>, ReconcileError> {
    let Some(image) = content.image() else {
        return proof::decide_unsignable(content, class.signatures)
            .map_err(|refusal| refused(&refusal));
    };
    let (pinned, pull_secret) = (image.pinned(), image.pull_secret.cloned());
    if !ctx.shared.policies.is_synced() {
        return Err(ReconcileError::new(
            codes::trust::CANNOT_TELL,
            reason::UNPACK_FAILED,
            "the SignaturePolicies are not known yet",
            RetryPolicy::Soon,
        ));
    }
    let stored = ctx.shared.policies.all();
    let policies = || stored.values().map(|policy| &**policy);
    let (now, examinations) = (jiff::Timestamp::now(), &ctx.shared.examinations);
    let needed = policy::needs_signatures(pinned.reference(), policies());
    if needed
        && let Some(carried) = carried(bundle, &pinned)
        && let Ok(decided) = heavy::run(|| {
            let (pinned, carried) = (pinned.clone(), Ok(carried));
            examinations.decide(pinned, &carried, policies(), class.signatures, now)
        })
    {
        return Ok(decided.with_pull_secret(pull_secret));
    }
    let signatures = if needed {
        source.signatures(&content).await
    } else {
        Ok(Vec::new())
    };
    let decided =
        heavy::run(|| examinations.decide(pinned, &signatures, policies(), class.signatures, now));
    match decided {
        Ok(decided) => Ok(decided.with_pull_secret(pull_secret)),
        Err(refusal) => Err(refused(&refusal)),
    }
}

/// A signature may be pushed later, and a policy may change: neither tells us by itself.
fn refused(refusal: &Refusal) -> ReconcileError {
    ReconcileError::findings(
        reason::UNPACK_FAILED,
        &refusal.findings,
        if refusal.cannot_tell {
            RetryPolicy::Soon
        } else {
            RetryPolicy::Slowly
        },
    )
}

/// The signatures that the Bundle brought along, if they are for this content.
fn carried(bundle: &DynamicObject, pinned: &PinnedReference) -> Option<Vec<RawSignature>> {
    let text = bundle.annotations().get(names::ANNOTATION_PROOF)?;
    let carried = bundle_trust::carried::decode(text, pinned.digest()).ok()?;
    Some(carried.signatures)
}

/// Who signed, for the status.
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

/// Who signed, for people.
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
        parts.push("no policy asks for a signature".to_owned());
    }
    parts.extend(warnings.iter().cloned());
    parts.join("; ")
}
