//! Maintenance while the requested content is not installed. Objects that an incomplete
//! installation applied keep their new values. All other objects keep the values of the installed
//! content.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bundle_api::names::reason;
use bundle_core::plan::backoff::RestoreFailure;
use kube::Client;

use crate::clients::cluster::ServiceAccount;
use crate::reconcile::bundle::generated::{self, GeneratedBundle};
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{
    DeploymentReconcile, HEALTH_CHECK_INTERVAL, InstallRequest,
};
use crate::reconcile::drift::restored::RestoreScope;
use crate::reconcile::drift::states;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::install::executor;
use crate::reconcile::maintenance::{health, restore};

impl DeploymentReconcile<'_> {
    /// Restores the objects in `applied` to the values of the requested content. Restores all other
    /// objects to the values of the installed content.
    pub(in crate::reconcile) async fn maintain_partial(
        &mut self,
        request: &InstallRequest<'_>,
        applied: &BTreeSet<String>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let new = InstallRequest {
            reason: reason::RECONCILE_FAILED,
            ..*request
        };
        // New content is written only with an approval.
        let restored = match self.approve(&new, true).await {
            Ok(()) => self.restore(&new, RestoreScope::Only(applied)).await,
            Err(_) => Ok(None),
        };
        let kept = Box::pin(self.restore_former(request, applied)).await;
        let name = self.name.clone();
        // If the intended values of an object are unknown, the object waits like other objects that
        // cannot be restored.
        let untried = self.ctx.states.restorable(&name);
        let states = &self.ctx.states;
        states.record_restore_failure(&name, &untried, RestoreFailure::Refused);
        let look_again = health::check_health(self.ctx, request.client, &name).await;
        let wait = [
            restored?,
            kept?,
            look_again.then_some(HEALTH_CHECK_INTERVAL),
        ];
        Ok(wait.into_iter().flatten().min())
    }

    /// Returns the Bundle of the installed content. `None` if it does not exist, or was not created
    /// for this deployment.
    async fn installed_bundle(&self) -> Option<GeneratedBundle> {
        let active = self.status.active_bundle.as_ref()?;
        let object = self.ctx.get(&self.ctx.bundles, active).await.ok()??;
        generated::generated_hash(self.ctx, self.object, &object)?;
        Some(GeneratedBundle::from_object(self.ctx, object))
    }

    /// Maintains the installed content while the requested content is not installed. Does nothing
    /// if the Bundle of the installed content is lost, or if a restore would apply settings that
    /// require another approval.
    pub(in crate::reconcile) async fn maintain_installed(
        &mut self,
        account: &ServiceAccount,
        client: &Client,
    ) -> Result<Option<Duration>, ReconcileError> {
        let Some(generated) = self.installed_bundle().await else {
            return Ok(None);
        };
        let request = InstallRequest {
            generated: &generated,
            account,
            client,
            reason: reason::RECONCILE_FAILED,
        };
        // The name of the Bundle is not sufficient. If the Bundle was deleted and created again,
        // its content was not admitted.
        if !self.is_installed(&request) || !self.can_restore_installed() {
            return Ok(None);
        }
        let states = &self.ctx.states;
        match states.content(&self.name) {
            Some(key) if key.content_digest() == request.digest() => self.maintain(&request).await,
            Some(_) => Ok(None),
            None => {
                self.find_installed(&request).await?;
                self.maintain(&request).await
            }
        }
    }

    async fn restore_former(
        &mut self,
        request: &InstallRequest<'_>,
        applied: &BTreeSet<String>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let Some(generated) = self.installed_bundle().await else {
            return Ok(None);
        };
        let former = InstallRequest {
            generated: &generated,
            reason: reason::RECONCILE_FAILED,
            ..*request
        };
        if !self.was_installed(&former) || !self.can_restore_installed() {
            return Ok(None);
        }
        if self.ctx.states.lacks_former_objects(&self.name) {
            self.find_former(&former, applied).await?;
        }
        self.restore(&former, RestoreScope::Except(applied)).await
    }

    /// After a restart, finds the state of objects of the installed content that have no recorded
    /// state.
    async fn find_former(
        &mut self,
        former: &InstallRequest<'_>,
        applied: &BTreeSet<String>,
    ) -> Result<(), ReconcileError> {
        let states = &self.ctx.states;
        let name = self.name.clone();
        let mut items = self.objects(former).await?;
        items.retain(|item| !applied.contains(&item.key) && !states.has_state(&name, &item.key));
        self.watch(former, &items, true).await?;
        let seen = self.observed_objects(former, &items).await?;
        let changed = restore::find_changed(former.client, &items, &seen).await;
        let applied: HashMap<String, states::AppliedState> = items
            .iter()
            .map(|item: &PreparedObject| {
                let applied = match seen.get(&item.key) {
                    Some(seen) if !changed.contains(&item.key) => executor::observed_state(seen),
                    _ => states::AppliedState::default(),
                };
                (item.key.clone(), applied)
            })
            .collect();
        let missing = changed
            .iter()
            .filter(|key| !seen.contains_key(*key))
            .cloned()
            .collect();
        states.add_former_objects(&name, applied, &seen, &missing);
        states.mark_drifted(&name, changed);
        Ok(())
    }
}
