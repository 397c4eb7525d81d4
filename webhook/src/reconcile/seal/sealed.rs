//! The start of each reconcile of a Bundle or BundleDeployment: reads and seals the object, and
//! then waits for a reconcile slot of the requester. Sealing needs no reconcile slot.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use bundle_core::review::Kind;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::ResourceExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::controller::Action;

use crate::budget::Share;
use crate::reconcile::ApiFailure;
use crate::reconcile::context::Context;
use crate::reconcile::seal;
use crate::reconcile::slots::Slots;
use crate::reconcile::status::unreadable;
use crate::reconcile::status::writer::EventRecorder;
use crate::telemetry::spans;

/// A kind whose objects are sealed and reconciled. The number of concurrent reconciles of each
/// requester is limited.
pub(in crate::reconcile) struct SealedKind<'a> {
    pub(in crate::reconcile) kind: Kind,
    pub(in crate::reconcile) resource: &'a ApiResource,
    pub(in crate::reconcile) events: &'a EventRecorder,
    pub(in crate::reconcile) slots: &'a Slots,
    /// True if objects that are being deleted are also sealed.
    pub(in crate::reconcile) seals_deleted: bool,
    /// Function that is called with the name of an object which is deleted or being deleted. The
    /// call is made before the reconcile waits for a slot.
    pub(in crate::reconcile) on_end: fn(&Context, &str),
}

/// An object that is ready to be reconciled.
struct SealedObject {
    object: DynamicObject,
    /// The reconcile slot of the requester. It is released when the reconcile ends.
    _slot: Option<Share>,
}

impl SealedKind<'_> {
    /// Reconciles the object of an event with `work`, and counts the result. `work` starts after
    /// the object was sealed and a slot of its requester is free.
    pub(in crate::reconcile) async fn reconcile<W>(
        &self,
        event_object: &DynamicObject,
        ctx: &Arc<Context>,
        work: W,
    ) -> Result<Action, ApiFailure>
    where
        W: for<'o> FnOnce(
            &'o DynamicObject,
            &'o Arc<Context>,
        ) -> BoxFuture<'o, Result<Action, ApiFailure>>,
    {
        let start = Instant::now();
        let result = match self.prepare_reconcile(event_object, ctx).await {
            Ok(ControlFlow::Continue(sealed)) => work(&sealed.object, ctx).await,
            Ok(ControlFlow::Break(action)) => Ok(action),
            Err(error) => Err(error),
        };
        let metrics = &ctx.shared.metrics;
        metrics.reconcile(self.kind.as_str(), result.is_ok(), start.elapsed());
        result
    }

    /// Returns the sealed object with a slot of its requester. If the object must not be reconciled
    /// now, returns the action that ends the reconcile.
    async fn prepare_reconcile(
        &self,
        woken: &DynamicObject,
        ctx: &Context,
    ) -> Result<ControlFlow<Action, SealedObject>, ApiFailure> {
        let (object, requester) = match self.read(woken, ctx).await? {
            ControlFlow::Continue(found) => found,
            ControlFlow::Break(action) => return Ok(ControlFlow::Break(action)),
        };
        spans::requester(&requester);
        let mut slot = std::pin::pin!(self.slots.acquire(&requester));
        if let Some(slot) = (&mut slot).now_or_never() {
            return Ok(ControlFlow::Continue(SealedObject {
                object,
                _slot: slot,
            }));
        }
        // The object is dropped and read again after the wait, because it would use memory during
        // the wait and could be outdated afterwards.
        drop(object);
        let slot = slot.await;
        Ok(match self.read(woken, ctx).await? {
            ControlFlow::Continue((object, _)) => ControlFlow::Continue(SealedObject {
                object,
                _slot: slot,
            }),
            ControlFlow::Break(action) => ControlFlow::Break(action),
        })
    }

    /// Reads the object, and seals it if its stamp is valid. The object is read because the object
    /// in the event can be older than the last write of this pod. A status that is computed from an
    /// older object would revert this write.
    ///
    /// Returns the object with its requester. Returns an action in three cases: the object does not
    /// exist, the object is too large, or a removed seal was written again. In the last case, the
    /// write of the seal starts another reconcile. If the object has no valid seal or stamp, the
    /// returned requester is empty, and `work` rejects the object.
    async fn read(
        &self,
        woken: &DynamicObject,
        ctx: &Context,
    ) -> Result<ControlFlow<Action, (DynamicObject, String)>, ApiFailure> {
        // The permit for concurrent reads is released at the end of this function.
        let _read = self.slots.acquire_read().await;
        let name = woken.name_any();
        let object = match ctx.get(self.resource, &name).await {
            Ok(Some(object)) => object,
            Ok(None) => {
                (self.on_end)(ctx, &name);
                return Ok(ControlFlow::Break(Action::await_change()));
            }
            Err(error) if unreadable::is_too_large(&error) => {
                let (resource, events) = (self.resource, self.events);
                let reported = ctx.unreadable.report(&ctx.own, resource, events, woken);
                return Ok(ControlFlow::Break(reported.await));
            }
            Err(error) => return Err(error.into()),
        };
        ctx.unreadable.remove(&object);
        let is_deleted = object.metadata.deletion_timestamp.is_some();
        if is_deleted {
            (self.on_end)(ctx, &name);
        }
        if (self.seals_deleted || !is_deleted)
            && seal::ensure(ctx, self.resource, &object, self.kind).await?
        {
            return Ok(ControlFlow::Break(Action::await_change()));
        }
        let vouched = seal::confirmed_facts(ctx, &object, self.kind);
        let requester = vouched.map(|vouched| vouched.parts.template.user.clone());
        let requester = requester.unwrap_or_default();
        Ok(ControlFlow::Continue((object, requester)))
    }
}
