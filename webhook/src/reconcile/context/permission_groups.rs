//! The members and the times of the groups of BundleDeployments whose permissions are checked
//! together. `bundle_core::plan::inventory::permission_groups` contains the rules.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bundle_core::plan::inventory::permission_groups::{
    GroupKey, NextRun, ReviewTerms, due_with_member,
};

use crate::budget::limited_requester;
use crate::retry::{delays, jittered};

/// A BundleDeployment in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reconcile) struct GroupMember {
    pub(in crate::reconcile) uid: String,
    pub(in crate::reconcile) name: String,
}

/// A run of a group check. The caller of [`PermissionGroups::begin_runs`] must end the run with
/// [`PermissionGroups::end_run`].
#[derive(Debug)]
pub(in crate::reconcile) struct GroupRun {
    pub(in crate::reconcile) key: GroupKey,
    pub(in crate::reconcile) terms: Arc<ReviewTerms>,
    /// The requester of the template, as in the limits of requesters. A requester has at most one
    /// run at a time.
    pub(in crate::reconcile) requester: String,
    /// The uid of the last member that earlier runs of this check have checked.
    pub(in crate::reconcile) after: Option<String>,
}

/// All groups, by key.
#[derive(Debug, Default)]
pub(in crate::reconcile) struct PermissionGroups {
    groups: HashMap<GroupKey, PermissionGroup>,
    /// The groups that are not being checked, in the order of their next check.
    order: BTreeSet<(Instant, GroupKey)>,
}

#[derive(Debug)]
struct PermissionGroup {
    terms: Arc<ReviewTerms>,
    due: Instant,
    /// Names of the BundleDeployments, by uid.
    members: BTreeMap<String, String>,
    is_running: bool,
    /// The start of the check that is not complete. Several runs can be necessary for one check.
    started: Option<Instant>,
    /// The earliest time at which a member must be checked that joined during the check.
    joined_due: Option<Instant>,
    after: Option<String>,
}

impl PermissionGroup {
    fn requester(&self) -> String {
        let requester = self.terms.requesters.first();
        limited_requester(requester.map_or("", |requester| requester.user.as_str()))
    }
}

impl PermissionGroups {
    /// Adds `member` to the group with these terms. `due` is the time of the next check of the
    /// member. If `is_first` is true, this time is random, and no earlier check requires it.
    /// Returns true if the next check of the group is now earlier than before.
    pub(in crate::reconcile) fn join(
        &mut self,
        (key, terms): (GroupKey, ReviewTerms),
        member: GroupMember,
        (due, is_first): (Instant, bool),
    ) -> bool {
        let Some(group) = self.groups.get_mut(&key) else {
            let group = PermissionGroup {
                terms: Arc::new(terms),
                due: due_with_member(None, due, is_first),
                members: BTreeMap::from([(member.uid, member.name)]),
                is_running: false,
                started: None,
                joined_due: None,
                after: None,
            };
            self.order.insert((group.due, key));
            self.groups.insert(key, group);
            return true;
        };
        group.members.insert(member.uid, member.name);
        if group.started.is_some() {
            // The check may already have passed the place of this member.
            if !is_first {
                group.joined_due = Some(due_with_member(group.joined_due, due, false));
            }
            return false;
        }
        let earliest = due_with_member(Some(group.due), due, is_first);
        if earliest == group.due {
            return false;
        }
        self.order.remove(&(group.due, key));
        group.due = earliest;
        self.order.insert((earliest, key));
        true
    }

    /// Removes a member. Returns the time of the next check of the group. Returns `None` if the
    /// group does not contain the member.
    pub(in crate::reconcile) fn remove(&mut self, key: GroupKey, uid: &str) -> Option<Instant> {
        let group = self.groups.get_mut(&key)?;
        group.members.remove(uid)?;
        let due = group.due;
        if group.members.is_empty() && !group.is_running {
            self.order.remove(&(due, key));
            self.groups.remove(&key);
        }
        Some(due)
    }

