//! Periodic permission checks of groups of BundleDeployments. A check sends each access review once
//! for all members of its group. It writes nothing. If a permission of a member is denied or
//! unknown, the check starts a reconcile of this member. The reconcile repeats the check and
//! reports the result.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bundle_cluster::{access, account};
use bundle_core::json;
use bundle_core::object::GroupKind;
use bundle_core::plan::inventory::permission_groups::{RunEnd, reviewed_scopes, scope_questions};
use bundle_core::rights::AccessReview;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use kube::Client;

use crate::reconcile::api::discovery::{Apis, Kind};
use crate::reconcile::api::{object, parallel};
use crate::reconcile::context::Context;
use crate::reconcile::context::permission_groups::{GroupMember, GroupRun};
use crate::reconcile::context::rights_schedule::RightsSchedule;
use crate::reconcile::drift::states::InstalledStates;

/// Time limit of one run. A check that needs more time continues after other groups that are due.
const RUN_LIMIT: Duration = Duration::from_secs(60);
/// Number of members of a group that are in memory at the same time.
const PAGE: usize = 256;
/// Number of scopes whose access reviews are in memory at the same time.
const CHUNK: usize = 64;
/// Number of members with a failed request after which a run ends. The API server probably does not
/// respond, and the reconciles of further members would fail too.
const MAX_FAILED_MEMBERS: usize = 3;

