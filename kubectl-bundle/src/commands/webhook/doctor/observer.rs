//! Requests with a deadline. If a request returns no value, its result contains the reason.

use std::time::Duration;

use bundle_core::diagnostic::codes;
use bundle_core::doctor::{CheckResult, Observed};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use serde_json::Value;

use crate::cluster::KubeSettings;
use crate::commands::webhook::install::manifests::EmbeddedManifest;
use crate::commands::webhook::install::target::InstallTarget;
use crate::failure::{Failure, Outcome, api_server};

/// A connected cluster, and the deadline of each check.
pub(super) struct Observer {
    pub(super) target: InstallTarget,
    pub(super) deadline: Duration,
}

impl Observer {
    /// Prepares a connection. The credentials can come from an external command that blocks.
    /// Therefore the connection is prepared in a separate thread, which is abandoned after the
    /// deadline.
    pub(super) async fn connect(
        settings: KubeSettings,
        deadline: Duration,
    ) -> Result<Self, CheckResult> {
        let runtime = tokio::runtime::Handle::current();
        let connect = move || runtime.block_on(InstallTarget::connect(&settings));
        match run_with_deadline(deadline, connect).await {
            Some(Ok(target)) => Ok(Self { target, deadline }),
            Some(Err(failure)) => Err(result_of("connection", failure)),
            None => Err(CheckResult::no_response(
                "connection",
                "kubeconfig",
                format!("the command for the credentials did not end within {deadline:?}"),
            )),
        }
    }

    /// Returns the client.
    pub(super) fn client(&self) -> Client {
        self.target.cluster.client.clone()
    }

    /// Sends a request, and waits for the response until the deadline.
    pub(super) fn request<'a, T: Send + 'a>(
        &'a self,
        request: impl Future<Output = kube::Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Observed<T>> {
        let request = self.target.cluster.send(request);
        self.limited(async { request.await.map(Some) })
    }

    /// Reads from the cluster the object that `manifest` describes.
    pub(super) fn read<'a>(
        &'a self,
        manifest: &'a EmbeddedManifest,
    ) -> BoxFuture<'a, Observed<Value>> {
        self.limited(self.target.get(manifest))
    }

    /// Runs `work` until the deadline. The future is boxed, because futures of requests are large,
    /// and a check contains many of them.
    fn limited<'a, T: Send + 'a>(
        &'a self,
        work: impl Future<Output = Outcome<Option<T>>> + Send + 'a,
    ) -> BoxFuture<'a, Observed<T>> {
        let limited = tokio::time::timeout(self.deadline, work);
        let observed = limited.map(|result| match result {
            Ok(Ok(Some(value))) => Observed::Found(value),
            Ok(Ok(None)) => Observed::Missing,
            Ok(Err(failure)) => without_result(failure),
            Err(_) => Observed::Failed(timeout_message(self.deadline)),
        });
        observed.boxed()
    }

    /// Runs a check that sends several requests. All requests together have one deadline.
    pub(super) fn check<'a>(
        &'a self,
        name: &'static str,
        subject: &'a str,
        work: impl Future<Output = Vec<CheckResult>> + Send + 'a,
    ) -> BoxFuture<'a, Vec<CheckResult>> {
        let limited = tokio::time::timeout(self.deadline, work);
        let results = limited.map(move |result| match result {
            Ok(results) => results,
            Err(_) => vec![CheckResult::no_response(
                name,
                subject,
                timeout_message(self.deadline),
            )],
        });
        results.boxed()
    }
}

/// Returns the text for a deadline that has passed.
pub(super) fn timeout_message(deadline: Duration) -> String {
    format!("no response within {deadline:?}")
}

/// Runs blocking work in a thread, and abandons it after the deadline.
pub(super) async fn run_with_deadline<T: Send + 'static>(
    deadline: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Sending fails only if the deadline has passed.
        let _ = sender.send(work());
    });
    let result = tokio::time::timeout(deadline, receiver).await;
    result.ok()?.ok()
}

/// Returns the result of a check that ended with a failure.
pub(super) fn result_of(check: &'static str, failure: Failure) -> CheckResult {
    let (findings, causes) = match failure {
        Failure::Findings { findings, causes } => (findings, causes),
        Failure::Server(status) => {
            return CheckResult::no_response(check, "API server", api_server::message(&status));
        }
        Failure::Reported(_) | Failure::BrokenPipe => {
            return CheckResult::no_response(check, "API server", "the request ended early");
        }
    };
    let Some(mut finding) = findings.into_iter().next() else {
        return CheckResult::no_response(check, "API server", causes.join(": "));
    };
    for cause in causes {
        finding.message = format!("{}: {cause}", finding.message);
    }
    CheckResult::of(check, finding)
}

fn without_result<T>(failure: Failure) -> Observed<T> {
    match failure {
        Failure::Server(status) if status.code == 404 => Observed::Missing,
        Failure::Server(status) if matches!(status.code, 401 | 403) => {
            Observed::Forbidden(status.message)
        }
        Failure::Findings { findings, .. }
            if findings
                .errors()
                .any(|one| one.code == codes::cluster::NO_API) =>
        {
            Observed::Missing
        }
        other => Observed::Failed(result_of("", other).message),
    }
}
