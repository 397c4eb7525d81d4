//! The reconcilers of Bundles, BundleDeployments and BundleApprovals. The rules are in
//! `bundle_core` (`plan`, `rights`, `review`).

pub(crate) mod api;
mod apply;
mod background_tasks;
mod bundle;
mod content;
mod context;
mod deployment;
mod deployment_state;
mod drift;
mod error;
mod finalizers;
mod install;
mod inventory;
mod maintenance;
#[cfg(test)]
mod messages;
mod reader;
mod related_events;
mod removal;
mod rights;
mod seal;
mod served;
mod slots;
mod status;
mod upload_targets;
mod watched;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, Stream, StreamExt as _};
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject};
use kube::core::discovery::ApiResource;
use kube::core::metadata::PartialObjectMeta;
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

pub use self::inventory::recorded_owner::RecordedOwner;
pub(crate) use self::inventory::recorded_owner::StoredInventories;

use self::context::Context;
use self::drift::states::InstalledStates;
use self::related_events::RelatedEvents;
use self::served::ServedContent;
use self::watched::WatchedObject;
use crate::BoxError;
use crate::blocking;
use crate::retry::{self, delays, jittered};
use crate::shared::Shared;

/// Maximum memory that the caches of the reconcilers need, in bytes.
pub(crate) const CACHES_BYTES: usize = apply::allowed_dry_runs::MAX_BYTES
    + context::released::MAX_BYTES
    + context::unchanged_sources::MAX_BYTES
    + drift::scope::MAX_BYTES;
/// Value of the label `core.rukpak.io/owner-kind`: the kind of the owner.
const DEPLOYMENT: &str = "BundleDeployment";
/// Maximum number of concurrent reconciles of BundleApprovals. The module `slots` limits the
/// reconciles of Bundles and BundleDeployments.
const APPROVAL_CONCURRENCY: u16 = 8;
/// Interval between sweeps of the cache, the inventories and the installed states.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);
/// Interval between sweeps of the uploads, as in RukPak.
const UPLOAD_SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// A request to the API server failed, and no condition could report it.
#[derive(Debug, thiserror::Error)]
#[error("a request to the API server failed")]
struct ApiFailure(#[from] kube::Error);

/// Runs the controllers until `stop` is cancelled. Then running reconciles are aborted. The next
/// leader continues from the state that is recorded in the cluster.
pub async fn run(shared: Arc<Shared>, stop: CancellationToken) -> Result<(), BoxError> {
    let (wake, woken) = mpsc::unbounded_channel();
    let (wake_bundle, woken_bundles) = mpsc::unbounded_channel();
    let states = Arc::new(InstalledStates::new(wake.clone()));
    let related = RelatedEvents::new(wake.clone());
    let ctx = Arc::new(Context::new(shared, states, wake_bundle, wake));
    let inventories = retry::until_success("read the inventories", || ctx.inventories.load_all());
    let inventories = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        inventories = inventories => inventories,
    };
    for inventory in inventories {
        ctx.states
            .set_inventory(&inventory.deployment, inventory.clone());
    }
    let served = Arc::new(ServedContent(ctx.clone()));
    let _leading = ctx.shared.leader_archives.provide(served);
    let deleted = self::removal::deleted_objects::watch(ctx.clone());
    let approvals = self::seal::approvals(ctx.clone());
    let permissions = self::rights::permission_groups::run(ctx.clone());
    // A controller polls all its reconciles whenever its task is woken. These include the reconciles
    // that wait for a slot. Therefore each controller has its own task, so that only the events of
    // this controller wake the task.
    let mut tasks = LeaderTasks::new();
    spawn(&mut tasks, "sweep of the cache", sweep(ctx.clone()));
    spawn(
        &mut tasks,
        "sweep of the uploads",
        sweep_uploads(ctx.clone()),
    );
    spawn(&mut tasks, "watch of deleted objects", deleted);
    spawn(&mut tasks, "permission checks of groups", permissions);
    spawn(
        &mut tasks,
        "controller of Bundles",
        bundles(ctx.clone(), woken_bundles),
    );
    spawn(&mut tasks, "controller of BundleApprovals", approvals);
    spawn(
        &mut tasks,
        "controller of BundleDeployments",
        deployments(ctx, woken, related),
    );
    let ended = tokio::select! {
        () = stop.cancelled() => Ok(()),
        ended = tasks.join_next() => Err(end_error(ended)),
    };
    tasks.shutdown().await;
    ended
}

