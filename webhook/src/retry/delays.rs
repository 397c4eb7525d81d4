//! Delays before retries in the pod. These delays are in other modules:
//!
//! - of failed reconciles and restores: `bundle_core::plan::retry`
//! - of requests to registries: `bundle_oci::registry`
//! - of requests after status 429 and of watches: `bundle_cluster`
//! - of the leader election: `retry_interval` in `lease`
//! - intervals of periodic work: in the module that does this work

use std::time::Duration;

use bundle_core::plan::backoff::Backoff;

/// Delays between retries of requests that must succeed before the pod can start its tasks.
pub(crate) const STARTUP: Backoff =
    Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
/// Delays between retries of the checks and applies of one object. A retry is necessary if the API
/// server is busy or does not serve a new kind yet.
pub(crate) const APPLY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
/// Delays between retries of the checks and applies of one object after another actor changed the
/// object. They are short, because an object that changes many times in a second is only applied if
/// no change occurs between a read and the apply after it.
pub(crate) const APPLY_CONFLICT: Backoff =
    Backoff::new(Duration::from_millis(5), Duration::from_millis(100));
/// Delays between reads of objects until the objects are ready.
pub(crate) const READY: Backoff =
    Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
/// Delays between reads of replaced objects until the objects no longer exist.
pub(crate) const REPLACED: Backoff =
    Backoff::new(Duration::from_millis(20), Duration::from_millis(200));
/// Delays between reads of removed objects until the objects no longer exist.
pub(crate) const REMOVED: Backoff =
    Backoff::new(Duration::from_millis(20), Duration::from_millis(300));

/// Delay after a connection could not be accepted, for example because the process has too many
/// open files.
pub(crate) const ACCEPT: Duration = Duration::from_millis(50);
/// Delay before the next check if the CustomResourceDefinitions of this project are not installed.
pub(crate) const DEFINITIONS: Duration = Duration::from_secs(1);
/// Delay after a failed check of certificates and registrations.
pub(crate) const CERTIFICATES: Duration = Duration::from_secs(2);
/// Delay after a Secret or ConfigMap that a policy names could not be read.
pub(crate) const POLICY_REFERENCES: Duration = Duration::from_secs(2);
/// Delay after a request to the API server failed and no condition could report the error.
pub(crate) const UNREPORTED_ERROR: Duration = Duration::from_secs(2);
/// Delay before the watch of a ConfigMap that a policy names is restarted. The periodic read
/// detects changes during the delay.
pub(crate) const CONFIG_MAP_WATCH: Duration = Duration::from_secs(5);
/// Delay of a fetch while the requester of the Bundle has too many running fetches.
pub(crate) const POSTPONED_FETCH: Duration = Duration::from_secs(15);
/// Delay while the class of a BundleDeployment does not exist.
pub(crate) const MISSING_CLASS: Duration = Duration::from_secs(30);
/// Delay after a periodic check of the requesters' permissions with an unknown result.
pub(crate) const UNKNOWN_PERMISSIONS: Duration = Duration::from_secs(30);
