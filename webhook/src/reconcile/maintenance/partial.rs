//! Maintenance while the requested content is not completely installed. Objects that the incomplete
//! installation applied are restored to the requested content. All other objects are restored to
//! the installed content with its configuration. A write of installed content requires permissions
//! of two groups: the requesters of the installed content, and the requesters of the spec.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bundle_api::names::reason;
use bundle_core::diagnostic::codes;
use bundle_core::plan::restores::RestoreFailure;
use bundle_core::plan::revisions;
use bundle_core::review::Requester;
use kube::Client;
use kube::api::DynamicObject;

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

/// Values for maintaining the installed content. [`DeploymentReconcile::exchange`] exchanges them
/// with the values for the requested content.
struct InstalledSelection<'a> {
    /// The BundleDeployment with the configuration of the installed content.
    object: &'a DynamicObject,
    /// The requester of the template of the installed content.
    requester: Requester,
    departed_requesters: Vec<Requester>,
}

impl<'a> DeploymentReconcile<'a> {
    /// Restores the objects in `applied` to the values of the requested content. Restores all other
    /// objects to the values of the installed content. If an earlier process began the installation
    /// of the requested content, [`Self::find_former`] selects these other objects. Returns the
    /// delay of the next reconcile.
    pub(in crate::reconcile) async fn maintain_partial(
        &mut self,
        request: &InstallRequest<'_>,
        applied: &BTreeSet<String>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let new = InstallRequest {
            reason: reason::RECONCILE_FAILED,
            ..*request
        };
        let key = self.content_key(request);
        self.ctx.states.resume_installation(&self.name, &key);
        // Objects of the requested content are restored only if this content is approved.
        let restored = match self.approve(&new, true).await {
            Ok(()) => self.restore(&new, RestoreScope::Only(applied)).await,
            Err(_) => Ok(None),
        };
        let kept = Box::pin(self.restore_former(request, applied)).await;
        let name = self.name.clone();
        // Objects that are still due could not be restored, for example because their intended
        // values are unknown. Their next attempt is delayed.
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

    /// Returns the Bundle of the installed content. Returns `None` if the Bundle does not exist, or
    /// was not created for this BundleDeployment.
    async fn installed_bundle(&self) -> Option<GeneratedBundle> {
        let active = self.status.active_bundle.as_ref()?;
        let object = self.ctx.get(&self.ctx.bundles, active).await.ok()??;
        generated::generated_hash(self.ctx, self.object, &object)?;
        Some(GeneratedBundle::from_object(self.ctx, object))
    }

    /// Maintains the installed content while no object of the requested content is applied. Does
    /// nothing if the Bundle of the installed content no longer exists, or if the settings of the
    /// spec require another approval. Returns the delay of the next reconcile.
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
        // The digest must also match. If the Bundle was deleted and created again with the same
        // name, its content may differ. The inventory can already record an installation of the
        // requested content.
        if !self.was_installed(&request) {
            return Ok(None);
        }
        let Some(mut selection) = self.installed_selection() else {
            return Ok(None);
        };
        self.exchange(&mut selection);
        let maintained = Box::pin(self.maintain_selected(&request)).await;
        self.exchange(&mut selection);
        maintained
    }

    /// Maintains the installed content, and returns the delay of the next reconcile. Called between
    /// two calls of [`Self::exchange`].
    async fn maintain_selected(
        &mut self,
        request: &InstallRequest<'_>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let installed = self.installed_content();
        let key = installed.map(|installed| installed.installation.clone());
        let Some(key) = key.filter(|_| self.can_restore_installed()) else {
            return Ok(None);
        };
        let states = &self.ctx.states;
        match states.content(&self.name) {
            Some(known) if known.content_digest() == request.digest() => {
                self.maintain(request).await
            }
            None if self.is_installed(request) => {
                self.find_installed(request, &key).await?;
                self.maintain(request).await
            }
            _ => Ok(None),
        }
    }

    /// Returns the values for maintaining the installed content. If the requesters or the
    /// configuration of this content are not recorded, adds a warning and returns `None`.
    fn installed_selection(&mut self) -> Option<InstalledSelection<'a>> {
        let record = self.inventory.record.as_ref()?;
        let installed = record.installed.as_ref()?;
        let requested = self.requested.object;
        let present = &requested.data["spec"]["config"];
        let departed = installed.departed_requesters(&self.parts);
        let config = revisions::restored_config(record.revisions.first(), present);
        let (departed_requesters, config) = match (departed, config) {
            (Some(departed), Some(config)) => (departed, config),
            (None, _) => {
                let warning =
                    not_maintained("the requesters of the installed content are not recorded");
                self.warnings.insert(warning);
                return None;
            }
            (_, None) => {
                let warning =
                    not_maintained("the configuration of the installed content is not recorded");
                self.warnings.insert(warning);
                return None;
            }
        };
        let installed_object = self.requested.installed;
        let object = if config == present {
            requested
        } else {
            installed_object.get_or_init(|| {
                let mut object = requested.clone();
                object.data["spec"] = revisions::spec_with_config(&object.data["spec"], config);
                object
            })
        };
        let author = installed.requesters.first();
        Some(InstalledSelection {
            object,
            requester: author.map_or_else(
                || self.requester.clone(),
                |author| self.present_requester(author),
            ),
            departed_requesters,
        })
    }

    /// Exchanges the values in `self` with the values in `selection`. A second call reverts the
    /// exchange.
    fn exchange(&mut self, selection: &mut InstalledSelection<'a>) {
        std::mem::swap(&mut self.object, &mut selection.object);
        std::mem::swap(&mut self.requester, &mut selection.requester);
        std::mem::swap(
            &mut self.departed_requesters,
            &mut selection.departed_requesters,
        );
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
        if !self.was_installed(&former) {
            return Ok(None);
        }
        let Some(mut selection) = self.installed_selection() else {
            return Ok(None);
        };
        self.exchange(&mut selection);
        let restored = Box::pin(self.restore_selected(&former, applied)).await;
        self.exchange(&mut selection);
        restored
    }

    /// Restores the objects that are not in `applied` to the installed content. Returns the time
    /// until the next verification. Called between two calls of [`Self::exchange`].
    async fn restore_selected(
        &mut self,
        former: &InstallRequest<'_>,
        applied: &BTreeSet<String>,
    ) -> Result<Option<Duration>, ReconcileError> {
        if !self.can_restore_installed() {
            return Ok(None);
        }
        if self.ctx.states.lacks_former_objects(&self.name) {
            self.find_former(former, applied).await?;
        }
        self.restore(former, RestoreScope::Except(applied)).await
    }

    /// Finds the states of those objects of the installed content that have no recorded state, for
    /// example after a restart. Objects that do not have the values of the installed content count
    /// as drifted.
    ///
    /// If an earlier process began the installation of the requested content, such an object may
    /// have values of the requested content, because the inventory does not record the content from
    /// which an object was applied last. Therefore such an object gets no state, so it is not
    /// restored, unless the recorded object does not exist.
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
        let mut changed = restore::find_changed(former.client, &items, &seen).await;
        if states.is_resumed(&name) {
            let is_lost =
                |key: &String| !seen.contains_key(key) && self.inventory.uid(key).is_some();
            items.retain(|item| !changed.contains(&item.key) || is_lost(&item.key));
            changed.retain(is_lost);
        }
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

/// Returns the warning about installed content that is not maintained while the spec requests other
/// content.
pub(in crate::reconcile) fn not_maintained(why: &str) -> String {
    format!(
        "the installed content is not maintained until the content of the spec is installed: {why} ({})",
        codes::install::NOT_MAINTAINED
    )
}
