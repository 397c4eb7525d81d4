//! Watches an object until a condition is met.

use std::time::{Duration, Instant};

use bundle_core::diagnostic::{Finding, codes};
use futures::TryStreamExt as _;
use kube::Resource;
use kube::api::{Api, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;

use super::Cluster;
use crate::failure::{Failure, Outcome};

/// Time in seconds after which the server closes a watch. The command then opens the watch again.
const WATCH_SECONDS: u32 = 60;
/// Interval at which the condition is evaluated again for an unchanged object, because the
/// condition may depend on other objects.
const EVALUATION_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum wait for each of several objects that share a timeout. Without this minimum, the wait
/// for an object that already meets the condition could time out, because earlier objects used up
/// the time.
const MIN_SHARED_WAIT: Duration = Duration::from_secs(5);

/// Wait mode and timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The command does not wait.
    No,
    /// The command waits without a timeout.
    Forever,
    /// The command waits with this timeout.
    AtMost(Duration),
    /// The command waits for several objects, which share one timeout.
    Until {
        /// End of the timeout.
        deadline: Instant,
        /// Timeout, for messages.
        limit: Duration,
    },
}

impl Wait {
    /// Returns the wait mode for several objects. The timeout starts now, and applies to all waits
    /// together. After the end of the timeout, each further wait still lasts up to
    /// [`MIN_SHARED_WAIT`].
    pub(crate) fn shared(self) -> Self {
        match self {
            // A timeout that ends after the last representable time is treated as no timeout.
            Self::AtMost(limit) => Instant::now()
                .checked_add(limit)
                .map_or(Self::Forever, |deadline| Self::Until { deadline, limit }),
            other => other,
        }
    }

    /// Returns the timeout for the next object, and the timeout for messages. Returns `None`
    /// without a timeout.
    fn timeout(self) -> Option<(Duration, Duration)> {
        match self {
            Self::No | Self::Forever => None,
            Self::AtMost(limit) => Some((limit, limit)),
            Self::Until { deadline, limit } => {
                let rest = deadline.saturating_duration_since(Instant::now());
                Some((rest.max(limit.min(MIN_SHARED_WAIT)), limit))
            }
        }
    }
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
        if wait == Wait::No {
            return Ok(());
        }
        let watching = self.watch_until(api, name, &mut question);
        let Some((timeout, limit)) = wait.timeout() else {
            return watching.await;
        };
        match tokio::time::timeout(timeout, watching).await {
            Ok(done) => done,
            Err(_) => Err(timeout_error(limit).into()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_waits_share_one_timeout() {
        let limit = Duration::from_secs(60);
        let until = |rest: Duration| Wait::Until {
            deadline: Instant::now() + rest,
            limit,
        };
        let (timeout, shown) = until(Duration::from_secs(20)).timeout().unwrap();

        assert!(
            timeout > MIN_SHARED_WAIT && timeout <= Duration::from_secs(20),
            "{timeout:?}"
        );
        assert_eq!(shown, limit);
        let ended = Some((MIN_SHARED_WAIT, limit));
        assert_eq!(until(Duration::ZERO).timeout(), ended);
        let (timeout, _) = Wait::AtMost(limit).shared().timeout().unwrap();
        assert!(timeout > MIN_SHARED_WAIT && timeout <= limit, "{timeout:?}");
    }

    #[test]
    fn one_shared_wait_is_never_longer_than_the_flag() {
        let limit = Duration::from_secs(1);
        let (timeout, shown) = Wait::AtMost(limit).shared().timeout().unwrap();
        assert_eq!((timeout, shown), (limit, limit));
        for wait in [Wait::No, Wait::Forever] {
            assert_eq!(wait.shared(), wait);
            assert_eq!(wait.timeout(), None);
        }
        assert_eq!(Wait::AtMost(Duration::MAX).shared(), Wait::Forever);
    }
}
