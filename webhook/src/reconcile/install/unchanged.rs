//! The applies of an installation that would not change their object. They are checked like other
//! applies, and not sent. `bundle_core::plan::unchanged` contains the rule.

use std::collections::{BTreeMap, HashMap, HashSet};

use bundle_core::object::{CustomKind, GroupKind};
use bundle_core::plan::inventory::{InstalledRequests, Inventory};
use bundle_core::plan::unchanged::{self, PlannedApply, RequestHash};

use crate::reconcile::api::object::ObservedObject;
use crate::reconcile::apply::{PreparedApply, Target};
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::drift::states::AppliedState;

/// Maximum number of objects that an installation applies again because their request is unknown.
/// With more objects, it applies all objects again after a restart.
const MAX_REPEATED: usize = 100;

/// The last applies of the objects of one round, and the objects that the watches report. Without
/// them, every apply is sent.
#[derive(Default)]
pub(in crate::reconcile) struct FormerApplies {
    /// The objects without known drift.
    applied: HashMap<String, AppliedState>,
    seen: BTreeMap<String, ObservedObject>,
}

impl DeploymentReconcile<'_> {
    /// Returns the last applies of `items`. While a watch fails, no last apply is returned, because
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

    /// Returns the kinds of `items` whose definitions an interrupted installation may have changed.
    pub(in crate::reconcile) fn kinds_changed_before(
        &self,
        items: &[PreparedObject],
    ) -> HashSet<GroupKind> {
        let record = self.inventory.record.as_ref();
        if !record.is_some_and(|record| record.is_unfinished) {
            return HashSet::new();
        }
        items.iter().filter_map(defined_kind).collect()
    }

    /// Returns the record of the requests that applied the installed `items`. Returns `None` if many
    /// requests are unknown.
    pub(in crate::reconcile) fn installed_requests(
        &self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
    ) -> Option<InstalledRequests> {
        let mut repeated = self.ctx.states.unknown_requests(&self.name);
        repeated.sort();
        (repeated.len() <= MAX_REPEATED).then(|| InstalledRequests {
            digest: unchanged::combined(self.requests(request, items)).to_string(),
            repeated,
        })
    }

    /// Adds the requests of the last applies to `applied`, after a restart. `items` are the installed
    /// objects. Adds nothing if their requests differ from the requests at the installation.
    pub(in crate::reconcile) fn add_recorded_requests(
        &self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
        applied: &mut HashMap<String, AppliedState>,
    ) {
        let recorded = self.installed_content();
        let Some(recorded) = recorded.and_then(|installed| installed.requests.as_ref()) else {
            return;
        };
        let mut requests: HashMap<String, RequestHash> = self.requests(request, items).collect();
        if recorded.digest != unchanged::combined(requests.clone()).as_str() {
            return;
        }
        for key in &recorded.repeated {
            requests.remove(key);
        }
        let preparer = self.preparer(request);
        // The request for any other object depends on the values that the object had.
        for item in items
            .iter()
            .filter(|item| preparer.applies_all_values(item))
        {
            if let Some(applied) = applied.get_mut(&item.key) {
                applied.request = requests.get(&item.key).copied();
            }
        }
    }

    /// Returns the request that applies all values of each object that can be skipped.
    fn requests<'i>(
        &self,
        request: &InstallRequest<'_>,
        items: &'i [PreparedObject],
    ) -> impl Iterator<Item = (String, RequestHash)> + 'i {
        let preparer = self.preparer(request);
        items
            .iter()
            .filter(|item| unchanged::can_skip(&item.id))
            .map(move |item| (item.key.clone(), preparer.request_of_all_values(item)))
    }
}

impl FormerApplies {
    /// Returns the state after the last apply if the apply `prepared` would not change the object.
    /// The definitions of the kinds `changed_kinds` may have changed since the last apply.
    pub(super) fn unchanged(
        &self,
        prepared: &PreparedApply<'_>,
        inventory: &Inventory,
        changed_kinds: &HashSet<GroupKind>,
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
            request: prepared.request(),
            last: applied.last_apply(),
            seen: seen.map(|seen| (seen.uid.as_str(), seen.state)),
            is_owned: uid.is_some_and(|uid| inventory.owns(&item.key, uid)),
            has_moved_fields: prepared.has_moved_fields(),
            is_kind_changed: changed_kinds.contains(&item.kind.group_kind()),
        };
        (!planned.is_needed()).then_some(applied)
    }
}

/// Returns the kind that `item` defines, if the item is a CustomResourceDefinition.
pub(super) fn defined_kind(item: &PreparedObject) -> Option<GroupKind> {
    if !item.is_definition() {
        return None;
    }
    let kind = CustomKind::of(&item.value)?;
    Some(GroupKind::new(kind.group, kind.kind))
}
