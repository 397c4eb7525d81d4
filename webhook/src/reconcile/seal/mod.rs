//! Seals in the status of objects. A seal is a MAC that proves that the spec of an object was
//! admitted. The pod seals an object before it reconciles the object further.
//! `bundle_core::review::seal` contains the rules.

pub(super) mod sealed;

use std::sync::Arc;

use bundle_api::names;
use bundle_cluster::ByName;
use bundle_core::diagnostic::codes;
use bundle_core::review::stamp::admit_token;
use bundle_core::review::{
    ConfirmedFacts, Kind, SealCheckContext, SealState, SealedContent, StampError, StoredObject,
    content_seal, seal, seal_state, sealed_content,
};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::discovery::ApiResource;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::watcher;
use serde_json::json;

use crate::reconcile::ApiFailure;
use crate::reconcile::context::Context;
use crate::reconcile::status::unreadable;
use crate::reconcile::watched::WatchedObject;
use crate::stored_object;

/// Returns the facts that the seal or a recent admission stamp of `object` proves. If no valid seal
/// or stamp exists, the error is a message with the reason and the next step.
pub(in crate::reconcile) fn confirmed_facts(
    ctx: &Context,
    object: &DynamicObject,
    kind: Kind,
) -> Result<ConfirmedFacts, String> {
    let stored = stored(object, kind);
    state(ctx, &stored)
        .confirmed_facts()
        .map_err(|why| message(ctx, object, &stored, why))
}

/// Returns a warning if admission did not review the owner references of `object`. If the garbage
/// collector of Kubernetes deletes `object` because of these references, admission rejects the
/// deletion.
pub(in crate::reconcile) fn owner_warning(
    object: &DynamicObject,
    vouched: &ConfirmedFacts,
) -> Option<String> {
    let metadata = &object.metadata;
    let owners =
        json!({"metadata": {"name": metadata.name, "ownerReferences": metadata.owner_references}});
    (!vouched.covers_owners(&owners)).then(|| {
        format!(
            "the owner references were not reviewed, and the deletion of an owner does not delete this BundleDeployment: remove the owner references, and set them again if needed ({})",
            codes::review::DELETE_NOT_ALLOWED
        )
    })
}

