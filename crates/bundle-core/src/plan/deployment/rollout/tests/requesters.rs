//! Automatic rollbacks to content of other requesters.

use super::RolloutStep::{Keep, RecordHealthy, ReportFailure, RollBack};
use super::*;
use crate::plan::deployment::rollout::record::identities;
use crate::review::ChangedParts;

/// Returns the requesters of a spec of `ana` in which `ben` has changed these parts.
fn changed_by_ben(changed: ChangedParts) -> PartRequesters {
    PartRequesters::all(&person("ana")).changed_by(&person("ben"), changed)
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
