//! Which objects are restored now, and what is known of installations that ended half-way or are not tried again for a while.
//! Not here: the rule of the pauses (bundle_core::plan::backoff).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use bundle_core::plan::backoff::{RestoreBackoff, RestoreFailure};
use bundle_core::plan::summary::Coverage;
use jiff::Timestamp;

use super::{AppliedState, InstalledState, InstalledStates, Observation, ObservedObject};
use crate::reconcile::error::{self, ReconcileError, RetryPolicy};

/// How many objects a message names beside those that it is about.
const NAMED: usize = 20;

/// An object that is out of line.
#[derive(Debug, Clone)]
pub(super) struct Drift {
    pub(super) since: Timestamp,
    pub(super) is_missing: bool,
    /// The field manager that wrote it last, if that is known.
    pub(super) writer: Option<Box<str>>,
}

/// An installation that ended half-way.
#[derive(Debug)]
pub(super) struct Partial {
    /// The content and settings, as in [`InstalledState::digest`].
    pub(super) digest: String,
    /// Those of its objects that were applied.
    pub(super) applied: BTreeSet<String>,
    /// True if objects of the content that was installed before are known.
    pub(super) knows_former: bool,
}

/// An installation that is not tried again for a while, since the API server cannot store objects of it.
pub(super) struct Held {
    /// Attempt that the error is of.
    pub(super) key: String,
    pub(super) error: ReconcileError,
    pub(super) times: u32,
    pub(super) until: Instant,
}

impl InstalledState {
    pub(super) fn wait(&self, key: &str, now: Duration) -> Duration {
        let backoff = self.restores.get(key).copied().unwrap_or_default();
        backoff.wait(now)
    }
}

impl InstalledStates {
    /// The objects that are out of line and may be restored now.
    pub(in crate::reconcile) fn restorable(&self, deployment: &str) -> BTreeSet<String> {
        let now = self.began.elapsed();
        self.with(deployment, |book| {
            let drifted = book.drifted.keys();
            drifted
                .filter(|key| book.wait(key, now).is_zero())
                .cloned()
                .collect()
        })
    }

    /// Returns the time until the next object may be restored; none if nothing is out of line.
    pub(in crate::reconcile) fn next_restore(&self, deployment: &str) -> Option<Duration> {
        let now = self.began.elapsed();
        self.with(deployment, |book| {
            book.drifted.keys().map(|key| book.wait(key, now)).min()
        })
    }

