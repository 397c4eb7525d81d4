//! The reconcile of a BundleDeployment: generates the Bundle of its template, installs its content,
//! and maintains it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bundle_api::deployment_status::BundleDeploymentStatus;
use bundle_api::names::reason;
use bundle_core::diagnostic::codes;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::status::{BundleFact, DeploymentFacts};
use bundle_core::plan::steps::{MaintenanceStep, Outcome};
use bundle_core::review::{CheckedDeploymentSpec, Class, PartRequesters, Requester};
use kube::Client;
use kube::api::DynamicObject;

use crate::cluster::ServiceAccount;
use crate::reconcile::bundle::generated::{self, GeneratedBundle};
use crate::reconcile::bundle::verify::AppliedPolicies;
use crate::reconcile::content::scalers::Scalers;
use crate::reconcile::context::Context;
use crate::reconcile::deployment::conditions;
use crate::reconcile::deployment::steps::InstallRequest;
use crate::reconcile::drift::keep;
use crate::reconcile::drift::restored::{Restored, Scope};
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::status::condition_set::ConditionSet;

/// Maximum number of objects and warnings in a status.
pub(in crate::reconcile) const LISTED: usize = 20;
/// Interval of health checks for objects whose health could not be read. Watches report all other
/// changes.
pub(in crate::reconcile) const HEALTH_AGAIN: Duration = Duration::from_secs(5);

/// One reconcile of a BundleDeployment.
pub(in crate::reconcile) struct DeploymentReconcile<'a> {
    pub(in crate::reconcile) object: &'a DynamicObject,
    pub(in crate::reconcile) ctx: &'a Arc<Context>,
    pub(in crate::reconcile) class: &'a Class,
    pub(in crate::reconcile) spec: CheckedDeploymentSpec,
    /// The requester of the template, and so of the content.
    pub(in crate::reconcile) requester: Requester,
    /// The requester of each part of the spec.
    pub(in crate::reconcile) parts: PartRequesters,
    pub(in crate::reconcile) name: String,
    pub(in crate::reconcile) applyset: String,
    /// The annotations, including those that this reconcile has written.
    pub(in crate::reconcile) annotations: BTreeMap<String, String>,
    /// The recorded objects of the deployment.
    pub(in crate::reconcile) inventory: Arc<Inventory>,
    /// The conditions of the status.
    pub(in crate::reconcile) conditions: ConditionSet,
    /// Facts for the conditions.
    pub(in crate::reconcile) facts: DeploymentFacts,
    pub(in crate::reconcile) old: BundleDeploymentStatus,
    pub(in crate::reconcile) status: BundleDeploymentStatus,
    pub(in crate::reconcile) warnings: BTreeSet<String>,
    pub(in crate::reconcile) approved_by: Option<String>,
    pub(in crate::reconcile) restored: Vec<Restored>,
    /// True if this reconcile tried to restore objects that were due.
    pub(in crate::reconcile) restores_tried: bool,
    pub(super) placed: bool,
    /// The policies that verified the content in this reconcile.
    pub(in crate::reconcile) applied_policies: Option<AppliedPolicies>,
    /// Objects whose replicas were not applied, because another owner sets them.
    pub(in crate::reconcile) scalers: Arc<Scalers>,
    /// The key of the target namespace, if the content that was prepared last creates it.
    pub(in crate::reconcile) created_namespace: Option<String>,
}

