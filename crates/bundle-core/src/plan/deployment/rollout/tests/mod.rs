//! Tests of the rollout, by subject, and their common records and facts.

mod next_step;
mod record_changes;
mod requesters;

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::review::Requester;

const DEADLINE: Duration = Duration::from_secs(10);
const CLASS: &str = "plain";

fn content(bundle: &str, config: &Value) -> RolloutContent {
    RolloutContent::new(bundle, &format!("sha256:{bundle}"), config)
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

fn check_rows(rows: Vec<(&str, Row, RolloutStep)>) {
    for (name, row, expected) in rows {
        assert_eq!(row.step(), expected, "{name}");
    }
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
