//! Execution of CPU-bound work, such as the verification of hundreds of signatures.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs `work` on this thread, and returns its result. All other tasks of this thread move to other
/// threads: reviews, probes and the renewal of the lease have deadlines and must not wait for
/// `work`.
pub fn run<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