impl DeploymentReconcile<'_> {
    /// Returns the reason for a failed installation.
    pub(in crate::reconcile) fn install_reason(&self) -> &'static str {
        if self.status.active_bundle.is_none() {
            reason::INSTALL_FAILED
        } else {
            reason::UPGRADE_FAILED
        }
    }

    fn account(&self) -> Result<ServiceAccount, ReconcileError> {
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
        self.ctx.shared.client_as(account).map_err(|error| {
            ReconcileError::new(
                codes::install::NO_ACCOUNT,
                reason::ERROR_GETTING_CLIENT,
                crate::chain(&error),
                RetryPolicy::OnChange,
            )
        })
    }

    pub(super) async fn run(&mut self) -> Result<Option<Duration>, ReconcileError> {
        crate::reconcile::context::is_built(self.class)?;
        self.load_inventory().await?;
        let template = self.spec.template.clone();
        let generated =
            generated::of_template(self.ctx, self.object, &template, &self.core_revisions())
                .await
                .inspect_err(|error| {
                    let fact = BundleFact::NotMade(error.reason, error.message.clone());
                    self.facts.bundle = Some(fact);
                })?;
        self.remember_seals(&generated).await?;
        let account = self.account()?;
        let client = self.client(&account)?;
        let unpacked = generated.content.is_some();
        self.facts.bundle = Some(conditions::bundle_fact(&generated));
        let request = InstallRequest {
            generated: &generated,
            account: &account,
            client: &client,
            reason: self.install_reason(),
        };
        let result = self.place(&request, unpacked).await;
        self.placed = matches!(result, Ok(true));
        if result.is_err() {
            // Stale discovery data can be the cause.
            self.ctx.apis.forget_custom().await;
        }
        let key = self.content_key(&request);
        let applied = self.ctx.states.applied_partly(&self.name, &key);
        self.show_upgrade(&generated);
        let outcome = Outcome {
            is_in_place: unpacked && self.ctx.states.content(&self.name) == Some(key),
            is_partly_applied: applied.is_some(),
            has_changed: self.placed,
        };
        let kept = Box::pin(self.maintenance(&request, outcome, applied.unwrap_or_default())).await;
        if let (Err(_), Err(error)) = (&result, &kept) {
            // The error of the new content is reported. It would hide missing permissions for the
            // installed content.
            self.note_rights(error);
        }
        self.facts.is_in_place = outcome.is_in_place;
        result?;
        kept
    }

    /// Executes the steps that follow an installation. Returns when to reconcile again.
    async fn maintenance(
        &mut self,
        request: &InstallRequest<'_>,
        outcome: Outcome,
        applied: BTreeSet<String>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let mut kept = Ok(None);
        for step in outcome.maintenance() {
            match step {
                MaintenanceStep::ReportApproval if outcome.is_in_place => {
                    let installed =
                        self.status.active_bundle.as_deref() == Some(&request.generated.name);
                    self.approve(request, !installed).await.ok();
                }
                MaintenanceStep::ReportApproval => {
                    let is_known = request.generated.content.is_some();
                    self.show_approval(request, is_known).await;
                }
                MaintenanceStep::Maintain => kept = Box::pin(self.keep(request)).await,
                MaintenanceStep::MaintainPartial => {
                    kept = Box::pin(self.keep_partly(request, &applied)).await;
                }
                MaintenanceStep::MaintainPrevious => {
                    let former = self.keep_active(request.account, request.client);
                    kept = Box::pin(former).await;
                }
                MaintenanceStep::CheckPermissions => {
                    if let Ok(wait) = &mut kept {
                        match self.rights_cycle(request).await {
                            Ok(next) => *wait = Some(wait.map_or(next, |wait| wait.min(next))),
                            Err(error) => kept = Err(error),
                        }
                    }
                }
                MaintenanceStep::DeleteOldBundles => {
                    self.clear(request.generated, outcome.is_in_place).await;
                }
            }
        }
        kept
    }

    /// Deletes Bundles that are no longer needed.
    async fn clear(&self, generated: &GeneratedBundle, in_place: bool) {
        let active = self.status.active_bundle.as_deref();
        let cleared = generated::clear(
            self.ctx,
            self.object,
            &generated.name,
            active,
            &self.core_revisions(),
            in_place && active == Some(&generated.name),
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

    /// Maintains installed content: restores or reports drift, and checks health.
    pub(in crate::reconcile) async fn keep(
        &mut self,
        request: &InstallRequest<'_>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let mut refused = None;
        self.expire_drifted_jobs(request).await?;
        let mut wait = match self.restore(request, Scope::All).await {
            Err(error) if error.reason == reason::RIGHTS_WITHDRAWN => {
                refused = Some(error);
                None
            }
            restored => restored?,
        };
        let name = self.name.clone();
        if keep::look(self.ctx, request.client, &name).await {
            wait = Some(wait.unwrap_or(HEALTH_AGAIN).min(HEALTH_AGAIN));
        }
        refused.map_or(Ok(wait), Err)
    }
}
