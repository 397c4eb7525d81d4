//! The target (expected object) of each apply, and the rules for objects that already exist.
//! `bundle_core::plan::inventory` decides which objects belong to a BundleDeployment.

use std::collections::{BTreeMap, HashSet};

use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::some_of;
use bundle_core::plan::inventory::ObjectOwnership;
use bundle_core::plan::phases::Phase;
use bundle_core::text::MessageList;
use futures::StreamExt as _;

use crate::clients::cluster::with_missing_right;
use crate::reconcile::api::object::{self, ObservedObject};
use crate::reconcile::apply::{ApplyPlan, ObservedTarget, Preparer, Target, Targets};
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::{self, ReconcileError, RetryPolicy};
use crate::reconcile::install::executor::{Install, MAX_FAILURES};
use crate::reconcile::rights::dry_runs::check::DryRunCheck;

/// Maximum number of names of existing objects in a message.
const MAX_NAMED: usize = 3;

impl DeploymentReconcile<'_> {
    /// Returns the [`Preparer`] for the applies of this installation.
    pub(in crate::reconcile) fn preparer(&self, request: &InstallRequest<'_>) -> Preparer {
        Preparer {
            client: request.client.clone(),
            account: request.account.clone(),
            ignore: self.spec.drift_ignore.clone(),
            inventory: self.inventory.clone(),
            adopt: self.spec.adopt,
            scaled_objects: self.scaled_objects.clone(),
            memory: self.ctx.shared.request_memory().clone(),
        }
    }

    /// Reads the objects of the content from the cluster, and prepares an apply for each object.
    /// The error names all existing objects that cannot be adopted.
    pub(in crate::reconcile) async fn plan<'i>(
        &self,
        request: &InstallRequest<'_>,
        items: &'i [PreparedObject],
        check: &DryRunCheck<'_>,
    ) -> Result<ApplyPlan<'i>, ReconcileError> {
        let install = self.install(request, request.reason);
        let seen = self.ctx.watches.observed_objects(&self.name);
        let all: Vec<&PreparedObject> = items.iter().collect();
        let targets = install.targets(&all, &seen).await?;
        let (plan, failed) = ApplyPlan::prepare(check.preparer(), &all, &targets).await;
        let passing = !failed.is_permanent;
        install.check_failures(&failed.messages, passing, codes::install::APPLY_FAILED)?;
        Ok(plan)
    }
}

/// Existing objects that the inventory of this BundleDeployment does not record.
#[derive(Default)]
pub(in crate::reconcile) struct Collisions<'k> {
    /// Objects that belong to other BundleDeployments. Each text names the object and the
    /// BundleDeployment.
    pub(in crate::reconcile) owned: Vec<String>,
    unmanaged: Vec<&'k String>,
    /// Objects that another actor created after the recorded object of the same name was deleted.
    replaced: Vec<&'k String>,
}

impl Collisions<'_> {
    /// Fails if one of the lists contains objects. The error names the objects and contains a hint.
    pub(in crate::reconcile) fn check(self, reason: &'static str) -> Result<(), ReconcileError> {
        let unowned = self.unowned_message();
        let (code, message) = match (self.owned.len(), unowned) {
            (0, None) => return Ok(()),
            (0, Some(message)) => (codes::install::COLLISION, message),
            (owned, unowned) => {
                let them = if owned == 1 { "it" } else { "them" };
                let owned = format!(
                    "{}; remove {them} from the content of one of the BundleDeployments",
                    error::joined(self.owned, MAX_FAILURES)
                );
                let parts: Vec<String> = [Some(owned), unowned].into_iter().flatten().collect();
                (codes::install::OWNED_BY_OTHER, parts.join("; "))
            }
        };
        Err(ReconcileError::new(
            code,
            reason,
            message,
            RetryPolicy::Slowly,
        ))
    }

    /// Returns a message that names the objects in `unmanaged` and `replaced`. Returns `None` if
    /// both lists are empty.
    fn unowned_message(&self) -> Option<String> {
        let mut parts = Vec::new();
        match self.unmanaged[..] {
            [] => {}
            [only] => parts.push(format!("{only} exists and no bundle manages it")),
            ref more => parts.push(format!(
                "{} objects exist and no bundle manages them: {}",
                more.len(),
                some_of(more, MAX_NAMED)
            )),
        }
        if !self.replaced.is_empty() {
            let list = some_of(&self.replaced, MAX_NAMED);
            parts.push(format!(
                "objects of this BundleDeployment were deleted and created again by another actor: {list}"
            ));
        }
        let them = if self.unmanaged.len() + self.replaced.len() == 1 {
            "it"
        } else {
            "them"
        };
        (!parts.is_empty()).then(|| {
            format!(
                "{}; adopt {them} with --collision Adopt (spec.collision: Adopt)",
                parts.join("; ")
            )
        })
    }
}

