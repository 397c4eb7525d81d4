//! Conditions at the end of a reconcile, and the check that these conditions state only observed
//! facts.

use std::collections::BTreeMap;

use bundle_api::names::{condition, reason};
use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::{self, ConditionChange, ConditionStatus as Status};
use bundle_core::plan::status::{
    ApprovalFact, BundleFact, DeploymentFacts, Failure, ObjectFacts, PermissionFact,
};
use bundle_core::plan::summary::Coverage;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use super::state::{Answer, Content, Drift, Plans, Run, State, StoredConditions, bits};

/// Generation of the spec, which is the same number in all states of the model. A condition for an
/// older spec has a smaller number.
const GENERATION: i64 = 2;

/// Values of the conditions; `None` means that the condition is unknown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claims {
    installed: Option<bool>,
    authorized: Option<bool>,
    is_withdrawn: bool,
    approved: Option<bool>,
    drifted: Option<bool>,
    healthy: Option<bool>,
    ready: Option<bool>,
    /// `true` if this reconcile set `Installed`.
    sets_installed: bool,
}

fn name(content: Content) -> String {
    format!("web-{content}")
}

fn rights(answer: Answer) -> Option<PermissionFact> {
    let code = match answer {
        Answer::None => return None,
        Answer::Yes => return Some(PermissionFact::Delegated("plain".to_owned())),
        Answer::No => codes::install::NOT_AUTHORIZED,
        Answer::Withdrawn => codes::install::RIGHTS_WITHDRAWN,
    };
    PermissionFact::of_failure(code, "refused")
}

impl State {
    /// Ends a reconcile with its conditions. A condition must only state observed facts.
    pub(crate) fn conclude(&mut self, run: &Run, is_in_place: bool, plans: &mut Plans) {
        let key = self.facts_key(run, is_in_place);
        let claims = if let Some(claims) = plans.conditions.get(&key) {
            *claims
        } else {
            let claims = self.claims(run, is_in_place);
            plans.conditions.insert(key, claims);
            claims
        };
        self.check(run, claims);
        self.shown = StoredConditions {
            is_installed: claims.installed == Some(true),
            is_present: run.is_current && (claims.sets_installed || run.was_present),
            authorized: match claims.authorized {
                Some(true) => Answer::Yes,
                Some(false) if claims.is_withdrawn => Answer::Withdrawn,
                Some(false) => Answer::No,
                None => Answer::None,
            },
        };
    }

    fn facts_key(&self, run: &Run, is_in_place: bool) -> u64 {
        let digit = |content: Option<Content>| content.map_or(2, u64::from);
        let flags = bits(&[
            run.is_paused,
            run.corrects_drift,
            run.has_failed,
            is_in_place,
            self.memory.is_partly_applied,
            self.memory.is_blind,
            self.shown.is_installed,
            run.was_present,
            self.memory.is_unhealthy,
        ]);
        [
            digit(self.record.installed),
            digit(self.memory.known),
            u64::from(run.wanted),
            self.memory.seen as u64,
            run.rights as u64,
            run.approval as u64,
            self.shown.authorized as u64,
        ]
        .into_iter()
        .fold(flags, |key, digit| key << 2 | digit)
    }

    fn facts(&self, run: &Run, is_in_place: bool) -> DeploymentFacts {
        let is_withdrawn = run.rights == Answer::Withdrawn;
        let object = || vec!["ConfigMap/web/settings".to_owned()];
        let drifted = |drift| {
            if self.memory.seen == drift {
                object()
            } else {
                Vec::new()
            }
        };
        let missing = drifted(Drift::Missing);
        DeploymentFacts {
            is_paused: run.is_paused,
            corrects_drift: run.corrects_drift,
            active_bundle: self.record.installed.map(name),
            bundle: Some(BundleFact::Unpacked(name(run.wanted))),
            approval: match run.approval {
                Answer::None => None,
                Answer::Yes => Some(ApprovalFact::NotRequired("plain".to_owned())),
                Answer::No | Answer::Withdrawn => {
                    Some(ApprovalFact::NotApproved("waiting".to_owned()))
                }
            },
            rollout: None,
            rights: rights(run.rights),
            is_in_place,
            failure: run.has_failed.then(|| Failure {
                code: codes::install::APPLY_FAILED,
                reason: if is_withdrawn {
                    reason::RIGHTS_WITHDRAWN
                } else {
                    "InstallFailed"
                },
                message: "failed".to_owned(),
                is_unknown: false,
                is_retried: true,
            }),
            objects: ObjectFacts {
                coverage: match (self.memory.known, self.record.installed) {
                    _ if self.memory.is_partly_applied => Coverage::AppliedOnly,
                    (Some(_), _) => Coverage::All,
                    (None, Some(_)) => Coverage::NotChecked,
                    (None, None) => Coverage::Nothing,
                },
                drifted: [drifted(Drift::Changed), missing.clone()].concat(),
                missing,
                contested: Vec::new(),
                unhealthy: if self.memory.is_unhealthy {
                    BTreeMap::from([("Pod/web/a".to_owned(), "fails".to_owned())])
                } else {
                    BTreeMap::new()
                },
                blind: self
                    .memory
                    .is_blind
                    .then(|| "the watch was lost".to_owned()),
            },
        }
    }

