//! Disturbances: changes by other actors between any two steps.

use bundle_core::plan::removal::steps::CustomResources;

use super::state::{Drift, Objects, Reconcile, State};

/// Change by another actor.
type Disturbance = fn(&mut State);

/// Changes by users and other actors, and failures. Each entry is one disturbance.
const DISTURBANCES: [Disturbance; 24] = [
    // A user writes a new template, or the previous template again.
    |state| {
        state.cluster.wanted = 1 - state.cluster.wanted;
        new_generation(state);
    },
    // The spec names another class, or the terms of the class change.
    |state| state.cluster.terms = 1 - state.cluster.terms,
    |state| state.cluster.is_class_gone = !state.cluster.is_class_gone,
    |state| {
        state.cluster.is_paused = !state.cluster.is_paused;
        new_generation(state);
    },
    |state| {
        state.cluster.corrects_drift = !state.cluster.corrects_drift;
        new_generation(state);
    },
    |state| state.cluster.is_verified = !state.cluster.is_verified,
    |state| state.cluster.is_allowed = !state.cluster.is_allowed,
    |state| state.cluster.is_approved = !state.cluster.is_approved,
    |state| state.cluster.is_impersonated = !state.cluster.is_impersonated,
    // A tag moved, and a user deleted the Bundle, so that it was created again.
    |state| {
        for content in 0..2 {
            if state.record.was_installed[content] {
                state.cluster.is_moved[content] = !state.cluster.is_moved[content];
            }
        }
    },
    // Another actor changes an object, deletes it, or restores it.
    |state| drift(state, Drift::Changed),
    |state| drift(state, Drift::Missing),
    |state| drift(state, Drift::None),
    // A watch is lost. Afterwards drift is not detected.
    |state| state.memory.is_blind = state.memory.known.is_some(),
    |state| state.cluster.has_foreign_resources = !state.cluster.has_foreign_resources,
    |state| state.cluster.is_held = !state.cluster.is_held,
    |state| {
        state.cluster.is_deleted = true;
        state.cluster.is_reviewed = true;
        new_generation(state);
    },
    // A user deletes the BundleDeployment while the registrations are missing.
    |state| {
        state.cluster.is_deleted = true;
        new_generation(state);
    },
    |state| {
        state.cluster.is_orphan = !state.cluster.is_orphan;
        new_generation(state);
    },
    |state| {
        state.cluster.handling = match state.cluster.handling {
            CustomResources::Refuse => CustomResources::Orphan,
            CustomResources::Orphan => CustomResources::Delete,
            CustomResources::Delete => CustomResources::Refuse,
        };
        new_generation(state);
    },
    |state| state.cluster.is_healthy = !state.cluster.is_healthy,
    |state| state.cluster.is_invalid = !state.cluster.is_invalid,
    // Time passes, and the retry of an attempt is due.
    |state| state.memory.is_held = false,
    // A request of the next step fails.
    |state| match state.reconcile {
        Reconcile::Install(run) if run.maintenance.is_none() => {
            *state = state.fail_installation(run);
        }
        Reconcile::Remove(_) => state.reconcile = Reconcile::None,
        Reconcile::Install(_) | Reconcile::None => {}
    },
];

fn new_generation(state: &mut State) {
    state.shown.is_present = false;
    state.memory.is_held = false;
    if let Reconcile::Install(run) = &mut state.reconcile {
        run.is_current = false;
    }
}

fn drift(state: &mut State, drift: Drift) {
    if state.cluster.objects[usize::from(state.cluster.wanted)] == Objects::All {
        state.cluster.drift = drift;
    }
}

impl State {
    /// Adds one state to `next` for each possible disturbance: the state after this disturbance.
    pub(crate) fn disturbed(&self, next: &mut Vec<Self>) {
        if self.cluster.is_gone {
            return;
        }
        let Some(disturbances) = self.disturbances.checked_sub(1) else {
            return;
        };
        let mut add = |disturb: Disturbance| {
            let mut state = *self;
            disturb(&mut state);
            if state.key() != self.key() {
                state.disturbances = disturbances;
                next.push(state);
            }
        };
        for disturbance in DISTURBANCES {
            add(disturbance);
        }
        // The process ends.
        add(|state| {
            state.forget();
            state.reconcile = Reconcile::None;
        });
    }

    /// Returns the state in which all permissions are granted and no disturbance follows.
    pub(crate) fn without_disturbances(&self) -> Self {
        let mut state = *self;
        let cluster = &mut state.cluster;
        cluster.is_verified = true;
        cluster.is_allowed = true;
        cluster.is_approved = true;
        cluster.is_impersonated = true;
        cluster.is_moved = [false; 2];
        cluster.is_paused = false;
        cluster.is_class_gone = false;
        cluster.has_foreign_resources = false;
        cluster.is_held = false;
        cluster.is_healthy = true;
        cluster.is_invalid = false;
        // A user has admitted the deletion.
        cluster.is_reviewed |= cluster.is_deleted;
        state.memory.is_blind = false;
        state.memory.is_held = false;
        state.disturbances = 0;
        state.granted = [[true; 2]; 2];
        state
    }
}
