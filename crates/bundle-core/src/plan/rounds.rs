//! The plan of applying content: in rounds of at most [`ROUND`] objects of one phase. An installation can take minutes, and what was allowed when it began may not
//! be any more, so between rounds everything is asked again whose answer is too old.
//! Not here: the steps before the first object (steps), or the order of phases (phases).

use std::collections::BTreeSet;

use super::phases::Phase;
use crate::review::Class;

/// Most objects of one round.
pub const ROUND: usize = 100;

/// A step of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoundStep {
    /// Watch all kinds of the content: those that it defines itself are served by now.
    WatchAll,
    /// Check that the installation was planned from what still holds.
    CheckBasis,
    /// Ask again whether the content is approved.
    AskApproval,
    /// Ask again whether the requesters may do what is left of the installation, and record what it will write.
    Authorize,
    /// Delete the objects of the round that have to be replaced.
    Replace,
    /// Try the applies of the round as the requesters, where they depend on earlier phases.
    Try,
    /// Check that the namespaces of the round are those that were asked about.
    CheckNamespaces,
    /// Apply the objects of the round, and record what was applied.
    Apply,
}

/// Facts of a round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedRound {
    /// The phase of the objects that are next; `None`: all are applied.
    pub phase: Option<Phase>,
    /// True if all kinds of the content are watched.
    pub is_watched: bool,
    /// True if the answer about rights is too old for a write.
    pub is_authorization_old: bool,
    /// The steps of this round that were done.
    pub done: BTreeSet<RoundStep>,
}

impl ObservedRound {
    /// Returns the steps of this round that are left, in their order; none of them follows a step that failed.
    pub fn steps(&self) -> Vec<RoundStep> {
        let mut steps = Vec::new();
        if !self.is_watched && self.phase.is_none_or(|phase| phase > Phase::Crds) {
            steps.push(RoundStep::WatchAll);
        }
        if self.phase.is_some() {
            // The first write of a round is a replacement.
            if self.is_authorization_old && !self.done.contains(&RoundStep::Replace) {
                steps.extend([
                    RoundStep::CheckBasis,
                    RoundStep::AskApproval,
                    RoundStep::Authorize,
                ]);
            }
            steps.extend([
                RoundStep::Replace,
                RoundStep::Try,
                RoundStep::CheckNamespaces,
                RoundStep::Apply,
            ]);
        }
        steps.retain(|step| !self.done.contains(step));
        steps
    }
}

/// Returns how many of the objects that are left belong to the next round: objects of one phase, from the first on. `phases` are theirs, in order.
pub fn round(phases: impl IntoIterator<Item = Phase>) -> usize {
    let mut phases = phases.into_iter().peekable();
    let first = phases.peek().copied();
    phases
        .take_while(|phase| Some(*phase) == first)
        .take(ROUND)
        .count()
}

/// The facts that an installation was planned from, and that others may change while it goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Basis<'a> {
    /// Uid of the BundleDeployment.
    pub uid: Option<&'a str>,
    /// Its generation.
    pub generation: Option<i64>,
    /// True if it is being deleted.
    pub is_deleted: bool,
    /// Its class; `None` where it is gone, cannot be read or belongs to another provisioner.
    pub class: Option<&'a Class>,
}

impl Basis<'_> {
    /// Returns `true` if an installation that was planned from this may go on with what is known `now`; `None`: the BundleDeployment is gone.
    pub fn still_holds(&self, now: Option<&Self>) -> bool {
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
            is_watched,
            is_authorization_old,
            done: BTreeSet::new(),
        }
    }

    #[test]
    fn steps_of_a_round_follow_from_phase_watches_and_the_age_of_the_answer() {
        let writes = vec![Replace, Try, CheckNamespaces, Apply];
        let asks = vec![CheckBasis, AskApproval, Authorize];
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
    fn answer_that_gets_old_within_a_round_is_asked_for_before_the_next_one() {
        let mut round = observed(Some(Phase::Deploy), true, false);
        round.done.insert(Replace);
        round.is_authorization_old = true;
        assert_eq!(round.steps(), [Try, CheckNamespaces, Apply]);
        let mut asked = observed(Some(Phase::Deploy), true, true);
        asked.done.extend([CheckBasis, AskApproval, Authorize]);
        assert_eq!(asked.steps(), [Replace, Try, CheckNamespaces, Apply]);
    }

    #[test]
    fn round_ends_with_its_phase_or_after_so_many_objects() {
        use Phase::{Deploy, Namespaces};
        assert_eq!(round([]), 0);
        assert_eq!(round([Namespaces, Namespaces, Deploy]), 2);
        assert_eq!(round(std::iter::repeat_n(Deploy, ROUND + 1)), ROUND);
    }

    #[test]
    fn installation_goes_on_only_while_deployment_and_class_are_the_same() {
        let class = |name| {
            let spec = json!({"provisioner": "core.rukpak.io/plain"});
            Class::parse(name, &spec).unwrap()
        };
        let (plain, other) = (class("plain"), class("other"));
        let begun = Basis {
            uid: Some("u-1"),
            generation: Some(3),
            is_deleted: false,
            class: Some(&plain),
        };
        let uid = Some("u-2");
        for (now, expected) in [
            (Some(begun), true),
            (None, false),
            (Some(Basis { uid, ..begun }), false),
            (
                Some(Basis {
                    generation: Some(4),
                    ..begun
                }),
                false,
            ),
            (
                Some(Basis {
                    is_deleted: true,
                    ..begun
                }),
                false,
            ),
            (
                Some(Basis {
                    class: Some(&other),
                    ..begun
                }),
                false,
            ),
            (
                Some(Basis {
                    class: None,
                    ..begun
                }),
                false,
            ),
        ] {
            assert_eq!(begun.still_holds(now.as_ref()), expected, "{now:?}");
        }
        let gone = Basis {
            class: None,
            ..begun
        };
        assert!(!gone.still_holds(Some(&gone)));
    }
}
