//! The state of the installed objects of each BundleDeployment, and their drift. `drift::watch`
//! reports changes of objects, and `maintenance::restore` restores drifted objects.

mod events;
mod health;
mod observations;
mod recorded_objects;
mod restores;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bundle_core::package::Probe;
use bundle_core::plan::drift::{self, ObjectState};
use bundle_core::plan::inventory::{ContentKey, Inventory};
use bundle_core::plan::restores::RestoreBackoff;
use bundle_core::plan::rollout::AwaitedPhase;
use bundle_core::plan::unchanged::{LastApply, RequestHash};
use bundle_core::reference::Digest;
use jiff::Timestamp;
use tokio::sync::mpsc;

pub(in crate::reconcile) use self::health::PhaseProgress;
pub(in crate::reconcile) use self::observations::Observation;
use self::observations::ObservationLog;
use self::recorded_objects::RecordedObjects;
pub(in crate::reconcile) use self::restores::InstallationAttempt;
use self::restores::{DelayedInstallation, Drift, PartialInstallation};

use crate::reconcile::api::object::ObservedObject;
use crate::reconcile::drift::job_ends::JobEnds;
use crate::reconcile::error::ReconcileError;

/// If an object was not verified for this time, its verification delay starts again at the minimum.
const VERIFICATION_RESET_AFTER: Duration = Duration::from_secs(120);
/// Minimum time between a write and its verification by dry run. Timestamps in `managedFields` have
/// whole seconds. If the dry run were sent in the same second as the write, the timestamp would not
/// show that the dry run changes the object.
const DRY_RUN_DELAY: Duration = Duration::from_secs(2);
/// Minimum time between two removals of old restore histories. A removal visits the histories of
/// all objects of a BundleDeployment, and one reconcile can restore all these objects.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(60);

/// The state of an object after the last apply.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::reconcile) struct AppliedState {
    /// State of the object after the last apply. If it is `None`, the state is unknown, and the
    /// object must be read to detect drift.
    pub(in crate::reconcile) state: Option<ObjectState>,
    /// The resourceVersion of the object after the last apply.
    pub(in crate::reconcile) version: u64,
    /// The hash of the request of the last apply. `None` if the request is unknown, or if the
    /// response contained a warning. In both cases the next installation sends the apply again.
    pub(in crate::reconcile) request: Option<RequestHash>,
}

impl AppliedState {
    /// Returns the last apply, or `None` if its request or the state of the object is unknown.
    pub(in crate::reconcile) fn last_apply(&self) -> Option<LastApply> {
        Some(LastApply {
            state: self.state?,
            request: self.request?,
        })
    }

    /// Returns true if drift is visible in `managedFields`, because the fingerprint of this
    /// controller's entry is recorded.
    fn shows_drift_in_fields(&self) -> bool {
        self.state.is_some_and(|state| state.fingerprint.is_some())
    }
}

/// The pending verification of an object. Another actor wrote the object, and this controller's
/// entry in `managedFields` did not change. Only an apply or its dry run can verify that the object
/// still has all applied values.
#[derive(Debug, Clone, Copy)]
struct PendingVerification {
    /// The time at which the object must be verified. `None` if no actor wrote the object after its
    /// last verification.
    due: Option<Instant>,
    /// The time at which the write of the other actor was observed.
    written: Instant,
    /// The number of consecutive verifications that found no drift.
    times: u32,
    last: Instant,
}

/// The states of the installed objects of one BundleDeployment.
#[derive(Default)]
struct InstalledState {
    /// The inventory of the BundleDeployment. The inventory records the installed objects.
    inventory: Arc<Inventory>,
    /// The content key of the installation of these objects. If it is `None`, the next reconcile
    /// compares the content with the objects again.
    content_key: Option<ContentKey>,
    objects: HashMap<String, AppliedState>,
    /// True while objects are being applied. During this time, watch events are only logged. At the
    /// end of the apply, the logged events are evaluated.
    is_applying: bool,
    partial: Option<PartialInstallation>,
    delayed: Option<DelayedInstallation>,
    drifted: BTreeMap<String, Drift>,
    restores: BTreeMap<String, RestoreBackoff>,
    /// The earliest time of the next removal of old entries from `restores`.
    next_removal: Duration,
    /// The phase that the last attempts of an installation waited for, and the backoff of these
    /// attempts.
    awaited_phase: Option<(AwaitedPhase, RestoreBackoff)>,
    /// The error of the last failed restore, and the object keys of the objects that could not be
    /// restored.
    restore_error: Option<(ReconcileError, BTreeSet<String>)>,
    pending_verifications: BTreeMap<String, PendingVerification>,
    health_checks_due: BTreeSet<String>,
    unhealthy: BTreeMap<String, String>,
    /// Health probes, by digest of the content that contains them.
    probes: BTreeMap<String, Arc<[Probe]>>,
    log: ObservationLog,
    /// Set while the API server does not serve some kinds of the content. The objects of these
    /// kinds are not watched.
    unwatched: Option<UnwatchedKinds>,
}

