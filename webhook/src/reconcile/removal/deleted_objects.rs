//! Cancels background tasks of deleted objects. Controllers do not report all deletions, because a
//! deleted object without a finalizer is not reconciled again.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::core::discovery::ApiResource;
use kube::runtime::watcher::{self, Event};

use crate::clients::cluster::watch_events;
use crate::reconcile::context::Context;

/// Page size of lists of metadata.
const PAGE_SIZE: u32 = 100;

/// Cancels the tasks of deleted Bundles and BundleDeployments. This future never ends.
pub(in crate::reconcile) async fn watch(ctx: Arc<Context>) {
    let bundles = follow(&ctx, &ctx.bundles, |ctx, exists| {
        ctx.unpacking.retain(exists);
        ctx.resolving.retain(exists);
    });
    let deployments = follow(&ctx, &ctx.deployments, |ctx, exists| {
        ctx.refetching.retain(exists);
        ctx.rendering.retain(exists);
    });
    futures::join!(bundles, deployments);
}

/// Calls `retain` whenever an object was deleted, or all objects were listed. The argument of
/// `retain` is a predicate that returns true for names of existing objects.
async fn follow(
    ctx: &Context,
    resource: &ApiResource,
    retain: impl Fn(&Context, &dyn Fn(&str) -> bool),
) {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(ctx.own.clone(), resource);
    let config = watcher::Config::default().page_size(PAGE_SIZE);
    let mut events = std::pin::pin!(watch_events(api, config));
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                if !is_being_deleted(&object) {
                    listed.insert(object.name_any());
                }
            }
            Ok(Event::InitDone) => {
                retain(ctx, &|name| listed.contains(name));
                listed.clear();
            }
            Ok(Event::Apply(object)) if is_being_deleted(&object) => {
                let gone = object.name_any();
                retain(ctx, &|name| name != gone);
            }
            Ok(Event::Delete(object)) => {
                let gone = object.name_any();
                retain(ctx, &|name| name != gone);
            }
            // The controllers, which watch the same kinds, log errors. The watch is restarted.
            Ok(Event::Apply(_)) | Err(_) => {}
        }
    }
}

fn is_being_deleted(object: &PartialObjectMeta<DynamicObject>) -> bool {
    object.metadata.deletion_timestamp.is_some()
}
