//! The log of the last watch event of each object during a reconcile. The log is necessary because
//! an event can be newer than a state that the reconcile records later.

use std::collections::BTreeMap;

use crate::reconcile::api::object::ObservedObject;

/// The state of an object that a watch reported.
#[derive(Debug, Clone)]
pub(in crate::reconcile) enum Observation {
    /// The object was created or changed, or a list contains the object.
    Present(ObservedObject),
    /// The object was deleted. Contains the resourceVersion of the deletion, or 0 if it is unknown.
    Gone(u64),
}

impl Observation {
    /// Returns the observed object. Returns `None` if the object was deleted.
    pub(super) fn seen(&self) -> Option<&ObservedObject> {
        match self {
            Self::Present(seen) => Some(seen),
            Self::Gone(_) => None,
        }
    }

    /// Returns true if the observation is not newer than `written`, the resourceVersion of this
    /// controller's own last write.
    pub(super) fn is_older_than(&self, written: u64) -> bool {
        let version = match self {
            Self::Present(seen) => seen.version,
            Self::Gone(version) => *version,
        };
        version > 0 && version <= written
    }
}

/// The last observation of each object since the start of a reconcile.
#[derive(Debug, Default)]
pub(super) struct ObservationLog(Option<BTreeMap<String, Observation>>);

impl ObservationLog {
    /// Starts a new log without observations.
    pub(super) fn begin(&mut self) {
        self.0 = Some(BTreeMap::new());
    }

    /// Ends the log, and removes all observations.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    /// Stores the observation of the object `key` until the end of the reconcile.
    pub(super) fn keep(&mut self, key: &str, observation: &Observation) {
        if let Some(all) = &mut self.0 {
            all.insert(key.to_owned(), observation.clone());
        }
    }

    /// Returns the last observation of the object `key`.
    pub(super) fn of(&self, key: &str) -> Option<Observation> {
        self.0.as_ref()?.get(key).cloned()
    }

    /// Returns the last observation of each object.
    pub(super) fn all(&self) -> BTreeMap<String, Observation> {
        self.0.clone().unwrap_or_default()
    }
}
