//! The rules of leader election: when a lease can be acquired, and its content. All functions are
//! pure.
//!
//! Clocks of other replicas are not trusted: a lease has expired when this replica has observed it
//! unchanged for its whole duration.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

/// Annotation that distinguishes two processes with the same identity.
pub(super) const INSTANCE: &str = "core.rukpak.io/holder-instance";

/// A process that can become the leader.
#[derive(Debug)]
pub(super) struct Candidate {
    identity: String,
    instance: String,
    duration: Duration,
    /// True until the first check. Only a new process may assume that a holder with its own
    /// identity has ended, and that a missing lease never existed.
    is_new: bool,
}

/// The last observed version of the lease, with the time at which this version was first observed.
#[derive(Debug, Clone)]
pub(super) struct ObservedLease {
    /// resourceVersion of the lease. `None`: the lease does not exist.
    version: Option<String>,
    since: Instant,
}

/// The decision after reading the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseDecision {
    Take,
    Wait,
}

impl Candidate {
    pub(super) fn new(identity: String, instance: String, duration: Duration) -> Self {
        Self {
            identity,
            instance,
            duration,
            is_new: true,
        }
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Decides whether to acquire the lease. `seen` stores the last observation between calls.
    ///
    /// The holder of a lease that another client deleted, cleared or shortened detects the change
    /// at its next renewal. Until then this holder is the leader. Therefore this candidate does not
    /// acquire a changed lease earlier than an unchanged lease.
    pub(super) fn decide(
        &mut self,
        lease: Option<&Lease>,
        seen: &mut Option<ObservedLease>,
        now: Instant,
    ) -> LeaseDecision {
        let is_new = std::mem::take(&mut self.is_new);
        let may_take = match lease {
            None => is_new,
            Some(lease) => {
                let holder = holder(lease).unwrap_or_default();
                // A holder that releases its lease also removes the instance. If the instance
                // remains, another client has cleared the holder.
                let is_released = holder.is_empty() && instance(lease).is_none();
                is_released || self.holds(lease) || (is_new && holder == self.identity)
            }
        };
        if may_take {
            return LeaseDecision::Take;
        }
        let version = lease.and_then(|lease| lease.metadata.resource_version.clone());
        let since = match seen {
            Some(sighting) if sighting.version == version => sighting.since,
            _ => {
                *seen = Some(ObservedLease {
                    version,
                    since: now,
                });
                now
            }
        };
        let seconds = lease.and_then(|lease| lease.spec.as_ref()?.lease_duration_seconds);
        let stored = Duration::from_secs(seconds.and_then(|s| s.try_into().ok()).unwrap_or(0));
        if now.duration_since(since) >= stored.max(self.duration) {
            LeaseDecision::Take
        } else {
            LeaseDecision::Wait
        }
    }

    /// Sets this candidate as the new holder of `lease`.
    pub(super) fn set_holder(&self, lease: &mut Lease, now: MicroTime) {
        let before = lease.spec.take().unwrap_or_default();
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(
                i32::try_from(self.duration.as_secs()).unwrap_or(i32::MAX),
            ),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(before.lease_transitions.unwrap_or(0).saturating_add(1)),
            ..before
        });
        lease
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(INSTANCE.to_owned(), self.instance.clone());
    }

    /// Returns true if this process holds the lease.
    pub(super) fn holds(&self, lease: &Lease) -> bool {
        holder(lease) == Some(self.identity.as_str())
            && instance(lease) == Some(self.instance.as_str())
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

fn instance(lease: &Lease) -> Option<&str> {
    lease
        .metadata
        .annotations
        .as_ref()?
        .get(INSTANCE)
        .map(String::as_str)
}

/// Sets the renew time of the lease to `now`.
pub(super) fn renew_time(lease: &mut Lease, now: MicroTime) {
    lease.spec.get_or_insert_default().renew_time = Some(now);
}

/// Returns the interval at which the holder renews the lease.
pub(super) fn renew_interval(duration: Duration) -> Duration {
    duration / 3
}

/// Returns the interval at which candidates read the lease. A replica that stops also releases the
/// lease. Therefore this interval is the maximum time without a leader during an upgrade.
pub(super) fn poll_interval(duration: Duration) -> Duration {
    (duration / 7).min(Duration::from_millis(500))
}

/// Returns the retry interval after failed requests.
pub(super) fn retry_interval(duration: Duration) -> Duration {
    (duration / 7).min(Duration::from_secs(2))
}

/// Returns the time after which a holder stops if it cannot reach the API server. This time is
/// shorter than the lease duration, so that no other replica can be the leader yet.
pub(super) fn stop_after(duration: Duration) -> Duration {
    duration * 2 / 3
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    const DURATION: Duration = Duration::from_secs(15);

    fn candidate(identity: &str, instance: &str) -> Candidate {
        Candidate::new(identity.to_owned(), instance.to_owned(), DURATION)
    }

    /// Returns a candidate that is not new: it has read the lease of another replica before.
    fn follower() -> Candidate {
        let mut me = candidate("b", "2");
        let lease = held_by(&candidate("a", "1"), "0");
        assert_eq!(
            me.decide(Some(&lease), &mut None, Instant::now()),
            LeaseDecision::Wait
        );
        me
    }

    fn held_by(holder: &Candidate, version: &str) -> Lease {
        let mut lease = Lease::default();
        holder.set_holder(&mut lease, MicroTime(Timestamp::UNIX_EPOCH));
        lease.metadata.resource_version = Some(version.to_owned());
        lease
    }

    #[test]
    fn lease_of_another_replica_is_acquired_after_it_was_unchanged_for_its_duration() {
        let other = candidate("a", "1");
        let mut me = candidate("b", "2");
        let (mut seen, start) = (None, Instant::now());
        let lease = held_by(&other, "1");
        assert_eq!(
            me.decide(Some(&lease), &mut seen, start),
            LeaseDecision::Wait
        );
        let renewed = held_by(&other, "2");
        let second = start + DURATION - Duration::from_secs(1);
        assert_eq!(
            me.decide(Some(&renewed), &mut seen, second),
            LeaseDecision::Wait
        );
        let third = start + DURATION;
        assert_eq!(
            me.decide(Some(&renewed), &mut seen, third),
            LeaseDecision::Wait
        );
        assert_eq!(
            me.decide(Some(&renewed), &mut seen, second + DURATION),
            LeaseDecision::Take
        );
    }

    #[test]
    fn released_lease_is_acquired_immediately() {
        let mut lease = held_by(&candidate("a", "1"), "1");
        lease.spec.get_or_insert_default().holder_identity = None;
        lease.metadata.annotations = None;
        let step = follower().decide(Some(&lease), &mut None, Instant::now());
        assert_eq!(step, LeaseDecision::Take);
    }

    #[test]
    fn lease_that_another_client_deleted_cleared_or_shortened_is_not_acquired_earlier() {
        let held = held_by(&candidate("a", "1"), "1");
        let mut cleared = held.clone();
        cleared.spec.get_or_insert_default().holder_identity = None;
        let mut empty = held.clone();
        empty.spec = None;
        let mut short = held;
        short.spec.get_or_insert_default().lease_duration_seconds = Some(1);
        for lease in [None, Some(&cleared), Some(&empty), Some(&short)] {
            let (mut me, mut seen, start) = (follower(), None, Instant::now());
            assert_eq!(
                me.decide(lease, &mut seen, start),
                LeaseDecision::Wait,
                "{lease:?}"
            );
            let later = start + DURATION - Duration::from_millis(1);
            assert_eq!(
                me.decide(lease, &mut seen, later),
                LeaseDecision::Wait,
                "{lease:?}"
            );
            let expired = start + DURATION;
            assert_eq!(
                me.decide(lease, &mut seen, expired),
                LeaseDecision::Take,
                "{lease:?}"
            );
        }
    }

    #[test]
    fn longer_duration_of_the_holder_counts() {
        let mut lease = held_by(&candidate("a", "1"), "1");
        lease.spec.get_or_insert_default().lease_duration_seconds = Some(60);
        let (mut me, mut seen, start) = (follower(), None, Instant::now());
        for (after, expected) in [
            (0, LeaseDecision::Wait),
            (59, LeaseDecision::Wait),
            (60, LeaseDecision::Take),
        ] {
            let now = start + Duration::from_secs(after);
            assert_eq!(me.decide(Some(&lease), &mut seen, now), expected, "{after}");
        }
    }

    #[test]
    fn new_process_creates_a_missing_lease_immediately() {
        let step = candidate("a", "1").decide(None, &mut None, Instant::now());
        assert_eq!(step, LeaseDecision::Take);
    }

    #[test]
    fn process_that_gave_up_acquires_its_own_lease_again() {
        let mut me = follower();
        let lease = held_by(&me, "7");
        assert_eq!(
            me.decide(Some(&lease), &mut None, Instant::now()),
            LeaseDecision::Take
        );
    }

    #[test]
    fn process_acquires_the_lease_of_its_predecessor_only_at_its_start() {
        let lease = held_by(&candidate("a", "1"), "1");
        let mut restarted = candidate("a", "2");
        let (mut seen, now) = (None, Instant::now());
        assert_eq!(
            restarted.decide(Some(&lease), &mut seen, now),
            LeaseDecision::Take
        );
        // Two running processes with one identity must not alternate as holders.
        assert_eq!(
            restarted.decide(Some(&lease), &mut seen, now),
            LeaseDecision::Wait
        );
    }

    #[test]
    fn another_process_with_the_same_identity_is_another_holder() {
        let (old, new) = (candidate("a", "1"), candidate("a", "2"));
        let mut lease = held_by(&old, "1");
        assert!(old.holds(&lease));
        new.set_holder(&mut lease, MicroTime(Timestamp::UNIX_EPOCH));
        assert!(!old.holds(&lease) && new.holds(&lease));
        let spec = lease.spec.unwrap();
        assert_eq!(spec.lease_transitions, Some(2));
        assert_eq!(spec.lease_duration_seconds, Some(15));
    }

    #[test]
    fn holder_renews_more_than_once_and_stops_before_the_lease_expires() {
        assert!(stop_after(DURATION) < DURATION);
        assert!(renew_interval(DURATION) + retry_interval(DURATION) < stop_after(DURATION));
    }
}
