//! The times of the periodic permission checks: of single BundleDeployments, which their reconciles
//! check, and of groups of BundleDeployments.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bundle_core::plan::inventory::permission_groups::{GroupKey, NextRun, ReviewTerms};
use rand::Rng as _;
use tokio::sync::Notify;

use crate::reconcile::context::permission_groups::{GroupMember, GroupRun, PermissionGroups};
use crate::retry::jittered;

/// The next permission check of each BundleDeployment, and the groups. Each BundleDeployment is a
/// member of at most one group.
#[derive(Debug, Default)]
pub(in crate::reconcile) struct RightsSchedule {
    checks: Mutex<ScheduledChecks>,
    /// Notified when the next check of a group becomes earlier.
    earlier: Notify,
}

#[derive(Debug, Default)]
struct ScheduledChecks {
    /// The checks of single BundleDeployments, by uid. The sweep removes deleted BundleDeployments.
    single: HashMap<String, SingleCheck>,
    groups: PermissionGroups,
}

#[derive(Debug)]
struct SingleCheck {
    /// The time of the next check. For the member of a group, the time of the group applies.
    due: Instant,
    /// True if `due` is random, and no earlier check requires this time.
    is_first: bool,
    group: Option<GroupKey>,
}

impl RightsSchedule {
    fn checks(&self) -> MutexGuard<'_, ScheduledChecks> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time until the next check, or zero if the check is due. If the BundleDeployment
    /// is not in the schedule, its check is due after a random part of `interval`, which
    /// distributes the load.
    pub(in crate::reconcile) fn wait(
        &self,
        uid: &str,
        now: Instant,
        interval: Duration,
    ) -> Duration {
        let part = interval.mul_f64(rand::rng().random::<f64>());
        let mut checks = self.checks();
        let check = checks.single.entry(uid.to_owned());
        let check = check.or_insert_with(|| SingleCheck {
            due: now + part,
            is_first: true,
            group: None,
        });
        check.due.saturating_duration_since(now)
    }

    /// Schedules the next check about one `interval` after `now`, the time of the last check.
    pub(in crate::reconcile) fn record_check(&self, uid: &str, now: Instant, interval: Duration) {
        let due = now + jittered(interval);
        let mut checks = self.checks();
        let check = checks.single.entry(uid.to_owned());
        let check = check.or_insert_with(|| SingleCheck {
            due,
            is_first: false,
            group: None,
        });
        check.due = due;
        check.is_first = false;
    }

    /// Adds a BundleDeployment to the group with these terms. Its check is then due at the latest
    /// at the time that [`Self::wait`] returned. Returns false if the BundleDeployment is not in
    /// the schedule.
    pub(in crate::reconcile) fn join(&self, member: GroupMember, terms: ReviewTerms) -> bool {
        let key = terms.key();
        let mut checks = self.checks();
        let ScheduledChecks { single, groups } = &mut *checks;
        let Some(check) = single.get_mut(&member.uid) else {
            return false;
        };
        if let Some(former) = check.group.replace(key) {
            groups.remove(former, &member.uid);
        }
        let is_earlier = groups.join((key, terms), member, (check.due, check.is_first));
        drop(checks);
        if is_earlier {
            self.earlier.notify_one();
        }
        true
    }

    /// Removes a BundleDeployment from its group. Called at the start of each reconcile. The check
    /// is then due when the check of the group was due.
    pub(in crate::reconcile) fn leave(&self, uid: &str) {
        let mut checks = self.checks();
        let ScheduledChecks { single, groups } = &mut *checks;
        if let Some(check) = single.get_mut(uid)
            && let Some(key) = check.group.take()
            && let Some(due) = groups.remove(key, uid)
        {
            check.due = due;
            check.is_first = false;
        }
    }

    /// Removes a member from this group. Its check is then due at `now`. Returns false if the
    /// BundleDeployment is no longer a member, because its reconcile has started.
    pub(in crate::reconcile) fn release(&self, key: GroupKey, uid: &str, now: Instant) -> bool {
        let mut checks = self.checks();
        let ScheduledChecks { single, groups } = &mut *checks;
        let Some(check) = single.get_mut(uid) else {
            return false;
        };
        if check.group != Some(key) {
            return false;
        }
        groups.remove(key, uid);
        *check = SingleCheck {
            due: now,
            is_first: false,
            group: None,
        };
        true
    }

    /// Returns the uids of all BundleDeployments in the schedule.
    pub(in crate::reconcile) fn uids(&self) -> BTreeSet<String> {
        self.checks().single.keys().cloned().collect()
    }

    /// Removes deleted BundleDeployments from the schedule and from their groups.
    pub(in crate::reconcile) fn remove(&self, uids: &BTreeSet<String>) {
        let mut checks = self.checks();
        for uid in uids {
            if let Some(check) = checks.single.remove(uid)
                && let Some(key) = check.group
            {
                checks.groups.remove(key, uid);
            }
        }
    }

