//! What each deployment has installed, as a key and a hash an object, and what of it has come out of line since.
//! Not here: the watches that tell (drift::watch), or putting things right (drift::keep).

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

/// After so long without a verification of an object, the next one is the first again.
const QUIET_OBJECT: Duration = Duration::from_secs(120);

/// What our last apply left of one object.
#[derive(Debug, Clone, Copy)]
pub(in crate::reconcile) struct AppliedState {
    /// None if it is not known, so that only reading the object tells.
    pub(in crate::reconcile) state: Option<ObjectState>,
    /// Its resource version.
    pub(in crate::reconcile) version: u64,
}

impl AppliedState {
    /// Whether our entry in `managedFields` tells drift.
    fn is_told_by_fields(&self) -> bool {
        self.state.is_some_and(|state| state.fingerprint.is_some())
    }
}

/// An object that was written by somebody, and does not show that it was ours that changed.
#[derive(Debug, Clone, Copy)]
struct Suspect {
    /// When it is to be verified; none: it was, and nothing has been written since.
    due: Option<Instant>,
    /// How many times in a row it was verified and had not drifted.
    times: u32,
    last: Instant,
}

/// What is known of one deployment.
#[derive(Default)]
struct InstalledState {
    /// What is ours, as it is recorded.
    inventory: Arc<Inventory>,
    /// The content that these objects are of.
    digest: String,
    objects: HashMap<String, AppliedState>,
    /// While objects are being applied, events tell nothing new: what they brought is looked at when it is settled.
    busy: bool,
    partial: Option<Partial>,
    held: Option<Held>,
    drifted: BTreeMap<String, Drift>,
    restores: BTreeMap<String, RestoreBackoff>,
    /// Reasons for which objects could not be restored, and their keys.
    restore_error: Option<(ReconcileError, BTreeSet<String>)>,
    suspects: BTreeMap<String, Suspect>,
    touched: BTreeSet<String>,
    unhealthy: BTreeMap<String, String>,
    told: ObservationLog,
    /// Set while kinds that the content brings are not served, so that not all objects are watched.
    unwatched: Option<UnwatchedKinds>,
}

/// Kinds of the content that could not be watched yet.
#[derive(Debug, Clone, Copy, Default)]
struct UnwatchedKinds {
    /// True if an object was restored since: the kinds may be served by now.
    has_restored: bool,
}

/// The books of all deployments.
pub(in crate::reconcile) struct InstalledStates {
    all: Mutex<HashMap<String, InstalledState>>,
    /// The moment that times of restores are counted from.
    began: Instant,
    wake: mpsc::UnboundedSender<String>,
    /// States of Jobs, or those that they had when they were deleted.
    pub(in crate::reconcile) job_ends: JobEnds,
}

impl InstalledStates {
    /// `wake` is told the name of each deployment that has something to do.
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

    /// From now on this is what belongs to `deployment`.
    pub(in crate::reconcile) fn set_inventory(&self, deployment: &str, inventory: Arc<Inventory>) {
        self.with(deployment, |book| book.inventory = inventory);
    }

    /// Those of `deployments` whose inventory has the object `key`: an event about any other object is nobody's.
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

    /// Whether some inventory has the object `key`.
    pub(in crate::reconcile) fn is_recorded(&self, key: &str) -> bool {
        let states = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        states.values().any(|book| book.inventory.has(key))
    }

    /// Whether just this object belongs to `deployment`.
    pub(in crate::reconcile) fn owns(&self, deployment: &str, key: &str, uid: &str) -> bool {
        let states = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        states
            .get(deployment)
            .is_some_and(|book| book.inventory.owns(key, uid))
    }

    /// A reconcile of `deployment` begins: from now on, what watches tell is compared with all that the reconcile records later.
    pub(in crate::reconcile) fn begin_reconcile(&self, deployment: &str) {
        self.with(deployment, |book| book.told.begin());
    }

    /// The reconcile is over. If not all objects are watched, the next one finds the content and its
    /// watches again.
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

    /// Kinds that the content of `deployment` brings are not served, and their objects not watched.
    pub(in crate::reconcile) fn lacks_watches(&self, deployment: &str) {
        self.with(deployment, |book| {
            book.unwatched = Some(UnwatchedKinds::default());
        });
    }

