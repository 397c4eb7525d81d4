//! Minimum rate of a download, measured while the caller waits for the server.

use std::time::Duration;

use crate::registry::{Deadlines, Reason};

/// Time and bytes of the current window of a download.
pub(in crate::registry) struct RateWindow {
    /// Time of the window that was spent waiting for the server.
    waited: Duration,
    /// Bytes that had arrived when the window began.
    start: u64,
}

impl RateWindow {
    /// Returns a window that begins after `received` bytes.
    pub(in crate::registry) fn new(received: u64) -> Self {
        Self {
            waited: Duration::ZERO,
            start: received,
        }
    }

    /// Adds time in which the caller waited for the server. Time in which the caller does not read
    /// is not counted. Returns an error at the end of a window in which too few bytes arrived.
    pub(in crate::registry) fn add(
        &mut self,
        waited: Duration,
        received: u64,
        deadlines: &Deadlines,
    ) -> Result<(), Reason> {
        let Deadlines {
            slowest, window, ..
        } = *deadlines;
        self.waited += waited;
        if slowest == 0 || self.waited < window {
            return Ok(());
        }
        let came = received.saturating_sub(self.start);
        *self = Self::new(received);
        let needed = u128::from(slowest) * window.as_millis() / 1000;
        if u128::from(came) < needed {
            return Err(Reason::TooSlow {
                came,
                window,
                slowest,
            });
        }
        Ok(())
    }
}
