//! Clocks of this crate. All other modules call these functions.

use std::time::Instant;

/// Returns the monotonic time.
#[expect(
    clippy::disallowed_methods,
    reason = "the client of the API server does I/O and provides the time"
)]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Returns the monotonic time of the tokio runtime. Tests can pause this clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the client of the API server does I/O and provides the time"
)]
pub(crate) fn runtime_instant() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
