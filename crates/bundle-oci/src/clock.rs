//! The only functions of this crate that read a clock. Pure functions get the time as an argument.

use std::time::Instant;

use jiff::Timestamp;

/// Returns the monotonic time.
#[expect(
    clippy::disallowed_methods,
    reason = "the registry client does I/O and provides the time"
)]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Returns the monotonic time of the tokio runtime. Tests can pause this clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the registry client does I/O and provides the time"
)]
pub(crate) fn runtime_instant() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Returns the current date and time.
#[expect(
    clippy::disallowed_methods,
    reason = "the registry client does I/O and provides the time"
)]
pub(crate) fn timestamp() -> Timestamp {
    Timestamp::now()
}
