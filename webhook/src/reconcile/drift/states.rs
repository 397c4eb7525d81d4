//! The state of the installed objects of each deployment, and their drift. `drift::watch` reports
//! changes, and `drift::keep` restores objects.

mod restores;
mod told;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bundle_core::object::GroupKind;
use bundle_core::plan::backoff::RestoreBackoff;
use bundle_core::plan::drift::{self, DriftState, ObjectState};
use bundle_core::plan::health;
use bundle_core::plan::inventory::Inventory;
use bundle_core::reference::Digest;
use jiff::Timestamp;
use tokio::sync::mpsc;

use self::restores::{Drift, Held, Partial};
pub(in crate::reconcile) use self::told::Observation;
use self::told::ObservationLog;

use crate::reconcile::api::discovery::Kind;
use crate::reconcile::api::object::ObservedObject;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::install::jobs::JobEnds;

/// Time without a verification after which the verification delay of an object starts again at its
/// minimum.
const QUIET_OBJECT: Duration = Duration::from_secs(120);

/// The state of an object after the last apply.
#[derive(Debug, Clone, Copy)]
pub(in crate::reconcile) struct AppliedState {
    /// `None` if the state is unknown, so that only reading the object shows drift.
    pub(in crate::reconcile) state: Option<ObjectState>,
    /// The resourceVersion of the object.
    pub(in crate::reconcile) version: u64,
}

impl AppliedState {
    /// Returns true if the `managedFields` entry of the controller shows drift.
    fn is_told_by_fields(&self) -> bool {
        self.state.is_some_and(|state| state.fingerprint.is_some())
    }
}

/// An object that another actor wrote, and whose recorded fields show no change.
#[derive(Debug, Clone, Copy)]
struct Suspect {
    /// The time of its verification. `None` after a verification without later writes.
    due: Option<Instant>,
    /// The number of consecutive verifications without drift.
    times: u32,
    last: Instant,
}

/// The state of one deployment.
#[derive(Default)]
struct InstalledState {
    /// The recorded objects of the deployment.
    inventory: Arc<Inventory>,
    /// The key of the content that the objects belong to.
    digest: String,
    objects: HashMap<String, AppliedState>,
    /// True while objects are being applied. Events are only logged then, and evaluated at the end.
    busy: bool,
    partial: Option<Partial>,
    held: Option<Held>,
    drifted: BTreeMap<String, Drift>,
    restores: BTreeMap<String, RestoreBackoff>,
    /// The error of the last restores, and the keys of its objects.
    restore_error: Option<(ReconcileError, BTreeSet<String>)>,
    suspects: BTreeMap<String, Suspect>,
    touched: BTreeSet<String>,
    unhealthy: BTreeMap<String, String>,
    told: ObservationLog,
    /// Set while kinds of the content are not served, so that their objects are not watched.
    unwatched: Option<UnwatchedKinds>,
}

/// Kinds of the content that are not watched yet.
#[derive(Debug, Clone, Copy, Default)]
struct UnwatchedKinds {
    /// True if an object was restored since then, so that the kinds can be served now.
    has_restored: bool,
}

/// The states of all deployments.
pub(in crate::reconcile) struct InstalledStates {
    all: Mutex<HashMap<String, InstalledState>>,
    /// The origin of the times of restores.
    began: Instant,
    wake: mpsc::UnboundedSender<String>,
    /// The end states of Jobs, also of deleted ones.
    pub(in crate::reconcile) job_ends: JobEnds,
}

impl InstalledStates {
    /// `wake` receives the name of each deployment that needs a reconcile.
    pub(in crate::reconcile) fn new(wake: mpsc::UnboundedSender<String>) -> Self {
        Self {
            all: Mutex::default(),
            began: Instant::now(),
            wake,
            job_ends: JobEnds::default(),
        }
    }

    fn with<T>(&self, deployment: &str, act: impl FnOnce(&mut InstalledState) -> T) -> T {
        let mut states = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        act(states.entry(deployment.to_owned()).or_default())
    }

    /// Replaces the inventory of `deployment`.
    pub(in crate::reconcile) fn set_inventory(&self, deployment: &str, inventory: Arc<Inventory>) {
        self.with(deployment, |book| book.inventory = inventory);
    }

    /// Returns those of `deployments` whose inventory contains the object `key`. Events about other
    /// objects are ignored.
    pub(in crate::reconcile) fn recorders(&self, deployments: &[String], key: &str) -> Vec<String> {
        let states = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        deployments
            .iter()
            .filter(|name| {
                states
                    .get(*name)
                    .is_some_and(|book| book.inventory.has(key))
            })
            .cloned()
            .collect()
    }

