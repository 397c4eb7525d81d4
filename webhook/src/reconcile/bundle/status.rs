//! The status of a Bundle. `bundle_core::plan::bundle` decides its conditions and its phase.

use bundle_api::bundle::{BundleContent, BundleStatus};
use bundle_api::names;
use bundle_api::source::{BundleSource, GitRef};
use bundle_core::content::ContentId;
use bundle_core::plan::bundle::StatusPlan;
use bundle_core::review::SealedContent;
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use crate::reconcile::context::Context;
use crate::reconcile::seal;
use crate::reconcile::status::condition_set::ConditionSet;

/// Returns `status` with the changes that `plan` contains.
pub(super) fn with_plan(
    status: &BundleStatus,
    plan: &StatusPlan,
    mut conditions: ConditionSet,
) -> BundleStatus {
    let mut status = status.clone();
    if let Some(phase) = plan.phase {
        status.phase = Some(phase.as_str().to_owned());
    }
    if plan.forgets_source {
        status.resolved_source = None;
        status.content_url = None;
    }
    conditions.apply_all(&plan.conditions);
    conditions.confirm(plan.confirmed);
    status.conditions = conditions.into_api();
    status
}

/// Returns true if the phase is `Unpacked`.
pub(super) fn is_unpacked(status: &BundleStatus) -> bool {
    status.phase.as_deref() == Some(names::PHASE_UNPACKED)
}

/// Returns the source in the spec of `object`, pinned to the image digest or git commit of `id`.
pub(super) fn resolved_source(object: &DynamicObject, id: &ContentId) -> BundleSource {
    let mut source: BundleSource =
        serde_json::from_value(object.data["spec"]["source"].clone()).unwrap_or_default();
    if let (Some(image), Some(resolved)) = (&mut source.image, id.image()) {
        image.reference = resolved.pinned().to_string();
    }
    if let (Some(git), Some(commit)) = (&mut source.git, id.commit()) {
        git.reference = GitRef {
            commit: Some(commit.to_owned()),
            ..GitRef::default()
        };
    }
    source
}

/// Returns the URL at which the content service serves the content of a Bundle.
pub(super) fn content_url(ctx: &Context, object: &DynamicObject) -> String {
    let content = &ctx.shared.settings.content;
    let (base, prefix) = (&content.url, &content.paths.downloads.prefix);
    format!("{base}{prefix}{}.tgz", object.name_any())
}

/// Returns the status fields of sealed content. Fields that the seal does not cover are copied from
/// `described`, if `described` has the same digest.
pub(super) fn content(
    ctx: &Context,
    object: &DynamicObject,
    sealed: &SealedContent,
    described: Option<&BundleContent>,
) -> BundleContent {
    let described = described.filter(|content| content.digest == sealed.digest.as_str());
    BundleContent {
        digest: sealed.digest.to_string(),
        spec_digest: sealed.spec.to_string(),
        version: sealed.version.clone(),
        seal: Some(seal::content_text(ctx, object, sealed)),
        ..described.cloned().unwrap_or_default()
    }
}
