use std::time::Duration;

use serde_json::{Value, json};

use super::RolloutStep::{Keep, RecordHealthy, ReportFailure, Restart, RollBack, Wait};
use super::record::identities;
use super::*;
use crate::review::{ChangedParts, Requester};

const DEADLINE: Duration = Duration::from_secs(10);
const CLASS: &str = "plain";

fn content(bundle: &str, config: &Value) -> RolloutContent {
    RolloutContent::new(bundle, &format!("sha256:{bundle}"), config)
}

fn spec(generation: i64) -> RolloutSpec<'static> {
    RolloutSpec {
        generation,
        digest: "spec",
    }
}

fn healthy(bundle: &str, config: &Value) -> HealthyContent {
    let request = ContentRequest {
        class: CLASS.to_owned(),
        template: json!({"spec": bundle}),
        config: config.clone(),
    };
    let requesters = PartRequesters::all(&person("ana"));
    HealthyContent::new(content(bundle, config), "uid", request, &requesters)
}

fn person(user: &str) -> Requester {
    Requester {
        user: user.to_owned(),
        ..Requester::default()
    }
}

/// Returns the requesters of a spec of `ana` in which `ben` has changed these parts.
fn changed_by_ben(changed: ChangedParts) -> PartRequesters {
    PartRequesters::all(&person("ana")).changed_by(&person("ben"), changed)
}

/// Returns a record in which `former` was healthy, and `new` is in `state` since time 0.
fn record(
    former: Option<HealthyContent>,
    new: &RolloutContent,
    state: RolloutState,
) -> RolloutRecord {
    RolloutRecord {
        healthy: former,
        attempt: Some(RolloutAttempt {
            generation: 2,
            spec: "spec".to_owned(),
            content: new.clone(),
            since: 0,
            state,
        }),
    }
}

fn held(obstacle: Option<&str>) -> RolloutState {
    RolloutState::Failed {
        cause: "x".to_owned(),
        obstacle: obstacle.map(str::to_owned),
    }
}

/// One row: the record and the observed facts.
struct Row {
    record: RolloutRecord,
    content: RolloutContent,
    generation: i64,
    state: ContentState,
    is_paused: bool,
    rolls_back: bool,
    now: i64,
    class: &'static str,
    requesters: PartRequesters,
}

impl Row {
    fn step(&self) -> RolloutStep {
        let observed = ObservedRollout {
            record: &self.record,
            generation: self.generation,
            class: self.class,
            requesters: &self.requesters,
            content: &self.content,
            state: self.state,
            is_paused: self.is_paused,
            rolls_back: self.rolls_back,
            deadline: DEADLINE,
            now: self.now,
        };
        observed.step()
    }
}

/// Returns a row about `web-2` after the deadline; `web-1` was healthy before.
fn row(state: RolloutState, found: ContentState) -> Row {
    let new = content("web-2", &Value::Null);
    Row {
        record: record(Some(healthy("web-1", &Value::Null)), &new, state),
        content: new,
        generation: 2,
        state: found,
        is_paused: false,
        rolls_back: true,
        now: 10_000,
        class: CLASS,
        requesters: PartRequesters::all(&person("ana")),
    }
}