/// Checks the groups when they are due, until the future is dropped. A requester has at most one
/// run at a time, and each run uses a reconcile slot of its requester.
pub(in crate::reconcile) async fn run(ctx: Arc<Context>) {
    let (mut running, mut busy) = (FuturesUnordered::new(), HashSet::new());
    loop {
        let (runs, next) = ctx.rights_schedule.begin_runs(Instant::now(), &mut busy);
        for run in runs {
            running.push(run_group(ctx.clone(), run).boxed());
        }
        let due = async {
            match next {
                Some(next) => tokio::time::sleep_until(next.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(requester) = running.next(), if !running.is_empty() => {
                busy.remove(&requester);
            }
            () = ctx.rights_schedule.earlier() => {}
            () = due => {}
        }
    }
}

/// Executes one run of a group check. Returns the requester of the run.
async fn run_group(ctx: Arc<Context>, run: GroupRun) -> String {
    let user = run.terms.requesters.first();
    let user = user.map_or("", |requester| requester.user.as_str());
    let _slot = ctx.slots.acquire(user).await;
    let check = GroupCheck {
        client: &ctx.own,
        apis: &ctx.apis,
        states: &ctx.states,
        schedule: &ctx.rights_schedule,
        system_namespace: ctx.shared.settings.namespace.as_str(),
        run: &run,
    };
    check
        .run(RUN_LIMIT, ctx.shared.settings.rights_check_interval)
        .await;
    run.requester
}

/// The results of one run. Their number is at most the number of recorded objects of the members.
#[derive(Default)]
struct ScopeResults {
    /// True if the requesters have all permissions for a scope, by hash of the scope.
    allowed: HashMap<[u8; 32], bool>,
    /// The served kinds. The value is `None` for a kind that the API server does not serve.
    kinds: HashMap<GroupKind, Option<Kind>>,
}

/// The progress of one run, which is also known after a timeout.
#[derive(Default)]
struct RunProgress {
    has_terms: bool,
    /// The member that is being checked.
    member: Option<GroupMember>,
    /// The uid of the last member that was checked.
    after: Option<String>,
}

/// The input of one run.
struct GroupCheck<'a> {
    client: &'a Client,
    apis: &'a Apis,
    states: &'a InstalledStates,
    schedule: &'a RightsSchedule,
    /// The namespace of the pod.
    system_namespace: &'a str,
    run: &'a GroupRun,
}

impl GroupCheck<'_> {
    /// Checks members until all are checked, requests fail, or `limit` has passed. Schedules the
    /// next run.
    async fn run(&self, limit: Duration, interval: Duration) {
        let mut progress = RunProgress {
            after: self.run.after.clone(),
            ..RunProgress::default()
        };
        let ended = tokio::time::timeout(limit, self.check(&mut progress)).await;
        let end = ended.unwrap_or(RunEnd::TimedOut {
            has_terms: progress.has_terms,
        });
        // After a timeout, the check continues with the next member.
        if let Some(member) = progress.member.take() {
            self.start_reconcile(&member);
            progress.after = Some(member.uid);
        }
        let end = (end.next_run(), progress.after);
        self.schedule
            .end_run(self.run.key, end, Instant::now(), interval);
    }

    async fn check(&self, progress: &mut RunProgress) -> RunEnd {
        match self.has_terms().await {
            Ok(true) => progress.has_terms = true,
            Ok(false) => {
                self.start_all_reconciles().await;
                return RunEnd::Complete;
            }
            Err(error) => {
                self.log_failure(&error);
                return RunEnd::Failed;
            }
        }
        let (mut results, mut failed) = (ScopeResults::default(), 0);
        loop {
            let page = self.members(progress.after.as_deref());
            if page.is_empty() {
                return RunEnd::Complete;
            }
            for member in page {
                progress.member = Some(member.clone());
                let result = self.is_allowed(&member.name, &mut results).await;
                progress.member = None;
                if !matches!(result, Ok(true)) {
                    self.start_reconcile(&member);
                }
                progress.after = Some(member.uid);
                if let Err(error) = result {
                    self.log_failure(&error);
                    failed += 1;
                    if failed == MAX_FAILED_MEMBERS {
                        return RunEnd::Failed;
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn members(&self, after: Option<&str>) -> Vec<GroupMember> {
        self.schedule.members(self.run.key, after, PAGE)
    }

    /// Returns true if all requesters exist and have the permissions for the terms of the group.
    async fn has_terms(&self) -> Result<bool, kube::Error> {
        let terms = &self.run.terms;
        for requester in &terms.requesters {
            let lost = account::account_loss(self.client, requester).await?;
            if lost.is_some() {
                return Ok(false);
            }
        }
        for (requester, question) in terms.questions(self.system_namespace) {
            if !access::has_permission(self.client, requester, &question).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true if all requesters have the permissions for all recorded objects of this
    /// BundleDeployment, without the names of the objects. Also returns false if these permissions
    /// are not sufficient, or if the API server does not serve a kind.
    async fn is_allowed(
        &self,
        name: &str,
        results: &mut ScopeResults,
    ) -> Result<bool, kube::Error> {
        let inventory = self.states.inventory(name);
        let Some(scopes) = reviewed_scopes(&inventory) else {
            return Ok(false);
        };
        let mut unknown = Vec::new();
        for (kind, namespace) in scopes {
            let key = json::sha256(&(&kind.group, &kind.kind, namespace));
            match results.allowed.get(&key) {
                Some(true) => {}
                Some(false) => return Ok(false),
                None => unknown.push((key, kind, namespace.map(str::to_owned))),
            }
        }
        let mut unknown = unknown.into_iter();
        loop {
            let mut chunk = Vec::new();
            for (key, kind, namespace) in unknown.by_ref().take(CHUNK) {
                let served = self.served_kind(&kind, results).await?;
                let served = served.filter(|served| served.namespaced == namespace.is_some());
                let Some(served) = served else {
                    results.allowed.insert(key, false);
                    return Ok(false);
                };
                let resource = &served.resource.plural;
                let questions = scope_questions(&kind.group, resource, namespace.as_deref());
                chunk.push((key, questions));
            }
            if chunk.is_empty() {
                return Ok(true);
            }
            let answers = parallel::ordered(chunk.into_iter().map(|(key, questions)| async move {
                let answer = self.have_permissions(&questions).await;
                (key, answer)
            }));
            let mut all_allowed = true;
            for (key, answer) in answers.await {
                let answer = answer?;
                results.allowed.insert(key, answer);
                all_allowed &= answer;
            }
            if !all_allowed {
                return Ok(false);
            }
        }
    }

    /// Returns true if all requesters have all these permissions.
    async fn have_permissions(&self, questions: &[AccessReview]) -> Result<bool, kube::Error> {
        for requester in &self.run.terms.requesters {
            for question in questions {
                if !access::has_permission(self.client, requester, question).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Returns the kind in the version that the API server prefers.
    async fn served_kind(
        &self,
        kind: &GroupKind,
        results: &mut ScopeResults,
    ) -> Result<Option<Kind>, kube::Error> {
        if let Some(known) = results.kinds.get(kind) {
            return Ok(known.clone());
        }
        let served = self.apis.preferred(kind).await?;
        results.kinds.insert(kind.clone(), served.clone());
        Ok(served)
    }

    /// Removes `member` from the group, and starts its reconcile, which checks its permissions.
    /// Does nothing if another reconcile has removed the member from the group.
    fn start_reconcile(&self, member: &GroupMember) {
        if self
            .schedule
            .release(self.run.key, &member.uid, Instant::now())
        {
            self.states.requeue(std::slice::from_ref(&member.name));
        }
    }

    async fn start_all_reconciles(&self) {
        let mut page = self.members(None);
        while let Some(last) = page.last() {
            for member in &page {
                self.start_reconcile(member);
            }
            page = self.members(Some(&last.uid));
            tokio::task::yield_now().await;
        }
    }

    fn log_failure(&self, error: &kube::Error) {
        tracing::warn!(
            requester = self.run.requester,
            why = object::error_message(error),
            "a periodic check of the permissions of a requester failed; it is retried"
        );
    }
}

#[cfg(test)]
mod tests;