impl Install<'_> {
    /// Returns the target (expected object) of each item. The error names all existing objects that
    /// cannot be adopted. `seen` are the recorded objects that watches report.
    pub(in crate::reconcile) async fn targets(
        &self,
        items: &[&PreparedObject],
        seen: &BTreeMap<String, ObservedObject>,
    ) -> Result<Targets, ReconcileError> {
        let (namespaces, others): (Vec<&PreparedObject>, Vec<&PreparedObject>) = items
            .iter()
            .copied()
            .filter(|item| !seen.contains_key(&item.key))
            .partition(|item| item.phase == Phase::Namespaces);
        let found = self.observe(namespaces.iter().copied()).await?;
        // A missing namespace contains no objects.
        let empty: HashSet<&str> = namespaces
            .iter()
            .filter(|item| !found.contains_key(&item.key))
            .map(|item| item.id.name.as_str())
            .collect();
        let mut exist = found;
        exist.extend(
            self.observe(others.into_iter().filter(|item| {
                item.id
                    .namespace
                    .as_deref()
                    .is_none_or(|namespace| !empty.contains(namespace))
            }))
            .await?,
        );
        let mut foreign = BTreeMap::new();
        let mut replaced = HashSet::new();
        for (key, seen) in &exist {
            match self.inventory.claim(key, seen.live()) {
                ObjectOwnership::Ours => continue,
                ObjectOwnership::Replaced => {
                    replaced.insert(key.as_str());
                }
                ObjectOwnership::Unrecorded => {}
            }
            foreign.insert(key.clone(), seen.uid.clone());
        }
        self.check_adoption(&foreign, &replaced).await?;
        Ok(items
            .iter()
            .map(|item| {
                let live = seen.get(&item.key).or_else(|| exist.get(&item.key));
                let observed = ObservedTarget {
                    target: live.map_or(Target::Absent, |seen| Target::Uid(seen.uid.clone())),
                    version: live.map(|seen| seen.version),
                };
                (item.key.clone(), observed)
            })
            .collect())
    }

    /// Fails if one of the `foreign` objects, which this inventory does not record, cannot be
    /// adopted. Two kinds of objects are never adopted: objects that another inventory records, and
    /// the target namespace that this installation creates. Other objects are adopted only if the
    /// spec sets `collision: Adopt`.
    async fn check_adoption(
        &self,
        foreign: &BTreeMap<String, String>,
        replaced: &HashSet<&str>,
    ) -> Result<(), ReconcileError> {
        if foreign.is_empty() {
            return Ok(());
        }
        if let Some(key) = &self.created_namespace
            && foreign.contains_key(key)
        {
            return Err(namespace_created(key, self.reason));
        }
        let owners = self.inventories.owners(foreign, self.uid).await;
        let owners = owners.map_err(|error| ReconcileError::inventory(self.reason, &error))?;
        let mut collisions = Collisions::default();
        for key in foreign.keys() {
            match owners.get(key) {
                Some(owner) => collisions.owned.push(format!("{key} {owner}")),
                None if self.adopt => {}
                None if replaced.contains(key.as_str()) => collisions.replaced.push(key),
                None => collisions.unmanaged.push(key),
            }
        }
        collisions.check(self.reason)
    }

    /// Reads the metadata of the objects of `items`. Returns the objects that exist, by object key.
    pub(in crate::reconcile) async fn observe(
        &self,
        items: impl Iterator<Item = &PreparedObject> + Send,
    ) -> Result<BTreeMap<String, ObservedObject>, ReconcileError> {
        let mut looks = crate::reconcile::api::parallel::stream(items.map(|item| async move {
            (
                item,
                object::observe(self.client, &item.kind, &item.id).await,
            )
        }));
        let mut found = BTreeMap::new();
        let mut failed = MessageList::default();
        let mut passing = true;
        while let Some((item, look)) = looks.next().await {
            match look {
                Ok(Some(seen)) => {
                    found.insert(item.key.clone(), seen);
                }
                Ok(None) => {}
                Err(error) => {
                    let error = with_missing_right(error, self.account);
                    passing &= object::is_passing(&error);
                    failed.insert(format!("{}: {}", item.key, object::error_message(&error)));
                }
            }
        }
        self.check_failures(&failed, passing, codes::install::APPLY_FAILED)?;
        Ok(found)
    }
}

/// Returns the error for a target namespace that another actor created shortly before this
/// installation could create the namespace.
pub(in crate::reconcile) fn namespace_created(key: &str, reason: &'static str) -> ReconcileError {
    ReconcileError::new(
        codes::install::NAMESPACE_CREATED,
        reason,
        format!(
            "another client created {key} at the same time; the reconcile is retried, and uses this namespace unchanged"
        ),
        RetryPolicy::Soon,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collisions_are_counted_and_some_are_named() {
        let keys: Vec<String> = (0..16)
            .map(|number| format!("ConfigMap/n/{number}"))
            .collect();
        let message = |unmanaged: usize, replaced: usize| {
            let collisions = Collisions {
                unmanaged: keys.iter().take(unmanaged).collect(),
                replaced: keys.iter().take(replaced).collect(),
                ..Collisions::default()
            };
            collisions.unowned_message().unwrap_or_default()
        };
        let out = "with --collision Adopt (spec.collision: Adopt)";
        for (unmanaged, replaced, expected) in [
            (0, 0, String::new()),
            (
                1,
                0,
                format!("ConfigMap/n/0 exists and no bundle manages it; adopt it {out}"),
            ),
            (
                16,
                0,
                format!(
                    "16 objects exist and no bundle manages them: ConfigMap/n/0, ConfigMap/n/1, ConfigMap/n/2 and 13 more; adopt them {out}"
                ),
            ),
            (
                0,
                1,
                format!(
                    "objects of this BundleDeployment were deleted and created again by another actor: ConfigMap/n/0; adopt it {out}"
                ),
            ),
        ] {
            assert_eq!(message(unmanaged, replaced), expected);
        }
    }
}
