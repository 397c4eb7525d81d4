//! Health checks of installed objects.

use std::collections::{BTreeMap, BTreeSet};

use bundle_core::object::GroupKind;
use bundle_core::plan::health;

use super::InstalledStates;

impl InstalledStates {
    /// Marks an object for a health check.
    pub(in crate::reconcile) fn mark_touched(&self, deployment: &str, key: &str) {
        self.with(deployment, |state| {
            state.touched.insert(key.to_owned());
        });
    }

    /// Returns and clears the set of objects that need a health check.
    pub(in crate::reconcile) fn take_touched(&self, deployment: &str) -> BTreeSet<String> {
        self.with(deployment, |state| std::mem::take(&mut state.touched))
    }

    /// Records the reason why an object is unhealthy, or `None` if the object is healthy.
    pub(in crate::reconcile) fn record_health(
        &self,
        deployment: &str,
        key: &str,
        why: Option<String>,
    ) {
        self.with(deployment, |state| match why {
            Some(why) => {
                state.unhealthy.insert(key.to_owned(), why);
            }
            None => {
                state.unhealthy.remove(key);
            }
        });
    }

    /// Returns true if objects wait for a health check, for example because they could not be read.
    pub(in crate::reconcile) fn has_touched(&self, deployment: &str) -> bool {
        self.with(deployment, |state| !state.touched.is_empty())
    }

    /// Returns the keys of all objects of the content.
    pub(in crate::reconcile) fn keys(&self, deployment: &str) -> Vec<String> {
        self.with(deployment, |state| state.objects.keys().cloned().collect())
    }

    /// Returns the unhealthy objects with the reason.
    pub(in crate::reconcile) fn unhealthy(&self, deployment: &str) -> BTreeMap<String, String> {
        self.with(deployment, |state| state.unhealthy.clone())
    }
}

/// Returns the kind in a key. Keys are [`bundle_core::object::ObjectId`]s as text:
/// `Deployment.apps/team-a/web`.
fn group_kind(key: &str) -> GroupKind {
    GroupKind::parse(key.split('/').next().unwrap_or_default())
}

pub(super) fn has_health_rule(key: &str) -> bool {
    let kind = group_kind(key);
    health::has_health(&kind.group, &kind.kind)
}
