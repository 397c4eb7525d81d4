//! The record of a rollout after writes of the spec, including writes that set or clear
//! `spec.paused`.

use serde_json::Value;

use super::*;

/// Returns a record of a rollout of generation 2 that is in `state` since time 0.
fn record(state: &RolloutState) -> RolloutRecord {
    RolloutRecord {
        healthy: Some(HealthyContent {
            content: RolloutContent::new("web-1", "digest", &Value::Null),
            ..HealthyContent::default()
        }),
        attempt: Some(RolloutAttempt {
            generation: 2,
            spec: "spec".to_owned(),
            content: RolloutContent::new("web-2", "digest", &Value::Null),
            since: 0,
            state: state.clone(),
        }),
    }
}

/// Returns the record after `assign` was called at time 700 with a spec of this generation and
/// digest.
fn assigned(mut record: RolloutRecord, generation: i64, digest: &str) -> RolloutRecord {
    record.assign(RolloutSpec { generation, digest }, 700);
    record
}

#[test]
fn rollout_continues_after_a_pause_and_ends_with_another_spec() {
    let cause = || "cause".to_owned();
    for (state, since) in [
        (RolloutState::Applying, 700),
        (RolloutState::Waiting, 700),
        (RolloutState::Healthy, 0),
        (
            RolloutState::Failed {
                cause: cause(),
                obstacle: None,
            },
            0,
        ),
        (RolloutState::RollingBack { cause: cause() }, 0),
        (RolloutState::RolledBack { cause: cause() }, 0),
    ] {
        let before = record(&state);
        assert_eq!(assigned(before.clone(), 2, "spec"), before, "{state:?}");
        let paused = assigned(before.clone(), 4, "spec");
        let mut expected = before.clone();
        if let Some(attempt) = &mut expected.attempt {
            attempt.generation = 4;
            attempt.since = since;
        }
        assert_eq!(paused, expected);
        // Content that was replaced by an automatic rollback stays replaced.
        assert_eq!(paused.replacement(4), before.replacement(2), "{state:?}");
        let other = assigned(before.clone(), 3, "other");
        assert_eq!((other.attempt, other.healthy), (None, before.healthy));
    }
}

#[test]
fn rollout_of_an_earlier_version_belongs_to_its_generation_only() {
    let mut earlier = record(&RolloutState::Waiting);
    if let Some(attempt) = &mut earlier.attempt {
        attempt.spec.clear();
    }
    assert_eq!(assigned(earlier.clone(), 2, "spec"), earlier);
    assert_eq!(assigned(earlier, 3, "spec").attempt, None);
}
