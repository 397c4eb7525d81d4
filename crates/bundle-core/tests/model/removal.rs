//! Steps of a removal, with their effect on the cluster.

use bundle_core::plan::removal::steps::{Account, CustomResources, RemovalStep};

use super::state::{Objects, Plans, Reconcile, RemovalRun, State, removal_bit};

impl RemovalRun {
    pub(crate) fn begin(state: &State) -> Self {
        Self {
            is_orphan: state.cluster.is_orphan,
            handling: state.cluster.handling,
            account: None,
            definitions_in_use: None,
            done: 0,
            is_half_deleted: false,
        }
    }

    fn has_done(&self, step: RemovalStep) -> bool {
        self.done & removal_bit(step) != 0
    }
}

impl State {
    fn with_teardown(&self, teardown: RemovalRun) -> Self {
        Self {
            reconcile: Reconcile::Remove(teardown),
            ..*self
        }
    }

    fn has_objects(&self) -> bool {
        self.cluster.objects != [Objects::None; 2]
    }

    pub(crate) fn removal_step(
        &self,
        teardown: &RemovalRun,
        plans: &mut Plans,
        next: &mut Vec<Self>,
    ) {
        let mut state = *self;
        let mut teardown = *teardown;
        let Some(step) = plans.removal(self, &teardown) else {
            state.reconcile = Reconcile::None;
            state.cluster.is_gone |= !state.cluster.has_finalizer;
            return next.push(state);
        };
        let succeeds = match step {
            RemovalStep::CheckDeletion => {
                self.cluster.is_reviewed || self.record.is_deletion_accepted
            }
            RemovalStep::RecordAcceptance => {
                state.record.is_deletion_accepted = true;
                true
            }
            RemovalStep::FindAccount => {
                teardown.account = Some(if self.cluster.is_impersonated {
                    Account::Usable
                } else {
                    Account::Withdrawn
                });
                true
            }
            RemovalStep::FindDefinitionsInUse => {
                teardown.definitions_in_use = Some(self.cluster.has_foreign_resources);
                true
            }
            RemovalStep::DeleteObjects => {
                return self.delete_objects(teardown, next);
            }
            RemovalStep::RemoveFinalizer => {
                assert!(
                    !self.has_objects() || teardown.is_orphan,
                    "the finalizer goes before the objects: {self:?}"
                );
                // The write contains the resourceVersion that was read, so it fails if the spec has
                // changed.
                let is_current = teardown.is_orphan == self.cluster.is_orphan
                    && teardown.handling == self.cluster.handling;
                state.cluster.has_finalizer = !is_current;
                state.cluster.is_gone = is_current;
                is_current
            }
            RemovalStep::RemoveInventory => {
                assert!(!self.cluster.has_finalizer, "{self:?}");
                state.record.objects = [false; 2];
                true
            }
            RemovalStep::ReportInventoryLost
            | RemovalStep::ReportNoAccount
            | RemovalStep::ReportDefinitionsInUse => false,
            RemovalStep::ForgetReplacedNamespaces
            | RemovalStep::ReadRequesters
            | RemovalStep::FindObjects
            | RemovalStep::ReleaseObjects
            | RemovalStep::ReleaseDefinitionsInUse
            | RemovalStep::ReleaseNamespacesInUse
            | RemovalStep::DeleteNamespaces => true,
        };
        if succeeds {
            teardown.done |= removal_bit(step);
            next.push(state.with_teardown(teardown));
        } else {
            state.reconcile = Reconcile::None;
            next.push(state);
        }
    }

    /// Deletes half of the objects, and then the other half. All objects remain if the requesters
    /// have no permission to delete them, or to impersonate the ServiceAccount.
    fn delete_objects(&self, mut teardown: RemovalRun, next: &mut Vec<Self>) {
        let mut state = *self;
        assert!(
            self.record.is_deletion_accepted,
            "deleted without a review: {self:?}"
        );
        assert!(!teardown.is_orphan, "deleted what was to stay: {self:?}");
        assert!(
            teardown.account == Some(Account::Withdrawn)
                || teardown.definitions_in_use == Some(false)
                || teardown.handling == CustomResources::Delete
                || teardown.has_done(RemovalStep::ReleaseDefinitionsInUse),
            "custom resources of others would be lost: {self:?}"
        );
        let may_delete = teardown.account == Some(Account::Usable) && self.cluster.is_allowed;
        if self.has_objects() && !may_delete {
            state.reconcile = Reconcile::None;
            return next.push(state);
        }
        for (content, objects) in self.cluster.objects.iter().enumerate() {
            assert!(
                *objects == Objects::None || self.record.objects[content],
                "an object would be lost: {self:?}"
            );
            if *objects != Objects::None {
                state.cluster.objects[content] = Objects::Some;
            }
        }
        if self.has_objects() && !teardown.is_half_deleted {
            teardown.is_half_deleted = true;
            return next.push(state.with_teardown(teardown));
        }
        if self.has_objects() && self.cluster.is_held {
            // A finalizer of another owner delays the deletion of the last object.
            state.reconcile = Reconcile::None;
            return next.push(state);
        }
        for content in 0..2 {
            if state.record.objects[content] {
                state.delete(content);
            }
        }
        // The inventory is saved when the removal is complete or has failed.
        state.record.objects = self.record.objects;
        debug_assert!(!teardown.has_done(RemovalStep::RemoveFinalizer));
        teardown.done |= removal_bit(RemovalStep::DeleteObjects);
        next.push(state.with_teardown(teardown));
    }
}