    /// These objects could not be restored.
    pub(in crate::reconcile) fn not_restored<'k>(
        &self,
        deployment: &str,
        keys: impl IntoIterator<Item = &'k String>,
        failure: RestoreFailure,
    ) {
        let now = self.began.elapsed();
        self.with(deployment, |book| {
            for key in keys {
                let backoff = book.restores.entry(key.clone()).or_default();
                *backoff = backoff.failed(failure, now);
            }
        });
    }

    /// Keeps the error of an attempt to restore objects for as long as one of them is out of line.
    pub(in crate::reconcile) fn keep_restore_error(
        &self,
        deployment: &str,
        error: Option<&ReconcileError>,
    ) {
        self.with(deployment, |book| {
            let failing = |book: &InstalledState, key: &String| {
                book.drifted.contains_key(key)
                    && book
                        .restores
                        .get(key)
                        .is_some_and(RestoreBackoff::has_failed)
            };
            let all = match (error, book.restore_error.take()) {
                (Some(error), _) => (error.clone(), book.drifted.keys().cloned().collect()),
                (None, Some(kept)) => kept,
                (None, None) => return,
            };
            let (error, mut keys): (ReconcileError, BTreeSet<String>) = all;
            keys.retain(|key| failing(book, key));
            book.restore_error = (!keys.is_empty()).then_some((error, keys));
        });
    }

    /// The error of the last attempt to restore objects that are still out of line, with the names of all that could not be restored.
    pub(in crate::reconcile) fn restore_error(&self, deployment: &str) -> Option<ReconcileError> {
        let now = self.began.elapsed();
        self.with(deployment, |book| {
            let (error, keys) = book.restore_error.as_ref()?;
            let wait = keys.iter().map(|key| book.wait(key, now)).min()?;
            Some(ReconcileError {
                message: naming(&error.message, keys),
                retry: RetryPolicy::At(wait),
                ..error.clone()
            })
        })
    }

    /// The objects that are out of line and do not exist.
    pub(in crate::reconcile) fn missing(&self, deployment: &str) -> Vec<String> {
        self.with(deployment, |book| {
            let missing = book.drifted.iter().filter(|(_, drift)| drift.is_missing);
            missing.map(|(key, _)| key.clone()).collect()
        })
    }

    /// Returns the reason for which the object is out of line, in words: that it is missing, or the field manager that wrote it last.
    pub(in crate::reconcile) fn cause(&self, deployment: &str, key: &str) -> Option<String> {
        self.with(deployment, |book| {
            let drift = book.drifted.get(key)?;
            if drift.is_missing {
                return Some("somebody had deleted it".to_owned());
            }
            let writer = drift.writer.as_deref()?;
            Some(format!("field manager {writer:?} had written it"))
        })
    }

    /// The objects that are out of line and that somebody keeps changing back.
    pub(in crate::reconcile) fn contested(&self, deployment: &str) -> Vec<String> {
        let now = self.began.elapsed();
        self.with(deployment, |book| {
            let is_contested = |backoff: &RestoreBackoff| backoff.is_contested(now);
            let drifted = book.drifted.keys();
            drifted
                .filter(|key| book.restores.get(*key).is_some_and(is_contested))
                .cloned()
                .collect()
        })
    }

    /// The content has to be looked at and applied anew.
    pub(in crate::reconcile) fn forget_content(&self, deployment: &str) {
        self.with(deployment, |book| book.digest.clear());
    }

    /// The installation of `digest` ended before everything was applied: `applied` was, and what became of objects that are `uncertain` is not known.
    pub(in crate::reconcile) fn interrupt(
        &self,
        deployment: &str,
        digest: &str,
        applied: HashMap<String, AppliedState>,
        uncertain: &BTreeSet<String>,
        seen: &BTreeMap<String, ObservedObject>,
    ) {
        let work = self.with(deployment, |book| {
            let mut partial = book.partial.take().unwrap_or_else(|| Partial {
                digest: digest.to_owned(),
                applied: BTreeSet::new(),
                knows_former: !book.objects.is_empty(),
            });
            if partial.digest != digest {
                // The values of these are neither those of the installed content nor of the one that is wanted now.
                for key in &partial.applied {
                    book.objects.remove(key);
                }
                partial = Partial {
                    digest: digest.to_owned(),
                    applied: BTreeSet::new(),
                    knows_former: false,
                };
            }
            for key in uncertain {
                book.objects.remove(key);
                partial.applied.remove(key);
            }
            for (key, left) in applied {
                book.drifted.remove(&key);
                book.suspects.remove(&key);
                partial.applied.insert(key.clone());
                book.objects.insert(key, left);
            }
            book.partial = Some(partial);
            book.busy = false;
            book.drifted.retain(|key, _| book.objects.contains_key(key));
            book.look_at_all(seen)
        });
        if work {
            self.wake(deployment);
        }
    }

    /// Takes up objects of the installed content of which nothing is known, while an installation of other content has ended half-way.
    pub(in crate::reconcile) fn take_up(
        &self,
        deployment: &str,
        objects: HashMap<String, AppliedState>,
        seen: &BTreeMap<String, ObservedObject>,
        missing: &BTreeSet<String>,
    ) {
        self.with(deployment, |book| {
            for (key, left) in objects {
                book.objects.entry(key).or_insert(left);
            }
            book.look_at_all(seen);
            for key in missing {
                book.record_drift(key, None);
            }
            if let Some(partial) = &mut book.partial {
                partial.knows_former = true;
            }
        });
    }

    /// Returns whether objects of the content that was installed before have to be taken up.
    pub(in crate::reconcile) fn lacks_former(&self, deployment: &str) -> bool {
        self.with(deployment, |book| {
            let partial = book.partial.as_ref();
            partial.is_some_and(|partial| !partial.knows_former)
        })
    }

    /// Returns whether it is known what our last apply left of the object.
    pub(in crate::reconcile) fn knows(&self, deployment: &str, key: &str) -> bool {
        self.with(deployment, |book| book.objects.contains_key(key))
    }

    /// The objects that an installation of `digest` applied before it ended half-way; none if there is no such installation.
    pub(in crate::reconcile) fn applied_partly(
        &self,
        deployment: &str,
        digest: &str,
    ) -> Option<BTreeSet<String>> {
        self.with(deployment, |book| {
            let partial = book.partial.as_ref()?;
            let is_same = partial.digest == digest;
            Some(if is_same {
                partial.applied.clone()
            } else {
                BTreeSet::new()
            })
        })
    }

    /// Of which objects it is known how they are, where something `is_recorded` as installed.
    pub(in crate::reconcile) fn coverage(&self, deployment: &str, is_recorded: bool) -> Coverage {
        self.with(deployment, |book| {
            if book.busy || book.partial.is_some() {
                Coverage::Partly
            } else if !book.digest.is_empty() {
                Coverage::All
            } else if is_recorded {
                Coverage::NotLookedAt
            } else {
                Coverage::Nothing
            }
        })
    }

    /// Does not try the installation `key` again for a while. Returns the error with the time of the next attempt.
    pub(in crate::reconcile) fn hold(
        &self,
        deployment: &str,
        key: &str,
        error: ReconcileError,
    ) -> ReconcileError {
        self.with(deployment, |book| {
            let held = book.held.take().filter(|held| held.key == key);
            let times = held.map_or(1, |held| held.times.saturating_add(1));
            let pause = error::pause(error.retry, times).unwrap_or_default();
            book.held = Some(Held {
                key: key.to_owned(),
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

    /// The error of the installation `key`, if it is not to be tried again yet.
    pub(in crate::reconcile) fn held(&self, deployment: &str, key: &str) -> Option<ReconcileError> {
        self.with(deployment, |book| {
            let held = book.held.as_ref().filter(|held| held.key == key)?;
            let pause = held.until.saturating_duration_since(Instant::now());
            (!pause.is_zero()).then(|| ReconcileError {
                retry: RetryPolicy::At(pause),
                ..held.error.clone()
            })
        })
    }
}

impl InstalledState {
    /// Records that the object is out of line, and that attempts which failed may succeed now.
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
        if let Some(held) = &mut self.held
            && held.error.objects.iter().any(|object| object == key)
        {
            held.until = Instant::now();
        }
    }

    /// Takes in how all objects are: as `seen`, or as was told since.
    pub(super) fn look_at_all(&mut self, seen: &BTreeMap<String, ObservedObject>) -> bool {
        let mut all: BTreeMap<String, Observation> = seen
            .iter()
            .map(|(key, seen)| (key.clone(), Observation::Present(seen.clone())))
            .collect();
        all.extend(self.told.all());
        let mut work = false;
        for (key, told) in all {
            work |= self.look(&key, &told);
        }
        work
    }
}

/// The message of an error about objects, with the names of those among `failing` that it does not name. One that names none is not about objects.
fn naming(message: &str, failing: &BTreeSet<String>) -> String {
    let (named, others): (Vec<&String>, Vec<&String>) =
        failing.iter().partition(|key| names(message, key));
    if named.is_empty() || others.is_empty() {
        return message.to_owned();
    }
    let others = others.into_iter().cloned().collect();
    format!(
        "{message}; also not restored: {}",
        error::list(others, NAMED)
    )
}

/// Returns `true` if the text has this key, and not just a longer one that begins with it.
fn names(text: &str, key: &str) -> bool {
    text.match_indices(key).any(|(at, _)| {
        let after = text[at + key.len()..].chars().next();
        !after.is_some_and(|next| next.is_ascii_alphanumeric() || ['-', '.'].contains(&next))
    })
}
