//! Drifted objects that are due for a restore, incomplete installations, and installations that are
//! delayed after an error. `bundle_core::plan::restores` computes the delays.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use bundle_core::plan::inventory::ContentKey;
use bundle_core::plan::restores::{RestoreBackoff, RestoreFailure};
use bundle_core::plan::rollout::AwaitedPhase;
use bundle_core::plan::steps::AppliedContent;
use bundle_core::plan::summary::Coverage;
use jiff::Timestamp;

use super::{
    AppliedState, InstalledState, InstalledStates, Observation, ObservedObject, REMOVAL_INTERVAL,
};
use crate::blocking;
use crate::reconcile::error::{self, ReconcileError, RetryPolicy};

/// Maximum number of object names that are added to a message.
const MAX_NAMED: usize = 20;
/// Length of the start of a message that is searched for object names, in bytes. Lists of objects
/// in messages are shorter.
const SEARCHED_BYTES: usize = 32 << 10;

/// The drift of an object.
#[derive(Debug, Clone)]
pub(super) struct Drift {
    pub(super) since: Timestamp,
    pub(super) is_missing: bool,
    /// The field manager of the last write. `None` if the manager is unknown.
    pub(super) writer: Option<Box<str>>,
}

/// An installation that has not applied all its objects: it failed, or it waits for a phase.
#[derive(Debug)]
pub(super) struct PartialInstallation {
    /// The content key of this installation.
    pub(super) content_key: ContentKey,
    /// The objects that were applied.
    pub(super) applied: BTreeSet<String>,
    /// True if the states of the objects of the previously installed content are recorded.
    pub(super) knows_former: bool,
    /// True if an earlier process began the installation, and this process has not applied any of
    /// its objects. In this case it is unknown which objects have values of this installation.
    pub(super) is_resumed: bool,
    /// The phase whose objects must be healthy before the installation continues. `None` if the
    /// installation ended for another reason.
    pub(super) awaited: Option<AwaitedPhase>,
}

/// The inputs of an installation: content, settings and admission. If an input changes, the next
/// attempt starts immediately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reconcile) struct InstallationAttempt {
    pub(in crate::reconcile) content: ContentKey,
    /// The generation of the BundleDeployment. Each change of the spec increments the generation.
    pub(in crate::reconcile) generation: i64,
    /// The value of the annotation `core.rukpak.io/admit`, with which a user becomes the requester.
    pub(in crate::reconcile) admitted: Option<String>,
}

/// A delayed installation. The API server cannot store at least one object of this installation.
pub(super) struct DelayedInstallation {
    /// The attempt that failed.
    pub(super) attempt: InstallationAttempt,
    /// The error, with its objects in sorted order.
    pub(super) error: ReconcileError,
    pub(super) times: u32,
    pub(super) until: Instant,
}

impl DelayedInstallation {
    /// Returns true if the error names the object `key`.
    fn names(&self, key: &str) -> bool {
        let objects = &self.error.objects;
        let found = objects.binary_search_by(|object| object.as_str().cmp(key));
        found.is_ok()
    }
}

impl InstalledState {
    pub(super) fn wait(&self, key: &str, now: Duration) -> Duration {
        let backoff = self.restores.get(key).copied().unwrap_or_default();
        backoff.wait(now)
    }

    /// Removes the histories that are old enough to be reset, at most once in each
    /// [`REMOVAL_INTERVAL`].
    pub(super) fn remove_quiet_restores(&mut self, now: Duration) {
        if now < self.next_removal {
            return;
        }
        self.next_removal = now + REMOVAL_INTERVAL;
        self.restores.retain(|_, backoff| !backoff.is_quiet(now));
    }
}

impl InstalledStates {
    /// Returns the drifted objects that are due for a restore.
    pub(in crate::reconcile) fn restorable(&self, deployment: &str) -> BTreeSet<String> {
        let now = self.began.elapsed();
        self.with(deployment, |state| {
            let drifted = state.drifted.keys();
            drifted
                .filter(|key| state.wait(key, now).is_zero())
                .cloned()
                .collect()
        })
    }

    /// Returns the time until the next restore is due. Returns `None` if no object has drifted.
    pub(in crate::reconcile) fn next_restore(&self, deployment: &str) -> Option<Duration> {
        let now = self.began.elapsed();
        self.with(deployment, |state| {
            state.drifted.keys().map(|key| state.wait(key, now)).min()
        })
    }

