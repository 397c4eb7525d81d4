//! Numbers and delays of all retries of the registry client.

use std::time::Duration;

use aws_lc_rs::rand;
use bundle_core::plan::backoff::Backoff;

use super::Deadlines;

/// Maximum number of retries of one request that a busy registry rejected (429, 5xx).
pub(super) const REQUEST_RETRIES: u32 = 3;
/// Maximum wait that a registry can request. If the registry requests a longer wait, the request
/// fails.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(30);
/// Maximum number of consecutive attempts to resume a download. Also the maximum number of attempts
/// to resume or restart an upload.
pub(super) const TRANSFER_RETRIES: u32 = 5;
/// Longest delay before a retry, if the registry does not request a wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of times that a client writes a tag which other clients keep overwriting. Then
/// the push fails.
pub(super) const MAX_TAG_WRITES: u32 = 6;
/// Time between the write of a tag and the next read of the tag. During this time, a client that
/// read the tag before the write can finish its own write.
pub(super) const TAG_WRITE_PAUSE: Duration = Duration::from_millis(150);
/// Time for which a mirror that failed is not used.
pub(super) const FAILED_MIRROR_PAUSE: Duration = Duration::from_secs(60);

impl Deadlines {
    /// Returns the delay before the next attempt of a broken transfer.
    pub(super) fn transfer_pause(&self, failures: u32) -> Duration {
        self.backoff().delay(failures)
    }

    /// Returns the delays before the retries of a request.
    pub(super) fn request_pauses(&self) -> impl Iterator<Item = Duration> + use<> {
        let (backoff, spread) = (self.backoff(), spread());
        (1..=REQUEST_RETRIES).map(move |failures| backoff.delay_with_jitter(failures, spread))
    }

    const fn backoff(&self) -> Backoff {
        Backoff::new(self.pause, LONGEST_PAUSE)
    }
}

/// Returns a random number from 0 to 1 for the jitter.
fn spread() -> f64 {
    let mut random = [0_u8];
    match rand::fill(&mut random) {
        Ok(()) => f64::from(random[0]) / f64::from(u8::MAX),
        // Without random bytes, the delay has no jitter.
        Err(_) => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_of_requests_and_transfers_grow_and_are_limited() {
        let deadlines = Deadlines::default();
        let transfer: Vec<u128> = (1..=TRANSFER_RETRIES)
            .map(|failures| deadlines.transfer_pause(failures).as_millis())
            .collect();
        assert_eq!(transfer, [200, 400, 800, 1000, 1000]);
        let request: Vec<Duration> = deadlines.request_pauses().collect();
        for (pause, millis) in request.iter().zip([200, 400, 800]) {
            let planned = Duration::from_millis(millis);
            assert!((planned.mul_f64(0.8)..=planned.mul_f64(1.2)).contains(pause));
        }
        assert_eq!(request.len(), 3);
    }
}
