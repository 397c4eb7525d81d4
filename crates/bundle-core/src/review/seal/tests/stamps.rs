//! The writes for which a stamp is valid, and the times of stamps and writes.

use super::*;

#[test]
fn stamp_counts_only_for_the_write_that_it_was_made_for() {
    let spec = json!({"a": 1});
    let (create, update) = (
        stamp(&spec, None).text(KEY),
        stamp(&spec, Some(4)).text(KEY),
    );
    let created = object(&spec, Some(&create), None);
    let updated = StoredObject {
        generation: 4,
        created: Some(NOON - 86_400_000),
        ..object(&spec, Some(&update), None)
    };
    let moment = at(NOON + 1_000);
    assert!(matches!(state(&updated), SealState::Unsealed(_)));
    let other_spec = json!({"a": 1, "b": null});
    let cases = [
        (
            StoredObject {
                spec: &other_spec,
                ..created
            },
            StampError::OtherSpec,
        ),
        (
            StoredObject {
                name: "other",
                ..created
            },
            StampError::Forged,
        ),
        (
            StoredObject {
                kind: Kind::Bundle,
                ..created
            },
            StampError::Forged,
        ),
        (
            StoredObject {
                generation: 3,
                ..created
            },
            StampError::OtherWrite,
        ),
        (
            StoredObject {
                uid: "u2",
                ..updated
            },
            StampError::OtherWrite,
        ),
        (
            StoredObject {
                generation: 5,
                ..updated
            },
            StampError::OtherWrite,
        ),
        (
            StoredObject {
                generation: 3,
                ..updated
            },
            StampError::OtherWrite,
        ),
        // The object was created long before the stamp, or was written long after the stamp.
        (
            StoredObject {
                created: Some(NOON - MAX_WRITE_BEFORE_STAMP_MS - 1),
                ..created
            },
            StampError::OutOfTime,
        ),
        (
            StoredObject {
                created: Some(NOON + MAX_STAMP_BEFORE_WRITE_MS + 1),
                ..created
            },
            StampError::OutOfTime,
        ),
        (
            StoredObject {
                created: None,
                ..created
            },
            StampError::OutOfTime,
        ),
        (
            StoredObject {
                written: Some(NOON + MAX_STAMP_BEFORE_WRITE_MS + 1),
                ..updated
            },
            StampError::OutOfTime,
        ),
    ];
    for (object, why) in cases {
        assert_eq!(refusal(&object, &moment), why, "{object:?}");
    }
}

#[test]
fn stamp_is_worthless_across_a_gap_when_old_or_from_the_future() {
    let spec = json!({"a": 1});
    let text = stamp(&spec, None).text(KEY);
    let written = object(&spec, Some(&text), None);
    let moment = |now, intact_since| SealCheckContext { now, intact_since };
    let soon = NOON + 1_000;
    for (moment, why) in [
        (moment(soon, None), StampError::Gap),
        (moment(soon, Some(NOON)), StampError::Gap),
        (moment(soon, Some(NOON + 500)), StampError::Gap),
        (
            moment(NOON + MAX_STAMP_AGE_AT_SEAL_MS + 1, Some(0)),
            StampError::Expired,
        ),
        (
            moment(NOON - MAX_WRITE_BEFORE_STAMP_MS - 1, Some(0)),
            StampError::OutOfTime,
        ),
    ] {
        assert_eq!(refusal(&written, &moment), why, "{moment:?}");
    }
    assert!(matches!(
        seal_state(KEY, &written, &moment(soon, Some(NOON - 1))),
        SealState::Unsealed(_)
    ));
}

#[test]
fn clock_that_jumps_keeps_seals_and_only_delays_the_seal_of_a_write() {
    const HOUR: i64 = 3_600_000;
    let spec = json!({"a": 1});
    let text = stamp(&spec, None).text(KEY);
    let written = object(&spec, Some(&text), None);
    let at = |now| SealCheckContext {
        now,
        intact_since: Some(0),
    };
    assert_eq!(refusal(&written, &at(NOON - HOUR)), StampError::OutOfTime);
    assert_eq!(refusal(&written, &at(NOON + HOUR)), StampError::Expired);
    let SealState::Unsealed(vouched) = seal_state(KEY, &written, &at(NOON + 1_000)) else {
        panic!("the write cannot be sealed after the clock was corrected");
    };
    let seal = seal(KEY, &written, &vouched);
    let sealed = object(&spec, Some(&text), Some(&seal));
    for now in [NOON - HOUR, NOON + HOUR, NOON, i64::MIN, i64::MAX] {
        let found = seal_state(KEY, &sealed, &at(now));
        assert_eq!(found, SealState::Sealed(vouched.clone()), "{now}");
    }
}

#[test]
fn last_written_ignores_future_times() {
    let times = [NOON - 1_000, NOON, NOON + 5_000, NOON + 5_001, i64::MAX];
    assert_eq!(last_written(times, NOON), Some(NOON + 5_000));
    assert_eq!(last_written([i64::MAX], NOON), None);
}

#[test]
fn only_new_times_in_the_future_are_future_writes() {
    let (past, soon, future, later) = (NOON - 1_000, NOON + 5_000, NOON + 5_001, NOON + 60_000);
    let adds = |old: &[i64], new: &[i64]| {
        adds_future_write(old.iter().copied(), new.iter().copied(), NOON)
    };
    assert!(!adds(&[], &[past, soon]));
    assert!(adds(&[past], &[past, future]));
    assert!(adds(&[past, future], &[past, later]));
    assert!(!adds(&[past, future], &[future, soon]));
}

#[test]
fn update_without_write_time_needs_new_stamp() {
    let spec = json!({"a": 1});
    let text = stamp(&spec, Some(4)).text(KEY);
    let update = StoredObject {
        generation: 4,
        created: Some(NOON - 86_400_000),
        ..object(&spec, Some(&text), None)
    };
    // `managedFields` has no entry, or only entries of earlier writes.
    for written in [
        None,
        Some(NOON - 86_400_000),
        Some(NOON - MAX_WRITE_BEFORE_STAMP_MS - 1),
    ] {
        let update = StoredObject { written, ..update };
        for now in [NOON, NOON + MAX_STAMP_BEFORE_WRITE_MS] {
            let found = seal_state(KEY, &update, &at(now));
            assert!(matches!(found, SealState::Unsealed(_)), "{found:?}");
        }
        let late = at(NOON + MAX_STAMP_BEFORE_WRITE_MS + 1);
        assert_eq!(refusal(&update, &late), StampError::OutOfTime);
        for intact_since in [None, Some(NOON), Some(NOON + 500)] {
            let gap = SealCheckContext {
                now: NOON + 1_000,
                intact_since,
            };
            assert_eq!(refusal(&update, &gap), StampError::Gap);
        }
    }
    // A CREATE always has a creation time.
    let text = stamp(&spec, None).text(KEY);
    let created = StoredObject {
        created: Some(NOON - MAX_WRITE_BEFORE_STAMP_MS - 1),
        written: None,
        ..object(&spec, Some(&text), None)
    };
    assert_eq!(refusal(&created, &at(NOON + 1_000)), StampError::OutOfTime);
}
