//! Minimum rate of a transfer, measured while the receiver waits for the sender.

use std::time::Duration;

/// Required rate of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinimumRate {
    /// Bytes per second. 0 means no minimum.
    pub min_rate: u64,
    /// Time over which the rate is measured.
    pub window: Duration,
}

/// Error: a transfer was below its minimum rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooSlow {
    /// Bytes that arrived.
    pub received_bytes: u64,
    /// Required rate.
    pub minimum: MinimumRate,
}

/// Time and bytes of the current window of a transfer.
#[derive(Debug)]
pub struct RateWindow {
    /// Time in this window during which the receiver waited for the sender.
    waited: Duration,
    /// Bytes that had arrived when the window began.
    start: u64,
}

impl RateWindow {
    /// Returns a window that begins after `received` bytes.
    pub fn new(received: u64) -> Self {
        Self {
            waited: Duration::ZERO,
            start: received,
        }
    }

    /// Adds `waited`, the time during which the receiver waited for the sender. Time during which
    /// the receiver does not read is not counted. `received` is the total number of received bytes.
    /// Returns an error if too few bytes arrived in a window that ends now.
    pub fn add(
        &mut self,
        waited: Duration,
        received: u64,
        minimum: MinimumRate,
    ) -> Result<(), TooSlow> {
        let MinimumRate { min_rate, window } = minimum;
        self.waited += waited;
        if min_rate == 0 || self.waited < window {
            return Ok(());
        }
        let received_bytes = received.saturating_sub(self.start);
        *self = Self::new(received);
        let needed = u128::from(min_rate) * window.as_millis() / 1000;
        if u128::from(received_bytes) < needed {
            return Err(TooSlow {
                received_bytes,
                minimum,
            });
        }
        Ok(())
    }
}