    /// Changes what is known of the object `key`, and then takes in again what was told of it meanwhile.
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

    /// The objects to verify now, and how long it is until the next one.
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
                // What is out of line is restored, and needs no verification.
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

    /// One object was verified: it has everything, and this is how it is now.
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

    /// The content that is known to be in place, if any is.
    pub(in crate::reconcile) fn content(&self, deployment: &str) -> Option<String> {
        self.with(deployment, |book| {
            (!book.busy && !book.digest.is_empty()).then(|| book.digest.clone())
        })
    }

    /// From now until it is settled, objects of `deployment` change by our own hand.
    pub(in crate::reconcile) fn begin(&self, deployment: &str) {
        self.with(deployment, |book| {
            book.busy = true;
            book.digest.clear();
        });
    }

    /// All of the content is in place. What was seen later than our own writes, and differs, has drifted meanwhile.
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

    /// One object was applied again.
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

    /// These objects were found to be out of line.
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

    /// The health of an object is looked at again.
    pub(in crate::reconcile) fn touch(&self, deployment: &str, key: &str) {
        self.with(deployment, |book| {
            book.touched.insert(key.to_owned());
        });
    }

    /// One object was read, and has everything.
    pub(in crate::reconcile) fn settled(&self, deployment: &str, key: &str) {
        self.record(deployment, key, |book| {
            book.drifted.remove(key);
        });
    }

    /// These objects are gone as they should be: nothing is expected of them any more.
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

    /// The deployments that something is known of.
    pub(in crate::reconcile) fn names(&self) -> Vec<String> {
        let states = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        states.keys().cloned().collect()
    }

    /// Forgets everything about `deployment`.
    pub(in crate::reconcile) fn close(&self, deployment: &str) {
        self.all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(deployment);
    }

    /// The objects that are out of line, and since when.
    pub(in crate::reconcile) fn drifted(&self, deployment: &str) -> BTreeMap<String, Timestamp> {
        self.with(deployment, |book| {
            let drifted = book.drifted.iter();
            drifted
                .map(|(key, drift)| (key.clone(), drift.since))
                .collect()
        })
    }

    /// What our last apply left of the object, if that is known.
    pub(in crate::reconcile) fn state(&self, deployment: &str, key: &str) -> Option<ObjectState> {
        self.with(deployment, |book| book.objects.get(key)?.state)
    }

    /// Whether it is known what our last apply left of the object.
    pub(in crate::reconcile) fn is_told_by_fields(&self, deployment: &str, key: &str) -> bool {
        self.with(deployment, |book| {
            book.objects
                .get(key)
                .is_some_and(AppliedState::is_told_by_fields)
        })
    }

    /// The objects whose health may have changed; from now on they count as looked at.
    pub(in crate::reconcile) fn take_touched(&self, deployment: &str) -> BTreeSet<String> {
        self.with(deployment, |book| std::mem::take(&mut book.touched))
    }

    /// Records why an object is not healthy; none if it is.
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

    /// The objects that are not healthy, and why.
    pub(in crate::reconcile) fn unhealthy(&self, deployment: &str) -> BTreeMap<String, String> {
        self.with(deployment, |book| book.unhealthy.clone())
    }

    /// One digest over what our last apply left of everything; none if that is not known of each object.
    pub(in crate::reconcile) fn fields_digest(&self, deployment: &str) -> Option<Digest> {
        self.with(deployment, |book| digest_of(&book.objects))
    }

    /// A watch tells how an object is now.
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

    /// A watch has listed everything of `kind`: what it did not list is not there.
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
                // While objects are being applied, those that are about to be are not known otherwise.
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

    /// Something has changed about how these deployments are seen.
    pub(in crate::reconcile) fn look_again(&self, deployments: &[String]) {
        for deployment in deployments {
            self.wake(deployment);
        }
    }

    fn wake(&self, deployment: &str) {
        // Nobody listens only while the process ends.
        self.wake.send(deployment.to_owned()).ok();
    }
}

impl InstalledState {
    /// Takes in how one object is; says whether there is something to do.
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

    /// Has the object verified: at once, or later where that was done shortly before.
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

/// One digest over the states of all objects.
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

/// The kind in a key: keys are [`bundle_core::object::ObjectId`]s in text, `Deployment.apps/team-a/web`.
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