/// The tasks of the leader, each with its name. If the value is dropped, all tasks are aborted.
type LeaderTasks = JoinSet<&'static str>;

fn spawn(
    tasks: &mut LeaderTasks,
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) {
    tasks.spawn(task.map(move |()| name));
}

/// Returns the error for a task that ended before the stop. `ended` contains the name of the task,
/// or its panic.
fn end_error(ended: Option<Result<&'static str, JoinError>>) -> BoxError {
    match ended {
        Some(Ok(name)) => format!("the {name} ended").into(),
        Some(Err(error)) => error.into(),
        None => "no task of the leader is running".into(),
    }
}

/// Periodically removes cached content that no Bundle needs. Also removes inventories and states of
/// BundleDeployments that were deleted without a reconcile, and cancels background tasks of deleted
/// objects.
async fn sweep(ctx: Arc<Context>) {
    loop {
        tokio::time::sleep(jittered(SWEEP_INTERVAL)).await;
        // If another client removes the finalizer, no reconcile handles the deletion. The names and
        // uids of BundleDeployments that have a state or a scheduled permission check are read
        // before the list of BundleDeployments, so that a state that is added later is not removed.
        let known = ctx.states.names();
        let scheduled = ctx.rights_schedule.uids();
        let with_tasks = [&ctx.refetching, &ctx.rendering].map(|tasks| (tasks, tasks.uids()));
        let recorded = ctx.inventories.uids().await.unwrap_or_default();
        if let Ok(deployments) = ctx.uids_by_name(&ctx.deployments).await {
            let there: HashSet<&str> = deployments.keys().map(String::as_str).collect();
            for gone in known.iter().filter(|name| !there.contains(name.as_str())) {
                ctx.states.close(gone);
                ctx.watches.remove_user(gone);
            }
            let uids: HashSet<String> = deployments.into_values().collect();
            ctx.rights_schedule.remove(&without(scheduled, &uids));
            // A reconcile can start a task after the watch has reported the deletion of its object.
            for (tasks, known) in with_tasks {
                tasks.cancel_objects(&without(known, &uids));
            }
            for gone in recorded.difference(&uids) {
                if let Err(error) = ctx.inventories.remove(gone).await {
                    tracing::warn!(
                        error = crate::chain(&error),
                        "cannot delete the inventory of a deleted BundleDeployment; the next sweep retries"
                    );
                }
            }
        }
        let (unpacking, resolving) = (ctx.unpacking.uids(), ctx.resolving.uids());
        let recorded = ctx.inventories.content_digests();
        let has_tasks = !unpacking.is_empty() || !resolving.is_empty();
        let cached = blocking::run(|| ctx.store.digests());
        if !must_list_bundles(has_tasks, &cached, &recorded) {
            blocking::run(|| ctx.store.sweep(recorded));
            continue;
        }
        let (mut needed, mut uids) = (BTreeSet::new(), HashSet::<String>::new());
        let listed = ctx.for_each(&ctx.bundles, None, |bundle| {
            uids.extend(bundle.metadata.uid.clone());
            let content = self::seal::content(&ctx, &bundle);
            needed.extend(content.map(|content| content.digest.to_string()));
        });
        // If the list failed, nothing is removed or cancelled, because an incomplete list does not
        // contain all needed content and all existing Bundles.
        if listed.await.is_ok() {
            blocking::run(|| ctx.store.sweep(needed));
            ctx.unpacking.cancel_objects(&without(unpacking, &uids));
            ctx.resolving.cancel_objects(&without(resolving, &uids));
        }
    }
}

