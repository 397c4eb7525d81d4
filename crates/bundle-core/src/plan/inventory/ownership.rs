//! Ownership of an object on the cluster, by its record in the inventory.

use super::{CreationMark, Inventory, ObjectRecord};

/// Tolerance for clock differences, in seconds. The API server sets the creation time of an object
/// from its own clock. Therefore a creation time up to 2 s before the time of the intent is
/// accepted.
const CLOCK_TOLERANCE: i64 = 2;

/// Properties of an existing object that determine its ownership.
#[derive(Debug, Clone, Copy)]
pub struct LiveObject<'a> {
    /// Uid of the object.
    pub uid: &'a str,
    /// `creationTimestamp` in seconds since 1970; `None` if the object has no such field.
    pub created: Option<i64>,
    /// True if this project's field manager has exactly one `Apply` entry in `managedFields`.
    pub applied_by_us: bool,
    /// Creation mark in the annotations; `None` if the object has no valid creation mark.
    pub mark: Option<CreationMark>,
}

/// Ownership of an existing object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectOwnership {
    /// The inventory records the object with this uid. Or the pod created the object, and a crash
    /// prevented the record of its uid.
    Ours,
    /// The inventory records another object of the same name. Another actor deleted the recorded
    /// object and created this object.
    Replaced,
    /// The inventory has no record of an object with this name.
    Unrecorded,
}

/// Reservation of an object. No other BundleDeployment may install a reserved object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reservation {
    /// The object is recorded or is being adopted.
    Owned,
    /// The next apply creates the object. An object of this name may already exist, as the result
    /// of a request that is not recorded yet.
    Installing,
}

impl Inventory {
    /// Returns the ownership of the object `key`. `live` is the existing object. If the record is
    /// an intent, the object must have the creation mark, and must not be older than the intent. No
    /// other client knows the mark before the object exists.
    pub fn claim(&self, key: &str, live: LiveObject<'_>) -> ObjectOwnership {
        match self.objects.get(key) {
            Some(ObjectRecord::Uid(uid)) if !uid.is_empty() && uid == live.uid => {
                ObjectOwnership::Ours
            }
            Some(ObjectRecord::Uid(_)) => ObjectOwnership::Replaced,
            Some(ObjectRecord::Intent(since))
                if self.is_applied(key, live)
                    && live.created.is_some_and(|created| {
                        created >= since.saturating_sub(CLOCK_TOLERANCE)
                    }) =>
            {
                ObjectOwnership::Ours
            }
            Some(ObjectRecord::Adoption(uid))
                if !uid.is_empty() && uid == live.uid && self.is_applied(key, live) =>
            {
                ObjectOwnership::Ours
            }
            Some(ObjectRecord::Intent(_) | ObjectRecord::Adoption(_)) | None => {
                ObjectOwnership::Unrecorded
            }
        }
    }

    /// Returns true if an apply of this project has changed or created the object.
    fn is_applied(&self, key: &str, live: LiveObject<'_>) -> bool {
        live.applied_by_us && live.mark.is_some() && live.mark == self.mark(key)
    }

    /// Returns the reservation of the object `key`; `None` if the object is not reserved. `uid` is
    /// the uid of the object on the cluster. An intent reserves an object with any uid, because the
    /// uid of the created object is not recorded yet.
    pub fn reserves(&self, key: &str, uid: &str) -> Option<Reservation> {
        match self.objects.get(key)? {
            ObjectRecord::Uid(recorded) | ObjectRecord::Adoption(recorded) => {
                (!uid.is_empty() && recorded == uid).then_some(Reservation::Owned)
            }
            ObjectRecord::Intent(_) => Some(Reservation::Installing),
        }
    }
}
