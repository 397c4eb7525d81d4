//! All delays before retries in the plugin. The intervals of periodic work are in the modules that
//! do this work.

use std::time::Duration;

/// Delay after a login could not accept a connection, for example because the process has too many
/// open files.
pub(crate) const ACCEPT: Duration = Duration::from_millis(100);
/// Delay before `install` applies an object again whose kind the API server does not serve yet.
pub(crate) const UNSERVED_KIND: Duration = Duration::from_millis(200);
/// Delay before the plugin tries all pods again, if no pod responded to a request for content.
pub(crate) const CONTENT: Duration = Duration::from_secs(1);
/// Delay after a watch of a tree has ended or failed. The delay limits the rate of reads if watches
/// always fail.
pub(crate) const TREE_WATCH: Duration = Duration::from_secs(2);
/// Default interval between two polls for a token.
pub(crate) const POLL: Duration = Duration::from_secs(5);
/// Increase of the interval between polls if the issuer responds with `slow_down`.
pub(crate) const POLL_INCREASE: Duration = Duration::from_secs(5);
/// Longest interval between polls that an issuer can request. Each failed poll doubles the
/// interval, up to this value.
pub(crate) const LONGEST_POLL: Duration = Duration::from_secs(60);
