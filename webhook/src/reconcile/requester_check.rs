//! Sends each object of a content to the API server as a dry run as its requesters, before the installer applies it.
//! The access reviews are in `authorize`; `requester_rights` decides when both run.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use bundle_core::diagnostic::codes;
use bundle_core::plan::ignore::Rule;
use bundle_core::plan::phases::Phase;
use bundle_core::review::Requester;
use bundle_core::rights::{DryRunVerdict, Provided};
use kube::Client;

use super::dry_run_complaints::DryRunComplaints;
use super::dry_run_memory::DryRunKey;
use super::install;
use super::items::Item;
use super::object::Seen;
use super::remove::{Kept, Present};
use super::room::Room;
use super::trouble::{Retry, Trouble};
use crate::dry_run::{DryRunAnswer, RequesterDryRun};

/// How long one step retries while the API server is busy or does not serve a new kind yet.
const TRIES: Duration = Duration::from_secs(5);

/// The dry runs of one content: its requesters, and the objects that are checked right before their phase.
pub(super) struct RequesterCheck<'a> {
    room: &'a Room,
    runs: Vec<(Requester, RequesterDryRun)>,
    class: String,
    reason: &'static str,
    /// Reads live objects as the installing ServiceAccount.
    installer: Client,
    ignore: Vec<Rule>,
    /// Whether remembered answers count.
    remembers: bool,
    /// Keys of the objects that the watches have seen.
    present: HashSet<String>,
    later: HashSet<String>,
}

/// The input of a check.
pub(super) struct Subject<'a> {
    pub(super) requesters: &'a [Requester],
    pub(super) class: &'a str,
    /// Reason of the condition if the check fails.
    pub(super) reason: &'static str,
    pub(super) installer: &'a Client,
    pub(super) ignore: &'a [Rule],
    pub(super) remembers: bool,
}

impl<'a> RequesterCheck<'a> {
    pub(super) fn new(
        room: &'a Room,
        subject: &Subject<'_>,
        present: &BTreeMap<String, Seen>,
    ) -> Result<Self, Trouble> {
        Ok(Self {
            room,
            runs: runs(room, subject.requesters, subject.reason)?,
            class: subject.class.to_owned(),
            reason: subject.reason,
            installer: subject.installer.clone(),
            ignore: subject.ignore.to_vec(),
            remembers: subject.remembers,
            present: present.keys().cloned().collect(),
            later: HashSet::new(),
        })
    }

    /// Checks every object that the API server can judge before anything is applied. [`Self::before_phase`] checks the rest: objects that need other
    /// objects of the content, and objects in a namespace that does not exist yet.
    pub(super) async fn before_all(&mut self, items: &[Item]) -> Result<(), Trouble> {
        let provided = Provided::by(items.iter().map(|item| (&item.id, &item.value)));
        let (namespaces, others): (Vec<&Item>, Vec<&Item>) = items
            .iter()
            .partition(|item| item.phase == Phase::Namespaces);
        let mut complaints = DryRunComplaints::default();
        let mut absent = BTreeSet::new();
        for (item, answer) in self.ask_all(namespaces, false).await {
            if answer.creates {
                absent.insert(item.id.name.clone());
            }
            complaints.add(item, answer.verdict);
        }
        let (later, now): (Vec<&Item>, Vec<&Item>) = others.into_iter().partition(|item| {
            let waits = |namespace| absent.contains(namespace);
            item.custom
                || provided.precedes(&item.id, &item.value)
                || item.id.namespace.as_ref().is_some_and(waits)
        });
        self.later.extend(later.iter().map(|item| item.key.clone()));
        for (item, answer) in self.ask_all(now, false).await {
            match answer.verdict {
                DryRunVerdict::Missing(_) => {
                    self.later.insert(item.key.clone());
                }
                verdict => complaints.add(item, verdict),
            }
        }
        self.result(complaints)
    }

    /// Checks those of `items`, which are applied next, that [`Self::before_all`] left.
    pub(super) async fn before_phase(&self, items: &[&Item]) -> Result<(), Trouble> {
        let items = items
            .iter()
            .filter(|item| self.later.contains(&item.key))
            .copied()
            .collect();
        let mut complaints = DryRunComplaints::default();
        for (item, answer) in self.ask_all(items, true).await {
            complaints.add(item, answer.verdict);
        }
        self.result(complaints)
    }

    /// Returns how many of `items` the API server allows in a dry run.
    pub(super) async fn allowed(&self, items: Vec<&Item>) -> u64 {
        let answers = self.ask_all(items, false).await;
        let allowed = answers
            .iter()
            .filter(|(_, answer)| answer.verdict == DryRunVerdict::Allowed);
        u64::try_from(allowed.count()).unwrap_or(u64::MAX)
    }

