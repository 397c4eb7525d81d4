//! The task of one watch: lists and watches objects, updates the table of reported objects, and
//! reports events to `drift::states`.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bundle_api::names;
use futures::StreamExt as _;
use http::Request;
use kube::Client;
use kube::api::DynamicObject;
use kube::client::Body;
use kube::core::metadata::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::service_fn;

use super::{ObservedTable, WatchKey, WatchProgress, WatchUsers};
use crate::clients::cluster::watch_events;
use crate::reconcile::api::discovery::Kind;
use crate::reconcile::api::object::{self, ObservedObject};
use crate::reconcile::drift::states::{InstalledStates, Observation};

/// Number of consecutive failures after which a watch counts as failed, if the watch has listed its
/// objects before. Fewer failures have no effect.
const FAILURE_THRESHOLD: u32 = 3;
/// An accepted watch counts as working if it does not fail for this time. Without this delay, a
/// watch that always fails soon after its start would never count as failed.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// The state that the task of one watch changes.
pub(super) struct WatchTask {
    pub(super) subject: WatchKey,
    pub(super) users: WatchUsers,
    pub(super) table: ObservedTable,
    pub(super) states: Arc<InstalledStates>,
    pub(super) progress: watch::Sender<WatchProgress>,
}

impl WatchTask {
    /// Watches the objects until the task is aborted.
    pub(super) async fn run(self, client: Client) {
        let (started, mut starts) = watch::channel(());
        let client = with_reported_starts(client, started);
        let subject = &self.subject;
        let api = object::api::<PartialObjectMeta<DynamicObject>>(
            &client,
            &subject.kind,
            subject.namespace.as_deref(),
        );
        let api = match api {
            Ok(api) => api,
            Err(error) => {
                self.progress.send_replace(WatchProgress::Failed {
                    why: crate::chain(&error),
                    has_listed: false,
                });
                return;
            }
        };
        let selector = format!(
            "{}={}",
            names::LABEL_OWNER_KIND,
            crate::reconcile::DEPLOYMENT
        );
        // The label selector only reduces traffic. If the label is removed from an object, the
        // watch reports the object as deleted. The reconcile then reads the object.
        let config = watcher::Config::default()
            .labels(&selector)
            .page_size(object::PAGE_SIZE);
        let events = watch_events(api, config);
        let mut events = std::pin::pin!(events);
        let mut listing = HashMap::new();
        let mut failures = 0;
        let mut stable_at = None;
        loop {
            let event = tokio::select! {
                biased;
                Ok(()) = starts.changed() => {
                    stable_at = Some(Instant::now() + STABLE_AFTER);
                    continue;
                }
                // The API server sends no event when it accepts a watch. Without this timer, only
                // events would reset the failure count. For kinds without events, failures over
                // weeks would add up, and a failed watch would not recover.
                () = reached(stable_at) => {
                    stable_at = None;
                    failures = 0;
                    self.record_success();
                    continue;
                }
                event = events.next() => event,
            };
            match event {
                // The start of a list does not reset the failure count.
                Some(Ok(Event::Init)) => {
                    listing = HashMap::new();
                    continue;
                }
                Some(Ok(Event::InitApply(object))) => {
                    let (key, seen) = entry(&subject.kind, &object);
                    if self.states.is_recorded(&key) {
                        self.states.job_ends.record(&key, &object.metadata);
                        listing.insert(key, seen);
                    }
                    continue;
                }
                Some(Ok(Event::InitDone)) => {
                    self.store_list(&std::mem::take(&mut listing));
                }
                Some(Ok(Event::Apply(object))) => {
                    self.record_success();
                    self.apply(&object);
                }
                Some(Ok(Event::Delete(object))) => {
                    self.record_success();
                    self.delete(&object);
                }
                Some(Err(error)) => {
                    failures += 1;
                    stable_at = None;
                    // The accepted watch has failed now, so its start is ignored.
                    starts.mark_unchanged();
                    self.record_failure(crate::chain(&error), failures);
                    continue;
                }
                // The stream of watch events never ends, so this case does not occur.
                None => return,
            }
            failures = 0;
        }
    }

    fn users(&self) -> Vec<String> {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.iter().cloned().collect()
    }

    /// Stores and evaluates a complete list.
    fn store_list(&self, listed: &HashMap<String, ObservedObject>) {
        {
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            table.clone_from(listed);
            // An inventory may have been removed while the list was read.
            self.states.retain_recorded(&mut table);
        }
        self.record_success();
        self.states.evaluate_list(
            &self.users(),
            &self.subject.kind,
            self.subject.namespace.as_deref(),
            listed,
        );
    }

    /// Stores and evaluates an object that was created or changed.
    fn apply(&self, object: &PartialObjectMeta<DynamicObject>) {
        let (key, seen) = entry(&self.subject.kind, object);
        if self.store(&key, &seen) {
            self.states.job_ends.record(&key, &object.metadata);
            self.evaluate(&key, &Observation::Present(seen));
        }
    }

