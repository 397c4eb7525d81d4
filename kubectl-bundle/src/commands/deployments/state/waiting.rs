//! Waits for a BundleDeployment: prints progress, and stops at permanent failures.

use std::time::{Duration, Instant};

use bundle_api::BundleDeployment;
use bundle_core::diagnostic::Finding;
use bundle_core::version::ServerVersion;
use kube::api::Api;

use super::prediction::{Goal, Prediction, predict, reported_failure};
use super::unserved_api;
use crate::cluster::Cluster;
use crate::cluster::wait::{Wait, WaitState, deleted_error, timeout_error};
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;

/// Time for which a failure that existed before the command is ignored. The reconciler retries
/// within 30 s. If the command resolved the failure, the status no longer reports the failure after
/// this time.
const RECURRENCE_TIMEOUT: Duration = Duration::from_secs(40);

/// Returns the message of the failure in the status before the command writes the object.
pub(crate) fn known_failure(before: &BundleDeployment) -> Option<String> {
    reported_failure(before).map(|failed| failed.message.to_owned())
}

/// Waits until the BundleDeployment `name` reaches `goal`. Returns an error for a permanent
/// failure. Also returns an error for a timeout, with the unmet conditions. `known` is the message
/// of the failure before the command. The command may have resolved this failure, so the same
/// failure ends the wait only after [`RECURRENCE_TIMEOUT`].
pub(crate) async fn wait_until(
    ui: &mut Ui,
    cluster: &Cluster,
    name: &str,
    goal: Goal,
    wait: Wait,
    known: Option<&str>,
) -> Outcome {
    wait_until_done(ui, cluster, name, goal, wait, known, async |_| Ok(false)).await
}

/// Does the same as [`wait_until`], but also ends when `is_done` returns `true`.
pub(crate) async fn wait_until_done(
    ui: &mut Ui,
    cluster: &Cluster,
    name: &str,
    goal: Goal,
    wait: Wait,
    known: Option<&str>,
    mut is_done: impl AsyncFnMut(&BundleDeployment) -> Outcome<bool>,
) -> Outcome {
    let api: Api<BundleDeployment> = Api::all(cluster.client.clone());
    let aim = match goal {
        Goal::Bundle => "ready for the upload",
        Goal::Installed => "installed",
        Goal::Healthy => "healthy",
        Goal::Deleted => "gone",
    };
    let mut progress = ui.steps(&format!("waiting for {name} to be {aim}"));
    let mut last = Vec::new();
    let mut server = None;
    let start = Instant::now();
    let question = async |item: Option<&BundleDeployment>| {
        let Some(item) = item else {
            return match goal {
                Goal::Deleted => Ok(WaitState::Met),
                _ => Err(deleted_error(&format!("bundledeployment {name}"))),
            };
        };
        if is_done(item).await? {
            return Ok(WaitState::Met);
        }
        let code = match reported_failure(item) {
            Some(found) if found.code.is_some() => found.code,
            Some(found) => {
                cluster
                    .failure_code(found.kind, found.name, found.message)
                    .await
            }
            None => None,
        };
        let mut state = predict(item, goal, code);
        if goal != Goal::Deleted
            && matches!(state, Prediction::Waiting(_))
            && let Some(found) = reported_failure(item)
                .filter(|found| unserved_api::has_missing_kinds(found.message))
        {
            if server.is_none() {
                server = server_version(cluster).await;
            }
            if let Some(server) = &server
                && let Some(cause) = unserved_api::cause(found.message, server)
            {
                state = Prediction::Stopped(cause);
            }
        }
        match state {
            Prediction::Done => Ok(WaitState::Met),
            Prediction::Stopped(cause)
                if known == Some(cause.message.as_str()) && start.elapsed() < RECURRENCE_TIMEOUT =>
            {
                let step = format!(
                    "{name}: retrying after an earlier failure: {}",
                    cause.message
                );
                progress.now(ui, &step);
                last = vec![cause.message];
                Ok(WaitState::Pending)
            }
            Prediction::Stopped(cause) => Err(Finding::error(cause.code, cause.message)
                .about(format!("bundledeployment {name}"))
                .hint(cause.hint.unwrap_or_else(|| {
                    format!(
                        "retries cannot succeed without a change; details: kubectl bundle status {name}"
                    )
                }))
                .into()),
            Prediction::Waiting(obstacles) => {
                last = obstacles;
                if !last.is_empty() {
                    progress.now(ui, &format!("{name}: {}", last.join("; ")));
                }
                Ok(WaitState::Pending)
            }
        }
    };
    let outcome = cluster
        .wait_for(&api, name, wait, question, |limit| {
            timed_out(name, aim, limit)
        })
        .await;
    drop(progress);
    match outcome {
        Err(Failure::Findings { findings, causes })
            if causes.is_empty() && findings.iter().any(is_timeout) =>
        {
            Err(Failure::Findings {
                findings,
                causes: last,
            })
        }
        other => other,
    }
}

/// Returns the version of the API server; `None` if the version is unknown.
async fn server_version(cluster: &Cluster) -> Option<ServerVersion> {
    let info = cluster
        .send(cluster.client.apiserver_version())
        .await
        .ok()?;
    ServerVersion::parse(&info.git_version).ok()
}

/// Returns the finding for a BundleDeployment that did not reach the state `aim` in time.
pub(crate) fn timed_out(name: &str, aim: &str, limit: Duration) -> Finding {
    timeout_error(&format!("bundledeployment {name} was not {aim}"), limit).hint(format!(
        "the reconciler continues; details: kubectl bundle status {name}"
    ))
}

fn is_timeout(finding: &Finding) -> bool {
    finding.code == bundle_core::diagnostic::codes::cluster::WAIT_TIMEOUT
}
