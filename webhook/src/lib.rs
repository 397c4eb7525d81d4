//! The pod: the admission webhook for bundles, and the reconciler that installs bundles. Each
//! long-running task has its own module. The crates `bundle-core` and `bundle-trust` contain the
//! rules.

pub mod admission;
mod api_server;
mod archives;
pub mod attempts;
pub mod budget;
pub mod caller;
pub mod certs;
pub mod clients;
pub mod config;
mod content_service;
pub mod lease;
pub mod object_cache;
pub mod readiness;
pub mod reconcile;
pub mod registrations;
pub mod run;
pub mod server;
pub mod shared;
pub mod signals;
pub mod sources;
mod stored_object;
pub mod telemetry;
mod uploads;
mod watches;

use std::fmt::Display;
use std::time::Duration;

pub use bundle_cluster::chain;
use bundle_cluster::{blocking, dry_run};
use bundle_core::plan::backoff::Pauses;

/// An error that ends a task and is only logged.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Repeats `work` with growing pauses until it succeeds. Logs each failure as "cannot `what`".
async fn retry<T, E, F>(what: impl Display, work: impl Fn() -> F) -> T
where
    E: std::error::Error + 'static,
    F: Future<Output = Result<T, E>>,
{
    const FIRST: Duration = Duration::from_millis(200);
    const SLOWEST: Duration = Duration::from_secs(10);
    let mut pauses = Pauses::new(FIRST, SLOWEST);
    loop {
        match work().await {
            Ok(value) => return value,
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "cannot {what}; the operation is retried"
                );
                tokio::time::sleep(pauses.next_pause()).await;
            }
        }
    }
}
