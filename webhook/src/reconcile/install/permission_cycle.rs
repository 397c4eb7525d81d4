//! The periodic check of the permissions of the requesters. A reconcile executes the check, or a
//! group of BundleDeployments (`rights::permission_groups`).
//! `bundle_core::plan::inventory::permission_groups` decides which checks a group can execute.

use std::time::{Duration, Instant};

use bundle_core::diagnostic::codes;
use bundle_core::plan::consent::ObjectAction;
use bundle_core::plan::inventory::permission_groups::{GroupCandidate, ReviewTerms};
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use crate::reconcile::context::Context;
use crate::reconcile::context::permission_groups::GroupMember;
use crate::reconcile::deployment_state::{
    DeploymentReconcile, InstallRequest, NextPermissionCheck,
};
use crate::reconcile::error::ReconcileError;
use crate::reconcile::install::requester_permissions::withdrawn_from_installed;
use crate::retry::{self, delays};

/// Interval of reconciles without a change, for BundleDeployments whose permissions a group checks.
/// This value is the default of controller-runtime.
const RESYNC_INTERVAL: Duration = Duration::from_secs(10 * 60 * 60);

impl DeploymentReconcile<'_> {
    /// Repeats the access reviews if the periodic check is due. If the permissions are allowed,
    /// stores the next check in `self.permission_check` and returns `None`. If the result is
    /// unknown, returns the time until the next attempt. An unknown result is only logged, because
    /// permissions are also checked before each change.
    pub(in crate::reconcile) async fn permission_cycle(
        &mut self,
        request: &InstallRequest<'_>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let interval = self.ctx.shared.settings.rights_check_interval;
        let uid = self.object.metadata.uid.clone().unwrap_or_default();
        let schedule = &self.ctx.rights_schedule;
        let wait = schedule.wait(&uid, Instant::now(), interval);
        if !wait.is_zero() && self.facts.is_authorized(self.conditions.list()) {
            self.set_next_check(request, wait);
            return Ok(None);
        }
        match self
            .repeat_reviews(request)
            .await
            .map_err(withdrawn_from_installed)
        {
            Ok(()) => {
                let now = Instant::now();
                schedule.record_check(&uid, now, interval);
                self.set_authorized();
                self.set_next_check(request, schedule.wait(&uid, now, interval));
                Ok(None)
            }
            Err(error) if error.code == codes::install::RIGHTS_WITHDRAWN => Err(error),
            Err(error) => {
                tracing::warn!(
                    deployment = self.name,
                    why = error.message,
                    "the periodic check of the requesters' permissions failed; it is retried"
                );
                Ok(Some(retry::jittered(delays::UNKNOWN_PERMISSIONS)))
            }
        }
    }

    async fn repeat_reviews(&mut self, request: &InstallRequest<'_>) -> Result<(), ReconcileError> {
        self.check_terms(request).await?;
        let items = self.objects(request).await?;
        self.run_access_reviews(request, &items, ObjectAction::Restore, None)
            .await
    }

    fn set_next_check(&mut self, request: &InstallRequest<'_>, wait: Duration) {
        self.permission_check = Some(NextPermissionCheck {
            wait,
            has_certificates: self.certificate_version(request).is_some(),
        });
    }

    /// Returns the terms whose permissions the requesters of all parts of the content need.
    pub(super) fn review_terms(&self) -> ReviewTerms {
        ReviewTerms {
            requesters: self.content_requesters(),
            class: self.class.name.clone(),
            bundle_class: self.spec.template.bundle.class.as_str().to_owned(),
            service_account: self.spec.service_account.clone(),
        }
    }

    /// Returns the terms of the group that can execute the next check. Returns `None` if only
    /// reconciles can execute the check. `wait` is the delay of the next reconcile without the
    /// check. Called at the end of a reconcile without an error.
    pub(in crate::reconcile) fn group_terms(
        &self,
        check: NextPermissionCheck,
        wait: Option<Duration>,
    ) -> Option<ReviewTerms> {
        let candidate = GroupCandidate {
            authorization: self.class.authorization,
            approval: self.class.approval,
            is_rollback: self.is_rollback,
            has_departed_requesters: !self.departed_requesters.is_empty(),
            has_certificates: check.has_certificates,
            inventory: &self.inventory,
            generation: self.object.metadata.generation.unwrap_or_default(),
            next_reconcile: wait,
            interval: self.ctx.shared.settings.rights_check_interval,
        };
        let terms = self.review_terms();
        candidate.is_eligible(&terms).then_some(terms)
    }
}

/// Schedules the next periodic check, and returns the delay of the next reconcile. If `terms` is
/// set, adds the BundleDeployment to the group with these terms. Otherwise the next reconcile
/// executes the check. `wait` is the delay of the next reconcile without the check.
pub(in crate::reconcile) fn next_reconcile(
    ctx: &Context,
    object: &DynamicObject,
    (check, terms): (NextPermissionCheck, Option<ReviewTerms>),
    wait: Option<Duration>,
) -> Duration {
    let member = GroupMember {
        uid: object.metadata.uid.clone().unwrap_or_default(),
        name: object.name_any(),
    };
    let is_grouped = terms.is_some_and(|terms| ctx.rights_schedule.join(member, terms));
    let next = if is_grouped {
        retry::jittered(RESYNC_INTERVAL)
    } else {
        check.wait
    };
    wait.map_or(next, |wait| wait.min(next))
}
