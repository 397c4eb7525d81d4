//! Clocks of this crate. Rules receive the time as an argument.

use std::time::Instant;

/// Returns the monotonic time.
#[expect(
    clippy::disallowed_methods,
    reason = "the client of the API server does I/O and provides the time"
)]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Returns the monotonic time of the runtime, which tests can stop.
#[expect(
    clippy::disallowed_methods,
    reason = "the client of the API server does I/O and provides the time"
)]
pub(crate) fn runtime_instant() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