/// Returns true if the sweep must list all Bundles, which reads their complete objects. The list is
/// not necessary if no background task of a Bundle is running, and if inventories record the
/// content of all `cached` copies.
fn must_list_bundles(
    has_tasks: bool,
    cached: &BTreeSet<String>,
    recorded: &BTreeSet<String>,
) -> bool {
    has_tasks || !cached.is_subset(recorded)
}

/// Returns the uids in `known` that no existing object has. `known` must be read before the
/// existing objects, so that the result contains only uids of deleted objects.
fn without(known: BTreeSet<String>, existing: &HashSet<String>) -> BTreeSet<String> {
    let deleted = known.into_iter().filter(|uid| !existing.contains(uid));
    deleted.collect()
}

/// Periodically removes uploads of Bundles that do not exist.
async fn sweep_uploads(ctx: Arc<Context>) {
    loop {
        tokio::time::sleep(jittered(UPLOAD_SWEEP_INTERVAL)).await;
        // The uids of uploads are read before the list of Bundles, so that an upload that begins
        // later is not removed.
        let known = ctx.shared.uploads.uids();
        if known.is_empty() {
            continue;
        }
        if let Ok(bundles) = ctx.uids_by_name(&ctx.bundles).await {
            let there: HashSet<String> = bundles.into_values().collect();
            for gone in known.difference(&there) {
                ctx.shared.uploads.remove(gone);
            }
        }
    }
}

fn api(ctx: &Context, resource: &ApiResource) -> Api<WatchedObject> {
    Api::all_with(ctx.own.clone(), resource)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "kube::runtime::Controller passes both by value"
)]
fn error_policy(object: Arc<WatchedObject>, error: &ApiFailure, _: Arc<Context>) -> Action {
    tracing::warn!(name = %object.name_any(), error = crate::chain(error), "a reconcile failed and is retried");
    Action::requeue(jittered(delays::UNREPORTED_ERROR))
}

/// Logs failures of the watches that trigger reconciles. Failed reconciles are not logged here,
/// because [`error_policy`] logs them.
async fn log_watch_error<T>(result: Result<T, controller::Error<ApiFailure, watcher::Error>>) {
    match result {
        Ok(_)
        | Err(controller::Error::ReconcilerFailed(..) | controller::Error::ObjectNotFound(_)) => {}
        Err(error) => {
            tracing::warn!(
                error = crate::chain(&error),
                "a watch of the project's own kinds failed and is restarted"
            );
        }
    }
}

async fn bundles(ctx: Arc<Context>, woken: mpsc::UnboundedReceiver<String>) {
    let controller = Controller::new_with(
        api(&ctx, &ctx.bundles),
        watcher::Config::default(),
        ctx.bundles.clone(),
    );
    let store = controller.store();
    // `set` fails only if a value is already set. No other code sets this value.
    ctx.bundle_cache.set(store.clone()).ok();
    let resource = ctx.bundles.clone();
    let recent_classes = ctx.recent_classes.clone();
    let wakes = ctx.bundles.clone();
    let woken = into_stream(woken).map(move |name| ObjectRef::new_with(&name, wakes.clone()));
    controller
        .reconcile_on(woken)
        .watches_with(
            api(&ctx, &ctx.classes),
            ctx.classes.clone(),
            watcher::Config::default(),
            move |class| {
                recent_classes.clear();
                objects_of_class(&store.state(), &class, &resource)
            },
        )
        .run(
            |watched, ctx| async move {
                let object = Arc::new(watched.identity(&ctx.bundles));
                let work = Box::pin(self::bundle::controller::reconcile(object.clone(), ctx));
                crate::telemetry::spans::reconcile("Bundle", &object, work).await
            },
            error_policy,
            ctx,
        )
        .for_each(log_watch_error)
        .await;
}

