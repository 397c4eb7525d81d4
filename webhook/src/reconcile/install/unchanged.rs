//! Detects applies that would not change their object. Such applies are checked like other applies,
//! but not sent. `bundle_core::plan::unchanged` contains the rule.

use std::collections::{BTreeMap, HashMap};

use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::unchanged::PlannedApply;

use crate::reconcile::api::object::ObservedObject;
use crate::reconcile::apply::{PreparedApply, Target};
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::DeploymentReconcile;
use crate::reconcile::drift::states::AppliedState;

/// The last applies of the objects of one round, and the objects that the watches report. If this
/// value is empty, every apply is sent.
#[derive(Default)]
pub(in crate::reconcile) struct FormerApplies {
    /// The state after the last apply, for each object without known drift.
    applied: HashMap<String, AppliedState>,
    seen: BTreeMap<String, ObservedObject>,
}

impl DeploymentReconcile<'_> {
    /// Returns the last applies of `items`. If a watch has failed, returns an empty value, because
    /// the reported objects can be out of date.
    pub(in crate::reconcile) fn former_applies(&self, items: &[&PreparedObject]) -> FormerApplies {
        let (states, watches) = (&self.ctx.states, &self.ctx.watches);
        if watches.watch_failure(&self.name).is_some() {
            return FormerApplies::default();
        }
        let keys = items.iter().map(|item| item.key.as_str());
        FormerApplies {
            applied: states.undrifted(&self.name, keys.clone()),
            seen: watches.observed_among(&self.name, &keys),
        }
    }
}

impl FormerApplies {
    /// Returns the state after the last apply, if the apply `prepared` would not change the object.
    /// Returns `None` otherwise.
    pub(super) fn unchanged(
        &self,
        prepared: &PreparedApply<'_>,
        inventory: &Inventory,
    ) -> Option<AppliedState> {
        let item = prepared.item();
        let applied = *self.applied.get(&item.key)?;
        let uid = match prepared.target() {
            Target::Uid(uid) => Some(uid.as_str()),
            Target::Absent => None,
        };
        let seen = self.seen.get(&item.key);
        let planned = PlannedApply {
            id: &item.id,
            uid,
            request: prepared.request_hash(),
            last: applied.last_apply(),
            seen: seen.map(|seen| (seen.uid.as_str(), seen.state)),
            is_owned: uid.is_some_and(|uid| inventory.owns(&item.key, uid)),
            has_moved_fields: prepared.has_moved_fields(),
        };
        (!planned.is_needed()).then_some(applied)
    }
}
