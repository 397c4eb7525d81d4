//! Steps of an installation and of maintenance, with their effect on the cluster.

use bundle_core::plan::phases::Phase;
use bundle_core::plan::rounds::{ObservedRound, RoundStep};
use bundle_core::plan::steps::{AppliedContent, InstallOutcome, InstallStep, MaintenanceStep};

use super::state::{Answer, Content, Drift, Objects, Plans, Reconcile, Run, State, bit};

impl Run {
    pub(crate) fn begin(state: &State) -> Self {
        let (cluster, record) = (&state.cluster, &state.record);
        let wanted = cluster.wanted;
        // A Bundle that was created again has another digest and the same name.
        let is_moved = cluster.is_moved[usize::from(wanted)];
        let is_active = record.installed == Some(wanted);
        Self {
            wanted,
            terms: cluster.terms,
            is_paused: cluster.is_paused,
            corrects_drift: cluster.corrects_drift,
            in_place: state.applied_content(wanted),
            is_installed: is_active && !is_moved,
            is_unfinished: record.is_unfinished,
            is_decided: record.decided == Some((wanted, cluster.terms)) && !is_moved,
            is_active,
            is_held: state.memory.is_held,
            is_as_recorded: None,
            is_authorization_old: false,
            done: 0,
            was_verified: false,
            was_allowed: false,
            was_approved: false,
            was_present: state.shown.is_present,
            is_current: true,
            is_half_applied: false,
            has_failed: false,
            rights: Answer::None,
            approval: Answer::None,
            maintenance: None,
        }
    }

    pub(crate) fn has_done(&self, step: InstallStep) -> bool {
        self.done & bit(step) != 0
    }

    /// Returns true in two cases: the class, with the terms of this run, has not authorized this
    /// content, or this content was never installed.
    fn is_first(&self) -> bool {
        !self.is_decided || !self.is_installed
    }
}

impl State {
    pub(crate) fn install_step(&self, run: &Run, plans: &mut Plans, next: &mut Vec<Self>) {
        if let Some(number) = run.maintenance {
            return next.push(self.upkeep_step(run, number, plans));
        }
        let has_answer = run.was_allowed && !run.has_done(InstallStep::Apply);
        if has_answer && !run.is_authorization_old {
            // Time passes: the next state has an outdated permission check.
            let old = Run {
                is_authorization_old: true,
                ..*run
            };
            self.planned(&old, plans, next);
        }
        self.planned(run, plans, next);
    }

    fn planned(&self, run: &Run, plans: &mut Plans, next: &mut Vec<Self>) {
        if run.is_half_applied && !run.has_done(InstallStep::Apply) {
            return next.push(self.second_round(*run));
        }
        match plans.install(run) {
            None => next.push(self.end_installation(*run)),
            Some(step) => self.install(*run, step, next),
        }
    }

    fn with(&self, run: Run) -> Self {
        Self {
            reconcile: Reconcile::Install(run),
            ..*self
        }
    }

    /// Ends an installation after its last step.
    fn end_installation(&self, run: Run) -> Self {
        self.with(Run {
            maintenance: Some(0),
            ..run
        })
    }

    /// Ends an installation after a failed step.
    pub(crate) fn fail_installation(&self, run: Run) -> Self {
        self.end_installation(Run {
            has_failed: true,
            ..run
        })
    }

    /// Checks the permissions, and records the result.
    fn authorize(&self, run: &mut Run) -> bool {
        let is_allowed = self.cluster.is_allowed && self.cluster.is_impersonated;
        run.was_allowed = is_allowed;
        run.is_authorization_old = false;
        run.rights = match (is_allowed, run.is_first()) {
            (true, _) => Answer::Yes,
            (false, true) => Answer::No,
            (false, false) => Answer::Withdrawn,
        };
        is_allowed
    }

    fn ask_approval(&self, run: &mut Run) -> bool {
        run.was_approved = self.cluster.is_approved;
        run.approval = if self.cluster.is_approved {
            Answer::Yes
        } else {
            Answer::No
        };
        self.cluster.is_approved || !run.is_first()
    }