    /// Returns true if any inventory contains the object `key`.
    pub(in crate::reconcile) fn is_recorded(&self, key: &str) -> bool {
        let states = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        states.values().any(|book| book.inventory.has(key))
    }

    /// Returns true if `deployment` owns the object with this key and uid.
    pub(in crate::reconcile) fn owns(&self, deployment: &str, key: &str, uid: &str) -> bool {
        let states = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        states
            .get(deployment)
            .is_some_and(|book| book.inventory.owns(key, uid))
    }

    /// Starts logging the events for `deployment`. Results that the reconcile records later are
    /// compared with them.
    pub(in crate::reconcile) fn begin_reconcile(&self, deployment: &str) {
        self.with(deployment, |book| book.told.begin());
    }

    /// Ends the event log. If some kinds are not watched, the content key is removed, so that the
    /// next reconcile finds the content and opens its watches again.
    pub(in crate::reconcile) fn end_reconcile(&self, deployment: &str) {
        let work = self.with(deployment, |book| {
            book.told.end();
            let unwatched = book.unwatched.take();
            if unwatched.is_some() {
                book.digest.clear();
            }
            unwatched.is_some_and(|unwatched| unwatched.has_restored)
        });
        if work {
            self.wake(deployment);
        }
    }

    /// Records that some kinds of the content are not served, so that their objects are not
    /// watched.
    pub(in crate::reconcile) fn lacks_watches(&self, deployment: &str) {
        self.with(deployment, |book| {
            book.unwatched = Some(UnwatchedKinds::default());
        });
    }

    /// Changes the state of the object `key`, and then evaluates its last logged event again.
    fn record(&self, deployment: &str, key: &str, change: impl FnOnce(&mut InstalledState)) {
        let work = self.with(deployment, |book| {
            change(book);
            let told = book.told.of(key);
            told.is_some_and(|told| book.look(key, &told))
        });
        if work {
            self.wake(deployment);
        }
    }

    /// Returns the objects that are due for verification, and the time until the next one is due.
    pub(in crate::reconcile) fn suspects(
        &self,
        deployment: &str,
        now: Instant,
    ) -> (BTreeSet<String>, Option<Duration>) {
        let elapsed = self.began.elapsed();
        self.with(deployment, |book| {
            let mut due = BTreeSet::new();
            let mut next = None::<Duration>;
            for (key, suspect) in &book.suspects {
                // Drifted objects are restored and need no verification.
                if book.drifted.contains_key(key) {
                    continue;
                }
                match suspect.due.map(|at| at.max(now + book.wait(key, elapsed))) {
                    Some(at) if at <= now => {
                        due.insert(key.clone());
                    }
                    Some(at) => {
                        let wait = at.duration_since(now);
                        next = Some(next.map_or(wait, |next| next.min(wait)));
                    }
                    None => {}
                }
            }
            (due, next)
        })
    }

    /// Records that an object was verified: it has all applied values, and its state is `left`.
    pub(in crate::reconcile) fn verified(
        &self,
        deployment: &str,
        key: &str,
        left: AppliedState,
        now: Instant,
    ) {
        self.record(deployment, key, |book| {
            book.drifted.remove(key);
            if let Some(suspect) = book.suspects.get_mut(key) {
                suspect.due = None;
                suspect.times = suspect.times.saturating_add(1);
                suspect.last = now;
            }
            book.objects.insert(key.to_owned(), left);
        });
    }

    /// Returns the key of the content that is known to be in place.
    pub(in crate::reconcile) fn content(&self, deployment: &str) -> Option<String> {
        self.with(deployment, |book| {
            (!book.busy && !book.digest.is_empty()).then(|| book.digest.clone())
        })
    }

    /// Marks `deployment` as busy: the controller itself changes its objects until
    /// [`Self::finish_apply`].
    pub(in crate::reconcile) fn begin(&self, deployment: &str) {
        self.with(deployment, |book| {
            book.busy = true;
            book.digest.clear();
        });
    }

    /// Records that all of the content is in place. Objects that were observed later than their
    /// apply, with another state, have drifted.
    pub(in crate::reconcile) fn settle(
        &self,
        deployment: &str,
        digest: &str,
        objects: HashMap<String, AppliedState>,
        seen: &BTreeMap<String, ObservedObject>,
    ) {
        let work = self.with(deployment, |book| {
            digest.clone_into(&mut book.digest);
            book.busy = false;
            book.partial = None;
            book.held = None;
            book.drifted.clear();
            book.suspects.clear();
            book.restores.retain(|key, _| objects.contains_key(key));
            for backoff in book.restores.values_mut() {
                *backoff = backoff.without_failures();
            }
            book.unhealthy.retain(|key, _| objects.contains_key(key));
            book.touched = objects
                .keys()
                .filter(|key| tells_health(key))
                .cloned()
                .collect();
            book.objects = objects;
            book.look_at_all(seen)
        });
        if work {
            self.wake(deployment);
        }
    }

