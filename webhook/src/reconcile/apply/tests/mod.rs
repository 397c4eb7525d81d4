//! Tests of applies against a scripted API server: the requests, their order, and the results.

use std::sync::Arc;
use std::time::Instant;

use bundle_core::plan::ignore::Rule;
use bundle_core::plan::inventory::Inventory;
use bundle_core::review::Requester;
use bundle_core::rights::{DryRunVerdict, MutatedKinds};
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;
use crate::budget::requests::RequestMemory;
use crate::clients::cluster::ServiceAccount;
use crate::dry_run::RequesterDryRun;
use crate::reconcile::apply::allowed_dry_runs::AllowedDryRuns;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::slots::ApplySlots;

mod changing_objects;
mod comparisons;
mod ownership;
mod too_large;

/// One request: user, method, query and body.
#[derive(Debug)]
struct SentRequest {
    user: String,
    method: Method,
    query: String,
    body: Value,
}

impl SentRequest {
    fn is_dry_run(&self) -> bool {
        self.query.contains("dryRun=All")
    }

    fn is_forced(&self) -> bool {
        self.query.contains("force=true")
    }
}

/// Returns a client of a server with these responses, and a task that returns the received
/// requests.
fn scripted(answers: Vec<(u16, Value)>) -> (Client, JoinHandle<Vec<SentRequest>>) {
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let answering = tokio::spawn(async move {
        let mut requests = Vec::new();
        for (status, body) in answers {
            // The client was dropped before the server sent all responses.
            let Some((request, reply)) = server.next_request().await else {
                break;
            };
            let (parts, sent) = request.into_parts();
            let sent = sent.collect_bytes().await.unwrap();
            let user = parts.headers.get("impersonate-user");
            requests.push(SentRequest {
                user: user
                    .map_or("installer", |user| user.to_str().unwrap())
                    .to_owned(),
                method: parts.method,
                query: parts.uri.query().unwrap_or_default().to_owned(),
                body: serde_json::from_slice(&sent).unwrap_or_default(),
            });
            let mut response = Response::new(Body::from(body.to_string().into_bytes()));
            *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
            reply.send_response(response);
        }
        requests
    });
    (Client::new(service, "default"), answering)
}

/// Returns a client for applies. If `ignores` is true, an ignore rule excludes field `/data/a` from
/// the applies. If `compares` is true, the dry runs of requester and installer are compared.
fn checking<'a>(
    client: &Client,
    memory: &'a AllowedDryRuns,
    (ignores, compares): (bool, bool),
) -> ApplyClient<'a> {
    let mut inventory = Inventory::new("web");
    inventory.ensure_creation_key(|| [7; 32]);
    let ana = Requester {
        user: "ana".to_owned(),
        ..Requester::default()
    };
    let run = RequesterDryRun::new(client.clone(), &ana).unwrap();
    let rule = Rule {
        fields: vec!["/data/a".to_owned()],
        ..Rule::default()
    };
    ApplyClient {
        preparer: Preparer {
            client: client.clone(),
            account: ServiceAccount::parse("bundle-system", "installer").unwrap(),
            ignore: ignores.then_some(rule).into_iter().collect(),
            inventory: Arc::new(inventory),
            adopt: false,
            scaled_objects: Arc::default(),
            memory: RequestMemory::default(),
        },
        dry_runs: DryRuns {
            runs: vec![(ana, run)],
            class: "plain".to_owned(),
            memory,
            slots: ApplySlots::default(),
            uses_cache: true,
            mutated: Arc::new(if compares {
                MutatedKinds::unknown()
            } else {
                MutatedKinds::default()
            }),
            installer: client.clone(),
            account: ServiceAccount::parse("bundle-system", "installer").unwrap(),
            consent: ownership::by_dry_run(),
        },
    }
}

