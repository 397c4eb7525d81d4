//! Retries of the pod. The module `delays` contains all delays. `bundle_core::plan::retry` has the
//! policy for failed reconciles.

pub(crate) mod delays;

use std::fmt::Display;
use std::time::Duration;

use bundle_core::plan::backoff;
use rand::Rng as _;

/// Repeats `work` with growing delays until it succeeds. Logs each failure as "cannot `what`".
pub(crate) async fn until_success<T, E, F>(what: impl Display, work: impl Fn() -> F) -> T
where
    E: std::error::Error + 'static,
    F: Future<Output = Result<T, E>>,
{
    let mut pauses = delays::STARTUP.pauses();
    loop {
        match work().await {
            Ok(value) => return value,
            Err(error) => {
                tracing::warn!(
                    error = crate::chain(&error),
                    "cannot {what}; the operation is retried"
                );
                tokio::time::sleep(pauses.next_pause()).await;
            }
        }
    }
}

/// Returns `duration` with a random deviation of up to 10 %, so that requests are not sent at the
/// same moment.
pub(crate) fn jittered(duration: Duration) -> Duration {
    backoff::jittered(duration, 0.1, rand::rng().random())
}
