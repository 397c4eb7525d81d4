//! A model of a cluster, explored exhaustively: reconciles do the steps of their plans one at a time, and between any two of them somebody changes the template,
//! the class or an object, withdraws rights, an approval or trust in a signature, or the process dies.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::*;

/// Disturbances on each path.
const DISTURBANCES: u8 = 4;
/// Reconciles without a disturbance after which nothing may be left to do.
const CONVERGENCE: usize = 4;

/// One of two contents.
type Content = usize;
/// One of two sets of terms of the class.
type Terms = usize;

/// The part of a content that is on the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Objects {
    None,
    Some,
    All,
}

/// The content that the process knows to be in place.
type Known = Option<Content>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each changes on its own")]
struct ClusterModel {
    wanted: Content,
    terms: Terms,
    is_verified: bool,
    is_allowed: bool,
    is_approved: bool,
    objects: [Objects; 2],
    has_drifted: bool,
    installed: Option<Content>,
    decided: Option<(Content, Terms)>,
    known: Known,
    is_partly_applied: bool,
    is_unfinished: bool,
    run: Option<Run>,
    disturbances: u8,
    /// True for what was verified, allowed and approved within one reconcile, by content and terms.
    granted: [[bool; 2]; 2],
}

/// A reconcile that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Run {
    wanted: Content,
    terms: Terms,
    observed: Observed,
    was_verified: bool,
    was_allowed: bool,
    was_approved: bool,
    upkeep: Option<Vec<UpkeepStep>>,
}

impl ClusterModel {
    fn new() -> Self {
        Self {
            wanted: 0,
            terms: 0,
            is_verified: true,
            is_allowed: true,
            is_approved: true,
            objects: [Objects::None; 2],
            has_drifted: false,
            installed: None,
            decided: None,
            known: None,
            is_partly_applied: false,
            is_unfinished: false,
            run: None,
            disturbances: DISTURBANCES,
            granted: [[false; 2]; 2],
        }
    }

    fn begin(&self) -> Self {
        let observed = Observed {
            is_paused: false,
            corrects_drift: true,
            is_unpacked: true,
            in_place: match self.known {
                None => InPlace::Unknown,
                Some(content) if content == self.wanted => InPlace::Wanted,
                Some(_) => InPlace::Other,
            },
            is_installed: self.installed == Some(self.wanted),
            is_unfinished: self.is_unfinished,
            is_decided: self.decided == Some((self.wanted, self.terms)),
            is_active: self.installed == Some(self.wanted),
            ..Observed::default()
        };
        let run = Run {
            wanted: self.wanted,
            terms: self.terms,
            observed,
            was_verified: false,
            was_allowed: false,
            was_approved: false,
            upkeep: None,
        };
        Self {
            run: Some(run),
            ..self.clone()
        }
    }

    /// The states after the next step of the reconcile, which may fail, or succeed after the answer about rights has become old.
    fn step(&self) -> Vec<Self> {
        let Some(run) = &self.run else {
            return vec![self.begin()];
        };
        match &run.upkeep {
            None => self.install_step(run),
            Some(left) => vec![self.upkeep_step(left)],
        }
    }

    fn install_step(&self, run: &Run) -> Vec<Self> {
        let mut ages = vec![run.clone()];
        let has_answer = run.was_allowed && !run.observed.done.contains(&InstallStep::Apply);
        if has_answer && !run.observed.is_authorization_old {
            let mut old = run.clone();
            old.observed.is_authorization_old = true;
            ages.push(old);
        }
        let mut next = Vec::new();
        for run in ages {
            let plan = run.observed.installation();
            match plan.first() {
                None => next.push(self.ended(&run)),
                Some(step) => next.extend(self.did(&run, *step)),
            }
        }
        next
    }

    /// After the last step of the installation, or one that failed.
    fn ended(&self, run: &Run) -> Self {
        let outcome = Outcome {
            is_in_place: self.known == Some(run.wanted),
            is_partly_applied: self.is_partly_applied,
            has_changed: run.observed.done.contains(&InstallStep::RecordInstalled),
        };
        let run = Run {
            upkeep: Some(outcome.upkeep()),
            ..run.clone()
        };
        Self {
            run: Some(run),
            ..self.clone()
        }
    }