    /// Records that the objects `keys` could not be restored, and delays their next restore.
    pub(in crate::reconcile) fn record_restore_failure<'k>(
        &self,
        deployment: &str,
        keys: impl IntoIterator<Item = &'k String>,
        failure: RestoreFailure,
    ) {
        let now = self.began.elapsed();
        self.with(deployment, |state| {
            for key in keys {
                let backoff = state.restores.entry(key.clone()).or_default();
                *backoff = backoff.failed(failure, now);
            }
        });
    }

    /// Stores `error`, the error of an attempt to restore objects, until these objects are
    /// restored. If `error` is `None`, keeps the stored error while one of its objects is not
    /// restored.
    pub(in crate::reconcile) fn keep_restore_error(
        &self,
        deployment: &str,
        error: Option<&ReconcileError>,
    ) {
        self.with(deployment, |state| {
            let failing = |state: &InstalledState, key: &String| {
                state.drifted.contains_key(key)
                    && state
                        .restores
                        .get(key)
                        .is_some_and(RestoreBackoff::has_failed)
            };
            let all = match (error, state.restore_error.take()) {
                (Some(error), _) => (error.clone(), state.drifted.keys().cloned().collect()),
                (None, Some(kept)) => kept,
                (None, None) => return,
            };
            let (error, mut keys): (ReconcileError, BTreeSet<String>) = all;
            keys.retain(|key| failing(state, key));
            state.restore_error = (!keys.is_empty()).then_some((error, keys));
        });
    }

    /// Returns the stored error of the last failed restore. If the error names objects, the message
    /// names all objects that are not restored yet.
    pub(in crate::reconcile) fn restore_error(&self, deployment: &str) -> Option<ReconcileError> {
        let now = self.began.elapsed();
        let (error, keys, wait) = self.with(deployment, |state| {
            let (error, keys) = state.restore_error.as_ref()?;
            let wait = keys.iter().map(|key| state.wait(key, now)).min()?;
            Some((error.clone(), keys.clone(), wait))
        })?;
        // The message is searched for each object that is not restored.
        let message = blocking::run(|| naming(&error.message, &keys));
        Some(ReconcileError {
            message,
            retry: RetryPolicy::At(wait),
            ..error
        })
    }

    /// Returns the drifted objects that do not exist.
    pub(in crate::reconcile) fn missing(&self, deployment: &str) -> Vec<String> {
        self.with(deployment, |state| {
            let missing = state.drifted.iter().filter(|(_, drift)| drift.is_missing);
            missing.map(|(key, _)| key.clone()).collect()
        })
    }

    /// Returns the cause of the drift of the object `key` as text: its deletion, or the field
    /// manager of the last write.
    pub(in crate::reconcile) fn cause(&self, deployment: &str, key: &str) -> Option<String> {
        self.with(deployment, |state| {
            let drift = state.drifted.get(key)?;
            if drift.is_missing {
                return Some("it had been deleted".to_owned());
            }
            let writer = drift.writer.as_deref()?;
            Some(format!("field manager {writer:?} had written it"))
        })
    }

    /// Returns the drifted objects that another actor repeatedly changes after each restore.
    pub(in crate::reconcile) fn contested(&self, deployment: &str) -> Vec<String> {
        let now = self.began.elapsed();
        self.with(deployment, |state| {
            let is_contested = |backoff: &RestoreBackoff| backoff.is_contested(now);
            let drifted = state.drifted.keys();
            drifted
                .filter(|key| state.restores.get(*key).is_some_and(is_contested))
                .cloned()
                .collect()
        })
    }

    /// Clears the content key. Therefore the next reconcile compares the content with the objects
    /// again.
    pub(in crate::reconcile) fn forget_content(&self, deployment: &str) {
        self.with(deployment, |state| state.content_key = None);
    }

    /// Records that the installation `content_key` ended before all objects were applied. `applied`
    /// contains the states of the applied objects. The states of the objects in `uncertain` are
    /// unknown.
    pub(in crate::reconcile) fn record_interrupted(
        &self,
        deployment: &str,
        content_key: &ContentKey,
        applied: HashMap<String, AppliedState>,
        uncertain: &BTreeSet<String>,
        seen: &BTreeMap<String, ObservedObject>,
    ) {
        let work = self.with(deployment, |state| {
            let mut partial = state.partial.take().unwrap_or_else(|| PartialInstallation {
                content_key: content_key.clone(),
                applied: BTreeSet::new(),
                knows_former: !state.objects.is_empty(),
                is_resumed: false,
                awaited: None,
            });
            if partial.content_key != *content_key {
                // The objects of another incomplete installation have neither the values of the
                // installed content nor the values of the requested content.
                for key in &partial.applied {
                    state.objects.remove(key);
                }
                partial = PartialInstallation {
                    content_key: content_key.clone(),
                    applied: BTreeSet::new(),
                    knows_former: false,
                    is_resumed: false,
                    awaited: None,
                };
            }
            // In a resumed installation, only some objects of the installed content have a state.
            partial.knows_former &= !partial.is_resumed;
            partial.is_resumed = false;
            partial.awaited = None;
            for key in uncertain {
                state.objects.remove(key);
                partial.applied.remove(key);
            }
            for (key, left) in applied {
                state.drifted.remove(&key);
                state.pending_verifications.remove(&key);
                partial.applied.insert(key.clone());
                state.objects.insert(key, left);
            }
            state.partial = Some(partial);
            state.is_applying = false;
            state
                .drifted
                .retain(|key, _| state.objects.contains_key(key));
            state.evaluate_all(seen)
        });
        if work {
            self.wake(deployment);
        }
    }

    /// Records that an earlier process began the installation `content_key` and did not complete
    /// it. Does nothing if an incomplete installation is already recorded.
    pub(in crate::reconcile) fn resume_installation(
        &self,
        deployment: &str,
        content_key: &ContentKey,
    ) {
        self.with(deployment, |state| {
            state.partial.get_or_insert_with(|| PartialInstallation {
                content_key: content_key.clone(),
                applied: BTreeSet::new(),
                knows_former: false,
                is_resumed: true,
                awaited: None,
            });
        });
    }

    /// Returns true if an earlier process began the incomplete installation, and this process has
    /// not applied any of its objects.
    pub(in crate::reconcile) fn is_resumed(&self, deployment: &str) -> bool {
        self.with(deployment, |state| {
            let partial = state.partial.as_ref();
            partial.is_some_and(|partial| partial.is_resumed)
        })
    }

    /// Returns which content is applied completely, in comparison with the installation
    /// `content_key`.
    pub(in crate::reconcile) fn applied_content(
        &self,
        deployment: &str,
        content_key: &ContentKey,
    ) -> AppliedContent {
        match self.content(deployment) {
            None => AppliedContent::Unknown,
            Some(known) if known == *content_key => AppliedContent::Wanted,
            Some(_) => AppliedContent::Other,
        }
    }

    /// Adds the states of objects of the previously installed content, while an installation of
    /// other content is incomplete. Objects that already have a state are not changed.
    pub(in crate::reconcile) fn add_former_objects(
        &self,
        deployment: &str,
        objects: HashMap<String, AppliedState>,
        seen: &BTreeMap<String, ObservedObject>,
        missing: &BTreeSet<String>,
    ) {
        self.with(deployment, |state| {
            for (key, left) in objects {
                state.objects.entry(key).or_insert(left);
            }
            state.evaluate_all(seen);
            for key in missing {
                state.record_drift(key, None);
            }
            if let Some(partial) = &mut state.partial {
                partial.knows_former = true;
            }
        });
    }

    /// Returns true if [`Self::add_former_objects`] must be called, because an installation is
    /// incomplete and the states of the previous objects are unknown.
    pub(in crate::reconcile) fn lacks_former_objects(&self, deployment: &str) -> bool {
        self.with(deployment, |state| {
            let partial = state.partial.as_ref();
            partial.is_some_and(|partial| !partial.knows_former)
        })
    }

    /// Returns true if the object has a recorded state.
    pub(in crate::reconcile) fn has_state(&self, deployment: &str, key: &str) -> bool {
        self.with(deployment, |state| state.objects.contains_key(key))
    }

    /// Returns the objects that an incomplete installation of `content_key` applied. Returns `None`
    /// if no installation is incomplete, and an empty set if the incomplete installation has
    /// another content key.
    pub(in crate::reconcile) fn partially_applied(
        &self,
        deployment: &str,
        content_key: &ContentKey,
    ) -> Option<BTreeSet<String>> {
        self.with(deployment, |state| {
            let partial = state.partial.as_ref()?;
            let is_same = partial.content_key == *content_key;
            Some(if is_same {
                partial.applied.clone()
            } else {
                BTreeSet::new()
            })
        })
    }

    /// Returns which objects of the BundleDeployment have a known state. `is_recorded` is true if
    /// the inventory records installed content.
    pub(in crate::reconcile) fn coverage(&self, deployment: &str, is_recorded: bool) -> Coverage {
        self.with(deployment, |state| {
            if state.is_applying || state.partial.is_some() {
                Coverage::AppliedOnly
            } else if state.content_key.is_some() {
                Coverage::All
            } else if is_recorded {
                Coverage::NotChecked
            } else {
                Coverage::Nothing
            }
        })
    }

    /// Delays the next attempt of the installation after `attempt` failed. Returns the error with
    /// the delay of the next attempt as its retry policy.
    pub(in crate::reconcile) fn delay_installation(
        &self,
        deployment: &str,
        attempt: InstallationAttempt,
        mut error: ReconcileError,
    ) -> ReconcileError {
        error.objects.sort_unstable();
        self.with(deployment, |state| {
            let held = state.delayed.take();
            let held = held.filter(|held| held.attempt == attempt);
            let times = held.map_or(1, |held| held.times.saturating_add(1));
            let pause = error::retry_delay(error.retry, times).unwrap_or_default();
            state.delayed = Some(DelayedInstallation {
                attempt,
                error: error.clone(),
                times,
                until: Instant::now() + pause,
            });
            ReconcileError {
                retry: RetryPolicy::At(pause),
                ..error
            }
        })
    }

    /// Returns the error of the failed `attempt`. Returns `None` if the next attempt is due, or if
    /// no failure of this attempt is recorded.
    pub(in crate::reconcile) fn delayed_error(
        &self,
        deployment: &str,
        attempt: &InstallationAttempt,
    ) -> Option<ReconcileError> {
        self.with(deployment, |state| {
            let held = state.delayed.as_ref();
            let held = held.filter(|held| held.attempt == *attempt)?;
            let pause = held.until.saturating_duration_since(Instant::now());
            (!pause.is_zero()).then(|| ReconcileError {
                retry: RetryPolicy::At(pause),
                ..held.error.clone()
            })
        })
    }
}

