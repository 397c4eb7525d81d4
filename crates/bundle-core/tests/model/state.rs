//! State of the model: the cluster, the records, the memory of the process, and a reconcile in
//! progress.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use bundle_core::plan::removal::steps::RecordedObjects;
use bundle_core::plan::removal::steps::{Account, CustomResources, ObservedRemoval, RemovalStep};
use bundle_core::plan::steps::{AppliedContent, InstallStep, ObservedDeployment};

/// One of two contents. Each content has its own template.
pub(crate) type Content = u8;
/// Terms of the class. The model has two sets of terms, 0 and 1.
pub(crate) type Terms = u8;

/// Number of the objects of one content that exist on the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Objects {
    None,
    Some,
    All,
}

/// Drift of an installed object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Drift {
    None,
    Changed,
    Missing,
}

/// Result of a check, as shown by a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    None,
    Yes,
    No,
    /// The check denies content that was allowed before.
    Withdrawn,
}

/// State that users and other actors can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Cluster {
    pub(crate) wanted: Content,
    pub(crate) terms: Terms,
    pub(crate) is_class_gone: bool,
    pub(crate) is_paused: bool,
    pub(crate) corrects_drift: bool,
    pub(crate) is_verified: bool,
    pub(crate) is_allowed: bool,
    pub(crate) is_approved: bool,
    /// `true` if the requesters of the content may impersonate the ServiceAccount in the spec.
    pub(crate) is_impersonated: bool,
    /// `true` if the Bundle of a template was deleted and recreated after its tag moved.
    pub(crate) is_moved: [bool; 2],
    pub(crate) objects: [Objects; 2],
    pub(crate) drift: Drift,
    pub(crate) is_healthy: bool,
    /// `true` if the API server rejects an object of the content for every user.
    pub(crate) is_invalid: bool,
    pub(crate) has_foreign_resources: bool,
    /// `true` if a finalizer of another controller blocks the deletion of an object.
    pub(crate) is_held: bool,
    pub(crate) is_deleted: bool,
    /// `true` if admission reviewed the deletion.
    pub(crate) is_reviewed: bool,
    pub(crate) is_orphan: bool,
    pub(crate) handling: CustomResources,
    pub(crate) has_finalizer: bool,
    /// `true` if the BundleDeployment does not exist.
    pub(crate) is_gone: bool,
}

/// Content of the inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// `true` for each content whose objects are recorded.
    pub(crate) objects: [bool; 2],
    pub(crate) installed: Option<Content>,
    /// `true` for each content whose template is in the history.
    pub(crate) was_installed: [bool; 2],
    pub(crate) decided: Option<(Content, Terms)>,
    pub(crate) is_unfinished: bool,
    pub(crate) is_deletion_accepted: bool,
}

/// Memory of the process, which is lost when the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ProcessState {
    /// Content that is applied, according to the memory of the process; `None` if unknown.
    pub(crate) known: Option<Content>,
    pub(crate) is_partly_applied: bool,
    pub(crate) seen: Drift,
    /// `true` if an unhealthy object was observed.
    pub(crate) is_unhealthy: bool,
    /// `true` while the retry of a failed attempt is delayed.
    pub(crate) is_held: bool,
    /// `true` if a watch was lost, so that drift is not detected.
    pub(crate) is_blind: bool,
}

/// Conditions at the start of a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StoredConditions {
    /// `true` if the condition `Installed` is true.
    pub(crate) is_installed: bool,
    /// `true` if `Installed` describes the current generation.
    pub(crate) is_present: bool,
    pub(crate) authorized: Answer,
}

/// Installation in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) wanted: Content,
    pub(crate) terms: Terms,
    pub(crate) is_paused: bool,
    pub(crate) corrects_drift: bool,
    pub(crate) in_place: AppliedContent,
    pub(crate) is_installed: bool,
    pub(crate) is_unfinished: bool,
    pub(crate) is_decided: bool,
    pub(crate) is_active: bool,
    pub(crate) is_held: bool,
    pub(crate) is_as_recorded: Option<bool>,
    pub(crate) is_authorization_old: bool,
    /// Completed steps, as bits of [`InstallStep`].
    pub(crate) done: u32,
    pub(crate) was_verified: bool,
    pub(crate) was_allowed: bool,
    pub(crate) was_approved: bool,
    /// `true` if `Installed` described the generation that this run has read.
    pub(crate) was_present: bool,
    /// `true` if the spec is still the spec that this reconcile has read.
    pub(crate) is_current: bool,
    /// `true` if the first round of applies is complete.
    pub(crate) is_half_applied: bool,
    pub(crate) has_failed: bool,
    /// Result of the permission check, for the condition `Authorized`.
    pub(crate) rights: Answer,
    pub(crate) approval: Answer,
    /// Number of completed maintenance steps; `None` before the first step.
    pub(crate) maintenance: Option<u8>,
}