/// Returns the apply for version 5 of an existing object, as if this version had been read.
fn in_version(prepared: PreparedApply<'_>) -> PreparedApply<'_> {
    if prepared.needs_checked_version() {
        prepared.with_checked_version(5)
    } else {
        prepared
    }
}

/// Reads, checks and applies an object in the same way as an installation.
async fn installed(
    target: Target,
    modes: (bool, bool),
    answers: Vec<(u16, Value)>,
) -> (Result<Applied, ApplyError>, bool, Vec<SentRequest>) {
    let (client, sent) = scripted(answers);
    let memory = AllowedDryRuns::default();
    let applies = checking(&client, &memory, modes);
    let item = PreparedObject::config_map();
    let outcome = async {
        let prepared = in_version(applies.preparer.prepare(&item, target).await?);
        let asked = applies.check(prepared, true, Instant::now()).await;
        let checked = asked.map_err(|(_, refusal)| ApplyError::NotAllowed(refusal))?;
        Ok(applies.apply(&client, checked).await)
    }
    .await;
    drop((applies, client));
    let (result, is_uncertain) = match outcome {
        Ok(outcome) => (outcome.result, outcome.is_uncertain),
        Err(error) => (Err(error), false),
    };
    (result, is_uncertain, sent.await.unwrap())
}

#[tokio::test]
async fn apply_with_expired_check_is_checked_again_before_it_is_sent() {
    let answer = live("ours", "5", "content");
    for (second, applies_it) in [((200, answer.clone()), true), (failure(403), false)] {
        let read = (200, answer.clone());
        let answers = vec![read.clone(), read.clone(), read.clone(), second, read];
        let (client, sent) = scripted(answers);
        let memory = AllowedDryRuns::default();
        let applies = checking(&client, &memory, (false, false));
        let item = PreparedObject::config_map();
        let prepared = applies.preparer.prepare(&item, ours()).await.unwrap();
        let asked = applies.check(prepared, true, Instant::now()).await;
        let outcome = applies.apply(&client, asked.unwrap().aged()).await;
        assert_eq!(outcome.result.is_ok(), applies_it);
        assert!(!outcome.is_uncertain);
        drop((applies, client));
        let dry: Vec<bool> = sent
            .await
            .unwrap()
            .iter()
            .map(SentRequest::is_dry_run)
            .collect();
        // Each check reads the version of the object.
        let expected: &[bool] = if applies_it {
            &[false, true, false, true, false]
        } else {
            &[false, true, false, true]
        };
        assert_eq!(dry, expected);
    }
}

fn live(uid: &str, version: &str, data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": data},
        "metadata": {"name": "web", "namespace": "team-a", "uid": uid, "resourceVersion": version}})
}

fn marked(uid: &str) -> Value {
    let mut inventory = Inventory::new("web");
    inventory.ensure_creation_key(|| [7; 32]);
    let mark = inventory
        .mark(&PreparedObject::config_map().key)
        .unwrap()
        .to_string();
    let mut object = live(uid, "9", "content");
    object["metadata"]["annotations"] = json!({"core.rukpak.io/creation-mark": mark});
    object
}

fn failure(code: u16) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": "x", "message": "m"}),
    )
}

fn ours() -> Target {
    Target::Uid("ours".to_owned())
}

#[tokio::test]
async fn applied_body_equals_the_checked_body_to_the_byte() {
    for (target, status) in [(Target::Absent, 201), (ours(), 200)] {
        let answer = live("ours", "5", "content");
        let answers = vec![(status, answer.clone()), (status, answer)];
        let (result, _, sent) = installed(target, (false, false), answers).await;
        assert_eq!(result.unwrap().seen.uid, "ours");
        let [dry, real] = sent.as_slice() else {
            panic!("{sent:?}");
        };
        assert_eq!(
            (dry.user.as_str(), real.user.as_str()),
            ("ana", "installer")
        );
        assert!(dry.is_dry_run() && !real.is_dry_run());
        assert_eq!(dry.body, real.body);
        assert_eq!(dry.is_forced(), real.is_forced());
    }
}

#[tokio::test]
async fn absent_object_is_created_and_an_existing_one_is_not_changed() {
    let answers = vec![(201, json!({})), (201, live("new", "5", "content"))];
    let (created, _, sent) = installed(Target::Absent, (false, false), answers).await;
    assert_eq!(created.unwrap().seen.uid, "new");
    for request in &sent {
        assert!(!request.is_forced(), "{request:?}");
        let metadata = &request.body["metadata"];
        assert_eq!(metadata["resourceVersion"], "1");
        assert_eq!(metadata["uid"], Value::Null);
        assert!(metadata["annotations"]["core.rukpak.io/creation-mark"].is_string());
    }
    // Another actor created the object after the read, with or without the creation mark. The
    // server rejected the apply of this test, so the object belongs to the other actor.
    for theirs in [live("theirs", "5", "content"), marked("theirs")] {
        let answers = vec![(201, json!({})), failure(409), (200, theirs)];
        let (taken, is_uncertain, _) = installed(Target::Absent, (false, false), answers).await;
        assert!(matches!(taken, Err(ApplyError::Moved)) && !is_uncertain);
    }
    // The server ignores the resourceVersion and changes an object of another actor.
    let answers = vec![(201, json!({})), (200, live("theirs", "5", "content"))];
    let (taken, ..) = installed(Target::Absent, (false, false), answers).await;
    assert!(matches!(taken, Err(ApplyError::Moved)));
}

