//! The reconcile of a Bundle: selects Bundles with a class whose provisioner bundle-webhook
//! implements, and handles deletions. `seal::sealed` limits the reconciles of each requester, and
//! `bundle_core::plan::bundle` orders the steps.

use std::sync::Arc;

use bundle_api::names;
use bundle_core::plan::bundle::{BundleStep, ObservedBundle};
use bundle_core::review::{Kind, SealedContent};
use futures::FutureExt as _;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;

use crate::blocking;
use crate::reconcile::ApiFailure;
use crate::reconcile::bundle::steps::BundleReconcile;
use crate::reconcile::context::{ClassLookup, Context, class_name};
use crate::reconcile::finalizers::FinalizerChange;
use crate::reconcile::seal;
use crate::reconcile::seal::sealed::SealedKind;

/// Reconciles one Bundle.
pub(in crate::reconcile) async fn reconcile(
    object: Arc<DynamicObject>,
    ctx: Arc<Context>,
) -> Result<Action, ApiFailure> {
    let bundles = SealedKind {
        kind: Kind::Bundle,
        resource: &ctx.bundles,
        events: &ctx.bundle_events,
        slots: &ctx.bundle_slots,
        seals_deleted: false,
        on_end: |ctx, name| ctx.unpacking.cancel(name),
    };
    bundles
        .reconcile(&object, &ctx, |object, ctx| {
            reconcile_object(object, ctx).boxed()
        })
        .await
}

async fn reconcile_object(
    object: &DynamicObject,
    ctx: &Arc<Context>,
) -> Result<Action, ApiFailure> {
    if object.metadata.deletion_timestamp.is_some() {
        return reconcile_deleted(object, ctx).await;
    }
    let class_name = class_name(object);
    let class = match ctx.recent_class(class_name).await? {
        ClassLookup::Managed(class) => class,
        ClassLookup::Unmanaged | ClassLookup::NotFound => return Ok(Action::await_change()),
        ClassLookup::Invalid(why) => {
            tracing::warn!(
                class = class_name,
                why,
                "invalid ProvisionerClass; its Bundles wait until it changes"
            );
            return Ok(Action::await_change());
        }
    };
    BundleReconcile::new(object, ctx, &class).run().await
}

/// Handles a Bundle that is being deleted. Removes the cached copy of its content, and then the
/// finalizer of RukPak if the Bundle has this finalizer.
async fn reconcile_deleted(object: &DynamicObject, ctx: &Context) -> Result<Action, ApiFailure> {
    let observed = ObservedBundle {
        is_deleted: true,
        ..ObservedBundle::default()
    };
    for step in observed.steps() {
        match step {
            BundleStep::RemoveCachedContent => remove_cached_content(object, ctx).await?,
            BundleStep::RemoveFinalizer => {
                FinalizerChange::Remove(names::FINALIZER_CACHED_BUNDLE)
                    .apply(&ctx.own, &ctx.bundles, object)
                    .await?;
            }
            _ => {}
        }
    }
    Ok(Action::await_change())
}

/// Removes the upload of a deleted Bundle. Also removes the cached copy of its content, unless
/// another Bundle needs the copy. If an earlier call already handled the cached copy of this
/// Bundle, removes only the upload.
async fn remove_cached_content(object: &DynamicObject, ctx: &Context) -> Result<(), kube::Error> {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    ctx.shared.uploads.remove(uid);
    if ctx.released.contains(uid) {
        return Ok(());
    }
    let Some(SealedContent { digest, .. }) = seal::content(ctx, object) else {
        return Ok(());
    };
    let mut needed = false;
    ctx.for_each(&ctx.bundles, None, |other| {
        needed |= other.metadata.uid != object.metadata.uid
            && other.metadata.deletion_timestamp.is_none()
            && seal::content(ctx, &other).is_some_and(|content| content.digest == digest);
    })
    .await?;
    if !needed {
        // The store reads the sizes of all cached files.
        blocking::run(|| ctx.store.remove(&digest));
    }
    ctx.released.record(uid).await;
    Ok(())
}
