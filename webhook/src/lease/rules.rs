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

/// A process that takes part in the election.
#[derive(Debug)]
pub(super) struct Candidate {
    identity: String,
    instance: String,
    /// True until the first check. Only a new process can assume that a holder with its own
    /// identity has ended.
    is_new: bool,
}

/// The last observed version of the lease, with the time of its first observation.
#[derive(Debug, Clone)]
pub(super) struct ObservedLease {
    version: Option<String>,
    since: Instant,
}

/// The decision after reading the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Take,
    Wait,
}

impl Candidate {
    pub(super) fn new(identity: String, instance: String) -> Self {
        Self {
            identity,
            instance,
            is_new: true,
        }
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Decides whether to acquire the lease. `seen` keeps the last observation between calls.
    pub(super) fn decide(
        &mut self,
        lease: &Lease,
        seen: &mut Option<ObservedLease>,
        now: Instant,
    ) -> Step {
        let is_new = std::mem::take(&mut self.is_new);
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        if holder.is_empty() || (is_new && holder == self.identity) {
            return Step::Take;
        }
        let version = lease.metadata.resource_version.clone();
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
        let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
        if now.duration_since(since) >= Duration::from_secs(seconds) {
            Step::Take
        } else {
            Step::Wait
        }
    }

    /// Sets this candidate as the new holder.
    pub(super) fn set_holder(&mut self, lease: &mut Lease, duration: Duration, now: MicroTime) {
        self.is_new = false;
        let before = lease.spec.take().unwrap_or_default();
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)),
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

    /// Returns true if this process is the holder.
    pub(super) fn holds(&self, lease: &Lease) -> bool {
        let holder = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_ref());
        let instance = lease
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(INSTANCE));
        holder == Some(&self.identity) && instance == Some(&self.instance)
    }
}

/// Updates the renew time.
pub(super) fn renew_time(lease: &mut Lease, now: MicroTime) {
    lease.spec.get_or_insert_default().renew_time = Some(now);
}

/// Returns the renew interval of the holder.
pub(super) fn renew(duration: Duration) -> Duration {
    duration / 3
}

/// Returns the retry interval of candidates, and after failed requests.
pub(super) fn retry(duration: Duration) -> Duration {
    (duration / 7).min(Duration::from_secs(2))
}

/// Returns the time after which a holder without a connection stops. It is shorter than the lease
/// duration, so that two replicas never reconcile at the same time.
pub(super) fn give_up(duration: Duration) -> Duration {
    duration * 2 / 3
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    const DURATION: Duration = Duration::from_secs(15);

    fn candidate(identity: &str, instance: &str) -> Candidate {
        Candidate::new(identity.to_owned(), instance.to_owned())
    }

    fn held_by(holder: &mut Candidate, version: &str) -> Lease {
        let mut lease = Lease::default();
        holder.set_holder(&mut lease, DURATION, MicroTime(Timestamp::UNIX_EPOCH));
        lease.metadata.resource_version = Some(version.to_owned());
        lease
    }

    #[test]
    fn lease_of_another_replica_is_acquired_after_it_was_unchanged_for_its_duration() {
        let mut other = candidate("a", "1");
        let mut me = candidate("b", "2");
        let (mut seen, start) = (None, Instant::now());
        let lease = held_by(&mut other, "1");
        assert_eq!(me.decide(&lease, &mut seen, start), Step::Wait);
        let renewed = held_by(&mut other, "2");
        let second = start + DURATION - Duration::from_secs(1);
        assert_eq!(me.decide(&renewed, &mut seen, second), Step::Wait);
        let third = start + DURATION;
        assert_eq!(me.decide(&renewed, &mut seen, third), Step::Wait);
        assert_eq!(
            me.decide(&renewed, &mut seen, second + DURATION),
            Step::Take
        );
    }

    #[test]
    fn released_lease_is_acquired_immediately() {
        let mut lease = held_by(&mut candidate("a", "1"), "1");
        lease.spec.get_or_insert_default().holder_identity = None;
        let step = candidate("b", "2").decide(&lease, &mut None, Instant::now());
        assert_eq!(step, Step::Take);
    }

    #[test]
    fn process_acquires_the_lease_of_its_predecessor_only_at_its_start() {
        let lease = held_by(&mut candidate("a", "1"), "1");
        let mut restarted = candidate("a", "2");
        let (mut seen, now) = (None, Instant::now());
        assert_eq!(restarted.decide(&lease, &mut seen, now), Step::Take);
        // Two running processes with one identity must not alternate as holders.
        assert_eq!(restarted.decide(&lease, &mut seen, now), Step::Wait);
    }

    #[test]
    fn another_process_with_the_same_identity_is_another_holder() {
        let (mut old, mut new) = (candidate("a", "1"), candidate("a", "2"));
        let mut lease = held_by(&mut old, "1");
        assert!(old.holds(&lease));
        new.set_holder(&mut lease, DURATION, MicroTime(Timestamp::UNIX_EPOCH));
        assert!(!old.holds(&lease) && new.holds(&lease));
        let spec = lease.spec.unwrap();
        assert_eq!(spec.lease_transitions, Some(2));
        assert_eq!(spec.lease_duration_seconds, Some(15));
    }

    #[test]
    fn holder_renews_more_than_once_and_stops_before_the_lease_expires() {
        assert!(give_up(DURATION) < DURATION);
        assert!(renew(DURATION) + retry(DURATION) < give_up(DURATION));
    }
}