    fn install(&self, mut run: Run, step: InstallStep, next: &mut Vec<Self>) {
        let (wanted, other) = (usize::from(run.wanted), usize::from(1 - run.wanted));
        let mut state = *self;
        let succeeds = match step {
            InstallStep::CheckContent => {
                !(self.cluster.is_moved[wanted] && self.record.was_installed[wanted])
            }
            InstallStep::CheckApproval
            | InstallStep::CheckPreconditionsOfDecision
            | InstallStep::CheckPreconditions => self.ask_approval(&mut run),
            InstallStep::Verify => {
                run.was_verified = self.cluster.is_verified;
                run.was_verified
            }
            InstallStep::Authorize | InstallStep::Reauthorize => self.authorize(&mut run),
            InstallStep::Watch | InstallStep::WatchAll => {
                state.memory.is_blind = false;
                true
            }
            InstallStep::Compare => {
                // Objects of other contents are not read.
                let is_complete = self.cluster.objects[wanted] == Objects::All;
                let is_as_left = self.cluster.drift == Drift::None;
                run.is_as_recorded = Some(is_complete && is_as_left);
                true
            }
            InstallStep::FindDrift | InstallStep::UseRecordedState => {
                state.memory.known = Some(run.wanted);
                state.memory.seen = self.cluster.drift;
                true
            }
            InstallStep::RecordDecision => {
                state.decide(&run);
                true
            }
            InstallStep::Apply => {
                state.begin_apply(&run);
                if !self.round(&mut run) {
                    return next.push(state.fail_installation(run));
                }
                if self.cluster.is_invalid {
                    state.memory.is_held = run.is_current;
                    return next.push(state.fail_installation(run));
                }
                let objects = &mut state.cluster.objects[wanted];
                *objects = (*objects).max(Objects::Some);
                run.is_half_applied = true;
                return next.push(state.with(run));
            }
            InstallStep::Prune => {
                assert_eq!(
                    self.cluster.objects[wanted],
                    Objects::All,
                    "pruned before the successor was applied: {self:?}"
                );
                assert!(run.was_allowed, "pruned without permissions: {self:?}");
                state.delete(other);
                true
            }
            InstallStep::RecordInstalled => {
                assert_eq!(self.cluster.objects[wanted], Objects::All, "{self:?}");
                assert_eq!(self.cluster.objects[other], Objects::None, "{self:?}");
                state.record.installed = Some(run.wanted);
                state.record.was_installed[wanted] = true;
                state.record.is_unfinished = false;
                true
            }
            // The model installs without waiting between phases.
            InstallStep::ReportDelayedError | InstallStep::CheckPhase => false,
            InstallStep::Render
            | InstallStep::CheckTargets
            | InstallStep::CheckSource
            | InstallStep::CheckPackageRules
            | InstallStep::CheckDefinitions => true,
        };
        if succeeds {
            run.done |= bit(step);
            next.push(state.with(run));
        } else {
            next.push(state.fail_installation(run));
        }
    }

    /// Deletes the objects of `content`, which must be recorded.
    pub(crate) fn delete(&mut self, content: usize) {
        assert!(
            self.record.objects[content] || self.cluster.objects[content] == Objects::None,
            "deleted what is not recorded: {self:?}"
        );
        self.cluster.objects[content] = Objects::None;
        self.record.objects[content] = false;
    }

    /// Records that the class authorized the content of `run`.
    fn decide(&mut self, run: &Run) {
        let granted = &mut self.granted[usize::from(run.wanted)][usize::from(run.terms)];
        *granted |= run.was_verified && run.was_allowed && run.was_approved;
        assert!(
            *granted,
            "authorized what was not verified, allowed and approved: {self:?}"
        );
        self.record.decided = Some((run.wanted, run.terms));
    }

    /// Records all objects, before the first object is applied.
    fn begin_apply(&mut self, run: &Run) {
        assert!(run.was_allowed, "applied without permissions: {self:?}");
        let wanted = usize::from(run.wanted);
        let is_other_content = self.cluster.is_moved[wanted] && self.record.was_installed[wanted];
        assert!(
            !is_other_content || run.has_done(InstallStep::CheckContent),
            "applied other content than that of the template: {self:?}"
        );
        self.decide(run);
        self.record.objects[wanted] = true;
        self.record.is_unfinished = true;
        self.memory.known = None;
        self.memory.is_partly_applied = true;
    }

