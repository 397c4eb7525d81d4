//! Watches an object until a condition is met.

use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use futures::TryStreamExt as _;
use kube::Resource;
use kube::api::{Api, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;

use super::Cluster;
use crate::failure::{Failure, Outcome};

/// Time in seconds after which the server closes a watch. After that, the command opens the watch
/// again.
const WATCH_SECONDS: u32 = 60;
/// Interval at which the condition is evaluated again for an unchanged object, because the
/// condition may depend on other objects.
const EVALUATION_INTERVAL: Duration = Duration::from_secs(1);

/// Wait mode and timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The command does not wait.
    No,
    /// The command waits without a timeout.
    Forever,
    /// The command waits with this timeout.
    AtMost(Duration),
}

/// Result of evaluating the condition on the current object.
pub(crate) enum WaitState {
    /// The condition is met.
    Met,
    /// The condition is not met yet.
    Pending,
}

impl Cluster {
    /// Watches the object `name` until `check` returns [`WaitState::Met`] or an error.
    /// `check` gets `None` if the object does not exist. `timeout_error` returns the finding for
    /// a timeout.
    pub(crate) async fn wait_for<K>(
        &self,
        api: &Api<K>,
        name: &str,
        wait: Wait,
        mut question: impl AsyncFnMut(Option<&K>) -> Outcome<WaitState>,
        timeout_error: impl FnOnce(Duration) -> Finding,
    ) -> Outcome
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let watching = self.watch_until(api, name, &mut question);
        match wait {
            Wait::No => Ok(()),
            Wait::Forever => watching.await,
            Wait::AtMost(limit) => match tokio::time::timeout(limit, watching).await {
                Ok(done) => done,
                Err(_) => Err(timeout_error(limit).into()),
            },
        }
    }

    async fn watch_until<K>(
        &self,
        api: &Api<K>,
        name: &str,
        check: &mut impl AsyncFnMut(Option<&K>) -> Outcome<WaitState>,
    ) -> Outcome
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
    {
        loop {
            let parameters =
                kube::api::ListParams::default().fields(&format!("metadata.name={name}"));
            let list = self.send(api.list(&parameters)).await?;
            let mut object = list.items.into_iter().next();
            if let WaitState::Met = check(object.as_ref()).await? {
                return Ok(());
            }
            let version = list.metadata.resource_version.unwrap_or_default();
            let watch = WatchParams::default()
                .fields(&format!("metadata.name={name}"))
                .timeout(WATCH_SECONDS);
            let stream = self.send(api.watch(&watch, &version)).await?;
            let mut stream = std::pin::pin!(stream);
            // A watch that ends or fails is opened again. Only the condition and the timeout end
            // the wait.
            loop {
                match tokio::time::timeout(EVALUATION_INTERVAL, stream.try_next()).await {
                    Ok(Ok(Some(WatchEvent::Added(now) | WatchEvent::Modified(now)))) => {
                        object = Some(now);
                    }
                    Ok(Ok(Some(WatchEvent::Deleted(_)))) => object = None,
                    Ok(Ok(Some(WatchEvent::Bookmark(_)))) => continue,
                    Ok(_) => break,
                    Err(_) => {}
                }
                if let WaitState::Met = check(object.as_ref()).await? {
                    return Ok(());
                }
            }
        }
    }
}

/// Returns the error for a timeout.
pub(crate) fn timeout_error(subject: &str, limit: Duration) -> Finding {
    Finding::error(
        codes::cluster::WAIT_TIMEOUT,
        format!("{subject} within {limit:?}"),
    )
}

/// Returns the error for an object that was deleted during the wait.
pub(crate) fn deleted_error(subject: &str) -> Failure {
    Finding::error(
        codes::cluster::DELETED_MEANWHILE,
        format!("{subject} was deleted during the wait"),
    )
    .into()
}