#[tokio::test]
async fn creation_with_lost_response_is_recognised_by_its_mark_and_checked_as_an_update() {
    let answers = vec![
        (201, json!({})),
        failure(504),
        (200, marked("ours")),
        (200, json!({})),
        (200, marked("ours")),
    ];
    let (done, _, sent) = installed(Target::Absent, (false, false), answers).await;
    assert_eq!(done.unwrap().seen.uid, "ours");
    let users: Vec<_> = sent.iter().map(|sent| sent.user.as_str()).collect();
    assert_eq!(users, ["ana", "installer", "installer", "ana", "installer"]);
    assert_eq!(sent[4].body["metadata"]["uid"], "ours");
    assert_eq!(sent[3].body, sent[4].body);
    // An object without the creation mark belongs to another actor. The effect of the apply stays
    // uncertain, because its response was lost.
    let answers = vec![
        (201, json!({})),
        failure(504),
        (200, live("theirs", "5", "content")),
    ];
    let (taken, is_uncertain, _) = installed(Target::Absent, (false, false), answers).await;
    assert!(matches!(taken, Err(ApplyError::Moved)) && is_uncertain);
}

#[tokio::test]
async fn recorded_object_is_applied_with_force_and_its_replacement_is_not() {
    let answers = vec![(200, json!({})), (200, live("ours", "5", "content"))];
    let (done, _, sent) = installed(ours(), (false, false), answers).await;
    assert_eq!(done.unwrap().seen.uid, "ours");
    for request in &sent {
        assert!(request.is_forced(), "{request:?}");
        assert_eq!(request.body["metadata"]["uid"], "ours");
        assert_eq!(request.body["metadata"]["resourceVersion"], "5");
    }
    for code in [409, 422] {
        for now in [(200, live("theirs", "5", "content")), failure(404)] {
            let answers = vec![(200, json!({})), failure(code), now.clone()];
            let (moved, ..) = installed(ours(), (false, false), answers).await;
            assert!(matches!(moved, Err(ApplyError::Moved)), "{code}");
            // The dry run can also detect that the object was deleted or replaced.
            let answers = vec![failure(code), now];
            let (moved, _, sent) = installed(ours(), (false, false), answers).await;
            let refusal = match moved {
                Err(ApplyError::NotAllowed(refusal)) => refusal,
                other => panic!("{other:?}"),
            };
            assert_eq!(refusal, ApplyRejection::DeletedOrCreated, "{code}");
            assert!(
                sent.iter()
                    .all(|sent| sent.method == Method::GET || sent.is_dry_run())
            );
        }
    }
    // The object still exists, so the error is the rejection of the API server.
    let answers = vec![
        (200, json!({})),
        failure(422),
        (200, live("ours", "5", "content")),
    ];
    let (refused, ..) = installed(ours(), (false, false), answers).await;
    assert!(matches!(refused, Err(ApplyError::Api(_))));
}

#[tokio::test]
async fn existing_object_is_applied_only_in_the_version_of_its_dry_run() {
    let answers = vec![
        (200, live("ours", "5", "first")),
        (200, json!({})),
        // Another actor gives up a field between dry run and apply.
        failure(409),
        (200, live("ours", "6", "second")),
        failure(403),
    ];
    let (client, sent) = scripted(answers);
    let memory = AllowedDryRuns::default();
    let applies = checking(&client, &memory, (false, false));
    let item = PreparedObject::config_map();
    let prepared = applies.preparer.prepare(&item, ours()).await.unwrap();
    let checked = applies.check(prepared, true, Instant::now()).await.unwrap();
    let outcome = applies.apply(&client, checked).await;
    assert!(matches!(outcome.result, Err(ApplyError::NotAllowed(_))));
    drop((applies, client));
    let sent = sent.await.unwrap();
    let version = |index: usize| sent[index].body["metadata"]["resourceVersion"].clone();
    assert_eq!(
        (version(1), version(2), version(4)),
        ("5".into(), "5".into(), "6".into())
    );
    assert!(sent[1].is_dry_run() && !sent[2].is_dry_run() && sent[4].is_dry_run());
}