    /// Executes the steps of a round that precede its apply. Returns `true` if the apply is
    /// allowed.
    fn round(&self, run: &mut Run) -> bool {
        let mut round = ObservedRound {
            phase: Some(Phase::Deploy),
            is_watched: true,
            is_authorization_old: run.is_authorization_old,
            ..ObservedRound::default()
        };
        let is_old = run.is_authorization_old;
        let mut is_basis_checked = false;
        while let Some(step) = round.steps().first().copied() {
            let succeeds = match step {
                RoundStep::CheckPreconditions => {
                    is_basis_checked = true;
                    let cluster = &self.cluster;
                    cluster.wanted == run.wanted
                        && cluster.terms == run.terms
                        && cluster.is_paused == run.is_paused
                        && cluster.corrects_drift == run.corrects_drift
                        && !cluster.is_deleted
                        && !cluster.is_class_gone
                }
                RoundStep::CheckApproval => self.ask_approval(run),
                RoundStep::Authorize => {
                    round.is_authorization_old = false;
                    self.authorize(run)
                }
                RoundStep::Apply => {
                    assert!(
                        !run.is_authorization_old,
                        "applied with an old answer: {self:?}"
                    );
                    true
                }
                RoundStep::CheckReady
                | RoundStep::WatchAll
                | RoundStep::Replace
                | RoundStep::DryRun
                | RoundStep::CheckNamespaces => true,
            };
            if !succeeds {
                return false;
            }
            round.done.insert(step);
        }
        assert_eq!(is_old, is_basis_checked, "{self:?}");
        true
    }

    /// Applies the objects of the second and last round.
    fn second_round(&self, mut run: Run) -> Self {
        let mut state = *self;
        if !self.round(&mut run) {
            return state.fail_installation(run);
        }
        state.cluster.objects[usize::from(run.wanted)] = Objects::All;
        state.cluster.drift = Drift::None;
        state.memory.known = Some(run.wanted);
        state.memory.is_partly_applied = false;
        state.memory.seen = Drift::None;
        run.done |= bit(InstallStep::Apply);
        state.with(run)
    }

    /// Returns which content is applied, according to the memory of the process.
    fn applied_content(&self, wanted: Content) -> AppliedContent {
        let is_moved = self.cluster.is_moved[usize::from(wanted)];
        match self.memory.known {
            None => AppliedContent::Unknown,
            Some(known) if known == wanted && !is_moved => AppliedContent::Wanted,
            Some(_) => AppliedContent::Other,
        }
    }

    fn upkeep_step(&self, run: &Run, number: u8, plans: &mut Plans) -> Self {
        let outcome = InstallOutcome {
            in_place: self.applied_content(run.wanted),
            is_partly_applied: self.memory.is_partly_applied,
            is_unfinished: self.record.is_unfinished,
            has_completed: run.has_done(InstallStep::RecordInstalled),
        };
        let mut state = *self;
        let mut run = Run {
            maintenance: Some(number + 1),
            ..*run
        };
        let step = outcome.maintenance().get(usize::from(number)).copied();
        match step {
            None => {
                state.reconcile = Reconcile::None;
                state.conclude(&run, outcome.is_in_place(), plans);
                return state;
            }
            Some(MaintenanceStep::ReportApproval) => {
                run.approval = if self.cluster.is_approved {
                    Answer::Yes
                } else {
                    Answer::No
                };
            }
            Some(MaintenanceStep::Maintain) => state.keep(&mut run),
            // Permissions are checked again only if no step failed before.
            Some(MaintenanceStep::CheckPermissions) if !run.has_failed => {
                if self.cluster.is_allowed && self.cluster.is_impersonated {
                    run.rights = Answer::Yes;
                } else {
                    run.rights = Answer::Withdrawn;
                    run.has_failed = true;
                }
            }
            Some(
                MaintenanceStep::CheckPermissions
                | MaintenanceStep::MaintainPartial
                | MaintenanceStep::MaintainPrevious
                | MaintenanceStep::DeleteOldBundles,
            ) => {}
        }
        state.with(run)
    }

    /// Restores drifted objects. Drift is not detected if a watch was lost.
    fn keep(&mut self, run: &mut Run) {
        if !self.memory.is_blind {
            self.memory.seen = self.cluster.drift;
        }
        self.memory.is_unhealthy = !self.cluster.is_healthy;
        if self.memory.seen == Drift::None || !run.corrects_drift || run.is_paused {
            return;
        }
        if self.cluster.is_allowed && self.cluster.is_impersonated {
            self.cluster.drift = Drift::None;
            self.memory.seen = Drift::None;
        } else {
            run.rights = Answer::Withdrawn;
            run.has_failed = true;
        }
    }
}