    /// Begins a run of each group that is due, in the order of their times. `busy` contains the
    /// requesters with a run, and then also the requesters of the new runs. A group of a busy
    /// requester stays due. Also returns the time at which the next group becomes due.
    pub(in crate::reconcile) fn begin_runs(
        &mut self,
        now: Instant,
        busy: &mut HashSet<String>,
    ) -> (Vec<GroupRun>, Option<Instant>) {
        let due = self.order.iter().take_while(|(due, _)| *due <= now);
        let due: Vec<(Instant, GroupKey)> = due.copied().collect();
        let mut runs = Vec::new();
        for (since, key) in due {
            let Some(group) = self.groups.get_mut(&key) else {
                continue;
            };
            let requester = group.requester();
            if !busy.insert(requester.clone()) {
                continue;
            }
            self.order.remove(&(since, key));
            group.is_running = true;
            group.started.get_or_insert(now);
            runs.push(GroupRun {
                key,
                terms: group.terms.clone(),
                requester,
                after: group.after.take(),
            });
        }
        let mut times = self.order.iter().map(|(due, _)| *due);
        (runs, times.find(|due| *due > now))
    }

    /// Returns the next members of a group in the order of their uids, at most `most`. `after` is
    /// the uid of the member before them.
    pub(in crate::reconcile) fn members(
        &self,
        key: GroupKey,
        after: Option<&str>,
        most: usize,
    ) -> Vec<GroupMember> {
        let Some(group) = self.groups.get(&key) else {
            return Vec::new();
        };
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let members = group.members.range::<str, _>((first, Bound::Unbounded));
        let members = members.take(most).map(|(uid, name)| GroupMember {
            uid: uid.clone(),
            name: name.clone(),
        });
        members.collect()
    }

    /// Ends a run. `after` is the uid of the last member that was checked.
    pub(in crate::reconcile) fn end_run(
        &mut self,
        key: GroupKey,
        (next, after): (NextRun, Option<String>),
        now: Instant,
        interval: Duration,
    ) {
        let Some(group) = self.groups.get_mut(&key) else {
            return;
        };
        group.is_running = false;
        if group.members.is_empty() {
            self.groups.remove(&key);
            return;
        }
        group.after = after;
        group.due = match next {
            NextRun::AfterInterval => {
                group.after = None;
                let due = group.started.take().unwrap_or(now) + jittered(interval);
                due_with_member(group.joined_due.take(), due, false)
            }
            NextRun::AfterFailure => now + jittered(delays::UNKNOWN_PERMISSIONS),
            NextRun::Now => now,
        };
        self.order.insert((group.due, key));
    }
}

#[cfg(test)]
mod tests {
    use bundle_core::review::Requester;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(600);

    fn terms(user: &str, class: &str) -> ReviewTerms {
        ReviewTerms {
            requesters: vec![Requester {
                user: user.to_owned(),
                ..Requester::default()
            }],
            class: class.to_owned(),
            bundle_class: class.to_owned(),
            service_account: None,
        }
    }

    fn member(uid: &str) -> GroupMember {
        GroupMember {
            uid: uid.to_owned(),
            name: format!("deployment-{uid}"),
        }
    }

    fn join(groups: &mut PermissionGroups, terms: &ReviewTerms, uid: &str, due: Instant) -> bool {
        let group = (terms.key(), terms.clone());
        groups.join(group, member(uid), (due, false))
    }

    fn keys(runs: &[GroupRun]) -> Vec<GroupKey> {
        runs.iter().map(|run| run.key).collect()
    }

    #[test]
    fn due_groups_run_in_order_and_each_requester_has_one_run() {
        let mut groups = PermissionGroups::default();
        let now = Instant::now();
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        let (first, second) = (terms("ana", "plain"), terms("ana", "helm"));
        let (other, later) = (terms("ben", "plain"), terms("eve", "plain"));
        assert!(join(&mut groups, &second, "2", at(2)));
        assert!(join(&mut groups, &first, "1", at(1)));
        assert!(join(&mut groups, &other, "3", at(3)));
        assert!(join(&mut groups, &later, "4", at(9)));
        let mut busy = HashSet::new();
        let (runs, next) = groups.begin_runs(at(5), &mut busy);
        assert_eq!(keys(&runs), [first.key(), other.key()]);
        assert_eq!(next, Some(at(9)));
        assert_eq!(keys(&groups.begin_runs(at(6), &mut busy).0), []);
        let end = (NextRun::AfterInterval, None);
        groups.end_run(first.key(), end, at(6), INTERVAL);
        busy.remove("ana");
        let (runs, _) = groups.begin_runs(at(6), &mut busy);
        assert_eq!(keys(&runs), [second.key()]);
    }