impl InstalledState {
    /// Records drift of the object `key`. `seen` is the observed object, or `None` if it is
    /// missing. If earlier restores of the object failed, shortens the delay of the next restore.
    /// If the error of a delayed installation names the object, ends the delay of the installation.
    pub(super) fn record_drift(&mut self, key: &str, seen: Option<&ObservedObject>) {
        let is_missing = seen.is_none();
        let drift = self.drifted.entry(key.to_owned()).or_insert(Drift {
            since: Timestamp::now(),
            is_missing: false,
            writer: None,
        });
        drift.writer = seen.and_then(|seen| seen.writer.clone());
        let was_there = !drift.is_missing;
        drift.is_missing = is_missing;
        if let Some(backoff) = self.restores.get_mut(key) {
            *backoff = if is_missing && was_there {
                backoff.without_failures()
            } else {
                backoff.changed()
            };
        }
        if let Some(held) = &mut self.delayed
            && held.names(key)
        {
            held.until = Instant::now();
        }
    }

    /// Evaluates the objects in `seen` and the logged events. For each object, the last logged
    /// event has priority over `seen`. Returns true if the BundleDeployment needs a reconcile.
    pub(super) fn evaluate_all(&mut self, seen: &BTreeMap<String, ObservedObject>) -> bool {
        let mut all: BTreeMap<String, Observation> = seen
            .iter()
            .map(|(key, seen)| (key.clone(), Observation::Present(seen.clone())))
            .collect();
        all.extend(self.log.all());
        let mut work = false;
        for (key, observation) in all {
            work |= self.evaluate(&key, &observation);
        }
        work
    }
}

/// Returns `message` with those objects of `failing` that it does not name. If `message` names no
/// object of `failing`, it is not about single objects and is returned unchanged.
fn naming(message: &str, failing: &BTreeSet<String>) -> String {
    let searched = &message[..message.floor_char_boundary(SEARCHED_BYTES)];
    let (named, others): (Vec<&String>, Vec<&String>) =
        failing.iter().partition(|key| names(searched, key));
    if named.is_empty() || others.is_empty() {
        return message.to_owned();
    }
    let others = others.into_iter().cloned().collect();
    format!(
        "{message}; also not restored: {}",
        error::joined(others, MAX_NAMED)
    )
}

/// Returns true if `text` contains exactly this object key, and not only a longer key that begins
/// with it.
fn names(text: &str, key: &str) -> bool {
    text.match_indices(key).any(|(at, _)| {
        let after = text[at + key.len()..].chars().next();
        !after.is_some_and(|next| next.is_ascii_alphanumeric() || ['-', '.'].contains(&next))
    })
}
