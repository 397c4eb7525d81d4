//! Cancels background tasks of deleted objects. A reconcile cannot do this, because a deleted
//! object without a finalizer is not reconciled again. Objects are identified by uid, because a new
//! object of the same name can already have a task when the deletion is reported.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::core::discovery::ApiResource;
use kube::runtime::watcher::{self, Event};

use crate::clients::cluster::watch_events;
use crate::reconcile::context::Context;

/// Maximum number of objects on one page of a metadata list.
const PAGE_SIZE: u32 = 100;

/// Watches Bundles and BundleDeployments, and cancels the background tasks of deleted objects. This
/// future never ends.
pub(in crate::reconcile) async fn watch(ctx: Arc<Context>) {
    let (unpacking, resolving) = (&ctx.unpacking, &ctx.resolving);
    let bundles = follow(
        &ctx,
        &ctx.bundles,
        || &unpacking.uids() | &resolving.uids(),
        |deleted| {
            unpacking.cancel_objects(deleted);
            resolving.cancel_objects(deleted);
        },
    );
    let (refetching, rendering) = (&ctx.refetching, &ctx.rendering);
    let deployments = follow(
        &ctx,
        &ctx.deployments,
        || &refetching.uids() | &rendering.uids(),
        |deleted| {
            refetching.cancel_objects(deleted);
            rendering.cancel_objects(deleted);
        },
    );
    futures::join!(bundles, deployments);
}

/// Watches the objects of `resource`, and calls `cancel` with the uids of deleted objects.
/// `with_tasks` returns the uids of all objects with background tasks.
async fn follow(
    ctx: &Context,
    resource: &ApiResource,
    with_tasks: impl Fn() -> BTreeSet<String>,
    cancel: impl Fn(&BTreeSet<String>),
) {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(ctx.own.clone(), resource);
    let config = watcher::Config::default().page_size(PAGE_SIZE);
    let mut events = std::pin::pin!(watch_events(api, config));
    let mut deletions = Deletions::default();
    while let Some(event) = events.next().await {
        // Errors are not logged here, because the controllers watch the same kinds and log their
        // errors. `watch_events` restarts the watch.
        let Ok(event) = event else { continue };
        let deleted = deletions.after(event, &with_tasks);
        if !deleted.is_empty() {
            cancel(&deleted);
        }
    }
}

/// Detects deletions from the watch events of one kind.
#[derive(Debug, Default)]
struct Deletions {
    /// The uids of objects with tasks that are not yet in the list that the watch currently
    /// receives. When the list ends, the remaining objects count as deleted.
    unlisted: BTreeSet<String>,
}

impl Deletions {
    /// Returns the uids of objects that are deleted or being deleted according to `event`.
    /// `with_tasks` returns the uids of all objects with tasks. `with_tasks` is called only at the
    /// start of a list, so that an object which is created during the list does not count as
    /// deleted.
    fn after(
        &mut self,
        event: Event<PartialObjectMeta<DynamicObject>>,
        with_tasks: impl FnOnce() -> BTreeSet<String>,
    ) -> BTreeSet<String> {
        match event {
            Event::Init => self.unlisted = with_tasks(),
            Event::InitApply(object) => {
                if !is_being_deleted(&object) {
                    self.unlisted.remove(uid(&object));
                }
            }
            Event::InitDone => return std::mem::take(&mut self.unlisted),
            Event::Apply(object) => {
                if is_being_deleted(&object) {
                    return [uid(&object).to_owned()].into();
                }
            }
            Event::Delete(object) => return [uid(&object).to_owned()].into(),
        }
        BTreeSet::new()
    }
}

fn is_being_deleted(object: &PartialObjectMeta<DynamicObject>) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

fn uid(object: &PartialObjectMeta<DynamicObject>) -> &str {
    object.metadata.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::api::ObjectMeta;
    use kube::core::metadata::PartialObjectMetaExt as _;

    use super::*;

    /// Returns Bundle `web` with this uid.
    fn bundle(uid: &str) -> PartialObjectMeta<DynamicObject> {
        let metadata = ObjectMeta {
            name: Some("web".to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        };
        metadata.into_response_partial()
    }

    fn uids<const N: usize>(uids: [&str; N]) -> BTreeSet<String> {
        uids.map(str::to_owned).into()
    }

    #[test]
    fn late_event_names_only_the_object_that_was_deleted() {
        let mut deletions = Deletions::default();
        let mut after = |event| deletions.after(event, || uids(["u-2"]));
        assert_eq!(after(Event::Apply(bundle("u-2"))), uids([]));
        assert_eq!(after(Event::Delete(bundle("u-1"))), uids(["u-1"]));
        let mut deleted = bundle("u-3");
        deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(after(Event::Apply(deleted)), uids(["u-3"]));
    }

    #[test]
    fn object_that_is_created_during_a_list_does_not_count_as_deleted() {
        let mut deletions = Deletions::default();
        let before = || uids(["u-1", "u-2", "u-3"]);
        let during = || uids(["u-1", "u-2", "u-3", "u-4"]);
        assert_eq!(deletions.after(Event::Init, before), uids([]));
        let mut deleted = bundle("u-3");
        deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        for listed in [bundle("u-2"), deleted] {
            assert_eq!(deletions.after(Event::InitApply(listed), during), uids([]));
        }
        let found = deletions.after(Event::InitDone, during);
        assert_eq!(found, uids(["u-1", "u-3"]));
        assert_eq!(deletions.after(Event::InitDone, during), uids([]));
    }
}