#[tokio::test]
async fn object_that_was_replaced_before_its_dry_run_is_not_applied() {
    for (status, now) in [failure(404), (200, live("theirs", "5", "theirs"))] {
        let (client, sent) = scripted(vec![(status, now.clone()), (status, now)]);
        let memory = AllowedDryRuns::default();
        let applies = checking(&client, &memory, (false, false));
        let item = PreparedObject::config_map();
        let prepared = applies.preparer.prepare(&item, ours()).await.unwrap();
        let (_, refusal) = applies
            .check(prepared, true, Instant::now())
            .await
            .unwrap_err();
        assert_eq!(refusal, ApplyRejection::DeletedOrCreated);
        drop((applies, client));
        assert!(
            sent.await
                .unwrap()
                .iter()
                .all(|sent| sent.method == Method::GET)
        );
    }
}

#[tokio::test]
async fn ignored_fields_are_read_once_and_a_changed_object_is_checked_again() {
    let answers = vec![
        (200, live("ours", "5", "first")),
        (200, json!({})),
        // Another actor writes the object between dry run and apply.
        failure(409),
        (200, live("ours", "6", "second")),
        (200, live("ours", "6", "second")),
        (200, json!({})),
        (200, live("ours", "7", "second")),
    ];
    let (done, _, sent) = installed(ours(), (true, false), answers).await;
    assert_eq!(done.unwrap().seen.uid, "ours");
    let writes: Vec<&SentRequest> = sent
        .iter()
        .filter(|sent| sent.method == Method::PATCH)
        .collect();
    let [dry, real, dry_again, real_again] = writes.as_slice() else {
        panic!("{sent:?}");
    };
    assert_eq!((&dry.body, &dry_again.body), (&real.body, &real_again.body));
    for (request, version, data) in [(real, "5", "first"), (real_again, "6", "second")] {
        assert_eq!(request.body["metadata"]["resourceVersion"], version);
        assert_eq!(request.body["data"]["a"], data);
    }
    assert!(dry.is_dry_run() && dry_again.is_dry_run());
}

#[tokio::test]
async fn deleted_or_replaced_object_is_not_merged() {
    for (status, now) in [failure(404), (200, live("theirs", "5", "theirs"))] {
        let (moved, _, sent) = installed(ours(), (true, false), vec![(status, now)]).await;
        assert!(matches!(moved, Err(ApplyError::Moved)));
        assert_eq!(sent.len(), 1);
    }
    // The object was deleted between dry run and apply. The apply does not create the object with
    // unchecked values.
    let answers = vec![
        (200, live("ours", "5", "first")),
        (200, json!({})),
        failure(409),
        failure(404),
    ];
    let (moved, ..) = installed(ours(), (true, false), answers).await;
    assert!(matches!(moved, Err(ApplyError::Moved)));
    // An object that does not exist is not read, and gets all values of the content.
    let answers = vec![(201, json!({})), (201, live("new", "5", "content"))];
    let (created, _, sent) = installed(Target::Absent, (true, false), answers).await;
    assert!(created.is_ok());
    assert_eq!(sent[1].body["data"]["a"], "content");
}

#[tokio::test]
async fn patch_without_a_known_requester_fails() {
    let (client, sent) = scripted(Vec::new());
    let memory = AllowedDryRuns::default();
    let mut applies = checking(&client, &memory, (false, false));
    applies.dry_runs.runs.clear();
    let item = PreparedObject::config_map();
    let patch = serde_json::from_value(json!([])).unwrap();
    let checked = applies.dry_runs.check_patch(&item, &patch).await;
    let unknown = matches!(
        checked,
        Err(ApplyRejection::Verdict(DryRunVerdict::Unknown(_)))
    );
    assert!(unknown, "{checked:?}");
    drop((applies, client));
    assert!(sent.await.unwrap().is_empty());
}
