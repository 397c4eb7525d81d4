//! The evaluation of watch events during and after a reconcile.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use bundle_core::object::GroupKind;
use bundle_core::plan::drift::{self, DriftState};
use bundle_core::plan::inventory;

use super::{
    InstalledState, InstalledStates, Observation, PendingVerification, UnwatchedKinds,
    VERIFICATION_RESET_AFTER,
};
use crate::reconcile::api::discovery::Kind;
use crate::reconcile::api::object::ObservedObject;

impl InstalledStates {
    /// Starts the event log of `deployment`. When the reconcile records a state later, the state is
    /// compared with the last logged event of the object.
    pub(in crate::reconcile) fn begin_reconcile(&self, deployment: &str) {
        self.with(deployment, |state| state.log.begin());
    }

    /// Ends the event log. If some kinds are not watched, clears the content key. Then the next
    /// reconcile compares the content again, and opens the missing watches.
    pub(in crate::reconcile) fn end_reconcile(&self, deployment: &str) {
        let work = self.with(deployment, |state| {
            state.log.end();
            let unwatched = state.unwatched.take();
            if unwatched.is_some() {
                state.content_key = None;
            }
            unwatched.is_some_and(|unwatched| unwatched.has_restored)
        });
        if work {
            self.wake(deployment);
        }
    }

    /// Records that the API server does not serve some kinds of the content, so that the objects of
    /// these kinds are not watched.
    pub(in crate::reconcile) fn mark_unwatched(&self, deployment: &str) {
        self.with(deployment, |state| {
            state.unwatched = Some(UnwatchedKinds::default());
        });
    }

    /// Executes `change`, which changes the state of the object `key`. Then evaluates the last
    /// logged event of this object again.
    pub(super) fn record(
        &self,
        deployment: &str,
        key: &str,
        change: impl FnOnce(&mut InstalledState),
    ) {
        let work = self.with(deployment, |state| {
            change(state);
            let observation = state.log.of(key);
            observation.is_some_and(|observation| state.evaluate(key, &observation))
        });
        if work {
            self.wake(deployment);
        }
    }

    /// Evaluates a watch event about the object `key` for each BundleDeployment in `users`.
    pub(in crate::reconcile) fn evaluate_event(
        &self,
        users: &[String],
        key: &str,
        observation: &Observation,
    ) {
        for deployment in users {
            let work = self.with(deployment, |state| {
                state.log.keep(key, observation);
                state.evaluate(key, observation)
            });
            if work {
                self.wake(deployment);
            }
        }
    }

    /// Evaluates a complete list of objects of `kind` for each BundleDeployment in `users`.
    /// Recorded objects that the list does not contain count as deleted.
    pub(in crate::reconcile) fn evaluate_list(
        &self,
        users: &[String],
        kind: &Kind,
        namespace: Option<&str>,
        seen: &HashMap<String, ObservedObject>,
    ) {
        let group_kind = kind.group_kind();
        for deployment in users {
            let work = self.with(deployment, |state| {
                // While objects are being applied, the inventory also contains new objects that do
                // not have a state yet.
                let applied = state.objects.keys().map(String::as_str);
                let recorded = state.inventory.objects().filter(|_| state.is_applying);
                let mine: BTreeSet<String> = applied
                    .chain(recorded.map(|(key, _)| key))
                    .filter(|key| is_of(key, &group_kind, namespace))
                    .map(str::to_owned)
                    .collect();
                let mut work = false;
                for key in mine {
                    let observation = seen
                        .get(&key)
                        .cloned()
                        .map_or(Observation::Gone(0), Observation::Present);
                    state.log.keep(&key, &observation);
                    work |= state.evaluate(&key, &observation);
                }
                work
            });
            if work {
                self.wake(deployment);
            }
        }
    }

    /// Starts a reconcile of each of these BundleDeployments. Called if the progress of a watch
    /// changed.
    pub(in crate::reconcile) fn requeue(&self, deployments: &[String]) {
        for deployment in deployments {
            self.wake(deployment);
        }
    }

    pub(super) fn wake(&self, deployment: &str) {
        // Sending fails only when the process ends.
        self.wake.send(deployment.to_owned()).ok();
    }
}

impl InstalledState {
    /// Evaluates an observation of the object `key`. Returns true if the BundleDeployment needs a
    /// reconcile.
    pub(super) fn evaluate(&mut self, key: &str, observation: &Observation) -> bool {
        if self.is_applying {
            return false;
        }
        let Some(left) = self.objects.get(key) else {
            return false;
        };
        if observation.is_older_than(left.version) {
            return false;
        }
        let seen = observation.seen();
        let is_ours = seen.is_none_or(|seen| self.inventory.owns(key, &seen.uid));
        let state = match left.state {
            _ if !is_ours => DriftState::Drifted,
            Some(applied) => drift::drift_state(applied, seen.map(|seen| seen.state)),
            None if seen.is_none() => DriftState::Missing,
            None => DriftState::MustRead,
        };
        let work = match state {
            DriftState::Unchanged => {
                self.drifted.remove(key);
                if let Some(suspect) = self.pending_verifications.get_mut(key) {
                    suspect.due = None;
                }
                false
            }
            DriftState::MustVerify => {
                self.suspect(key, Instant::now());
                true
            }
            DriftState::Drifted | DriftState::Missing | DriftState::MustRead => {
                self.record_drift(key, seen);
                true
            }
        };
        let touched = self.has_health(key) && self.health_checks_due.insert(key.to_owned());
        work || touched
    }

    /// Schedules the verification of an object. The delay grows with the number of recent
    /// verifications of this object.
    pub(super) fn suspect(&mut self, key: &str, now: Instant) {
        let suspect =
            self.pending_verifications
                .entry(key.to_owned())
                .or_insert(PendingVerification {
                    due: None,
                    written: now,
                    times: 0,
                    last: now,
                });
        if now.duration_since(suspect.last) > VERIFICATION_RESET_AFTER {
            suspect.times = 0;
        }
        if suspect.due.is_none() {
            suspect.due = Some(suspect.last + drift::verification_pause(suspect.times));
            suspect.written = now;
        }
    }
}

/// Returns true if the object `key` has this kind. If `namespace` is set, the object must also be
/// in this namespace.
fn is_of(key: &str, kind: &GroupKind, namespace: Option<&str>) -> bool {
    inventory::parts(key)
        .is_some_and(|(found, of, _)| found == *kind && (namespace.is_none() || namespace == of))
}
