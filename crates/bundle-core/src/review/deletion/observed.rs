//! Deletion of a BundleDeployment that was observed on the cluster, and its acceptance.

/// Minimum time in milliseconds between a deletion and the stamp of the write that admits the
/// deletion. The API server stores the time of a deletion in whole seconds, and its clock can
/// differ from the clock of the pod.
pub const ADMITTED_AFTER: i64 = 6_000;

/// Deletion of a BundleDeployment, and the evidence of its review. All times are in milliseconds
/// since 1970.
#[derive(Debug, Clone, Copy)]
pub struct ObservedDeletion {
    /// `metadata.deletionTimestamp`, by the clock of the API server. The API server stores whole
    /// seconds.
    pub deleted: i64,
    /// True if the inventory records that the deletion was accepted.
    pub is_recorded: bool,
    /// Start of the period in which the webhook registrations have been intact without
    /// interruption, so that the API server sent every deletion to the webhook. `None` while a
    /// registration is missing or altered.
    pub enforced_since: Option<i64>,
    /// Start of the review of the write that set the annotation `core.rukpak.io/admit` for the
    /// current spec. The stamp or the seal records this time. The times of other stamps are
    /// ignored, because a write without a review can renew a stamp.
    pub admitted: Option<i64>,
}

impl ObservedDeletion {
    /// Returns true if the deletion was reviewed, or admitted later by a user who may delete the
    /// object.
    pub(crate) fn is_accepted(&self) -> bool {
        self.is_recorded
            || self
                .enforced_since
                .is_some_and(|since| self.deleted >= since)
            || self.admitted.is_some_and(|time| self.can_be_admitted(time))
    }

    /// Returns true if a write with a stamp of this `time` can admit the deletion.
    pub(crate) fn can_be_admitted(&self, time: i64) -> bool {
        time >= self.deleted.saturating_add(ADMITTED_AFTER)
    }
}
