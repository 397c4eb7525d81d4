//! The next step for each state of a rollout.

use super::RolloutStep::{Keep, RecordHealthy, ReportFailure, Restart, RollBack, Wait};
use super::*;

fn held(obstacle: Option<&str>) -> RolloutState {
    RolloutState::Failed {
        cause: "x".to_owned(),
        obstacle: obstacle.map(str::to_owned),
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
