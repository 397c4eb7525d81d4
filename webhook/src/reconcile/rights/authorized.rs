//! The rights for one installation, with the moment and the namespaces that they were asked for.
//! The questions are in `requester_rights`; namespaces that were replaced since an earlier installation are in `namespaces`.

use std::time::{Duration, Instant};

use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::some_of;
use bundle_core::plan::consent::ObjectAction;

use crate::reconcile::content::items::Item;
use crate::reconcile::deployment::controller::{DeploymentReconcile, LISTED};
use crate::reconcile::deployment::namespaces::Uids;
use crate::reconcile::deployment::steps::InstallRequest;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::install::apply::ApplyPlan;
use crate::reconcile::install::replace::Replacements;
use crate::reconcile::rights::requester_check::RequesterCheck;

/// Time for which an answer about rights counts before a write. Afterwards it is asked again.
pub(in crate::reconcile) const RECENT: Duration = Duration::from_secs(10);

/// Objects that may be installed.
pub(in crate::reconcile) struct AuthorizedInstall<'a, 'i> {
    pub(in crate::reconcile) check: RequesterCheck<'a>,
    pub(in crate::reconcile) plan: ApplyPlan<'i>,
    pub(in crate::reconcile) replacements: Replacements,
    /// The namespaces of the objects, as they were before anything was asked.
    pub(in crate::reconcile) namespaces: Uids,
    since: Instant,
}

impl AuthorizedInstall<'_, '_> {
    /// Returns `true` as long as the answers count.
    pub(in crate::reconcile) fn is_recent(&self) -> bool {
        self.since.elapsed() < RECENT
    }
}

impl<'a> DeploymentReconcile<'a> {
    /// Checks whether the requesters may install `items`. `first` says that this content was not installed before.
    pub(in crate::reconcile) async fn authorize_install<'i>(
        &mut self,
        request: &InstallRequest<'_>,
        items: &'i [Item],
        first: bool,
    ) -> Result<AuthorizedInstall<'a, 'i>, ReconcileError> {
        let all: Vec<&Item> = items.iter().collect();
        let namespaces = self.namespaces_of(&all).await?;
        let asked = self.authorize(request, items, (ObjectAction::Install, first));
        let (check, plan, replacements) = asked.await?;
        Ok(AuthorizedInstall {
            check,
            plan,
            replacements,
            namespaces,
            since: Instant::now(),
        })
    }

    /// Before anything is recorded: the namespaces have to be those that the rights were asked for.
    pub(in crate::reconcile) async fn before_record(
        &self,
        items: &[&Item],
        asked: &Uids,
    ) -> Result<(), ReconcileError> {
        let live = self.namespaces_of(items).await?;
        let names = asked.keys().chain(live.keys());
        let changed = names.filter(|name| asked.get(*name) != live.get(*name));
        self.unless_changed(changed.map(String::as_str).collect())
    }

    /// Before the objects of a phase are applied: the same of their namespaces, which have to exist. Those that an earlier phase created count from now on, and
    /// are recorded.
    pub(in crate::reconcile) async fn before_applies(
        &mut self,
        items: &[&Item],
        asked: &mut Uids,
    ) -> Result<(), ReconcileError> {
        let live = self.existing_namespaces_of(items).await?;
        let replaced = live
            .iter()
            .filter(|(name, uid)| asked.get(*name).is_some_and(|before| before != *uid));
        self.unless_changed(replaced.map(|(name, _)| name.as_str()).collect())?;
        if live.keys().any(|name| !asked.contains_key(name)) {
            self.record_live(&live).await?;
        }
        asked.extend(live);
        Ok(())
    }

    fn unless_changed(&self, mut changed: Vec<&str>) -> Result<(), ReconcileError> {
        changed.sort_unstable();
        changed.dedup();
        if changed.is_empty() {
            return Ok(());
        }
        let list = some_of(&changed, LISTED);
        Err(ReconcileError::new(
            codes::install::NAMESPACE_REPLACED,
            self.install_reason(),
            format!(
                "somebody created or deleted these namespaces while the rights for them were asked: {list}. They are asked again"
            ),
            RetryPolicy::Soon,
        ))
    }
}