    /// Stores an object in the table if an inventory records the object. Returns true if the object
    /// is stored.
    fn store(&self, key: &str, seen: &ObservedObject) -> bool {
        // The table is locked before the inventories are checked. If an inventory is removed in
        // between, the removal of its entries waits for this lock.
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recorded = self.states.is_recorded(key);
        if is_recorded {
            table.insert(key.to_owned(), seen.clone());
        }
        is_recorded
    }

    /// Removes a deleted object from the table, and evaluates the deletion.
    fn delete(&self, object: &PartialObjectMeta<DynamicObject>) {
        let (key, seen) = entry(&self.subject.kind, object);
        if self.states.is_recorded(&key) {
            self.states.job_ends.record(&key, &object.metadata);
        }
        self.table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&key);
        self.evaluate(&key, &Observation::Gone(seen.version));
    }

    fn evaluate(&self, key: &str, observation: &Observation) {
        let recording = {
            let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            self.states.recording_deployments(&users, key)
        };
        self.states.evaluate_event(&recording, key, observation);
    }

    /// Records that the watch works. If the watch had failed, starts a reconcile of its users. No
    /// event was lost, because the watch continues after its last event or list.
    fn record_success(&self) {
        let mut had_failed = false;
        self.progress.send_if_modified(|progress| {
            had_failed = matches!(progress, WatchProgress::Failed { .. });
            let is_modified = *progress != WatchProgress::Synced;
            *progress = WatchProgress::Synced;
            is_modified
        });
        if had_failed {
            self.states.requeue(&self.users());
        }
    }

    /// Records a failure of the watch. `failures` is the number of consecutive failures. Before the
    /// first list has succeeded, each failure is reported. After that, only [`FAILURE_THRESHOLD`]
    /// consecutive failures are reported. The watch is retried until it is closed.
    fn record_failure(&self, why: String, failures: u32) {
        tracing::warn!(kind = %self.subject.kind.resource.plural, account = self.subject.account.user_name(), error = %why, "a watch of installed objects failed and is retried");
        // If the first list failed, no reconcile is started. `Watches::keep` reports the failure to
        // the waiting BundleDeployments, which retry with their own backoff.
        let mut has_listed = false;
        self.progress.send_if_modified(|progress| {
            let is_reported = match progress {
                WatchProgress::Listing => true,
                WatchProgress::Synced => failures >= FAILURE_THRESHOLD,
                WatchProgress::Failed { .. } => false,
            };
            has_listed = is_reported && *progress == WatchProgress::Synced;
            if is_reported {
                *progress = WatchProgress::Failed { why, has_listed };
            }
            is_reported
        });
        if has_listed {
            self.states.requeue(&self.users());
        }
    }
}

/// Returns a client that sends its requests through `base`. For each watch request that the API
/// server accepts, the client sends a notification to `started`.
fn with_reported_starts(base: Client, started: watch::Sender<()>) -> Client {
    let namespace = base.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let (base, started) = (base.clone(), started.clone());
        async move {
            let is_watch = bundle_cluster::responses::is_watch(request.uri());
            let response = base.send(request).await?;
            if is_watch && response.status().is_success() {
                started.send_replace(());
            }
            Ok::<_, kube::Error>(response)
        }
    });
    Client::new(service, namespace)
}

/// Waits until `time`. If `time` is `None`, waits forever.
async fn reached(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn entry(kind: &Kind, object: &PartialObjectMeta<DynamicObject>) -> (String, ObservedObject) {
    let id = object::id_of(kind, object);
    (id.to_string(), ObservedObject::of(kind, object))
}

#[cfg(test)]
mod tests {
    use bundle_core::plan::inventory::Inventory;
    use bundle_core::plan::jobs::ObservedJobState;
    use k8s_openapi::api::batch::v1::Job;
    use kube::api::{ApiResource, ObjectMeta};
    use kube::core::metadata::PartialObjectMetaExt as _;
    use tokio::sync::mpsc;

    use super::*;
    use crate::clients::cluster::ServiceAccount;

    #[test]
    fn deleted_job_is_recorded_only_if_an_inventory_contains_the_job() {
        let (wake, _woken) = mpsc::unbounded_channel();
        let states = Arc::new(InstalledStates::new(wake));
        let mut inventory = Inventory::new("web");
        inventory.record("Job.batch/team/own", "own");
        states.set_inventory("web", Arc::new(inventory));
        let (progress, _) = watch::channel(WatchProgress::Listing);
        let task = WatchTask {
            subject: WatchKey {
                account: ServiceAccount::parse("team", "installer").unwrap(),
                kind: Kind {
                    resource: ApiResource::erase::<Job>(&()),
                    namespaced: true,
                },
                namespace: None,
            },
            users: WatchUsers::default(),
            table: ObservedTable::default(),
            states: states.clone(),
            progress,
        };
        for (name, expected) in [
            ("own", ObservedJobState::Running),
            ("foreign", ObservedJobState::NeverObserved),
        ] {
            let metadata = ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("team".to_owned()),
                uid: Some(name.to_owned()),
                ..ObjectMeta::default()
            };
            task.delete(&metadata.into_response_partial());
            assert_eq!(states.job_ends.last(name).end, expected, "{name}");
        }
    }
}