    /// Records that an object was applied again.
    pub(in crate::reconcile) fn healed(&self, deployment: &str, key: &str, left: AppliedState) {
        self.record(deployment, key, |book| {
            if let Some(unwatched) = &mut book.unwatched {
                unwatched.has_restored = true;
            }
            book.drifted.remove(key);
            book.suspects.remove(key);
            let now = self.began.elapsed();
            book.restores.retain(|_, backoff| !backoff.is_quiet(now));
            let backoff = book.restores.entry(key.to_owned()).or_default();
            *backoff = backoff.restored(now);
            if tells_health(key) {
                book.touched.insert(key.to_owned());
            }
            book.objects.insert(key.to_owned(), left);
        });
    }

    /// Records that these objects have drifted.
    pub(in crate::reconcile) fn doubt(&self, deployment: &str, keys: BTreeSet<String>) {
        self.with(deployment, |book| {
            for key in keys {
                book.suspects.remove(&key);
                book.drifted.entry(key).or_insert_with(|| Drift {
                    since: Timestamp::now(),
                    is_missing: false,
                    writer: None,
                });
            }
        });
    }

    /// Marks an object for a health check.
    pub(in crate::reconcile) fn touch(&self, deployment: &str, key: &str) {
        self.with(deployment, |book| {
            book.touched.insert(key.to_owned());
        });
    }

    /// Records that an object was read and has all applied values.
    pub(in crate::reconcile) fn settled(&self, deployment: &str, key: &str) {
        self.record(deployment, key, |book| {
            book.drifted.remove(key);
        });
    }

    /// Removes objects that are gone as expected, such as expired Jobs.
    pub(in crate::reconcile) fn expired(&self, deployment: &str, keys: &BTreeSet<String>) {
        self.with(deployment, |book| {
            for key in keys {
                book.objects.remove(key);
                book.drifted.remove(key);
                book.suspects.remove(key);
                book.touched.remove(key);
                book.unhealthy.remove(key);
            }
        });
    }

    /// Returns the names of all deployments with a state.
    pub(in crate::reconcile) fn names(&self) -> Vec<String> {
        let states = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        states.keys().cloned().collect()
    }

    /// Removes the state of `deployment`.
    pub(in crate::reconcile) fn close(&self, deployment: &str) {
        self.all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(deployment);
    }

    /// Returns the drifted objects with the time since when they have drifted.
    pub(in crate::reconcile) fn drifted(&self, deployment: &str) -> BTreeMap<String, Timestamp> {
        self.with(deployment, |book| {
            let drifted = book.drifted.iter();
            drifted
                .map(|(key, drift)| (key.clone(), drift.since))
                .collect()
        })
    }

    /// Returns the state of the object after the last apply, if it is known.
    pub(in crate::reconcile) fn state(&self, deployment: &str, key: &str) -> Option<ObjectState> {
        self.with(deployment, |book| book.objects.get(key)?.state)
    }

    /// Returns true if the recorded fields of the object show drift.
    pub(in crate::reconcile) fn is_told_by_fields(&self, deployment: &str, key: &str) -> bool {
        self.with(deployment, |book| {
            book.objects
                .get(key)
                .is_some_and(AppliedState::is_told_by_fields)
        })
    }

    /// Returns and clears the set of objects whose health can have changed.
    pub(in crate::reconcile) fn take_touched(&self, deployment: &str) -> BTreeSet<String> {
        self.with(deployment, |book| std::mem::take(&mut book.touched))
    }

    /// Records why an object is unhealthy, or `None` if it is healthy.
    pub(in crate::reconcile) fn record_health(
        &self,
        deployment: &str,
        key: &str,
        why: Option<String>,
    ) {
        self.with(deployment, |book| match why {
            Some(why) => {
                book.unhealthy.insert(key.to_owned(), why);
            }
            None => {
                book.unhealthy.remove(key);
            }
        });
    }

    /// Returns the unhealthy objects with the reason.
    pub(in crate::reconcile) fn unhealthy(&self, deployment: &str) -> BTreeMap<String, String> {
        self.with(deployment, |book| book.unhealthy.clone())
    }

    /// Returns a digest over the applied states of all objects. `None` if the state of an object is
    /// unknown.
    pub(in crate::reconcile) fn fields_digest(&self, deployment: &str) -> Option<Digest> {
        self.with(deployment, |book| digest_of(&book.objects))
    }

