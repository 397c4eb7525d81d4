//! Work that keeps a processor busy for longer than others can wait, such as verifying hundreds of signatures.
//! Not here: what the work is.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs `work` here, and lets everything else that this thread would do go on without it: reviews, probes and the lease have deadlines.
pub fn run<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
