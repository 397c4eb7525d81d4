//! Observer of the progress of transfers.

use std::fmt;

/// Observer of transfers. All methods have empty default implementations. Several tasks call these
/// methods often and concurrently.
pub trait Progress: fmt::Debug + Send + Sync {
    /// Adds `bytes` to the number of bytes that will be transferred.
    fn expect(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Adds `bytes` to the number of bytes that were transferred.
    fn moved(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Reports expected bytes that need no transfer because the target has these bytes.
    fn skipped(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Reports transferred bytes that have to be sent again.
    fn resent(&self, bytes: u64) {
        let _ = bytes;
    }
}

/// Observer that ignores all reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}
