//! The task of one watch: lists and watches the objects, updates the table of the watch, and
//! reports the events to `drift::states`.

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

/// Number of consecutive failures after which a watch that has worked before counts as failed. A
/// single failure has no effect.
const FAILURE_THRESHOLD: u32 = 3;
/// Time without a failure after which an accepted watch works again. Without this time, a watch
/// that always fails soon after its start would never count as failed.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// The state of one watch that its task changes.
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
        // The label selector only reduces traffic. If an object has lost the label, the watch
        // reports it as deleted. Then the object is read.
        let config = watcher::Config::default()
            .labels(&selector)
            .page_size(object::PAGE);
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
                // The API server sends no event for an accepted watch. Without this timer, failures
                // of a quiet kind would add up over weeks, and a failed watch would not recover.
                () = reached(stable_at) => {
                    stable_at = None;
                    failures = 0;
                    self.record_success();
                    continue;
                }
                event = events.next() => event,
            };
            match event {
                // The start of a list is no success.
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
                    // A start before the failure does not count.
                    starts.mark_unchanged();
                    self.record_failure(crate::chain(&error), failures);
                    continue;
                }
                // The stream never ends, so this case does not occur.
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
        self.table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(listed);
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
        if self.states.is_recorded(&key) {
            self.states.job_ends.record(&key, &object.metadata);
            self.table
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(key.clone(), seen.clone());
            self.evaluate(&key, &Observation::Present(seen));
        }
    }

    /// Removes an object that was deleted, and evaluates its deletion.
    fn delete(&self, object: &PartialObjectMeta<DynamicObject>) {
        let (key, seen) = entry(&self.subject.kind, object);
        self.states.job_ends.record(&key, &object.metadata);
        self.table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&key);
        self.evaluate(&key, &Observation::Gone(seen.version));
    }

    fn evaluate(&self, key: &str, observation: &Observation) {
        let recording = self.states.recording_deployments(&self.users(), key);
        self.states.evaluate_event(&recording, key, observation);
    }

    /// Records that the watch reports events. Starts a reconcile of its users if the watch had
    /// failed. The watch continues after its last event or list, so no event was lost.
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

    /// Records the failure number `failures` in succession. The watch is retried until it is
    /// closed. Before the first list, a failure is reported at once. After the first list, only
    /// several consecutive failures are reported.
    fn record_failure(&self, why: String, failures: u32) {
        tracing::warn!(kind = %self.subject.kind.resource.plural, account = self.subject.account.user_name(), error = %why, "a watch of installed objects failed and is retried");
        // Deployments that wait for the first list in `keep` leave the watch, and retry with their
        // own backoff. Waking them would open the watch again at once.
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

/// Returns a client that sends its requests through `base`, and reports to `started` each watch
/// that the API server accepts.
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

/// Waits until `time`. Waits forever without a time.
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
