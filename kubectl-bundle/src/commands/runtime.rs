//! Runtime of verbs that use the network, and their interruption by a signal.

use std::io;

use bundle_core::diagnostic::{Finding, codes};
use futures::future::{self, Either};

use crate::failure::{Failure, Outcome};

/// Runs a future. Only verbs that use the network create a runtime.
pub(crate) fn in_runtime(work: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| no_runtime(&error))?;
    let outcome = runtime.block_on(work);
    // `shutdown_background` does not wait for an external command for credentials, which can block
    // a thread for too long.
    runtime.shutdown_background();
    outcome
}

/// Runs `work`, and stops it at SIGINT or SIGTERM. Temporary files are removed before the program
/// ends.
pub(crate) async fn interruptible<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let signal = Box::pin(signal());
    match future::select(Box::pin(work), signal).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(((), _)) => Err(interrupted().into()),
    }
}

/// Returns the failure for a runtime that the operating system cannot create.
pub(super) fn no_runtime(error: &io::Error) -> Failure {
    Failure::caused(
        Finding::error(
            codes::usage::NO_RESOURCES,
            "cannot start the runtime for network access",
        )
        .hint("close other programs or raise the limits (ulimit -a), and try again"),
        error,
    )
}

/// Returns the finding for an interrupted command.
pub(super) fn interrupted() -> Finding {
    Finding::error(
        codes::usage::INTERRUPTED,
        "the command was interrupted by a signal",
    )
    .hint("run the command again: it sends only the missing content, and the target has no incomplete file")
}

/// Waits for SIGINT or SIGTERM.
async fn signal() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let terminated = async {
            match signal(SignalKind::terminate()) {
                Ok(mut signal) => {
                    signal.recv().await;
                }
                Err(_) => future::pending::<()>().await,
            }
        };
        future::select(Box::pin(interrupted), Box::pin(terminated)).await;
    }
    #[cfg(not(unix))]
    interrupted.await;
}
