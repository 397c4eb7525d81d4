//! The last that watches told of each object while a reconcile of its deployment goes on. Whatever the reconcile records of an object may be older than that.
//! Not here: what it means for the object (drift::states).

use std::collections::BTreeMap;

use crate::reconcile::api::object::ObservedObject;

/// How an object is, as a watch tells it.
#[derive(Debug, Clone)]
pub(in crate::reconcile) enum Observation {
    /// It was created or changed, or is listed.
    Present(ObservedObject),
    /// It is not there any more, since the write of this resource version; 0 if that is not known.
    Gone(u64),
}

impl Observation {
    /// Returns the object, if it is there.
    pub(super) fn seen(&self) -> Option<&ObservedObject> {
        match self {
            Self::Present(seen) => Some(seen),
            Self::Gone(_) => None,
        }
    }

    /// Returns whether it is from before a write of ours that left the object at resource version `written`, or is just that write.
    pub(super) fn is_older_than(&self, written: u64) -> bool {
        let version = match self {
            Self::Present(seen) => seen.version,
            Self::Gone(version) => *version,
        };
        version > 0 && version <= written
    }
}

/// What was told since a reconcile began.
#[derive(Debug, Default)]
pub(super) struct ObservationLog(Option<BTreeMap<String, Observation>>);

impl ObservationLog {
    /// Begins anew.
    pub(super) fn begin(&mut self) {
        self.0 = Some(BTreeMap::new());
    }

    /// The reconcile is over: nothing is kept any more.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    /// Keeps the last that was told of the object `key`, while a reconcile goes on.
    pub(super) fn keep(&mut self, key: &str, told: &Observation) {
        if let Some(all) = &mut self.0 {
            all.insert(key.to_owned(), told.clone());
        }
    }

    /// Returns the last that was told of the object `key`.
    pub(super) fn of(&self, key: &str) -> Option<Observation> {
        self.0.as_ref()?.get(key).cloned()
    }

    /// Returns the last that was told of each object.
    pub(super) fn all(&self) -> BTreeMap<String, Observation> {
        self.0.clone().unwrap_or_default()
    }
}
