//! Observation of the objects of content: their watches, the objects that exist, and their
//! comparison with the recorded installation.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bundle_api::names::reason;
use bundle_core::plan::inventory::ContentKey;

use crate::reconcile::api::object::ObservedObject;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::drift::states::{self, AppliedState};
use crate::reconcile::drift::watch::WatchUser;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::maintenance::restore;

impl DeploymentReconcile<'_> {
    /// Loads the installed content, and finds the state of its objects like [`Self::find_state`].
    /// `key` is the key of the recorded installation, because the current spec can contain settings
    /// that are not installed yet.
    pub(in crate::reconcile) async fn find_installed(
        &mut self,
        request: &InstallRequest<'_>,
        key: &ContentKey,
    ) -> Result<(), ReconcileError> {
        let mut items = self.objects(request).await?;
        self.expire_unseen_jobs(request, &mut items).await?;
        self.find_state(request, &items, key).await
    }

    /// Finds the state of the installed `items` after a restart, without an apply. Objects that
    /// differ from the content count as drifted. `key` is the key of the installation of `items`.
    pub(super) async fn find_state(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
        key: &ContentKey,
    ) -> Result<(), ReconcileError> {
        if !self.watch(request, items, false).await? {
            self.ctx.states.mark_unwatched(&self.name);
        }
        let seen = self.observed_objects(request, items).await?;
        let in_place = self.is_as_recorded(items, request, (key, &seen));
        let changed = if in_place {
            BTreeSet::new()
        } else {
            restore::find_changed(request.client, items, &seen).await
        };
        let applied: HashMap<String, AppliedState> = items
            .iter()
            .map(|item| {
                let applied = match seen.get(&item.key) {
                    Some(seen) if !changed.contains(&item.key) => {
                        crate::reconcile::install::executor::observed_state(seen)
                    }
                    _ => AppliedState::default(),
                };
                (item.key.clone(), applied)
            })
            .collect();
        self.ctx
            .states
            .finish_apply(&self.name, key, applied, &seen);
        self.ctx.states.mark_drifted(&self.name, changed);
        Ok(())
    }

    /// Opens the watches for `items`. A kind that the content itself defines is watched only if the
    /// API server serves this kind. If `all` is true, all kinds are already served and this check
    /// is omitted. Returns true if all items are watched.
    pub(in crate::reconcile) async fn watch(
        &self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
        all: bool,
    ) -> Result<bool, ReconcileError> {
        let failed = |error: kube::Error| {
            ReconcileError::api(
                "check the permissions for watches",
                reason::CREATE_DYNAMIC_WATCH_FAILED,
                &error,
            )
        };
        let mut watched = Vec::new();
        let mut served = HashMap::new();
        for item in items {
            if item.is_defined_by_content && !all && !served.contains_key(&item.kind) {
                let resource = &item.kind.resource;
                let found = self
                    .ctx
                    .apis
                    .find(&resource.group, &resource.version, &resource.kind)
                    .await
                    .map_err(failed)?;
                served.insert(item.kind.clone(), found.is_some());
            }
            if served.get(&item.kind).copied().unwrap_or(true) {
                watched.push(item);
            }
        }
        let complete = watched.len() == items.len();
        // Until the new content is completely installed, the objects of the previous content are
        // maintained and need their watches. Therefore these watches stay open until then.
        let only = self.is_installed(request);
        let subjects = self
            .ctx
            .scopes
            .subjects(request.client, request.account, watched)
            .await
            .map_err(failed)?;
        let user = WatchUser {
            deployment: &self.name,
            requester: self.limited_user(),
        };
        self.ctx
            .watches
            .keep(user, &subjects, only, request.client)
            .await
            .map_err(|error| {
                ReconcileError::new(
                    error.code(),
                    reason::CREATE_DYNAMIC_WATCH_FAILED,
                    error.to_string(),
                    error.retry(),
                )
            })?;
        Ok(complete)
    }

    /// Returns the recorded objects that exist, by object key. Most of these objects are reported
    /// by watches. Objects of `items` that no watch reports are read individually, for example
    /// objects without owner labels.
    pub(in crate::reconcile) async fn observed_objects(
        &self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
    ) -> Result<BTreeMap<String, ObservedObject>, ReconcileError> {
        let mut seen = self.ctx.watches.observed_objects(&self.name);
        let missing = items.iter().filter(|item| {
            !seen.contains_key(&item.key) && self.inventory.uid(&item.key).is_some()
        });
        let install = self.install(request, request.reason);
        let found = install.observe(missing).await?;
        seen.extend(
            found
                .into_iter()
                .filter(|(key, seen)| self.inventory.owns(key, &seen.uid)),
        );
        Ok(seen)
    }

    /// Returns true if the installation `key` is recorded, and the objects in `seen` are unchanged
    /// since the last apply.
    pub(super) fn is_as_recorded(
        &self,
        items: &[PreparedObject],
        request: &InstallRequest<'_>,
        (key, seen): (&ContentKey, &BTreeMap<String, ObservedObject>),
    ) -> bool {
        let Some(installed) = self.installed_content() else {
            return false;
        };
        if installed.installation != *key || !self.is_installed(request) {
            return false;
        }
        let Some(applied) = restore::observed_as_applied(items, seen) else {
            return false;
        };
        states::digest_of(&applied)
            .is_some_and(|digest| installed.fields_digest.as_deref() == Some(digest.as_str()))
    }
}
