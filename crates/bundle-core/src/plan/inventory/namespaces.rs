//! Namespaces of an inventory: their uids, and the namespaces of the content that was healthy last.

use std::collections::BTreeSet;

use super::Inventory;
use crate::plan::applyset::parts;
use crate::plan::rollout::RolloutState;

impl Inventory {
    /// Returns the uid of namespace `name` at the time of installation; `None` if the namespace is
    /// not recorded.
    pub fn namespace(&self, name: &str) -> Option<&str> {
        self.namespaces.get(name).map(String::as_str)
    }

    /// Returns names and uids of the recorded namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = (&str, &str)> {
        self.namespaces
            .iter()
            .map(|(name, uid)| (name.as_str(), uid.as_str()))
    }

    /// Returns true if `uid` is the recorded uid of namespace `name`. A namespace with another uid
    /// was deleted and created again, and may belong to another owner.
    pub fn owns_namespace(&self, name: &str, uid: &str) -> bool {
        !uid.is_empty() && self.namespace(name) == Some(uid)
    }

    /// Records the uid of a namespace into which objects are installed.
    pub fn record_namespace(&mut self, name: impl Into<String>, uid: impl Into<String>) {
        self.namespaces.insert(name.into(), uid.into());
    }

    /// Returns the names of the namespaces that contain recorded objects.
    pub fn namespaces_of_objects(&self) -> BTreeSet<String> {
        self.objects
            .keys()
            .filter_map(|key| parts(key)?.1.map(str::to_owned))
            .collect()
    }

    /// Records the names of the namespaces of the content that was healthy last, if this content is
    /// installed. The caller calls this function before an installation begins, because the
    /// installation changes the recorded objects.
    pub fn record_healthy_namespaces(&mut self) {
        if self.is_healthy_content_installed() {
            self.healthy_namespaces = self.namespaces_of_objects();
        }
    }

    /// Removes the records of namespaces that contain no recorded objects. Keeps the namespaces of
    /// the content that was healthy last: an automatic rollback creates objects in these
    /// namespaces, and must detect namespaces that were recreated.
    pub fn shrink_namespaces(&mut self) {
        self.record_healthy_namespaces();
        let used = self.namespaces_of_objects();
        let healthy = &self.healthy_namespaces;
        self.namespaces
            .retain(|name, _| used.contains(name) || healthy.contains(name));
    }

    /// Returns true if all objects of the content that was healthy last are installed. Returns
    /// false after an installation of other content or of another spec has begun.
    pub(super) fn is_healthy_content_installed(&self) -> bool {
        let record = self.record.as_ref();
        let attempt = record.and_then(|record| record.rollout.attempt.as_ref());
        attempt.is_some_and(|attempt| {
            matches!(
                attempt.state,
                RolloutState::Healthy | RolloutState::RolledBack { .. }
            )
        })
    }
}
