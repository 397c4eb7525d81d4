//! Computes, from observations, the start of the period in which the registrations have been intact
//! without interruption. The module is a pure state machine. The module `shape` defines which
//! registrations are intact.
//!
//! Between two watch events, no other change is possible. Between an event and a later list or
//! read, other changes are possible. A list or a read proves in two cases that there was no change
//! by another client:
//!
//! - The generation is unchanged.
//! - The generation has increased by one, and the `managedFields` entries of all other managers are
//!   unchanged.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

use super::Registration;

/// The field manager of the webhook's own patches.
pub(super) const MANAGER: &str = "bundle-webhook-registration";

/// Uid and generation of a registration. Both stay unchanged as long as its webhooks do not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    uid: String,
    generation: i64,
}

/// The stored metadata of one observed registration.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Snapshot {
    uid: String,
    generation: i64,
    /// End of the second in which another client last wrote the registration. The time is read from
    /// `managedFields`, which contain times in whole seconds.
    changed: Option<Timestamp>,
    /// The `managedFields` entries of other managers.
    others: Vec<ManagedFieldsEntry>,
}

impl Snapshot {
    pub(super) fn read(metadata: &ObjectMeta) -> Self {
        let entries = metadata.managed_fields.iter().flatten();
        let others: Vec<ManagedFieldsEntry> = entries
            .filter(|entry| entry.manager.as_deref() != Some(MANAGER))
            .cloned()
            .collect();
        let times = others.iter().filter_map(|entry| entry.time.as_ref());
        let changed = times
            .chain(&metadata.creation_timestamp)
            .map(|time| time.0.saturating_add(SignedDuration::from_secs(1)))
            .filter_map(Result::ok)
            .max();
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            changed,
            others,
        }
    }

    /// Returns uid and generation.
    pub(super) fn version(&self) -> Version {
        Version {
            uid: self.uid.clone(),
            generation: self.generation,
        }
    }

    /// Returns true if it is certain that no other client has changed the webhooks since `before`.
    fn follows(&self, before: &Self) -> bool {
        let ours = self.generation == before.generation + 1 && self.others == before.others;
        self.uid == before.uid && (self.generation == before.generation || ours)
    }

    fn is_older_than(&self, other: &Self) -> bool {
        self.uid == other.uid && self.generation < other.generation
    }
}

/// One observation of one registration.
#[derive(Debug, Clone)]
pub(super) enum Observation {
    /// A watch event for this object. No earlier event was missed.
    Event(Snapshot),
    /// A watch event: the object with this uid was deleted.
    Deleted(String),
    /// A read or a list returned this object.
    Read(Snapshot),
    /// A read or a list returned no object.
    Absent,
}

#[derive(Debug)]
struct ObservedRegistration {
    /// The last observed object. This value remains after the object was deleted.
    last: Option<Snapshot>,
    exists: bool,
    intact_since: Option<Timestamp>,
}

/// The observations of both registrations.
#[derive(Debug, Default)]
pub(super) struct History(BTreeMap<Registration, ObservedRegistration>);

impl History {
    /// Records an observation at `now`. `intact` is true if the object has no fault. `enforced` is
    /// true if the object has no fault that could let a write pass without a review. A wrong path
    /// or authority does not let a write pass, because the API server rejects a write if its call
    /// of the webhook fails. Returns false for an event about an older state.
    pub(super) fn observe(
        &mut self,
        registration: Registration,
        observation: Observation,
        (intact, enforced): (bool, bool),
        now: Timestamp,
    ) -> bool {
        let mut known = self.0.get_mut(&registration);
        let (found, is_event) = match observation {
            Observation::Event(found) => (Some(found), true),
            Observation::Read(found) => (Some(found), false),
            Observation::Absent => (None, false),
            Observation::Deleted(uid) => {
                if let Some(known) = &mut known {
                    let last = known.last.as_ref();
                    if known.exists && last.is_some_and(|last| last.uid != uid) {
                        // The event belongs to an older object with the same name.
                        known.end_interruption(now);
                        return false;
                    }
                }
                (None, true)
            }
        };
        let Some(known) = known else {
            let intact_since = found
                .as_ref()
                .filter(|_| intact)
                .map(|found| found.changed.unwrap_or(now));
            let exists = found.is_some();
            let known = ObservedRegistration {
                last: found,
                exists,
                intact_since,
            };
            self.0.insert(registration, known);
            return true;
        };
        let Some(found) = found else {
            known.exists = false;
            known.intact_since = None;
            return true;
        };
        if let (true, Some(last)) = (is_event, &known.last) {
            let is_deleted = !known.exists && last.uid == found.uid;
            if is_deleted || found.is_older_than(last) {
                // A late event of the last rotation by this webhook contains an earlier token. With
                // this token the API server could not call the webhook, so no write passed without
                // a review. Therefore the event does not count as an interruption. An interruption
                // would cause another rotation.
                if !enforced {
                    known.end_interruption(now);
                }
                return false;
            }
        }
        let proven = known
            .last
            .as_ref()
            .is_some_and(|last| is_event || found.follows(last));
        let before = known.intact_since.filter(|_| proven);
        known.intact_since = intact.then(|| before.unwrap_or(now));
        known.exists = true;
        known.last = Some(found);
        true
    }