/// Removal in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RemovalRun {
    pub(crate) is_orphan: bool,
    pub(crate) handling: CustomResources,
    pub(crate) account: Option<Account>,
    pub(crate) definitions_in_use: Option<bool>,
    /// Completed steps, as bits of [`RemovalStep`].
    pub(crate) done: u32,
    pub(crate) is_half_deleted: bool,
}

/// Reconcile in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reconcile {
    None,
    Install(Run),
    Remove(RemovalRun),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) cluster: Cluster,
    pub(crate) record: Record,
    pub(crate) memory: ProcessState,
    pub(crate) shown: StoredConditions,
    pub(crate) reconcile: Reconcile,
    /// Number of remaining disturbances.
    pub(crate) disturbances: u8,
    /// `true` if verification, access reviews and approval all succeeded in one reconcile. The
    /// first index is the content, the second index is the terms.
    pub(crate) granted: [[bool; 2]; 2],
}

impl State {
    pub(crate) fn new(disturbances: u8) -> Self {
        Self {
            cluster: Cluster {
                wanted: 0,
                terms: 0,
                is_class_gone: false,
                is_paused: false,
                corrects_drift: true,
                is_verified: true,
                is_allowed: true,
                is_approved: true,
                is_impersonated: true,
                is_moved: [false; 2],
                objects: [Objects::None; 2],
                drift: Drift::None,
                is_healthy: true,
                is_invalid: false,
                has_foreign_resources: false,
                is_held: false,
                is_deleted: false,
                is_reviewed: false,
                is_orphan: false,
                handling: CustomResources::Refuse,
                has_finalizer: false,
                is_gone: false,
            },
            record: Record {
                objects: [false; 2],
                installed: None,
                was_installed: [false; 2],
                decided: None,
                is_unfinished: false,
                is_deletion_accepted: false,
            },
            memory: ProcessState {
                known: None,
                is_partly_applied: false,
                seen: Drift::None,
                is_unhealthy: false,
                is_held: false,
                is_blind: false,
            },
            shown: StoredConditions {
                is_installed: false,
                is_present: false,
                authorized: Answer::None,
            },
            reconcile: Reconcile::None,
            disturbances,
            granted: [[false; 2]; 2],
        }
    }

    /// Returns the hash of the state.
    pub(crate) fn key(&self) -> u64 {
        use std::hash::Hash as _;
        let mut hasher = StateHasher::default();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Begins a reconcile if a reconcile is due.
    pub(crate) fn begin(&self) -> Option<Self> {
        let mut state = *self;
        if self.cluster.is_gone || self.cluster.is_class_gone && !self.cluster.is_deleted {
            return None;
        }
        state.reconcile = if self.cluster.is_deleted {
            // The removal has started, so deleted objects are no longer drift.
            state.forget();
            Reconcile::Remove(RemovalRun::begin(self))
        } else {
            state.cluster.has_finalizer = true;
            Reconcile::Install(Run::begin(self))
        };
        Some(state)
    }

    /// Executes the next step of the reconcile, and adds each possible resulting state to `next`.
    /// The last added state is the state after a successful step.
    pub(crate) fn step(&self, plans: &mut Plans, next: &mut Vec<Self>) {
        match self.reconcile {
            Reconcile::None => next.extend(self.begin()),
            Reconcile::Install(run) => self.install_step(&run, plans, next),
            Reconcile::Remove(teardown) => self.removal_step(&teardown, plans, next),
        }
    }

    /// Clears the memory of the process.
    pub(crate) fn forget(&mut self) {
        self.memory = ProcessState {
            known: None,
            is_partly_applied: false,
            seen: Drift::None,
            is_unhealthy: false,
            is_held: false,
            is_blind: false,
        };
    }
}

/// Cache of plans. The keys are computed from the facts of a plan.
#[derive(Default)]
pub(crate) struct Plans {
    install: HashMap<u64, Option<InstallStep>, BuildHasherDefault<StateHasher>>,
    removal: HashMap<u64, Option<RemovalStep>, BuildHasherDefault<StateHasher>>,
    pub(crate) conditions: HashMap<u64, super::conditions::Claims, BuildHasherDefault<StateHasher>>,
}

/// Encodes flags as bits. The first flag is the lowest bit.
pub(crate) fn bits(flags: &[bool]) -> u64 {
    let bits = flags.iter().enumerate();
    bits.map(|(bit, flag)| u64::from(*flag) << bit).sum()
}

/// Encodes an optional flag as two bits.
pub(crate) fn known(flag: Option<bool>) -> [bool; 2] {
    [flag.is_some(), flag == Some(true)]
}

const INSTALL_STEPS: [InstallStep; 22] = [
    InstallStep::ReportDelayedError,
    InstallStep::CheckContent,
    InstallStep::Render,
    InstallStep::CheckTargets,
    InstallStep::CheckApproval,
    InstallStep::CheckSource,
    InstallStep::Verify,
    InstallStep::CheckPackageRules,
    InstallStep::CheckDefinitions,
    InstallStep::Authorize,
    InstallStep::Reauthorize,
    InstallStep::CheckPreconditionsOfDecision,
    InstallStep::RecordDecision,
    InstallStep::Watch,
    InstallStep::FindDrift,
    InstallStep::Compare,
    InstallStep::UseRecordedState,
    InstallStep::CheckPreconditions,
    InstallStep::Apply,
    InstallStep::Prune,
    InstallStep::RecordInstalled,
    InstallStep::WatchAll,
];

const REMOVAL_STEPS: [RemovalStep; 17] = [
    RemovalStep::ReportInventoryLost,
    RemovalStep::ForgetReplacedNamespaces,
    RemovalStep::CheckDeletion,
    RemovalStep::RecordAcceptance,
    RemovalStep::ReadRequesters,
    RemovalStep::FindAccount,
    RemovalStep::ReportNoAccount,
    RemovalStep::FindObjects,
    RemovalStep::ReleaseObjects,
    RemovalStep::FindDefinitionsInUse,
    RemovalStep::ReportDefinitionsInUse,
    RemovalStep::ReleaseDefinitionsInUse,
    RemovalStep::DeleteObjects,
    RemovalStep::ReleaseNamespacesInUse,
    RemovalStep::DeleteNamespaces,
    RemovalStep::RemoveFinalizer,
    RemovalStep::RemoveInventory,
];

impl Plans {
    /// Returns the number of cached plans.
    pub(crate) fn len(&self) -> usize {
        self.install.len() + self.removal.len()
    }