/// State of the kinds of the content that are not watched yet.
#[derive(Debug, Clone, Copy, Default)]
struct UnwatchedKinds {
    /// True if an object was restored after the last attempt to open the watches. The restored
    /// object may be a definition, so the API server may serve the kinds now.
    has_restored: bool,
}

/// The states by name of their BundleDeployment, and an index of the objects that their inventories
/// record.
#[derive(Default)]
struct StatesByName {
    states: HashMap<String, InstalledState>,
    recorded: RecordedObjects,
}

impl StatesByName {
    /// Returns the names of the BundleDeployments whose inventory records the object `key`.
    fn recording(&self, key: &str) -> impl Iterator<Item = &str> {
        let names = self.recorded.names(key).iter().map(|name| &**name);
        names.filter(|name| {
            let state = self.states.get(*name);
            state.is_some_and(|state| state.inventory.has(key))
        })
    }
}

/// The states of the installed objects of all BundleDeployments.
pub(in crate::reconcile) struct InstalledStates {
    all: Mutex<StatesByName>,
    /// The time at which this value was created. The times of restores are stored as durations
    /// since this time.
    began: Instant,
    wake: mpsc::UnboundedSender<String>,
    /// The last observed state of each Job, including deleted Jobs.
    pub(in crate::reconcile) job_ends: JobEnds,
}

impl InstalledStates {
    /// Creates an empty value. `wake` receives the name of each BundleDeployment that needs a
    /// reconcile.
    pub(in crate::reconcile) fn new(wake: mpsc::UnboundedSender<String>) -> Self {
        Self {
            all: Mutex::default(),
            began: Instant::now(),
            wake,
            job_ends: JobEnds::default(),
        }
    }

