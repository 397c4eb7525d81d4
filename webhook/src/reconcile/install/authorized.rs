//! The result of the permission checks of one installation, with the time and the namespaces of the
//! checks. `requester_permissions` runs the checks. `deployment::checks::namespaces` detects
//! namespaces that were recreated since an earlier installation.

use std::collections::HashMap;
use std::time::Instant;

use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::some_of;
use bundle_core::plan::consent::ObjectAction;
use bundle_core::plan::inventory::Inventory;

use crate::reconcile::apply::{ApplyPlan, CHECK_VALIDITY};
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::{MAX_LISTED, ReconcileError, RetryPolicy};
use crate::reconcile::inventory::namespaces::NamespaceUids;
use crate::reconcile::rights::dry_runs::check::DryRunCheck;

/// An installation after the permissions for its objects were checked.
pub(in crate::reconcile) struct AuthorizedInstall<'a, 'i> {
    pub(in crate::reconcile) check: DryRunCheck<'a>,
    pub(in crate::reconcile) plan: ApplyPlan<'i>,
    pub(in crate::reconcile) replacements: Replacements,
    /// The uids of the namespaces of the objects, read before the permission check.
    pub(in crate::reconcile) namespaces: NamespaceUids,
    since: Instant,
}

/// The objects that the installation deletes and creates again: their uids, by object key.
#[derive(Debug, Default)]
pub(in crate::reconcile) struct Replacements(pub(super) HashMap<String, String>);

impl Replacements {
    /// Returns true if the installation deletes the object that has this key, and creates it again.
    pub(in crate::reconcile) fn contains(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }
}

impl AuthorizedInstall<'_, '_> {
    /// Returns true while the permission check is valid.
    pub(in crate::reconcile) fn is_recent(&self) -> bool {
        self.since.elapsed() < CHECK_VALIDITY
    }
}

impl<'a> DeploymentReconcile<'a> {
    /// Checks the permissions of the requesters to install `items`. `is_first` is true if this
    /// content is not installed yet.
    pub(in crate::reconcile) async fn authorize_install<'i>(
        &mut self,
        request: &InstallRequest<'_>,
        items: &'i [PreparedObject],
        is_first: bool,
    ) -> Result<AuthorizedInstall<'a, 'i>, ReconcileError> {
        let all: Vec<&PreparedObject> = items.iter().collect();
        let namespaces = self.namespaces_of(&all).await?;
        let asked = self.authorize(request, items, (ObjectAction::Install, is_first));
        let (check, plan, replacements) = asked.await?;
        Ok(AuthorizedInstall {
            check,
            plan,
            replacements,
            namespaces,
            since: Instant::now(),
        })
    }

    /// Fails if a namespace of `items` was created or deleted since the permission check. `asked`
    /// are the namespaces that the check found. Called before objects are recorded.
    pub(in crate::reconcile) async fn check_before_record(
        &self,
        items: &[&PreparedObject],
        asked: &NamespaceUids,
    ) -> Result<(), ReconcileError> {
        let live = self.namespaces_of(items).await?;
        let names = asked.keys().chain(live.keys());
        let changed = names.filter(|name| asked.get(*name) != live.get(*name));
        self.fail_if_changed(changed.map(String::as_str).collect())
    }

    /// Fails if a namespace of `items` does not exist, or was recreated since the permission check.
    /// Called before each round of applies. Namespaces that were created since the check are
    /// recorded, and added to `asked`.
    pub(in crate::reconcile) async fn check_before_applies(
        &mut self,
        items: &[&PreparedObject],
        asked: &mut NamespaceUids,
    ) -> Result<(), ReconcileError> {
        let live = self.existing_namespaces_of(items).await?;
        self.fail_if_changed(replaced(&live, asked, &self.inventory))?;
        if live.keys().any(|name| !asked.contains_key(name)) {
            self.record_live(&live).await?;
        }
        asked.extend(live);
        Ok(())
    }

    fn fail_if_changed(&self, mut changed: Vec<&str>) -> Result<(), ReconcileError> {
        changed.sort_unstable();
        changed.dedup();
        if changed.is_empty() {
            return Ok(());
        }
        let list = some_of(&changed, MAX_LISTED);
        Err(ReconcileError::new(
            codes::install::NAMESPACE_REPLACED,
            self.install_reason(),
            format!(
                "these namespaces were created or deleted during the permission check: {list}; the check is repeated"
            ),
            RetryPolicy::Soon,
        ))
    }
}

/// Returns the namespaces in `live` that were recreated. `asked` are the namespaces that the
/// permission check found. A namespace that is not in `asked` is compared with `inventory`. The
/// inventory records the namespaces of earlier installations, and the namespaces that this
/// installation has created.
fn replaced<'n>(
    live: &'n NamespaceUids,
    asked: &NamespaceUids,
    inventory: &Inventory,
) -> Vec<&'n str> {
    live.iter()
        .filter(|(name, uid)| {
            let expected = asked.get(*name).map(String::as_str);
            let expected = expected.or_else(|| inventory.namespace(name));
            expected.is_some_and(|expected| expected != uid.as_str())
        })
        .map(|(name, _)| name.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uids(pairs: &[(&str, &str)]) -> NamespaceUids {
        let pairs = pairs.iter();
        pairs
            .map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned()))
            .collect()
    }

    #[test]
    fn namespace_that_the_check_did_not_find_is_compared_with_the_inventory() {
        let mut inventory = Inventory::new("web");
        for (name, uid) in [
            ("checked", "former"),
            ("changed", "now"),
            ("recreated", "former"),
            ("own", "now"),
        ] {
            inventory.record_namespace(name, uid);
        }
        let live = uids(&[
            ("changed", "now"),
            ("checked", "now"),
            ("own", "now"),
            ("recreated", "now"),
            ("unknown", "now"),
        ]);
        let asked = uids(&[("changed", "former"), ("checked", "now")]);
        assert_eq!(
            replaced(&live, &asked, &inventory),
            ["changed", "recreated"]
        );
        // A repeated permission check finds all namespaces, so none counts as recreated.
        assert!(replaced(&live, &live, &inventory).is_empty());
    }
}