    /// Returns the next step of an installation; `None` if no step remains.
    pub(crate) fn install(&mut self, run: &Run) -> Option<InstallStep> {
        let [is_compared, is_as_recorded] = known(run.is_as_recorded);
        let key = bits(&[
            run.is_paused,
            run.corrects_drift,
            run.in_place == AppliedContent::Wanted,
            run.in_place == AppliedContent::Other,
            run.is_installed,
            run.is_unfinished,
            run.is_decided,
            run.is_active,
            is_compared,
            is_as_recorded,
            run.is_authorization_old,
            run.is_held,
        ]) | u64::from(run.done) << 16;
        *self.install.entry(key).or_insert_with(|| {
            let done = INSTALL_STEPS.into_iter();
            let observed = ObservedDeployment {
                is_paused: run.is_paused,
                corrects_drift: run.corrects_drift,
                is_unpacked: true,
                in_place: run.in_place,
                is_installed: run.is_installed,
                was_installed: run.is_installed,
                has_installed_config: run.is_installed,
                is_unfinished: run.is_unfinished,
                is_decided: run.is_decided,
                is_active: run.is_active,
                is_held: run.is_held,
                is_as_recorded: run.is_as_recorded,
                is_authorization_old: run.is_authorization_old,
                done: done.filter(|step| run.done & bit(*step) != 0).collect(),
                ..ObservedDeployment::default()
            };
            observed.installation().first().copied()
        })
    }

    /// Returns the next step of a removal; `None` if no step remains.
    pub(crate) fn removal(&mut self, state: &State, teardown: &RemovalRun) -> Option<RemovalStep> {
        let recorded = match state.record.objects {
            [false, false] => RecordedObjects::Empty,
            _ => RecordedObjects::Some,
        };
        let [is_found, is_in_use] = known(teardown.definitions_in_use);
        let key = bits(&[
            state.cluster.has_finalizer,
            teardown.is_orphan,
            recorded == RecordedObjects::Some,
            teardown.account == Some(Account::Usable),
            teardown.account == Some(Account::Withdrawn),
            is_found,
            is_in_use,
            teardown.handling == CustomResources::Orphan,
            teardown.handling == CustomResources::Delete,
        ]) | u64::from(teardown.done) << 16;
        *self.removal.entry(key).or_insert_with(|| {
            let done = REMOVAL_STEPS.into_iter();
            let observed = ObservedRemoval {
                has_finalizer: state.cluster.has_finalizer,
                is_orphan: teardown.is_orphan,
                custom_resources: teardown.handling,
                recorded,
                account: teardown.account,
                definitions_in_use: teardown.definitions_in_use,
                done: done
                    .filter(|step| teardown.done & removal_bit(*step) != 0)
                    .collect(),
            };
            observed.steps().first().copied()
        })
    }
}

pub(crate) fn bit(step: InstallStep) -> u32 {
    1 << step as u32
}

pub(crate) fn removal_bit(step: RemovalStep) -> u32 {
    1 << step as u32
}

/// Fast hash function, for values that no attacker controls.
#[derive(Default)]
pub(crate) struct StateHasher(u64);

impl StateHasher {
    fn mix(&mut self, value: u64) {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(FACTOR);
    }
}

impl Hasher for StateHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.mix(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.mix(value.cast_unsigned() as u64);
    }

    fn finish(&self) -> u64 {
        // The algorithm splitmix64.
        let mut hash = self.0;
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    }
}
