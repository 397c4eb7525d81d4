//! The applies of all objects of the content. All applies are prepared before the first apply is
//! sent.

use std::collections::{BTreeSet, HashMap};

use bundle_core::text::MessageList;
use futures::StreamExt as _;

use super::{ApplyError, CheckedApply, ObservedTarget, PreparedApply, Preparer, Target};
use crate::reconcile::content::objects::PreparedObject;

/// The expected state of each object, by object key.
pub(in crate::reconcile) type Targets = HashMap<String, ObservedTarget>;

/// The applies of all objects of the content, by object key. `checked` contains the applies that
/// passed the dry runs, and `waiting` contains the applies that are not checked yet.
#[derive(Default)]
pub(in crate::reconcile) struct ApplyPlan<'i> {
    waiting: HashMap<&'i str, PreparedApply<'i>>,
    checked: HashMap<&'i str, CheckedApply<'i>>,
}

/// The items whose apply could not be prepared.
#[derive(Default)]
pub(in crate::reconcile) struct UnpreparedApplies {
    /// The object keys of the items.
    pub(in crate::reconcile) keys: BTreeSet<String>,
    /// The errors. Each text names the object.
    pub(in crate::reconcile) messages: MessageList,
    /// True if a retry of at least one item cannot succeed.
    pub(in crate::reconcile) is_permanent: bool,
}

impl UnpreparedApplies {
    fn add(&mut self, item: &PreparedObject, error: &ApplyError) {
        self.keys.insert(item.key.clone());
        self.is_permanent |= !error.is_passing();
        let message = format!("{}: {}", item.key, error.message());
        self.messages.insert(message);
    }
}

impl<'i> ApplyPlan<'i> {
    /// Prepares the applies of the `items` that have a target. Also returns the items that could
    /// not be prepared.
    pub(in crate::reconcile) async fn prepare(
        preparer: &Preparer,
        items: &[&'i PreparedObject],
        targets: &Targets,
    ) -> (Self, UnpreparedApplies) {
        let wanted = items.iter().filter_map(|item| {
            let target = targets.get(&item.key)?.clone();
            Some((*item, target))
        });
        let mut results = crate::reconcile::api::parallel::stream(wanted.map(
            |(item, observed): (_, ObservedTarget)| async move {
                let apply = preparer.prepare(item, observed.target).await;
                (item, apply.map(|apply| apply.observed_in(observed.version)))
            },
        ));
        let (mut plan, mut failed) = (Self::default(), UnpreparedApplies::default());
        while let Some((item, result)) = results.next().await {
            match result {
                Ok(apply) => plan.put_back(apply),
                Err(error) => failed.add(item, &error),
            }
        }
        (plan, failed)
    }

    /// Returns the object key and the expected state of each object.
    pub(in crate::reconcile) fn targets(&self) -> impl Iterator<Item = (&str, &Target)> {
        let waiting = self
            .waiting
            .iter()
            .map(|(key, prepared)| (*key, prepared.target()));
        waiting.chain(self.checked.values().map(CheckedApply::key_and_target))
    }

    /// Returns true if the object of `item` is to be created.
    pub(in crate::reconcile) fn creates(&self, item: &PreparedObject) -> bool {
        let key = item.key.as_str();
        let checked = self.checked.get(key).map(CheckedApply::prepared);
        let prepared = self.waiting.get(key).or(checked);
        prepared.is_some_and(PreparedApply::creates)
    }

    /// Removes and returns the unchecked apply of `item`.
    pub(in crate::reconcile) fn take_waiting(
        &mut self,
        item: &PreparedObject,
    ) -> Option<PreparedApply<'i>> {
        self.waiting.remove(item.key.as_str())
    }

    /// Removes and returns the checked apply of `item`.
    pub(in crate::reconcile) fn take_checked(
        &mut self,
        item: &PreparedObject,
    ) -> Option<CheckedApply<'i>> {
        self.checked.remove(item.key.as_str())
    }

    /// Moves each apply of `items` whose check has expired to the unchecked applies.
    pub(in crate::reconcile) fn drop_stale_checks(&mut self, items: &[&'i PreparedObject]) {
        for item in items {
            if let Some(checked) = self.take_checked(item) {
                if checked.is_recent() {
                    self.put_checked(checked);
                } else {
                    self.put_back(checked.into_stale());
                }
            }
        }
    }

    /// Adds an apply that is not checked yet.
    pub(in crate::reconcile) fn put_back(&mut self, prepared: PreparedApply<'i>) {
        self.waiting.insert(&prepared.item().key, prepared);
    }

    /// Adds all applies of another plan.
    pub(in crate::reconcile) fn extend(&mut self, other: Self) {
        self.waiting.extend(other.waiting);
        self.checked.extend(other.checked);
    }

    /// Adds a checked apply.
    pub(in crate::reconcile) fn put_checked(&mut self, checked: CheckedApply<'i>) {
        self.checked.insert(&checked.prepared().item().key, checked);
    }
}
