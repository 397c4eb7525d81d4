//! Maintenance while the requested content is not installed. Objects that an incomplete
//! installation applied keep their new values. All others keep those of the installed content.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bundle_api::names::reason;
use bundle_core::plan::backoff::RestoreFailure;
use kube::Client;

use crate::cluster::ServiceAccount;
use crate::reconcile::bundle::generated::{self, GeneratedBundle};
use crate::reconcile::content::items::Item;
use crate::reconcile::deployment::controller::{DeploymentReconcile, HEALTH_AGAIN};
use crate::reconcile::deployment::steps::InstallRequest;
use crate::reconcile::drift::keep;
use crate::reconcile::drift::restored::Scope;
use crate::reconcile::drift::states;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::install::executor;

impl DeploymentReconcile<'_> {
    /// Restores the objects in `applied` from the requested content, and all others from the
    /// installed content.
    pub(in crate::reconcile) async fn keep_partly(
        &mut self,
        request: &InstallRequest<'_>,
        applied: &BTreeSet<String>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let new = InstallRequest {
            reason: reason::RECONCILE_FAILED,
            ..*request
        };
        // New content is only written with an approval.
        let restored = match self.approve(&new, true).await {
            Ok(()) => self.restore(&new, Scope::Only(applied)).await,
            Err(_) => Ok(None),
        };
        let kept = Box::pin(self.keep_former(request, applied)).await;
        let name = self.name.clone();
        // Objects without known values wait like other objects that cannot be restored.
        let untried = self.ctx.states.restorable(&name);
        let states = &self.ctx.states;
        states.not_restored(&name, &untried, RestoreFailure::Refused);
        let look_again = keep::look(self.ctx, request.client, &name).await;
        let wait = [restored?, kept?, look_again.then_some(HEALTH_AGAIN)];
        Ok(wait.into_iter().flatten().min())
    }

    /// Returns the Bundle of the installed content.
    async fn active_child(&self) -> Option<GeneratedBundle> {
        let active = self.status.active_bundle.as_ref()?;
        let object = self.ctx.get(&self.ctx.bundles, active).await.ok()??;
        generated::generated_hash(self.ctx, self.object, &object)?;
        Some(GeneratedBundle::of(self.ctx, object))
    }

    /// Maintains the installed content while the requested content is not installed.
    pub(in crate::reconcile) async fn keep_active(
        &mut self,
        account: &ServiceAccount,
        client: &Client,
    ) -> Result<Option<Duration>, ReconcileError> {
        let Some(generated) = self.active_child().await else {
            return Ok(None);
        };
        let request = InstallRequest {
            generated: &generated,
            account,
            client,
            reason: reason::RECONCILE_FAILED,
        };
        // The name alone proves nothing: if the Bundle was deleted and created again, its content
        // was not admitted.
        if !self.is_installed(&request) {
            return Ok(None);
        }
        let states = &self.ctx.states;
        match states.content(&self.name) {
            Some(key) if key.starts_with(request.digest()) => self.keep(&request).await,
            Some(_) => Ok(None),
            None => {
                self.find_again(&request).await?;
                self.keep(&request).await
            }
        }
    }

    async fn keep_former(
        &mut self,
        request: &InstallRequest<'_>,
        applied: &BTreeSet<String>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let Some(generated) = self.active_child().await else {
            return Ok(None);
        };
        let former = InstallRequest {
            generated: &generated,
            reason: reason::RECONCILE_FAILED,
            ..*request
        };
        if !self.was_installed(&former) {
            return Ok(None);
        }
        if self.ctx.states.lacks_former(&self.name) {
            self.find_former(&former, applied).await?;
        }
        self.restore(&former, Scope::Except(applied)).await
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
        let mut items = self.items(former).await?;
        items.retain(|item| !applied.contains(&item.key) && !states.knows(&name, &item.key));
        self.watch(former, &items, true).await?;
        let seen = self.seen(former, &items).await?;
        let changed = keep::changed(former.client, &items, &seen).await;
        let left: HashMap<String, states::AppliedState> = items
            .iter()
            .map(|item: &Item| {
                let left = match seen.get(&item.key) {
                    Some(seen) if !changed.contains(&item.key) => executor::left(seen),
                    _ => states::AppliedState {
                        state: None,
                        version: 0,
                    },
                };
                (item.key.clone(), left)
            })
            .collect();
        let missing = changed
            .iter()
            .filter(|key| !seen.contains_key(*key))
            .cloned()
            .collect();
        states.take_up(&name, left, &seen, &missing);
        states.doubt(&name, changed);
        Ok(())
    }
}