/// Seals `object` if it has a recent admission stamp. After that, the seal proves the admission,
/// and the stamp is no longer needed. If another client removed the seal and an inventory records
/// it, writes the seal again and returns true. In this case `object` is outdated, and the write
/// starts another reconcile.
pub(in crate::reconcile) async fn ensure(
    ctx: &Context,
    resource: &ApiResource,
    object: &DynamicObject,
    kind: Kind,
) -> Result<bool, kube::Error> {
    let stored = stored(object, kind);
    let key = ctx.shared.stamp_key();
    let (text, is_restored) = match state(ctx, &stored) {
        SealState::Sealed(_) => return Ok(false),
        SealState::Unsealed(vouched) => (seal(key.bytes(), &stored, &vouched), false),
        SealState::Invalid(_) => match recorded_seal(ctx, &stored) {
            Some(text) => (text, true),
            None => return Ok(false),
        },
    };
    let admission = json!({
        "seal": text,
        "admit": admit_token(key.bytes(), kind.as_str(), stored.name, stored.uid, stored.spec),
    });
    let patch = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": { "name": stored.name, "uid": stored.uid },
        "status": { "admission": admission },
    });
    let api: Api<DynamicObject> = Api::all_with(ctx.own.clone(), resource);
    // The seal has a separate field manager, so that concurrent writes of the status do not remove
    // the seal.
    let parameters = PatchParams::apply(names::SEAL_MANAGER).force();
    match ByName(&api)
        .patch_status(stored.name, &parameters, &Patch::Apply(&patch))
        .await
    {
        Ok(_) => Ok(is_restored),
        Err(error) if crate::reconcile::api::object::is_not_found(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the admission seal of this object from an inventory. Returns `None` if no inventory
/// records a seal, or if the seal is not valid for this generation.
fn recorded_seal(ctx: &Context, stored: &StoredObject<'_>) -> Option<String> {
    let text = ctx.inventories.seals(stored.uid)?.admission;
    let with_seal = StoredObject {
        seal: Some(&text),
        ..*stored
    };
    let is_sealed = matches!(state(ctx, &with_seal), SealState::Sealed(_));
    is_sealed.then_some(text)
}

/// Returns the admission seal of this generation of `object`, from its status or from an inventory.
pub(in crate::reconcile) fn admission_text(
    ctx: &Context,
    object: &DynamicObject,
    kind: Kind,
) -> Option<String> {
    let stored = stored(object, kind);
    match state(ctx, &stored) {
        SealState::Sealed(_) => stored.seal.map(str::to_owned),
        _ => recorded_seal(ctx, &stored),
    }
}

/// Returns the sealed record of the content of `bundle`. The seal in the inventory has priority
/// over the seal in the status, because another client could write an old seal into the status. The
/// caller must check that the spec has not changed since the seal was created.
pub(in crate::reconcile) fn content(
    ctx: &Context,
    bundle: &DynamicObject,
) -> Option<SealedContent> {
    let uid = bundle.metadata.uid.as_deref()?;
    let key = ctx.shared.stamp_key();
    let read = |text: &str| sealed_content(key.bytes(), &bundle.name_any(), uid, text);
    let remembered = ctx.inventories.seals(uid).and_then(|seals| seals.content);
    let text = bundle.data["status"]["content"]["seal"].as_str();
    remembered
        .and_then(|text| read(&text))
        .or_else(|| text.and_then(read))
}

/// Returns the content seal of `bundle` for `content` as text.
pub(in crate::reconcile) fn content_text(
    ctx: &Context,
    bundle: &DynamicObject,
    content: &SealedContent,
) -> String {
    let uid = bundle.metadata.uid.as_deref().unwrap_or_default();
    let key = ctx.shared.stamp_key();
    content_seal(key.bytes(), &bundle.name_any(), uid, content)
}

/// Runs the controller that seals BundleApprovals, even if no class requires approvals.
pub(in crate::reconcile) async fn approvals(ctx: Arc<Context>) {
    let api: Api<WatchedObject> = Api::all_with(ctx.own.clone(), &ctx.approvals);
    Controller::new_with(api, watcher::Config::default(), ctx.approvals.clone())
        .with_config(Config::default().concurrency(crate::reconcile::APPROVAL_CONCURRENCY))
        .run(approval, crate::reconcile::error_policy, ctx)
        .for_each(crate::reconcile::log_watch_error)
        .await;
}

async fn approval(watched: Arc<WatchedObject>, ctx: Arc<Context>) -> Result<Action, ApiFailure> {
    let object = match ctx.get(&ctx.approvals, &watched.name_any()).await {
        Ok(Some(object)) => object,
        Ok(None) => return Ok(Action::await_change()),
        Err(error) if unreadable::is_too_large(&error) => {
            let (resource, events) = (&ctx.approvals, &ctx.approval_events);
            let object = watched.identity(resource);
            let reported = ctx.unreadable.report(&ctx.own, resource, events, &object);
            return Ok(reported.await);
        }
        Err(error) => return Err(error.into()),
    };
    ctx.unreadable.remove(&object);
    ensure(&ctx, &ctx.approvals, &object, Kind::BundleApproval).await?;
    Ok(Action::await_change())
}

fn state(ctx: &Context, stored: &StoredObject<'_>) -> SealState {
    let moment = SealCheckContext {
        now: Timestamp::now().as_millisecond(),
        intact_since: ctx
            .shared
            .registrations
            .intact_since()
            .map(Timestamp::as_millisecond),
    };
    seal_state(ctx.shared.stamp_key().bytes(), stored, &moment)
}

fn stored(object: &DynamicObject, kind: Kind) -> StoredObject<'_> {
    stored_object::from_client(kind, object, Timestamp::now().as_millisecond())
}

fn message(
    ctx: &Context,
    object: &DynamicObject,
    stored: &StoredObject<'_>,
    why: StampError,
) -> String {
    let key = ctx.shared.stamp_key();
    let kind = stored.kind.as_str();
    let token = admit_token(key.bytes(), kind, stored.name, stored.uid, stored.spec);
    let annotate = format!("kubectl annotate {} {}", kind.to_lowercase(), stored.name);
    let annotation = names::ANNOTATION_ADMIT;
    // Admission ignores an existing value of the annotation, because its author is unknown.
    // Therefore the user must first remove an existing annotation with the required value.
    let remove = if object.annotations().get(annotation) == Some(&token) {
        format!("`{annotate} {annotation}-` and then ")
    } else {
        String::new()
    };
    format!(
        "{why}; it is not reconciled ({}). Read its spec. To request exactly this spec, run {remove}`{annotate} {annotation}={token} --overwrite`: you become its requester, and your permissions are checked for all of it",
        codes::review::NOT_ADMITTED,
    )
}
