//! Changes of the record during a rollout, and the spec that requests the former content.

use super::RolloutStep::{RecordHealthy, ReportFailure, Restart, RollBack};
use super::*;

fn spec(generation: i64) -> RolloutSpec<'static> {
    RolloutSpec {
        generation,
        digest: "spec",
    }
}

/// Records `step` for the content of generation `generation` at time `now`.
fn take(record: &mut RolloutRecord, step: &RolloutStep, generation: i64, now: i64, of: &str) {
    record.record(step, (spec(generation), now), "cause", || {
        healthy(of, &Value::Null)
    });
}

/// Returns a record after `web-1` was healthy and `web-2` was applied at time 100.
fn upgraded() -> RolloutRecord {
    let mut record = RolloutRecord::default();
    record.begin(spec(1), &content("web-1", &Value::Null), 0);
    record.complete(spec(1), &content("web-1", &Value::Null), 1);
    take(&mut record, &RecordHealthy, 1, 2, "web-1");
    record.begin(spec(2), &content("web-2", &Value::Null), 90);
    record.complete(spec(2), &content("web-2", &Value::Null), 100);
    record
}

#[test]
fn deadline_counts_from_the_end_of_the_installation_and_survives_repeated_applies() {
    let mut record = upgraded();
    let attempt = record.of_generation(2).unwrap();
    assert_eq!(
        (attempt.since, &attempt.state),
        (100, &RolloutState::Waiting)
    );
    // After a restart of the process, the objects are applied again. The deadline does not change.
    record.begin(spec(2), &content("web-2", &Value::Null), 500);
    record.complete(spec(2), &content("web-2", &Value::Null), 510);
    assert_eq!(record.of_generation(2).unwrap().since, 100);
    // A write of the spec starts another deadline.
    record.begin(spec(3), &content("web-2", &Value::Null), 600);
    assert_eq!(record.of_generation(2), None);
    assert_eq!(record.of_generation(3).unwrap().since, 600);
}

#[test]
fn returned_content_replaces_the_content_of_one_generation_only() {
    let mut record = upgraded();
    assert_eq!(record.replacement(2), None);
    take(&mut record, &RollBack, 2, 200, "web-2");
    let former = healthy("web-1", &Value::Null);
    assert_eq!(record.replacement(2), Some(&former));
    // The content of the spec is maintained while the rollback waits for a registry.
    record.begin(spec(2), &content("web-2", &Value::Null), 210);
    record.complete(spec(2), &content("web-2", &Value::Null), 211);
    let state = |record: &RolloutRecord| record.of_generation(2).unwrap().state.clone();
    let cause = || "cause".to_owned();
    assert_eq!(state(&record), RolloutState::RollingBack { cause: cause() });
    record.complete(spec(2), &former.content, 220);
    assert_eq!(state(&record), RolloutState::RolledBack { cause: cause() });
    // Further applies of the former content change nothing.
    record.begin(spec(2), &former.content, 300);
    record.complete(spec(2), &former.content, 310);
    assert_eq!(record.replacement(2), Some(&former));
    assert_eq!(record.replacement(3), None);
    record.begin(spec(3), &content("web-2", &Value::Null), 400);
    assert_eq!(
        record.of_generation(3).unwrap().state,
        RolloutState::Applying
    );
}

#[test]
fn refused_return_holds_the_new_content_with_the_reason() {
    let mut record = upgraded();
    let refused = RollbackObstacle::Refused("no right".to_owned());
    record.refuse(&refused);
    assert_eq!(record, upgraded(), "without a rollback nothing is rejected");
    take(&mut record, &RollBack, 2, 200, "web-2");
    record.refuse(&refused);
    assert_eq!(record.replacement(2), None);
    let expected = RolloutState::Failed {
        cause: "cause".to_owned(),
        obstacle: Some("no right".to_owned()),
    };
    assert_eq!(record.of_generation(2).unwrap().state, expected);
    take(&mut record, &RecordHealthy, 2, 300, "web-2");
    assert_eq!(record.healthy, Some(healthy("web-2", &Value::Null)));
}

#[test]
fn clock_that_moved_back_starts_the_deadline_again() {
    let mut record = upgraded();
    take(&mut record, &Restart, 2, 50, "web-2");
    assert_eq!(record.of_generation(2).unwrap().since, 50);
}

#[test]
fn request_replaces_template_and_configuration_and_keeps_other_settings() {
    let spec = json!({"provisionerClassName": "plain", "template": 2, "config": {"a": 1}, "paused": false});
    let former = ContentRequest {
        class: "plain".to_owned(),
        template: json!(1),
        config: Value::Null,
    };
    let expected = json!({"provisionerClassName": "plain", "template": 1, "paused": false});
    assert_eq!(former.applied_to(&spec), expected);
    assert_eq!(ContentRequest::of(&spec).applied_to(&expected), spec);
}

#[test]
fn records_of_two_deployments_of_the_same_content_are_independent() {
    let (mut one, two) = (upgraded(), upgraded());
    take(&mut one, &RollBack, 2, 200, "web-2");
    assert!(one.replacement(2).is_some());
    assert_eq!(two.replacement(2), None);
}

#[test]
fn record_keeps_its_value_when_it_is_stored() {
    let mut record = upgraded();
    for step in [
        RollBack,
        ReportFailure(Some(RollbackObstacle::SameContent)),
        RecordHealthy,
    ] {
        take(&mut record, &step, 2, 200, "web-2");
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(
            serde_json::from_str::<RolloutRecord>(&text).unwrap(),
            record
        );
    }
    assert!(RolloutRecord::default().is_empty() && !record.is_empty());
}
