//! The reconcile of a BundleDeployment: generates the Bundle of its template, and installs and
//! maintains the content of this Bundle.

use std::collections::BTreeSet;
use std::time::Duration;

use bundle_api::names::reason;
use bundle_core::diagnostic::codes;
use bundle_core::plan::revisions::RetainedBundles;
use bundle_core::plan::status::BundleFact;
use bundle_core::plan::steps::{InstallOutcome, MaintenanceStep};
use kube::Client;

use crate::clients::cluster::ServiceAccount;
use crate::reconcile::bundle::generated::{self, GeneratedBundle};
use crate::reconcile::deployment::conditions;
use crate::reconcile::deployment_state::{
    DeploymentReconcile, HEALTH_CHECK_INTERVAL, InstallRequest, has_finalizer,
};
use crate::reconcile::drift::restored::RestoreScope;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::maintenance::health;

impl DeploymentReconcile<'_> {
    /// Returns the condition reason for a failed installation or upgrade.
    pub(in crate::reconcile) fn install_reason(&self) -> &'static str {
        if self.status.active_bundle.is_none() {
            reason::INSTALL_FAILED
        } else {
            reason::UPGRADE_FAILED
        }
    }

    fn service_account(&self) -> Result<ServiceAccount, ReconcileError> {
        let chosen = self
            .spec
            .service_account
            .as_ref()
            .or(self.class.service_account.as_ref());
        let Some(chosen) = chosen else {
            return Err(ReconcileError::new(
                codes::install::NO_ACCOUNT,
                reason::ERROR_GETTING_CLIENT,
                format!(
                    "neither spec.serviceAccount nor class {} names a ServiceAccount to install as",
                    self.class.name
                ),
                RetryPolicy::OnChange,
            ));
        };
        Ok(chosen.clone())
    }

    fn client(&self, account: &ServiceAccount) -> Result<Client, ReconcileError> {
        self.ctx.shared.leader_client_as(account).map_err(|error| {
            ReconcileError::new(
                codes::install::NO_ACCOUNT,
                reason::ERROR_GETTING_CLIENT,
                crate::chain(&error),
                RetryPolicy::OnChange,
            )
        })
    }

    pub(super) async fn run(&mut self) -> Result<Option<Duration>, ReconcileError> {
        crate::reconcile::context::check_provisioner(self.class)?;
        self.load_inventory().await?;
        self.assign_rollout().await?;
        if let Some(former) = self.replacement() {
            return self.run_replacement(&former).await;
        }
        let result = self.run_content().await;
        self.continue_rollout(result).await
    }

    /// Installs and maintains the content of the template in `self.spec`. Returns the delay of the
    /// next reconcile.
    pub(super) async fn run_content(&mut self) -> Result<Option<Duration>, ReconcileError> {
        let template = self.spec.template.clone();
        // The object was read before this reconcile added the finalizer.
        let is_new = !has_finalizer(self.object);
        let revisions = self.core_revisions();
        let generated =
            generated::find_or_create(self.ctx, self.object, &template, &revisions, is_new)
                .await
                .inspect_err(|error| {
                    let fact = BundleFact::NotMade(error.reason, error.message.clone());
                    self.facts.bundle = Some(fact);
                })?;
        self.remember_seals(&generated).await?;
        let account = self.service_account()?;
        let client = self.client(&account)?;
        let unpacked = generated.content.is_some();
        self.facts.bundle = Some(conditions::bundle_fact(&generated));
        let request = InstallRequest {
            generated: &generated,
            account: &account,
            client: &client,
            reason: self.install_reason(),
        };
        self.note_content(&request);
        let result = self.ensure_installed(&request, unpacked).await;
        self.has_installed = matches!(result, Ok(true));
        // Stale discovery data can be the cause of the error. It is not the cause if requirements
        // are missing, because these are looked up without the discovery cache. It is also not the
        // cause while a background task fetches or renders the content.
        let unrelated = [
            codes::install::REQUIREMENT_MISSING,
            codes::install::UNPACKING,
        ];
        if let Err(error) = &result
            && !unrelated.contains(&error.code)
        {
            self.ctx.apis.forget_custom().await;
        }
        let key = self.content_key(&request);
        let applied = self.ctx.states.partially_applied(&self.name, &key);
        self.show_upgrade(&generated);
        let outcome = InstallOutcome {
            in_place: self.ctx.states.applied_content(&self.name, &key),
            is_partly_applied: applied.is_some(),
            is_unfinished: self.inventory.is_unfinished(),
            has_completed: self.has_installed,
        };
        let recorded = if outcome.is_in_place() {
            self.record_requesters(&key).await
        } else {
            Ok(())
        };
        let kept = Box::pin(self.maintenance(&request, outcome, applied.unwrap_or_default())).await;
        let installed = result.and(recorded);
        if let (Err(_), Err(error)) = (&installed, &kept) {
            // Only the error of the installation or of its record is returned. Therefore missing
            // permissions for the installed content are stored as a separate fact.
            self.note_rights(error);
        }
        self.facts.is_in_place = outcome.is_in_place();
        let awaited = self.ctx.states.phase_progress(&self.name, &key);
        let ready = awaited.as_ref().filter(|awaited| awaited.unready.is_none());
        let pause = ready.map(|awaited| awaited.pause);
        self.requested.awaited = awaited;
        installed?;
        if let Some(pause) = pause.filter(|_| !self.spec.paused) {
            // The objects of the awaited phase became healthy during this reconcile. The next
            // reconcile continues the installation.
            return kept.map(|_| Some(pause));
        }
        kept
    }

    /// Executes the maintenance steps that follow the installation. Returns the delay of the next
    /// reconcile.
    async fn maintenance(
        &mut self,
        request: &InstallRequest<'_>,
        outcome: InstallOutcome,
        applied: BTreeSet<String>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let mut kept = Ok(None);
        for step in outcome.maintenance() {
            match step {
                MaintenanceStep::ReportApproval if outcome.is_in_place() => {
                    let installed =
                        self.status.active_bundle.as_deref() == Some(&request.generated.name);
                    self.approve(request, !installed).await.ok();
                }
                MaintenanceStep::ReportApproval => {
                    let is_known = request.generated.content.is_some();
                    self.show_approval(request, is_known).await;
                }
                MaintenanceStep::Maintain => kept = Box::pin(self.maintain(request)).await,
                MaintenanceStep::MaintainPartial => {
                    kept = Box::pin(self.maintain_partial(request, &applied)).await;
                }
                MaintenanceStep::MaintainPrevious => {
                    let former = self.maintain_installed(request.account, request.client);
                    kept = Box::pin(former).await;
                }
                MaintenanceStep::CheckPermissions => {
                    if let Ok(wait) = &mut kept {
                        match self.permission_cycle(request).await {
                            Ok(Some(next)) => {
                                *wait = Some(wait.map_or(next, |wait| wait.min(next)));
                            }
                            Ok(None) => {}
                            Err(error) => kept = Err(error),
                        }
                    }
                }
                MaintenanceStep::DeleteOldBundles => {
                    self.delete_old_bundles(request.generated, outcome.is_in_place())
                        .await;
                }
            }
        }
        kept
    }

    /// Deletes Bundles of earlier templates that are no longer needed. Errors are only logged.
    async fn delete_old_bundles(&self, generated: &GeneratedBundle, in_place: bool) {
        let active = self.status.active_bundle.as_deref();
        let (requested, healthy) = self.rollout_bundles();
        let cleared = generated::delete_old(
            self.ctx,
            self.object,
            &RetainedBundles {
                wanted: requested.as_deref().unwrap_or(&generated.name),
                wanted_is_installed: in_place && active == Some(&generated.name),
                active,
                healthy: healthy.as_deref(),
                revisions: &self.core_revisions(),
            },
        )
        .await;
        if let Err(error) = cleared {
            tracing::warn!(
                deployment = self.name,
                error = crate::chain(&error),
                "cannot delete old Bundles; the next reconcile retries"
            );
        }
    }

    /// Maintains installed content: restores or reports drifted objects, and checks the health of
    /// objects. Returns the delay of the next reconcile.
    pub(in crate::reconcile) async fn maintain(
        &mut self,
        request: &InstallRequest<'_>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let mut refused = None;
        self.expire_drifted_jobs(request).await?;
        let mut wait = match self.restore(request, RestoreScope::All).await {
            Err(error) if error.reason == reason::RIGHTS_WITHDRAWN => {
                refused = Some(error);
                None
            }
            restored => restored?,
        };
        let name = self.name.clone();
        if health::check_health(self.ctx, request.client, &name).await {
            wait = Some(
                wait.unwrap_or(HEALTH_CHECK_INTERVAL)
                    .min(HEALTH_CHECK_INTERVAL),
            );
        }
        refused.map_or(Ok(wait), Err)
    }
}