    fn before(&self, run: &Run) -> Vec<Condition> {
        let mut before = Vec::new();
        let mut add = |kind: &str, status, found: &str, generation| {
            let time = Time(Timestamp::UNIX_EPOCH);
            conditions::set(&mut before, kind, status, found, "", generation, &time);
        };
        if self.shown.is_installed {
            let generation = GENERATION - i64::from(!run.was_present);
            let found = reason::INSTALLATION_SUCCEEDED;
            add(condition::INSTALLED, Status::True, found, generation);
        }
        let authorized = match self.shown.authorized {
            Answer::None => return before,
            Answer::Yes => (Status::True, "Delegated"),
            Answer::No => (Status::False, "RightsMissing"),
            Answer::Withdrawn => (Status::False, reason::RIGHTS_WITHDRAWN),
        };
        let (status, found) = authorized;
        add(condition::AUTHORIZED, status, found, GENERATION);
        before
    }

    fn claims(&self, run: &Run, is_in_place: bool) -> Claims {
        let before = self.before(run);
        let changes = self.facts(run, is_in_place).conditions(&before, GENERATION);
        let change = |kind: &str| changes.iter().find(|change| change.kind == kind);
        let claim = |kind: &str| {
            let before = before.iter().find(|before| before.type_ == kind);
            let status = change(kind).map(|change| change.state);
            match status.or(before.map(Status::of)) {
                Some(Status::True) => Some(true),
                Some(Status::False) => Some(false),
                Some(Status::Unknown) | None => None,
            }
        };
        let withdrawn = |change: &ConditionChange| change.reason == reason::RIGHTS_WITHDRAWN;
        let kept = change(condition::AUTHORIZED).is_none();
        Claims {
            installed: claim(condition::INSTALLED),
            authorized: claim(condition::AUTHORIZED),
            is_withdrawn: change(condition::AUTHORIZED).is_some_and(withdrawn)
                || kept && self.shown.authorized == Answer::Withdrawn,
            approved: claim(condition::APPROVED),
            drifted: claim(condition::DRIFTED),
            healthy: claim(condition::HEALTHY),
            ready: claim(condition::READY),
            sets_installed: change(condition::INSTALLED).is_some(),
        }
    }

    /// Checks that the conditions state only observed facts.
    fn check(&self, run: &Run, claims: Claims) {
        let memory = &self.memory;
        let is_known = memory.known.is_some() && !memory.is_partly_applied;
        let is_recorded = self.record.installed == Some(run.wanted);
        if claims.installed == Some(true) {
            assert!(
                self.record.installed.is_some(),
                "claims an installation that is not recorded: {self:?}"
            );
        }
        if claims.authorized == Some(true) {
            let is_answered = run.rights == Answer::Yes
                || run.rights == Answer::None && self.shown.authorized == Answer::Yes;
            assert!(
                is_answered,
                "claims permissions that were not confirmed: {self:?}"
            );
        }
        assert_eq!(
            claims.approved == Some(true),
            run.approval == Answer::Yes,
            "claims an approval: {self:?}"
        );
        if claims.drifted == Some(false) {
            assert!(
                is_known && memory.seen == Drift::None && !memory.is_blind,
                "claims that nothing drifted: {self:?}"
            );
        }
        if claims.healthy == Some(true) {
            assert!(
                is_known && !memory.is_unhealthy,
                "claims health of objects that were not observed: {self:?}"
            );
        }
        if claims.ready == Some(true) {
            assert!(
                is_recorded && is_known && !run.has_failed && memory.seen != Drift::Missing,
                "claims to be ready: {run:?} {self:?}"
            );
            assert!(!memory.is_unhealthy, "claims to be ready: {self:?}");
            assert!(
                memory.seen == Drift::None || !run.corrects_drift || run.is_paused,
                "claims to be ready although objects drifted: {self:?}"
            );
        }
    }
}
