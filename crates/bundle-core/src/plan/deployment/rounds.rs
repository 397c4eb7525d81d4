//! Plan of an apply: rounds of at most [`ROUND`] objects of one phase. An installation can take
//! several minutes, and permissions may change during this time. Therefore all checks whose results
//! are too old are repeated between rounds.

use std::collections::BTreeSet;

use crate::plan::phases::Phase;
use crate::review::Class;

/// Maximum number of objects in one round. Between rounds, outdated checks are repeated.
pub const ROUND: usize = 100;

/// Step of one round. A round applies up to [`ROUND`] objects of one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoundStep {
    /// Check that all objects of the previous phase are healthy. If an object is not healthy, the
    /// installation ends. The installation starts again when all of these objects are healthy.
    CheckReady,
    /// Watch all kinds of the content. At this time, the server already serves the kinds that the
    /// content defines.
    WatchAll,
    /// Check that the [`Preconditions`] of the installation are unchanged.
    CheckPreconditions,
    /// Check the approval again.
    CheckApproval,
    /// Check the requesters' permissions for the rest of the installation again, and record the
    /// planned writes.
    Authorize,
    /// Delete the objects of the round that must be replaced.
    Replace,
    /// Send dry runs as the requesters, for the objects of the round that depend on objects of
    /// earlier phases.
    DryRun,
    /// Check that the namespaces of the round are unchanged since the permission check.
    CheckNamespaces,
    /// Apply and record the objects of the round.
    Apply,
}

/// Observed facts about a round, which determine its remaining steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedRound {
    /// Phase of the next objects; `None` if all objects are applied.
    pub phase: Option<Phase>,
    /// True if the round begins a phase that waits until the previous phase is healthy.
    pub is_gated: bool,
    /// True if all kinds of the content are watched.
    pub is_watched: bool,
    /// True if the result of the permission check is too old for a write.
    pub is_authorization_old: bool,
    /// Completed steps of this round.
    pub done: BTreeSet<RoundStep>,
}

impl ObservedRound {
    /// Returns the remaining steps of this round, in order. A step runs only if all earlier steps
    /// succeeded.
    pub fn steps(&self) -> Vec<RoundStep> {
        let mut steps = Vec::new();
        if self.is_gated && self.phase.is_some() {
            steps.push(RoundStep::CheckReady);
        }
        if !self.is_watched && self.phase.is_none_or(|phase| phase > Phase::Crds) {
            steps.push(RoundStep::WatchAll);
        }
        if self.phase.is_some() {
            // `Replace` is the first write of a round. The checks must precede the first write.
            if self.is_authorization_old && !self.done.contains(&RoundStep::Replace) {
                steps.extend([
                    RoundStep::CheckPreconditions,
                    RoundStep::CheckApproval,
                    RoundStep::Authorize,
                ]);
            }
            steps.extend([
                RoundStep::Replace,
                RoundStep::DryRun,
                RoundStep::CheckNamespaces,
                RoundStep::Apply,
            ]);
        }
        steps.retain(|step| !self.done.contains(step));
        steps
    }
}

/// Returns the number of objects in the next round. `phases` contains the phase of each remaining
/// object, in order. A round contains only objects of the first of these phases.
pub fn round(phases: impl IntoIterator<Item = Phase>) -> usize {
    let mut phases = phases.into_iter().peekable();
    let first = phases.peek().copied();
    phases
        .take_while(|phase| Some(*phase) == first)
        .take(ROUND)
        .count()
}

/// Facts that an installation depends on, and that may change while the installation runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preconditions<'a> {
    /// Uid of the BundleDeployment; `None` if the API server returned no uid.
    pub uid: Option<&'a str>,
    /// Generation of the BundleDeployment; `None` if the API server returned no generation.
    pub generation: Option<i64>,
    /// True if the BundleDeployment is being deleted.
    pub is_deleted: bool,
    /// Class; `None` if the class does not exist, is invalid or belongs to another provisioner.
    pub class: Option<&'a Class>,
}