    /// Calls [`PermissionGroups::begin_runs`].
    pub(in crate::reconcile) fn begin_runs(
        &self,
        now: Instant,
        busy: &mut HashSet<String>,
    ) -> (Vec<GroupRun>, Option<Instant>) {
        self.checks().groups.begin_runs(now, busy)
    }

    /// Calls [`PermissionGroups::members`].
    pub(in crate::reconcile) fn members(
        &self,
        key: GroupKey,
        after: Option<&str>,
        most: usize,
    ) -> Vec<GroupMember> {
        self.checks().groups.members(key, after, most)
    }

    /// Calls [`PermissionGroups::end_run`].
    pub(in crate::reconcile) fn end_run(
        &self,
        key: GroupKey,
        end: (NextRun, Option<String>),
        now: Instant,
        interval: Duration,
    ) {
        self.checks().groups.end_run(key, end, now, interval);
    }

    /// Waits until the next check of a group becomes earlier.
    pub(in crate::reconcile) async fn earlier(&self) {
        self.earlier.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use bundle_core::review::Requester;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(600);

    fn terms() -> ReviewTerms {
        ReviewTerms {
            requesters: vec![Requester::default()],
            class: "plain".to_owned(),
            bundle_class: "plain".to_owned(),
            service_account: None,
        }
    }

    fn member(uid: &str) -> GroupMember {
        GroupMember {
            uid: uid.to_owned(),
            name: uid.to_owned(),
        }
    }

    #[test]
    fn permissions_are_checked_once_per_interval_with_jitter() {
        let schedule = RightsSchedule::default();
        let (now, interval) = (Instant::now(), Duration::from_secs(600));
        assert!(schedule.wait("a", now, interval) <= interval);
        assert_eq!(schedule.wait("a", now + interval, interval), Duration::ZERO);
        schedule.record_check("a", now, interval);
        let wait = schedule.wait("a", now, interval);
        assert!(
            wait >= interval.mul_f64(0.9) && wait <= interval.mul_f64(1.1),
            "{wait:?}"
        );
    }

    #[test]
    fn many_deployments_keep_their_times_until_they_are_deleted() {
        let schedule = RightsSchedule::default();
        let now = Instant::now();
        let uids: Vec<String> = (0..10_001).map(|number| number.to_string()).collect();
        let waits = || -> Vec<Duration> {
            let waits = uids.iter().map(|uid| schedule.wait(uid, now, INTERVAL));
            waits.collect()
        };
        let first = waits();
        assert_eq!(waits(), first);
        assert_eq!(schedule.uids().len(), uids.len());
        schedule.remove(&uids[1..].iter().cloned().collect());
        assert_eq!(schedule.uids(), BTreeSet::from([uids[0].clone()]));
    }

    #[test]
    fn member_that_leaves_is_due_with_its_group() {
        let schedule = RightsSchedule::default();
        let now = Instant::now();
        assert!(!schedule.join(member("unknown"), terms()));
        schedule.record_check("a", now, INTERVAL);
        let first = schedule.wait("a", now, INTERVAL);
        assert!(schedule.join(member("a"), terms()));
        // The group is due with the member that was checked first.
        schedule.record_check("b", now + INTERVAL, INTERVAL);
        assert!(schedule.join(member("b"), terms()));
        schedule.leave("b");
        assert_eq!(schedule.wait("b", now, INTERVAL), first);
        assert_eq!(schedule.members(terms().key(), None, 9), [member("a")]);
        schedule.leave("a");
        assert_eq!(schedule.wait("a", now, INTERVAL), first);
        assert!(schedule.members(terms().key(), None, 9).is_empty());
    }

    #[test]
    fn only_members_are_released_and_then_due() {
        let schedule = RightsSchedule::default();
        let (now, key) = (Instant::now(), terms().key());
        schedule.record_check("a", now, INTERVAL);
        assert!(!schedule.release(key, "a", now));
        assert!(schedule.wait("a", now, INTERVAL) > Duration::ZERO);
        schedule.join(member("a"), terms());
        assert!(schedule.release(key, "a", now));
        assert_eq!(schedule.wait("a", now, INTERVAL), Duration::ZERO);
        assert!(!schedule.release(key, "a", now));
        schedule.join(member("a"), terms());
        schedule.remove(&BTreeSet::from(["a".to_owned()]));
        assert!(schedule.members(key, None, 9).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn earlier_check_of_a_group_is_notified() {
        let schedule = RightsSchedule::default();
        let now = Instant::now();
        schedule.record_check("a", now + INTERVAL, INTERVAL);
        schedule.join(member("a"), terms());
        schedule.earlier().await;
        schedule.record_check("b", now + INTERVAL * 3, INTERVAL);
        schedule.join(member("b"), terms());
        let later = tokio::time::timeout(Duration::from_secs(1), schedule.earlier()).await;
        assert!(later.is_err());
        schedule.record_check("c", now, INTERVAL);
        schedule.join(member("c"), terms());
        schedule.earlier().await;
    }
}