    fn all(&self) -> MutexGuard<'_, StatesByName> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, deployment: &str, act: impl FnOnce(&mut InstalledState) -> T) -> T {
        let mut all = self.all();
        act(all.states.entry(deployment.to_owned()).or_default())
    }

    /// Replaces the inventory of `deployment`.
    pub(in crate::reconcile) fn set_inventory(&self, deployment: &str, inventory: Arc<Inventory>) {
        let mut all = self.all();
        let StatesByName { states, recorded } = &mut *all;
        let state = states.entry(deployment.to_owned()).or_default();
        recorded.replace(deployment, &state.inventory, &inventory);
        state.inventory = inventory;
    }

    /// Returns the inventory of `deployment`. The inventory is empty if `deployment` has no state.
    pub(in crate::reconcile) fn inventory(&self, deployment: &str) -> Arc<Inventory> {
        let all = self.all();
        let state = all.states.get(deployment);
        state
            .map(|state| state.inventory.clone())
            .unwrap_or_default()
    }

    /// Returns those of `deployments` whose inventory records the object `key`. For all other
    /// BundleDeployments, events about this object are ignored.
    pub(in crate::reconcile) fn recording_deployments(
        &self,
        deployments: &HashSet<String>,
        key: &str,
    ) -> Vec<String> {
        let all = self.all();
        let recording = all.recording(key);
        recording
            .filter(|name| deployments.contains(*name))
            .map(str::to_owned)
            .collect()
    }

    /// Returns true if the inventory of any BundleDeployment contains the object `key`.
    pub(in crate::reconcile) fn is_recorded(&self, key: &str) -> bool {
        self.all().recording(key).next().is_some()
    }

    /// Removes those of `entries` (by object key) whose object no inventory contains.
    pub(in crate::reconcile) fn retain_recorded<T>(&self, entries: &mut HashMap<String, T>) {
        let all = self.all();
        entries.retain(|key, _| all.recording(key).next().is_some());
    }

    /// Returns true if the inventory of `deployment` records the object with this object key and
    /// uid.
    pub(in crate::reconcile) fn owns(&self, deployment: &str, key: &str, uid: &str) -> bool {
        let all = self.all();
        all.states
            .get(deployment)
            .is_some_and(|state| state.inventory.owns(key, uid))
    }

    /// Returns the objects that are due for verification, and the time until the next verification
    /// is due.
    pub(in crate::reconcile) fn suspects(
        &self,
        deployment: &str,
        now: Instant,
    ) -> (BTreeSet<String>, Option<Duration>) {
        let elapsed = self.began.elapsed();
        self.with(deployment, |state| {
            let mut due = BTreeSet::new();
            let mut next = None::<Duration>;
            for (key, suspect) in &state.pending_verifications {
                // Drifted objects are restored and need no verification.
                if state.drifted.contains_key(key) {
                    continue;
                }
                match suspect.due.map(|at| at.max(now + state.wait(key, elapsed))) {
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

    /// Postpones each pending verification until [`DRY_RUN_DELAY`] after the write of the other
    /// actor.
    pub(in crate::reconcile) fn postpone_verifications(&self, deployment: &str) {
        self.with(deployment, |state| {
            for suspect in state.pending_verifications.values_mut() {
                let earliest = suspect.written + DRY_RUN_DELAY;
                suspect.due = suspect.due.map(|due| due.max(earliest));
            }
        });
    }

    /// Records that an object was verified and has all applied values. `left` is the state of the
    /// object after the verification.
    pub(in crate::reconcile) fn record_verified(
        &self,
        deployment: &str,
        key: &str,
        left: AppliedState,
        now: Instant,
    ) {
        self.record(deployment, key, |state| {
            state.drifted.remove(key);
            if let Some(suspect) = state.pending_verifications.get_mut(key) {
                suspect.due = None;
                suspect.times = suspect.times.saturating_add(1);
                suspect.last = now;
            }
            state.objects.insert(key.to_owned(), left);
        });
    }

    /// Returns the content key of the completely applied content. Returns `None` if this content is
    /// unknown, or while objects are being applied.
    pub(in crate::reconcile) fn content(&self, deployment: &str) -> Option<ContentKey> {
        self.with(deployment, |state| {
            let known = state.content_key.as_ref();
            known.filter(|_| !state.is_applying).cloned()
        })
    }

    /// Records that the controller applies objects of `deployment` from now on, until
    /// [`Self::finish_apply`] or [`Self::record_interrupted`].
    pub(in crate::reconcile) fn begin_apply(&self, deployment: &str) {
        self.with(deployment, |state| {
            state.is_applying = true;
            state.content_key = None;
        });
    }

    /// Records that all objects of the content are applied. `objects` contains the state of each
    /// object after its apply, and `seen` the observed objects. An object counts as drifted if
    /// these two states differ.
    pub(in crate::reconcile) fn finish_apply(
        &self,
        deployment: &str,
        content_key: &ContentKey,
        objects: HashMap<String, AppliedState>,
        seen: &BTreeMap<String, ObservedObject>,
    ) {
        let work = self.with(deployment, |state| {
            state.content_key = Some(content_key.clone());
            state.is_applying = false;
            state.partial = None;
            state.awaited_phase = None;
            state.delayed = None;
            state.drifted.clear();
            state.pending_verifications.clear();
            state.restores.retain(|key, _| objects.contains_key(key));
            for backoff in state.restores.values_mut() {
                *backoff = backoff.without_failures();
            }
            state.unhealthy.retain(|key, _| objects.contains_key(key));
            state.health_checks_due = objects
                .keys()
                .filter(|key| state.has_health(key))
                .cloned()
                .collect();
            state.objects = objects;
            state.evaluate_all(seen)
        });
        if work {
            self.wake(deployment);
        }
    }

    /// Records that a drifted object was restored. `left` is the state of the object after the
    /// apply.
    pub(in crate::reconcile) fn record_restored(
        &self,
        deployment: &str,
        key: &str,
        left: AppliedState,
    ) {
        self.record(deployment, key, |state| {
            if let Some(unwatched) = &mut state.unwatched {
                unwatched.has_restored = true;
            }
            state.drifted.remove(key);
            state.pending_verifications.remove(key);
            let now = self.began.elapsed();
            state.remove_quiet_restores(now);
            let backoff = state.restores.entry(key.to_owned()).or_default();
            *backoff = backoff.restored(now);
            if state.has_health(key) {
                state.health_checks_due.insert(key.to_owned());
            }
            state.objects.insert(key.to_owned(), left);
        });
    }

    /// Records that these objects have drifted.
    pub(in crate::reconcile) fn mark_drifted(&self, deployment: &str, keys: BTreeSet<String>) {
        self.with(deployment, |state| {
            for key in keys {
                state.pending_verifications.remove(&key);
                state.drifted.entry(key).or_insert_with(|| Drift {
                    since: Timestamp::now(),
                    is_missing: false,
                    writer: None,
                });
            }
        });
    }

    /// Records that an object was read and has all applied values.
    pub(in crate::reconcile) fn mark_in_place(&self, deployment: &str, key: &str) {
        self.record(deployment, key, |state| {
            state.drifted.remove(key);
        });
    }

    /// Removes the states of objects whose deletion was expected, for example of expired Jobs.
    pub(in crate::reconcile) fn remove_states(&self, deployment: &str, keys: &BTreeSet<String>) {
        self.with(deployment, |state| {
            for key in keys {
                state.objects.remove(key);
                state.drifted.remove(key);
                state.pending_verifications.remove(key);
                state.health_checks_due.remove(key);
                state.unhealthy.remove(key);
            }
        });
    }

    /// Returns the names of all BundleDeployments with a state.
    pub(in crate::reconcile) fn names(&self) -> Vec<String> {
        self.all().states.keys().cloned().collect()
    }

    /// Removes the state of `deployment`.
    pub(in crate::reconcile) fn close(&self, deployment: &str) {
        let mut all = self.all();
        if let Some(state) = all.states.remove(deployment) {
            let none = Inventory::default();
            all.recorded.replace(deployment, &state.inventory, &none);
        }
    }

    /// Returns the drifted objects, each with the time at which its drift was detected.
    pub(in crate::reconcile) fn drifted(&self, deployment: &str) -> BTreeMap<String, Timestamp> {
        self.with(deployment, |state| {
            let drifted = state.drifted.iter();
            drifted
                .map(|(key, drift)| (key.clone(), drift.since))
                .collect()
        })
    }

    /// Returns the state of the object after the last apply. Returns `None` if the state is
    /// unknown.
    pub(in crate::reconcile) fn state(&self, deployment: &str, key: &str) -> Option<ObjectState> {
        self.with(deployment, |state| state.objects.get(key)?.state)
    }

    /// Returns the states of those objects in `keys` that have no drift and no pending
    /// verification.
    pub(in crate::reconcile) fn undrifted<'k>(
        &self,
        deployment: &str,
        keys: impl Iterator<Item = &'k str>,
    ) -> HashMap<String, AppliedState> {
        self.with(deployment, |state| {
            let is_suspect = |key: &str| {
                let suspect = state.pending_verifications.get(key);
                suspect.is_some_and(|suspect| suspect.due.is_some())
            };
            keys.filter(|key| !state.drifted.contains_key(*key) && !is_suspect(key))
                .filter_map(|key| Some((key.to_owned(), *state.objects.get(key)?)))
                .collect()
        })
    }

    /// Returns true if drift of the object is visible in its `managedFields`.
    pub(in crate::reconcile) fn shows_drift_in_fields(&self, deployment: &str, key: &str) -> bool {
        self.with(deployment, |state| {
            state
                .objects
                .get(key)
                .is_some_and(AppliedState::shows_drift_in_fields)
        })
    }

    /// Returns a digest over the applied states of all objects. Returns `None` if the state of an
    /// object is unknown.
    pub(in crate::reconcile) fn fields_digest(&self, deployment: &str) -> Option<Digest> {
        self.with(deployment, |state| digest_of(&state.objects))
    }
}

/// Returns a digest over the states of all `objects`. Returns `None` if the state or the
/// fingerprint of an object is unknown.
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

#[cfg(test)]
mod tests;