impl Preconditions<'_> {
    /// Returns true if an installation with these preconditions may continue. `now` has the current
    /// facts, and is `None` if the BundleDeployment does not exist any more.
    pub fn are_unchanged(&self, now: Option<&Self>) -> bool {
        now.is_some_and(|now| self == now && !now.is_deleted && now.class.is_some())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::RoundStep::*;
    use super::*;

    fn observed(
        phase: Option<Phase>,
        is_watched: bool,
        is_authorization_old: bool,
    ) -> ObservedRound {
        ObservedRound {
            phase,
            is_gated: false,
            is_watched,
            is_authorization_old,
            done: BTreeSet::new(),
        }
    }

    #[test]
    fn next_phase_waits_for_the_previous_phase_before_every_other_step() {
        let gated = |phase| ObservedRound {
            is_gated: true,
            ..observed(phase, true, true)
        };
        assert_eq!(gated(None).steps(), []);
        let mut round = gated(Some(Phase::Deploy));
        assert_eq!(round.steps().first(), Some(&CheckReady));
        round.done.insert(CheckReady);
        assert_eq!(round.steps().first(), Some(&CheckPreconditions));
        assert_eq!(
            observed(Some(Phase::Deploy), true, false).steps()[0],
            Replace
        );
    }

    #[test]
    fn steps_of_a_round_depend_on_phase_watches_and_age_of_the_permission_check() {
        let writes = vec![Replace, DryRun, CheckNamespaces, Apply];
        let asks = vec![CheckPreconditions, CheckApproval, Authorize];
        let early = Some(Phase::Configuration);
        for (phase, is_watched, is_old, expected) in [
            (None, true, false, vec![]),
            (None, true, true, vec![]),
            (None, false, false, vec![WatchAll]),
            (None, false, true, vec![WatchAll]),
            (early, false, false, writes.clone()),
            (early, true, false, writes.clone()),
            (Some(Phase::Crds), false, false, writes.clone()),
            (early, false, true, [asks.clone(), writes.clone()].concat()),
            (
                Some(Phase::Crds),
                false,
                true,
                [asks.clone(), writes.clone()].concat(),
            ),
            (
                Some(Phase::Roles),
                false,
                false,
                [vec![WatchAll], writes.clone()].concat(),
            ),
            (
                Some(Phase::Deploy),
                false,
                true,
                [vec![WatchAll], asks.clone(), writes.clone()].concat(),
            ),
            (Some(Phase::Deploy), true, false, writes.clone()),
            (Some(Phase::Admission), true, true, [asks, writes].concat()),
        ] {
            let found = observed(phase, is_watched, is_old).steps();
            assert_eq!(found, expected, "{phase:?} {is_watched} {is_old}");
        }
    }

    #[test]
    fn permission_check_that_expires_within_a_round_is_repeated_before_the_next_round() {
        let mut round = observed(Some(Phase::Deploy), true, false);
        round.done.insert(Replace);
        round.is_authorization_old = true;
        assert_eq!(round.steps(), [DryRun, CheckNamespaces, Apply]);
        let mut asked = observed(Some(Phase::Deploy), true, true);
        asked
            .done
            .extend([CheckPreconditions, CheckApproval, Authorize]);
        assert_eq!(asked.steps(), [Replace, DryRun, CheckNamespaces, Apply]);
    }

    #[test]
    fn round_ends_with_its_phase_or_at_the_object_limit() {
        use Phase::{Deploy, Namespaces};
        assert_eq!(round([]), 0);
        assert_eq!(round([Namespaces, Namespaces, Deploy]), 2);
        assert_eq!(round(std::iter::repeat_n(Deploy, ROUND + 1)), ROUND);
    }

    #[test]
    fn installation_continues_only_while_deployment_and_class_are_unchanged() {
        let class = |name| {
            let spec = json!({"provisioner": "core.rukpak.io/plain"});
            Class::parse(name, &spec).unwrap()
        };
        let (plain, other) = (class("plain"), class("other"));
        let begun = Preconditions {
            uid: Some("u-1"),
            generation: Some(3),
            is_deleted: false,
            class: Some(&plain),
        };
        let uid = Some("u-2");
        for (now, expected) in [
            (Some(begun), true),
            (None, false),
            (Some(Preconditions { uid, ..begun }), false),
            (
                Some(Preconditions {
                    generation: Some(4),
                    ..begun
                }),
                false,
            ),
            (
                Some(Preconditions {
                    is_deleted: true,
                    ..begun
                }),
                false,
            ),
            (
                Some(Preconditions {
                    class: Some(&other),
                    ..begun
                }),
                false,
            ),
            (
                Some(Preconditions {
                    class: None,
                    ..begun
                }),
                false,
            ),
        ] {
            assert_eq!(begun.are_unchanged(now.as_ref()), expected, "{now:?}");
        }
        let gone = Preconditions {
            class: None,
            ..begun
        };
        assert!(!gone.are_unchanged(Some(&gone)));
    }
}