    async fn ask_all<'i>(
        &self,
        items: Vec<&'i Item>,
        is_due: bool,
    ) -> Vec<(&'i Item, DryRunAnswer)> {
        let end = Instant::now() + TRIES;
        super::parallel::ordered(
            items
                .into_iter()
                .map(|item| async move { (item, self.ask(item, is_due, end).await) }),
        )
        .await
    }

    /// Returns the answer for all requesters. Retries until `end` while the server is busy and, for an object that is due, while its new kind is missing.
    async fn ask(&self, item: &Item, is_due: bool, end: Instant) -> DryRunAnswer {
        let mut pause = Duration::from_millis(50);
        loop {
            let answer = self.ask_once(item).await;
            let may_change = match answer.verdict {
                DryRunVerdict::Unknown(_) => true,
                DryRunVerdict::Missing(_) => is_due && item.custom,
                _ => false,
            };
            if !may_change || Instant::now() > end {
                return answer;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    async fn ask_once(&self, item: &Item) -> DryRunAnswer {
        let value = match install::value_to_apply(&self.installer, &self.ignore, item).await {
            Ok(value) => value,
            Err(error) => {
                return DryRunAnswer {
                    verdict: DryRunVerdict::Unknown(super::object::told(&error)),
                    creates: false,
                };
            }
        };
        let memory = &self.room.allowed_dry_runs;
        let mut all = DryRunAnswer {
            verdict: DryRunVerdict::Allowed,
            creates: !self.present.contains(&item.key),
        };
        for (requester, run) in &self.runs {
            let key = |creates| DryRunKey::of(requester, &self.class, &item.id, &value, creates);
            if self.remembers && memory.contains(key(all.creates)).await {
                continue;
            }
            let answer = run.apply(&item.kind.resource, &item.id, &value).await;
            if answer.verdict != DryRunVerdict::Allowed {
                return answer;
            }
            memory.insert(key(answer.creates)).await;
            all.creates = answer.creates;
        }
        all
    }

    fn result(&self, complaints: DryRunComplaints) -> Result<(), Trouble> {
        if complaints.by_rbac > 0 {
            tracing::warn!(
                class = self.class,
                objects = complaints.by_rbac,
                "the access reviews allow what RBAC refuses in the dry run"
            );
            let metrics = &self.room.shared.metrics;
            metrics.authorization_disagreed(complaints.by_rbac);
        }
        let users: Vec<&str> = self
            .runs
            .iter()
            .map(|(requester, _)| requester.user.as_str())
            .collect();
        complaints.into_result(&users.join(", "), self.reason)
    }
}

fn runs(
    room: &Room,
    requesters: &[Requester],
    reason: &'static str,
) -> Result<Vec<(Requester, RequesterDryRun)>, Trouble> {
    requesters
        .iter()
        .map(|requester| {
            let run = room.shared.dry_run_as(requester).map_err(|error| {
                Trouble::new(
                    codes::install::NOT_IMPERSONATED,
                    reason,
                    format!("no dry run can be sent as {:?}: {error}", requester.user),
                    Retry::OnChange,
                )
            })?;
            Ok((requester.clone(), run))
        })
        .collect()
}

/// Returns those of `objects` that the API server does not let the requesters delete, with its message.
pub(super) async fn undeletable(
    room: &Room,
    requesters: &[Requester],
    objects: &[&Present],
    reason: &'static str,
) -> Result<Vec<Kept>, Trouble> {
    let mut refused = Vec::new();
    for (requester, run) in &runs(room, requesters, reason)? {
        let mut complaints = DryRunComplaints::default();
        let answers = super::parallel::ordered(objects.iter().map(|present| async move {
            let uid = &present.uid;
            let verdict = run.delete(&present.kind.resource, &present.id, uid).await;
            (*present, verdict)
        }))
        .await;
        for (present, verdict) in answers {
            match verdict {
                DryRunVerdict::Refused { message: why, .. } | DryRunVerdict::Unsupported(why) => {
                    refused.push(Kept {
                        id: present.id.clone(),
                        why: format!("{} may not delete it: {why}", requester.user),
                    });
                }
                DryRunVerdict::NotImpersonated(words) => complaints.not_impersonated.push(words),
                DryRunVerdict::Missing(words) | DryRunVerdict::Unknown(words) => {
                    complaints.unknown.push(format!("{}: {words}", present.id));
                }
                DryRunVerdict::Allowed => {}
            }
        }
        complaints.into_result(&requester.user, reason)?;
    }
    Ok(refused)
}
