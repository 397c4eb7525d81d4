//! The reconcile of a Bundle: which ones are ours, each with a place of its requester, and those that are being deleted.
//! The order of the steps is in `bundle_core::plan::bundle`.
//! Not here: the steps (bundle::steps), how content is unpacked (bundle::unpack), or what the status says (bundle::status).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use bundle_api::names;
use bundle_core::plan::bundle::{BundleStep, ObservedBundle};
use bundle_core::review::{Kind, SealedContent};
use futures::FutureExt as _;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;

use crate::reconcile::ApiFailure;
use crate::reconcile::bundle::steps::BundleReconcile;
use crate::reconcile::context::{ClassFound, Context};
use crate::reconcile::status::seal;
use crate::reconcile::status::unreadable;

/// Reconciles one Bundle.
pub(in crate::reconcile) async fn reconcile(
    object: Arc<DynamicObject>,
    ctx: Arc<Context>,
) -> Result<Action, ApiFailure> {
    let begun = Instant::now();
    let result = in_turn(&object, &ctx).await;
    ctx.shared
        .metrics
        .reconcile("Bundle", result.is_ok(), begun.elapsed());
    result
}

/// Seals the object without delay, then waits for a place of its requester and reconciles it.
async fn in_turn(woken: &DynamicObject, ctx: &Arc<Context>) -> Result<Action, ApiFailure> {
    let (now, requester) = match sealed(woken, ctx).await? {
        ControlFlow::Continue(found) => found,
        ControlFlow::Break(action) => return Ok(action),
    };
    let mut now = Some(now);
    let mut slot = std::pin::pin!(ctx.bundle_slots.of(&requester));
    let at_once = (&mut slot).now_or_never();
    let slot = if let Some(slot) = at_once {
        slot
    } else {
        // It would take memory as long as it waits, and be old afterwards.
        now = None;
        slot.await
    };
    let now = match now {
        Some(now) => now,
        None => match sealed(woken, ctx).await? {
            ControlFlow::Continue((now, _)) => now,
            ControlFlow::Break(action) => return Ok(action),
        },
    };
    // On the heap: it holds a whole conversation with a registry.
    let result = Box::pin(once(&now, ctx)).await;
    drop(slot);
    result
}

/// Reads the object and makes sure that it is sealed, unless it is being deleted. What woke us may be older than our own last write, and a status made from that
/// would undo it. Returns the object with the requester whose places it takes; or when to look again, if it is gone or cannot be read, or its seal has just been
/// written and wakes us.
async fn sealed(
    woken: &DynamicObject,
    ctx: &Arc<Context>,
) -> Result<ControlFlow<Action, (DynamicObject, String)>, ApiFailure> {
    // Not held while anything is waited for but the API server.
    let _read = ctx.bundle_slots.read().await;
    let object = match ctx.get(&ctx.bundles, &woken.name_any()).await {
        Ok(Some(object)) => object,
        Ok(None) => {
            ctx.unpacking.cancel(&woken.name_any());
            return Ok(ControlFlow::Break(Action::await_change()));
        }
        Err(error) if unreadable::is_too_large(&error) => {
            let (resource, events) = (&ctx.bundles, &ctx.bundle_events);
            let reported = ctx.unreadable.report(&ctx.own, resource, events, woken);
            return Ok(ControlFlow::Break(reported.await));
        }
        Err(error) => return Err(error.into()),
    };
    ctx.unreadable.remove(&object);
    if object.metadata.deletion_timestamp.is_some() {
        ctx.unpacking.cancel(&object.name_any());
    } else if seal::ensure(ctx, &ctx.bundles, &object, Kind::Bundle).await? {
        return Ok(ControlFlow::Break(Action::await_change()));
    }
    let vouched = seal::vouched(ctx, &object, Kind::Bundle);
    let requester = vouched.map_or_else(|_| String::new(), |vouched| vouched.parts.template.user);
    Ok(ControlFlow::Continue((object, requester)))
}

async fn once(object: &DynamicObject, ctx: &Arc<Context>) -> Result<Action, ApiFailure> {
    if object.metadata.deletion_timestamp.is_some() {
        return leave(object, ctx).await;
    }
    let class_name = object.data["spec"]["provisionerClassName"]
        .as_str()
        .unwrap_or_default();
    let class = match ctx.class(class_name).await? {
        ClassFound::Ours(class) => class,
        ClassFound::Foreign | ClassFound::Gone => return Ok(Action::await_change()),
        ClassFound::Unreadable(why) => {
            tracing::warn!(
                class = class_name,
                why,
                "a class cannot be read; its Bundles wait"
            );
            return Ok(Action::await_change());
        }
    };
    BundleReconcile::new(object, ctx, &class).run().await
}

/// Our part in a Bundle that is being deleted: the copy on disk, then the finalizer of RukPak, if there is one.
async fn leave(object: &DynamicObject, ctx: &Context) -> Result<Action, ApiFailure> {
    let observed = ObservedBundle {
        is_deleted: true,
        ..ObservedBundle::default()
    };
    for step in observed.steps() {
        match step {
            BundleStep::RemoveCachedContent => remove_cached_content(object, ctx).await?,
            BundleStep::RemoveFinalizer => {
                remove_finalizer(ctx, object, names::FINALIZER_CACHED_BUNDLE).await?;
            }
            _ => {}
        }
    }
    Ok(Action::await_change())
}

/// Deletes the copy of the content, unless another Bundle needs it.
async fn remove_cached_content(object: &DynamicObject, ctx: &Context) -> Result<(), kube::Error> {
    let Some(SealedContent { digest, .. }) = seal::content(ctx, object) else {
        return Ok(());
    };
    let mut needed = false;
    ctx.each(&ctx.bundles, None, |other| {
        needed |= other.metadata.uid != object.metadata.uid
            && seal::content(ctx, &other).is_some_and(|content| content.digest == digest);
    })
    .await?;
    if !needed {
        ctx.store.remove(&digest);
    }
    Ok(())
}

async fn remove_finalizer(
    ctx: &Context,
    object: &DynamicObject,
    finalizer: &str,
) -> Result<(), kube::Error> {
    if !object.finalizers().iter().any(|name| name == finalizer) {
        return Ok(());
    }
    crate::reconcile::set_finalizers(
        &ctx.own,
        &ctx.bundles,
        object,
        object
            .finalizers()
            .iter()
            .filter(|name| *name != finalizer)
            .cloned()
            .collect(),
    )
    .await
}