#[test]
fn truth_table_of_the_next_step() {
    use ContentState::{Failed, Healthy, Unhealthy, Unknown};
    use RolloutState::{Applying, RolledBack, RollingBack, Waiting};
    let plain = Value::Null;
    let late = |state| row(Waiting, state);
    let with = |record: RolloutRecord| Row {
        record,
        ..late(Unhealthy)
    };
    let new = content("web-2", &plain);
    let cause = || "x".to_owned();
    let none = RolloutRecord::default;
    let large = json!({"text": "a".repeat(MAX_RETURN_BYTES)});
    let other_class = HealthyContent {
        request: Some(ContentRequest {
            class: "helm".to_owned(),
            ..ContentRequest::default()
        }),
        ..healthy("web-1", &plain)
    };
    let configured = json!({"text": "new"});
    let new_config = content("web-1", &configured);
    let rows: Vec<(&str, Row, RolloutStep)> = vec![
        (
            "healthy by the deadline",
            Row {
                now: 9_999,
                ..late(Healthy)
            },
            RecordHealthy,
        ),
        (
            "unhealthy before the deadline",
            Row {
                now: 4_000,
                ..late(Unhealthy)
            },
            Wait(Duration::from_secs(6)),
        ),
        (
            "unknown before the deadline",
            Row {
                now: 4_000,
                ..late(Unknown)
            },
            Wait(Duration::from_secs(6)),
        ),
        (
            "unhealthy at the deadline, Hold",
            Row {
                rolls_back: false,
                ..late(Unhealthy)
            },
            ReportFailure(None),
        ),
        (
            "unhealthy at the deadline, RollBack",
            late(Unhealthy),
            RollBack,
        ),
        ("healthy at the deadline", late(Healthy), RecordHealthy),
        (
            "unknown at the deadline, for example after a restart",
            late(Unknown),
            Keep,
        ),
        (
            "paused at the deadline",
            Row {
                is_paused: true,
                ..late(Unhealthy)
            },
            Keep,
        ),
        (
            "paused and healthy",
            Row {
                is_paused: true,
                ..late(Healthy)
            },
            Keep,
        ),
        (
            "clock moved back",
            Row {
                now: -1,
                ..late(Unhealthy)
            },
            Restart,
        ),
        (
            "clock moved back, healthy",
            Row {
                now: -1,
                ..late(Healthy)
            },
            RecordHealthy,
        ),
        (
            "clock moved far ahead",
            Row {
                now: i64::MAX,
                ..late(Unhealthy)
            },
            RollBack,
        ),
        (
            "no former content",
            with(record(None, &new, Waiting)),
            ReportFailure(Some(RollbackObstacle::NoFormerContent)),
        ),
        (
            "no former content, Hold",
            Row {
                rolls_back: false,
                ..with(record(None, &new, Waiting))
            },
            ReportFailure(None),
        ),
        (
            "same content as before, other settings",
            with(record(Some(healthy("web-2", &plain)), &new, Waiting)),
            ReportFailure(Some(RollbackObstacle::SameContent)),
        ),
        (
            "same Bundle with another former configuration",
            Row {
                content: new_config.clone(),
                ..with(record(Some(healthy("web-1", &plain)), &new_config, Waiting))
            },
            RollBack,
        ),
        (
            "former content with another configuration",
            with(record(Some(healthy("web-1", &configured)), &new, Waiting)),
            RollBack,
        ),
        (
            "former configuration too large",
            with(record(Some(healthy("web-1", &large)), &new, Waiting)),
            ReportFailure(Some(RollbackObstacle::NotRecorded)),
        ),
        (
            "former content of another class",
            with(record(Some(other_class), &new, Waiting)),
            ReportFailure(Some(RollbackObstacle::OtherClass {
                former: "helm".to_owned(),
            })),
        ),
        ("crash before the first apply", row(Applying, Unknown), Keep),
        ("a phase is not healthy", row(Applying, Unhealthy), RollBack),
        (
            "crash during the apply, attempt failed",
            row(Applying, Failed),
            RollBack,
        ),
        (
            "attempt failed before the deadline",
            Row {
                now: 9_000,
                ..row(Applying, Failed)
            },
            Wait(Duration::from_secs(1)),
        ),
        (
            "attempt failed, Hold",
            Row {
                rolls_back: false,
                ..row(Applying, Failed)
            },
            Keep,
        ),
        (
            "crash after the apply, before its record",
            row(Applying, Healthy),
            RecordHealthy,
        ),
        ("held, unhealthy", row(held(None), Unhealthy), Keep),
        (
            "held, healthy at last",
            row(held(None), Healthy),
            RecordHealthy,
        ),
        (
            "held after a refused return",
            row(held(Some("no right")), Unhealthy),
            Keep,
        ),
        ("held, reapplied and failed", row(held(None), Failed), Keep),
        (
            "crash after the decision to return",
            row(RollingBack { cause: cause() }, Unhealthy),
            Keep,
        ),
        (
            "rolled back, former content unhealthy too",
            row(RolledBack { cause: cause() }, Unhealthy),
            Keep,
        ),
        (
            "healthy once, unhealthy later",
            row(RolloutState::Healthy, Unhealthy),
            Keep,
        ),
        (
            "spec changed, new content not applied yet",
            Row {
                generation: 3,
                ..late(Unhealthy)
            },
            Keep,
        ),
        (
            "spec changed while the old content waits",
            Row {
                content: content("web-3", &plain),
                ..late(Unhealthy)
            },
            Keep,
        ),
        (
            "installed by an earlier version, healthy",
            Row {
                state: Healthy,
                ..with(none())
            },
            RecordHealthy,
        ),
        (
            "installed by an earlier version, unhealthy",
            with(none()),
            Keep,
        ),
        (
            "spec changed without effect on recorded content",
            Row {
                generation: 3,
                state: Healthy,
                ..with(record(
                    Some(healthy("web-2", &plain)),
                    &new,
                    RolloutState::Healthy,
                ))
            },
            Keep,
        ),
    ];
    assert!(rows.len() >= 20);
    check_rows(rows);
}