    /// Returns the start of the period in which both registrations have been intact. Returns `None`
    /// if a registration is not intact, or was not observed yet.
    pub(super) fn intact_since(&self) -> Option<Timestamp> {
        let since = |registration| self.0.get(&registration)?.intact_since;
        let [one, other] = Registration::ALL.map(since);
        Some(one?.max(other?))
    }

    /// Returns true if both registrations have been observed.
    pub(super) fn is_complete(&self) -> bool {
        self.0.len() == Registration::ALL.len()
    }

    /// Returns the last observed versions of both registrations, or `None` if one of them does not
    /// exist.
    pub(super) fn versions(&self) -> Option<[Version; 2]> {
        let version = |registration| {
            let known = self.0.get(&registration)?;
            known.last.as_ref().filter(|_| known.exists)
        };
        let [one, other] = Registration::ALL.map(version);
        Some([one?.version(), other?.version()])
    }
}

impl ObservedRegistration {
    /// Records that an interruption has ended at `now`.
    fn end_interruption(&mut self, now: Timestamp) {
        self.intact_since = self.intact_since.map(|since| since.max(now));
    }
}

#[cfg(test)]
mod tests {
    use Registration::{Mutating, Validating};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::constant(1_800_000_000 + second, 0)
    }

    fn entry(manager: &str, second: i64) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            time: Some(Time(at(second))),
            ..ManagedFieldsEntry::default()
        }
    }

    fn snapshot(uid: &str, generation: i64, entries: Vec<ManagedFieldsEntry>) -> Snapshot {
        Snapshot::read(&ObjectMeta {
            uid: Some(uid.to_owned()),
            generation: Some(generation),
            creation_timestamp: Some(Time(at(0))),
            managed_fields: Some(entries),
            ..ObjectMeta::default()
        })
    }

    /// Returns an object with this generation. An administrator wrote it last at second 10, and the
    /// webhook wrote it last at second 60.
    fn one(generation: i64) -> Snapshot {
        snapshot(
            "one",
            generation,
            vec![entry("kubectl", 10), entry(MANAGER, 60)],
        )
    }

    /// Returns a history after one read of both registrations, at second 100. Both registrations
    /// were intact. The last write by another manager was at second 10, so both have been intact
    /// since second 11.
    fn intact() -> History {
        let mut history = History::default();
        assert_eq!(history.intact_since(), None);
        for registration in Registration::ALL {
            history.observe(
                registration,
                Observation::Read(one(3)),
                (true, true),
                at(100),
            );
        }
        assert_eq!(history.intact_since(), Some(at(11)));
        history
    }

    #[test]
    fn first_read_uses_the_last_foreign_write_and_requires_both_registrations() {
        let mut history = History::default();
        history.observe(Validating, Observation::Read(one(3)), (true, true), at(100));
        assert_eq!(history.intact_since(), None);
        let new = snapshot("two", 1, vec![entry(MANAGER, 90)]);
        history.observe(Mutating, Observation::Read(new), (true, true), at(100));
        assert_eq!(history.intact_since(), Some(at(11)));

        for observation in [Observation::Absent, Observation::Read(one(3))] {
            let mut history = History::default();
            history.observe(Validating, Observation::Read(one(3)), (true, true), at(100));
            history.observe(Mutating, observation, (false, false), at(100));
            assert_eq!(history.intact_since(), None);
            history.observe(Mutating, Observation::Event(one(4)), (true, true), at(101));
            assert_eq!(history.intact_since(), Some(at(101)));
        }
    }

    #[test]
    fn alteration_interrupts_integrity_until_the_repair() {
        let mut history = intact();
        history.observe(
            Mutating,
            Observation::Event(one(4)),
            (false, false),
            at(200),
        );
        assert_eq!(history.intact_since(), None);
        history.observe(Mutating, Observation::Event(one(5)), (true, true), at(300));
        assert_eq!(history.intact_since(), Some(at(300)));
    }

    #[test]
    fn deletion_interrupts_integrity_until_the_next_object() {
        let mut history = intact();
        let deleted = Observation::Deleted("one".to_owned());
        history.observe(Validating, deleted, (false, false), at(200));
        assert_eq!(history.intact_since(), None);
        // This event of the deleted object arrives late.
        assert!(!history.observe(
            Validating,
            Observation::Event(one(3)),
            (true, true),
            at(201)
        ));
        assert_eq!(history.intact_since(), None);
        let two = || snapshot("two", 1, Vec::new());
        history.observe(Validating, Observation::Event(two()), (true, true), at(300));
        assert_eq!(history.intact_since(), Some(at(300)));
        // Another event of the deleted object arrives late.
        let deleted = Observation::Deleted("one".to_owned());
        assert!(!history.observe(Validating, deleted, (false, false), at(301)));
        assert_eq!(history.intact_since(), Some(at(301)));
    }

    #[test]
    fn own_patches_and_foreign_metadata_do_not_interrupt_integrity() {
        let mut history = intact();
        history.observe(Mutating, Observation::Event(one(4)), (true, true), at(200));
        history.observe(Mutating, Observation::Read(one(5)), (true, true), at(300));
        let labelled = snapshot("one", 5, vec![entry("kubectl", 310), entry(MANAGER, 60)]);
        history.observe(Mutating, Observation::Read(labelled), (true, true), at(320));
        assert_eq!(history.intact_since(), Some(at(11)));
    }

    #[test]
    fn list_that_can_hide_an_alteration_restarts_integrity() {
        let by_others = snapshot("one", 4, vec![entry("kubectl", 150), entry(MANAGER, 60)]);
        let recreated = snapshot("two", 3, vec![entry("kubectl", 10)]);
        for found in [one(5), by_others, recreated] {
            let mut history = intact();
            history.observe(Mutating, Observation::Read(found), (true, true), at(200));
            assert_eq!(history.intact_since(), Some(at(200)));
        }
    }

    #[test]
    fn keeps_versions_of_existing_registrations_only() {
        let mut history = History::default();
        history.observe(Validating, Observation::Read(one(3)), (true, true), at(100));
        assert!(!history.is_complete() && history.versions().is_none());
        let mut history = intact();
        assert!(history.is_complete());
        assert_eq!(
            history.versions(),
            Some([one(3).version(), one(3).version()])
        );
        history.observe(Mutating, Observation::Event(one(4)), (true, true), at(200));
        assert_eq!(
            history.versions(),
            Some([one(3).version(), one(4).version()])
        );
        let deleted = Observation::Deleted("one".to_owned());
        history.observe(Validating, deleted, (false, false), at(300));
        assert_eq!(history.versions(), None);
    }

    #[test]
    fn late_event_of_an_alteration_restarts_integrity() {
        let mut history = intact();
        history.observe(Mutating, Observation::Read(one(3)), (true, true), at(150));
        assert!(!history.observe(
            Mutating,
            Observation::Event(one(2)),
            (false, false),
            at(200)
        ));
        assert_eq!(history.intact_since(), Some(at(200)));
        assert!(!history.observe(Mutating, Observation::Event(one(2)), (true, true), at(210)));
        assert_eq!(history.intact_since(), Some(at(200)));
    }

    #[test]
    fn late_event_of_our_own_rotation_is_no_gap() {
        let mut history = intact();
        history.observe(Validating, Observation::Read(one(5)), (true, true), at(120));
        let since = history.intact_since();
        // The object in the late event has the path of the previous rotation. With this fault, no
        // write passes without a review.
        let late = Observation::Event(one(4));
        assert!(!history.observe(Validating, late.clone(), (false, true), at(130)));
        assert_eq!(history.intact_since(), since);
        assert!(!history.observe(Validating, late, (false, false), at(140)));
        assert_eq!(history.intact_since(), Some(at(140)));
    }
}