    #[test]
    fn check_continues_after_its_last_member_and_the_next_check_begins_with_the_first() {
        let mut groups = PermissionGroups::default();
        let (now, terms) = (Instant::now(), terms("ana", "plain"));
        for uid in ["a", "b", "c"] {
            join(&mut groups, &terms, uid, now);
        }
        let begin = |groups: &mut PermissionGroups, now: Instant| {
            let (mut runs, next) = groups.begin_runs(now, &mut HashSet::new());
            (runs.pop(), next)
        };
        let (run, _) = begin(&mut groups, now);
        assert_eq!(run.unwrap().after, None);
        let page = groups.members(terms.key(), None, 2);
        assert_eq!(page, [member("a"), member("b")]);
        let page = groups.members(terms.key(), Some("b"), 2);
        assert_eq!(page, [member("c")]);
        let end = (NextRun::Now, Some("b".to_owned()));
        groups.end_run(terms.key(), end, now, INTERVAL);
        let (run, _) = begin(&mut groups, now);
        assert_eq!(run.unwrap().after.as_deref(), Some("b"));
        let end = (NextRun::AfterFailure, Some("b".to_owned()));
        groups.end_run(terms.key(), end, now, INTERVAL);
        let (run, retry) = begin(&mut groups, now);
        assert!(run.is_none());
        let retry = retry.unwrap();
        let delay = retry - now;
        assert!(
            delay >= delays::UNKNOWN_PERMISSIONS.mul_f64(0.9),
            "{delay:?}"
        );
        let (run, _) = begin(&mut groups, retry);
        assert_eq!(run.unwrap().after.as_deref(), Some("b"));
        let end = (NextRun::AfterInterval, Some("c".to_owned()));
        groups.end_run(terms.key(), end, retry, INTERVAL);
        let (_, next) = begin(&mut groups, retry);
        // The interval begins with the first run of the check.
        let interval = next.unwrap() - now;
        assert!(interval <= INTERVAL.mul_f64(1.1), "{interval:?}");
        let (run, _) = begin(&mut groups, next.unwrap());
        assert_eq!(run.unwrap().after, None);
    }

    #[test]
    fn member_that_joins_during_a_check_is_checked_when_it_is_due() {
        let mut groups = PermissionGroups::default();
        let (now, terms) = (Instant::now(), terms("ana", "plain"));
        join(&mut groups, &terms, "b", now);
        groups.begin_runs(now, &mut HashSet::new());
        let due = now + Duration::from_secs(60);
        assert!(!join(&mut groups, &terms, "a", due));
        let end = (NextRun::AfterInterval, Some("b".to_owned()));
        groups.end_run(terms.key(), end, now, INTERVAL);
        assert_eq!(groups.remove(terms.key(), "a"), Some(due));
        assert_eq!(groups.remove(terms.key(), "a"), None);
    }

    #[test]
    fn group_without_members_is_removed() {
        let mut groups = PermissionGroups::default();
        let (now, terms) = (Instant::now(), terms("ana", "plain"));
        join(&mut groups, &terms, "a", now);
        groups.remove(terms.key(), "a");
        assert!(groups.groups.is_empty() && groups.order.is_empty());
        join(&mut groups, &terms, "a", now);
        groups.begin_runs(now, &mut HashSet::new());
        groups.remove(terms.key(), "a");
        let end = (NextRun::AfterInterval, None);
        groups.end_run(terms.key(), end, now, INTERVAL);
        assert!(groups.groups.is_empty() && groups.order.is_empty());
    }
}
