//! Seals in status: what vouches for an object of ours, and the write that makes a fresh stamp last. It comes before anything is done with the object.
//! Not here: what stamps and seals are worth (bundle_core::review::seal).

use std::sync::Arc;

use bundle_api::names;
use bundle_cluster::ByName;
use bundle_core::diagnostic::codes;
use bundle_core::review::stamp::admit_token;
use bundle_core::review::{
    Kind, SealMoment, SealedContent, StampError, StoredObject, VouchState, Vouched, content_seal,
    last_written, seal, sealed_content, vouch_state,
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

/// What vouches for `object`: its seal, or a stamp that is fresh. Otherwise why nothing does, and how somebody can.
pub(in crate::reconcile) fn vouched(
    ctx: &Context,
    object: &DynamicObject,
    kind: Kind,
) -> Result<Vouched, String> {
    let stored = stored(object, kind);
    state(ctx, &stored)
        .vouched()
        .map_err(|why| message(ctx, object, &stored, why))
}

/// Returns the warning about owner references of `object` that nobody was asked about: admission refuses a deletion that follows from them.
pub(in crate::reconcile) fn owner_warning(
    object: &DynamicObject,
    vouched: &Vouched,
) -> Option<String> {
    let metadata = &object.metadata;
    let owners =
        json!({"metadata": {"name": metadata.name, "ownerReferences": metadata.owner_references}});
    (!vouched.covers_owners(&owners)).then(|| {
        format!(
            "the owner references were not reviewed, and the deletion of an owner does not delete this BundleDeployment: remove them, and set them again if they are wanted ({})",
            codes::review::DELETE_NOT_ALLOWED
        )
    })
}

/// Seals `object` if it has a fresh stamp. Afterwards the stamp is worth nothing any more, and nothing else is needed. A seal that somebody removed from the
/// status is written back if the inventory remembers it; returns whether it was, and then `object` is outdated and its next event continues.
pub(in crate::reconcile) async fn ensure(
    ctx: &Context,
    resource: &ApiResource,
    object: &DynamicObject,
    kind: Kind,
) -> Result<bool, kube::Error> {
    let stored = stored(object, kind);
    let key = ctx.shared.stamp_key();
    let (text, is_restored) = match state(ctx, &stored) {
        VouchState::Sealed(_) => return Ok(false),
        VouchState::Unsealed(vouched) => (seal(key.bytes(), &stored, &vouched), false),
        VouchState::NotVouched(_) => match remembered(ctx, &stored) {
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
    // Under a manager of its own: other writes of the status, which began earlier, do not take it back.
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

/// The seal that the inventory remembers of this object, if it is one for just this generation.
fn remembered(ctx: &Context, stored: &StoredObject<'_>) -> Option<String> {
    let text = ctx.inventories.seals(stored.uid)?.admission;
    let with_seal = StoredObject {
        seal: Some(&text),
        ..*stored
    };
    let is_sealed = matches!(state(ctx, &with_seal), VouchState::Sealed(_));
    is_sealed.then_some(text)
}

/// The admission seal that counts for this generation of `object`, from its status, else as the inventory remembers it.
pub(in crate::reconcile) fn admission_text(
    ctx: &Context,
    object: &DynamicObject,
    kind: Kind,
) -> Option<String> {
    let stored = stored(object, kind);
    match state(ctx, &stored) {
        VouchState::Sealed(_) => stored.seal.map(str::to_owned),
        _ => remembered(ctx, &stored),
    }
}

/// The content that was sealed for `bundle`, as the inventory remembers it from the installation on, else as its status has it: there somebody could
/// write back another one that was sealed earlier. Its spec may be another one by now.
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

/// The text that makes [`content`] last.
pub(in crate::reconcile) fn content_text(
    ctx: &Context,
    bundle: &DynamicObject,
    content: &SealedContent,
) -> String {
    let uid = bundle.metadata.uid.as_deref().unwrap_or_default();
    let key = ctx.shared.stamp_key();
    content_seal(key.bytes(), &bundle.name_any(), uid, content)
}

/// Seals approvals as they come, whether or not any class asks for them yet.
pub(in crate::reconcile) async fn approvals(ctx: Arc<Context>) {
    let api: Api<DynamicObject> = Api::all_with(ctx.own.clone(), &ctx.approvals);
    Controller::new_with(api, watcher::Config::default(), ctx.approvals.clone())
        .with_config(Config::default().concurrency(crate::reconcile::CONCURRENCY))
        .run(approval, crate::reconcile::policy, ctx)
        .for_each(crate::reconcile::told)
        .await;
}

async fn approval(object: Arc<DynamicObject>, ctx: Arc<Context>) -> Result<Action, ApiFailure> {
    if unreadable::is_identity(&object) {
        let (resource, events) = (&ctx.approvals, &ctx.approval_events);
        let reported = ctx.unreadable.report(&ctx.own, resource, events, &object);
        return Ok(reported.await);
    }
    ctx.unreadable.remove(&object);
    ensure(&ctx, &ctx.approvals, &object, Kind::BundleApproval).await?;
    Ok(Action::await_change())
}

fn state(ctx: &Context, stored: &StoredObject<'_>) -> VouchState {
    let moment = SealMoment {
        now: Timestamp::now().as_millisecond(),
        intact_since: ctx
            .shared
            .registrations
            .intact_since()
            .map(Timestamp::as_millisecond),
    };
    vouch_state(ctx.shared.stamp_key().bytes(), stored, &moment)
}

fn stored(object: &DynamicObject, kind: Kind) -> StoredObject<'_> {
    let metadata = &object.metadata;
    let entries = metadata.managed_fields.iter().flatten();
    let times = entries
        .filter(|entry| entry.subresource.as_deref() != Some("status"))
        .filter_map(|entry| Some(entry.time.as_ref()?.0.as_millisecond()));
    let written = last_written(times, Timestamp::now().as_millisecond());
    let created = metadata.creation_timestamp.as_ref();
    StoredObject {
        kind,
        name: metadata.name.as_deref().unwrap_or_default(),
        uid: metadata.uid.as_deref().unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        created: created.map(|time| time.0.as_millisecond()),
        written,
        deleting: metadata.deletion_timestamp.is_some(),
        spec: &object.data["spec"],
        stamp: object
            .annotations()
            .get(names::ANNOTATION_STAMP)
            .map(String::as_str),
        seal: object.data["status"]["admission"]["seal"].as_str(),
    }
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
    // A value that is there already does not count: nobody knows who set it.
    let remove = if object.annotations().get(annotation) == Some(&token) {
        format!("`{annotate} {annotation}-` and then ")
    } else {
        String::new()
    };
    format!(
        "{why}; nothing is done with it ({}). Read its spec; if you want exactly this, run {remove}`{annotate} {annotation}={token} --overwrite`: you become its requester, and are checked for all of it",
        codes::review::NOT_ADMITTED,
    )
}