async fn deployments(
    ctx: Arc<Context>,
    woken: mpsc::UnboundedReceiver<String>,
    related: RelatedEvents,
) {
    let controller = Controller::new_with(
        api(&ctx, &ctx.deployments),
        watcher::Config::default(),
        ctx.deployments.clone(),
    );
    let store = controller.store();
    let (classes, wakes) = (ctx.deployments.clone(), ctx.deployments.clone());
    let recent_classes = ctx.recent_classes.clone();
    let related = Arc::new(related);
    let (of_bundles, of_approvals) = (related.clone(), related);
    let (bundles, approvals) = (ctx.deployments.clone(), ctx.deployments.clone());
    let woken = into_stream(woken);
    controller
        .watches_with(
            Api::<PartialObjectMeta<DynamicObject>>::all_with(ctx.own.clone(), &ctx.bundles),
            ctx.bundles.clone(),
            watcher::Config::default(),
            move |bundle| {
                let deployment = related_events::controller(&bundle.metadata);
                let deployment = deployment.filter(|name| of_bundles.can_start(name));
                deployment.map(|name| ObjectRef::new_with(&name, bundles.clone()))
            },
        )
        .watches_with(
            api(&ctx, &ctx.classes),
            ctx.classes.clone(),
            watcher::Config::default(),
            move |class| {
                recent_classes.clear();
                objects_of_class(&store.state(), &class, &classes)
            },
        )
        .watches_with(
            api(&ctx, &ctx.approvals),
            ctx.approvals.clone(),
            watcher::Config::default(),
            move |approval| {
                let deployment = approval.deployment.as_deref();
                let deployment = deployment.filter(|name| of_approvals.can_start(name));
                deployment.map(|name| ObjectRef::new_with(name, approvals.clone()))
            },
        )
        .reconcile_on(woken.map(move |name| ObjectRef::new_with(&name, wakes.clone())))
        .run(
            |watched, ctx| async move {
                let object = Arc::new(watched.identity(&ctx.deployments));
                let work = Box::pin(self::deployment::entry::reconcile(object.clone(), ctx));
                crate::telemetry::spans::reconcile(DEPLOYMENT, &object, work).await
            },
            error_policy,
            ctx,
        )
        .for_each(log_watch_error)
        .await;
}

/// Returns a stream of the received names.
fn into_stream(woken: mpsc::UnboundedReceiver<String>) -> impl Stream<Item = String> + Send {
    futures::stream::unfold(woken, |mut woken| async move {
        let name = woken.recv().await?;
        Some((name, woken))
    })
}

/// Returns references to those `objects` whose spec names this class.
fn objects_of_class(
    objects: &[Arc<WatchedObject>],
    class: &WatchedObject,
    resource: &ApiResource,
) -> Vec<ObjectRef<WatchedObject>> {
    let name = class.name_any();
    objects
        .iter()
        .filter(|object| object.class.as_ref() == Some(&name))
        .map(|object| ObjectRef::from_obj_with(object.as_ref(), resource.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_lists_bundles_only_for_running_tasks_and_copies_without_record() {
        let digests = |names: &[&str]| -> BTreeSet<String> {
            names.iter().map(|&name| name.to_owned()).collect()
        };
        for (has_tasks, cached, recorded, expected) in [
            (false, digests(&[]), digests(&[]), false),
            (false, digests(&["a"]), digests(&["a", "b"]), false),
            (false, digests(&["a", "c"]), digests(&["a", "b"]), true),
            (true, digests(&["a"]), digests(&["a"]), true),
        ] {
            let found = must_list_bundles(has_tasks, &cached, &recorded);
            assert_eq!(found, expected, "{has_tasks} {cached:?} {recorded:?}");
        }
    }

    #[tokio::test]
    async fn error_names_the_task_that_ended_early() {
        let mut tasks = LeaderTasks::new();
        spawn(&mut tasks, "sweep of the cache", std::future::ready(()));
        spawn(&mut tasks, "controller of Bundles", std::future::pending());
        let ended = end_error(tasks.join_next().await);
        assert_eq!(ended.to_string(), "the sweep of the cache ended");
    }
}