    fn did(&self, run: &Run, step: InstallStep) -> Vec<Self> {
        let (wanted, other) = (run.wanted, 1 - run.wanted);
        let (mut model, mut run) = (self.clone(), run.clone());
        let first = run.observed.is_first();
        let succeeds = match step {
            InstallStep::AskApproval => {
                run.was_approved = self.is_approved;
                self.is_approved || !first
            }
            InstallStep::Verify => {
                run.was_verified = self.is_verified;
                self.is_verified
            }
            InstallStep::Authorize | InstallStep::AuthorizeAgain => {
                run.was_allowed = self.is_allowed;
                run.observed.is_authorization_old = false;
                self.is_allowed
            }
            InstallStep::Compare => {
                let is_complete = self.objects[wanted] == Objects::All;
                let is_alone = self.objects[other] == Objects::None;
                run.observed.is_as_recorded = Some(is_complete && is_alone && !self.has_drifted);
                true
            }
            InstallStep::FindDrift | InstallStep::TakeAsRecorded => {
                model.known = Some(wanted);
                true
            }
            InstallStep::RecordDecision => {
                model.grant(&run);
                assert!(model.granted[wanted][run.terms], "{self:?}");
                model.decided = Some((wanted, run.terms));
                true
            }
            InstallStep::Apply => {
                assert!(run.was_allowed, "applied without rights: {self:?}");
                model.grant(&run);
                assert!(
                    model.granted[wanted][run.terms],
                    "applied what nobody verified, allowed and approved: {self:?}"
                );
                model.decided = Some((wanted, run.terms));
                model.is_unfinished = true;
                model.objects[wanted] = Objects::Some;
                model.known = None;
                model.is_partly_applied = true;
                let half = model.ended(&run);
                model.objects[wanted] = Objects::All;
                model.has_drifted = false;
                model.known = Some(wanted);
                model.is_partly_applied = false;
                run.observed.done.insert(step);
                model.run = Some(run);
                return vec![half, model];
            }
            InstallStep::Prune => {
                assert_eq!(self.objects[wanted], Objects::All, "{self:?}");
                assert!(run.was_allowed, "pruned without rights: {self:?}");
                let failed = model.ended(&run);
                model.objects[other] = Objects::None;
                run.observed.done.insert(step);
                model.run = Some(run);
                return vec![failed, model];
            }
            InstallStep::RecordInstalled => {
                assert_eq!(self.objects[wanted], Objects::All, "{self:?}");
                assert_eq!(self.objects[other], Objects::None, "{self:?}");
                model.installed = Some(wanted);
                model.is_unfinished = false;
                true
            }
            InstallStep::TellHeldError
            | InstallStep::CheckContent
            | InstallStep::Render
            | InstallStep::CheckTargets
            | InstallStep::CheckSource
            | InstallStep::Watch
            | InstallStep::WatchAll => true,
        };
        if !succeeds {
            return vec![model.ended(&run)];
        }
        run.observed.done.insert(step);
        model.run = Some(run);
        vec![model]
    }

    /// Notes that everybody agreed within this reconcile.
    fn grant(&mut self, run: &Run) {
        if run.was_verified && run.was_allowed && run.was_approved {
            self.granted[run.wanted][run.terms] = true;
        }
    }

    fn upkeep_step(&self, left: &[UpkeepStep]) -> Self {
        let mut model = self.clone();
        let Some((step, rest)) = left.split_first() else {
            model.run = None;
            return model;
        };
        if *step == UpkeepStep::Keep && self.is_allowed {
            model.has_drifted = false;
        }
        if let Some(run) = &mut model.run {
            run.upkeep = Some(rest.to_vec());
        }
        model
    }

    /// The states after something else has happened.
    fn disturbed(&self) -> Vec<Self> {
        let Some(disturbances) = self.disturbances.checked_sub(1) else {
            return Vec::new();
        };
        let with = |change: &dyn Fn(&mut Self)| {
            let mut model = self.clone();
            model.disturbances = disturbances;
            change(&mut model);
            model
        };
        vec![
            with(&|model| model.wanted = 1 - model.wanted),
            with(&|model| model.terms = 1 - model.terms),
            with(&|model| model.is_verified = !model.is_verified),
            with(&|model| model.is_allowed = !model.is_allowed),
            with(&|model| model.is_approved = !model.is_approved),
            with(&|model| model.has_drifted = true),
            with(&|model| {
                model.run = None;
                model.known = None;
                model.is_partly_applied = false;
            }),
        ]
    }

    /// The state after everybody agrees and reconciles went on without a disturbance.
    fn settled(&self) -> Self {
        let mut model = self.clone();
        model.is_verified = true;
        model.is_allowed = true;
        model.is_approved = true;
        let mut reconciles = 0;
        while reconciles < CONVERGENCE {
            // The last one is that in which nothing fails and nothing gets old.
            let next = model.step();
            model = if model.run.is_some() {
                let mut fresh = next.iter().filter(|model| {
                    let run = model.run.as_ref();
                    run.is_none_or(|run| !run.observed.is_authorization_old)
                });
                fresh.next_back().unwrap_or(&next[0]).clone()
            } else {
                next[0].clone()
            };
            reconciles += usize::from(model.run.is_none());
        }
        model
    }
}

#[test]
fn nothing_is_applied_pruned_or_recorded_too_early_and_all_paths_converge() {
    let mut seen = HashSet::new();
    let mut left = vec![ClusterModel::new()];
    while let Some(model) = left.pop() {
        let mut hasher = DefaultHasher::new();
        model.hash(&mut hasher);
        if !seen.insert(hasher.finish()) {
            continue;
        }
        if model.run.is_none() {
            let settled = model.settled();
            let wanted = model.wanted;
            assert_eq!(settled.installed, Some(wanted), "{model:?}");
            assert_eq!(settled.known, Some(wanted), "{model:?}");
            assert_eq!(settled.objects[wanted], Objects::All, "{model:?}");
            assert_eq!(settled.objects[1 - wanted], Objects::None, "{model:?}");
            assert!(!settled.has_drifted, "{model:?}");
            assert_eq!(settled.decided, Some((wanted, model.terms)), "{model:?}");
        }
        left.extend(model.step());
        left.extend(model.disturbed());
    }
    assert!(seen.len() > 100_000, "{} states", seen.len());
}