    /// Evaluates a watch event about the object `key`.
    pub(in crate::reconcile) fn changed(&self, users: &[String], key: &str, told: &Observation) {
        for deployment in users {
            let work = self.with(deployment, |book| {
                book.told.keep(key, told);
                book.look(key, told)
            });
            if work {
                self.wake(deployment);
            }
        }
    }

    /// Evaluates a complete list of `kind`: objects that it lacks do not exist.
    pub(in crate::reconcile) fn listed(
        &self,
        users: &[String],
        kind: &Kind,
        namespace: Option<&str>,
        seen: &HashMap<String, ObservedObject>,
    ) {
        let group_kind = kind.group_kind().to_string();
        for deployment in users {
            let work = self.with(deployment, |book| {
                // While objects are being applied, new objects are only in the inventory.
                let applied = book.objects.keys().map(String::as_str);
                let recorded = book.inventory.objects().filter(|_| book.busy);
                let mine: BTreeSet<String> = applied
                    .chain(recorded.map(|(key, _)| key))
                    .filter(|key| is_of(key, &group_kind, namespace))
                    .map(str::to_owned)
                    .collect();
                let mut work = false;
                for key in mine {
                    let told = seen
                        .get(&key)
                        .cloned()
                        .map_or(Observation::Gone(0), Observation::Present);
                    book.told.keep(&key, &told);
                    work |= book.look(&key, &told);
                }
                work
            });
            if work {
                self.wake(deployment);
            }
        }
    }

    /// Reconciles these deployments, because the state of their watches changed.
    pub(in crate::reconcile) fn look_again(&self, deployments: &[String]) {
        for deployment in deployments {
            self.wake(deployment);
        }
    }

    fn wake(&self, deployment: &str) {
        // The receiver only closes when the process ends.
        self.wake.send(deployment.to_owned()).ok();
    }
}

impl InstalledState {
    /// Evaluates an observation of an object. Returns true if the deployment needs a reconcile.
    fn look(&mut self, key: &str, told: &Observation) -> bool {
        if self.busy {
            return false;
        }
        let Some(left) = self.objects.get(key) else {
            return false;
        };
        if told.is_older_than(left.version) {
            return false;
        }
        let seen = told.seen();
        let is_ours = seen.is_none_or(|seen| self.inventory.owns(key, &seen.uid));
        let state = match left.state {
            _ if !is_ours => DriftState::Drifted,
            Some(applied) => drift::drift_state(applied, seen.map(|seen| seen.state)),
            None if seen.is_none() => DriftState::Gone,
            None => DriftState::MustRead,
        };
        let work = match state {
            DriftState::InPlace => {
                self.drifted.remove(key);
                if let Some(suspect) = self.suspects.get_mut(key) {
                    suspect.due = None;
                }
                false
            }
            DriftState::MustVerify => {
                self.suspect(key, Instant::now());
                true
            }
            DriftState::Drifted | DriftState::Gone | DriftState::MustRead => {
                self.record_drift(key, seen);
                true
            }
        };
        let touched = tells_health(key) && self.touched.insert(key.to_owned());
        work || touched
    }

    /// Schedules the verification of an object: immediately, or with a delay after recent
    /// verifications.
    fn suspect(&mut self, key: &str, now: Instant) {
        let suspect = self.suspects.entry(key.to_owned()).or_insert(Suspect {
            due: None,
            times: 0,
            last: now,
        });
        if now.duration_since(suspect.last) > QUIET_OBJECT {
            suspect.times = 0;
        }
        if suspect.due.is_none() {
            let pause = Duration::from_millis(drift::verification_pause_ms(suspect.times));
            suspect.due = Some(suspect.last + pause);
        }
    }
}

/// Returns a digest over the states of all objects.
pub(in crate::reconcile) fn digest_of(objects: &HashMap<String, AppliedState>) -> Option<Digest> {
    let states: Option<Vec<_>> = objects
        .iter()
        .map(|(key, left)| {
            let state = left.state?;
            Some((key.clone(), state.fingerprint?, state.revision))
        })
        .collect();
    states.map(drift::combined)
}

/// Returns the kind in a key. Keys are [`bundle_core::object::ObjectId`]s as text:
/// `Deployment.apps/team-a/web`.
fn group_kind(key: &str) -> GroupKind {
    GroupKind::parse(key.split('/').next().unwrap_or_default())
}

fn is_of(key: &str, kind: &str, namespace: Option<&str>) -> bool {
    let mut parts = key.split('/');
    parts.next() == Some(kind) && namespace.is_none_or(|namespace| parts.next() == Some(namespace))
}

fn tells_health(key: &str) -> bool {
    let kind = group_kind(key);
    health::has_health(&kind.group, &kind.kind)
}

#[cfg(test)]
mod tests;
