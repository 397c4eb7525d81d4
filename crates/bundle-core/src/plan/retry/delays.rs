//! All delays of this crate that grow with consecutive failures.

use std::time::Duration;

use super::backoff::Backoff;

/// Delay after temporary failures.
pub(crate) const SOON: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// Delay after failures that a user must resolve, if no watch reports the resolution.
pub(crate) const SLOWLY: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(300));
/// Delay after requests that fail each time.
pub(crate) const RARELY: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(600));
/// Delay after a failure to read content that a digest or commit names, because this content is
/// missing or invalid. Attempts fail until a user, such as the publisher of the content, removes the
/// cause.
pub(crate) const HOURLY: Backoff = Backoff::new(Duration::from_secs(60), Duration::from_secs(3600));
/// Delay before restores of an object that another actor changes repeatedly.
pub(crate) const CONTESTED: Backoff =
    Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
/// Delay between verifications of an object that has not drifted and that other controllers write.
/// Such controllers may write their own fields of the object as often as they want.
pub(crate) const VERIFICATION: Backoff =
    Backoff::new(Duration::from_millis(500), Duration::from_secs(60));
/// Delay after attempts to parse content during which the process ended.
pub(crate) const INTERRUPTED_ATTEMPT: Backoff =
    Backoff::new(Duration::from_hours(1), Duration::from_hours(24));
