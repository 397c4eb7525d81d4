//! The reconcile of a Bundle: which ones are ours, and those that are being deleted.
//! The order of the steps is in `bundle_core::plan::bundle`.
//! Not here: the steps (bundle::steps), how content is unpacked (bundle::unpack), or what the status says (bundle::status).

use std::sync::Arc;
use std::time::Instant;

use bundle_api::names;
use bundle_core::plan::bundle::{BundleStep, ObservedBundle};
use bundle_core::review::{Kind, SealedContent};
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
    // What woke us may be older than our own last write, and a status made from that would undo it.
    let result = match ctx.get(&ctx.bundles, &object.name_any()).await {
        // On the heap: it holds a whole conversation with a registry.
        Ok(Some(now)) => {
            ctx.unreadable.remove(&now);
            Box::pin(once(&now, &ctx)).await
        }
        Ok(None) => {
            ctx.unpacking.cancel(&object.name_any());
            Ok(Action::await_change())
        }
        Err(error) if unreadable::is_too_large(&error) => {
            let (resource, events) = (&ctx.bundles, &ctx.bundle_events);
            let reported = ctx.unreadable.report(&ctx.own, resource, events, &object);
            Ok(reported.await)
        }
        Err(error) => Err(error.into()),
    };
    ctx.shared
        .metrics
        .reconcile("Bundle", result.is_ok(), begun.elapsed());
    result
}

async fn once(object: &DynamicObject, ctx: &Arc<Context>) -> Result<Action, ApiFailure> {
    if object.metadata.deletion_timestamp.is_some() {
        ctx.unpacking.cancel(&object.name_any());
        return leave(object, ctx).await;
    }
    if seal::ensure(ctx, &ctx.bundles, object, Kind::Bundle).await? {
        return Ok(Action::await_change());
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