fn check_rows(rows: Vec<(&str, Row, RolloutStep)>) {
    for (name, row, expected) in rows {
        assert_eq!(row.step(), expected, "{name}");
    }
}

#[test]
fn truth_table_of_the_requesters_of_a_return() {
    let plain = Value::Null;
    let new = content("web-2", &plain);
    let all = |user| PartRequesters::all(&person(user));
    let template = ChangedParts {
        template: true,
        ..ChangedParts::default()
    };
    let without_class = ChangedParts {
        template: true,
        config: true,
        service_account: true,
        ..ChangedParts::default()
    };
    let of = |requesters: &PartRequesters| HealthyContent {
        requesters: identities(requesters),
        ..healthy("web-1", &plain)
    };
    let late = |former: HealthyContent, requesters: PartRequesters| Row {
        record: record(Some(former), &new, RolloutState::Waiting),
        requesters,
        ..row(RolloutState::Waiting, ContentState::Unhealthy)
    };
    let other = |former: &[&str]| {
        let former = former.iter().map(|user| (*user).to_owned()).collect();
        ReportFailure(Some(RollbackObstacle::OtherRequester { former }))
    };
    let ana_and_ben = changed_by_ben(template);
    let unknown = HealthyContent {
        requesters: Vec::new(),
        ..healthy("web-1", &plain)
    };
    let rows: Vec<(&str, Row, RolloutStep)> = vec![
        (
            "same requester",
            late(of(&all("ana")), all("ana")),
            RollBack,
        ),
        (
            "another requester took over all parts",
            late(of(&all("ana")), all("ben")),
            other(&["ana"]),
        ),
        (
            "another requester changed the template",
            late(of(&all("ana")), ana_and_ben.clone()),
            RollBack,
        ),
        (
            "only the class has its requester",
            late(of(&all("ana")), changed_by_ben(without_class)),
            RollBack,
        ),
        (
            "requester of the former template has departed",
            late(of(&ana_and_ben), all("ana")),
            other(&["ben"]),
        ),
        (
            "both requesters have departed",
            late(of(&ana_and_ben), all("cora")),
            other(&["ben", "ana"]),
        ),
        (
            "recorded by an earlier version",
            late(unknown.clone(), all("ana")),
            ReportFailure(Some(RollbackObstacle::RequestersNotRecorded)),
        ),
    ];
    check_rows(rows);
    let former = vec!["ana".to_owned(), "ben".to_owned()];
    assert_eq!(
        RollbackObstacle::OtherRequester { former }.to_string(),
        "the former content was requested by ana, ben, who requested no part of the current spec"
    );
    // Healthy content of the spec is recorded again if its requesters have changed.
    let recorded = |former: HealthyContent, requesters: PartRequesters| {
        let content = former.content.clone();
        let mut row = Row {
            record: record(Some(former), &content, RolloutState::Healthy),
            content,
            requesters,
            ..row(RolloutState::Waiting, ContentState::Healthy)
        };
        let now = row.step();
        // A write of another setting, which does not change the content.
        row.generation = 3;
        assert_eq!(row.step(), now);
        row.state = ContentState::Unhealthy;
        assert_eq!(row.step(), Keep);
        now
    };
    assert_eq!(recorded(of(&all("ana")), all("ana")), Keep);
    assert_eq!(recorded(of(&all("ana")), all("ben")), RecordHealthy);
    assert_eq!(recorded(unknown, all("ana")), RecordHealthy);
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

#[test]
fn return_ends_at_a_refusal_and_continues_after_a_temporary_failure() {
    use crate::diagnostic::codes::{cluster, install};
    for (code, retry, expected) in [
        (install::NOT_AUTHORIZED, RetryPolicy::Slowly, true),
        (install::NOT_APPROVED, RetryPolicy::OnChange, true),
        (install::REQUIREMENT_MISSING, RetryPolicy::Soon, true),
        (install::INVALID_OBJECT, RetryPolicy::Rarely, true),
        (install::RIGHTS_UNKNOWN, RetryPolicy::Soon, false),
        (install::CHANGED_MEANWHILE, RetryPolicy::Soon, false),
        (install::CONTENT_LOST, RetryPolicy::OnChange, false),
        (cluster::UNREACHABLE, RetryPolicy::Soon, false),
    ] {
        assert_eq!(is_refusal(code, retry), expected, "{code:?}");
    }
}
