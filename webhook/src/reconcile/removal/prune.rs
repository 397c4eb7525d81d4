//! Pruning: deletes recorded objects that the content of a BundleDeployment no longer contains.
//! `bundle_core::plan::removal` decides which objects are not deleted, and computes the result.

use std::collections::HashSet;

use bundle_core::diagnostic::codes;
use bundle_core::object::ObjectId;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::removal;

use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::inventory::present::KeptObject;
use crate::reconcile::removal::ordered_removal::{self, OrderedRemoval};
use crate::reconcile::removal::remove::Remover;

impl DeploymentReconcile<'_> {
    /// Deletes recorded objects that the content no longer contains, and removes unused namespaces
    /// from the inventory.
    pub(in crate::reconcile) async fn prune(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
    ) -> Result<(), ReconcileError> {
        let wanted = items.iter().map(|item| item.key.as_str()).collect();
        let unwanted = self.inventory.keys_except(&wanted);
        let mut left = (*self.inventory).clone();
        if !unwanted.is_empty() {
            // The permissions are checked again, because a failed prune can be retried long after
            // the permission check of the installation.
            self.check_before_prune(request).await?;
            self.prune_objects(request, items, &unwanted, &mut left)
                .await?;
        }
        left.shrink_namespaces();
        self.save_inventory(left).await?;
        self.write_applyset().await
    }

    async fn prune_objects(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
        unwanted: &[String],
        left: &mut Inventory,
    ) -> Result<(), ReconcileError> {
        let inventory = self.inventory.clone();
        let remover = Remover {
            apis: &self.ctx.apis,
            client: request.client,
            own: &self.ctx.own,
            account: request.account,
            inventory: &inventory,
            reason: request.reason,
        };
        let present = remover.present(unwanted).await?;
        // The records of objects that no longer exist, or that another actor replaced, are removed.
        let keys: HashSet<&str> = present.iter().map(|present| present.key.as_str()).collect();
        for key in unwanted {
            if !keys.contains(key.as_str()) {
                left.remove(key);
            }
        }
        let mut kept = remover.in_use(&present).await?;
        let content: Vec<(&ObjectId, &str)> = items
            .iter()
            .map(|item| (&item.id, item.kind.resource.plural.as_str()))
            .collect();
        let needed = removal::needed(present.iter().map(|present| &present.id), &content);
        kept.extend(needed.into_iter().map(|(id, why)| KeptObject {
            id,
            why: why.to_owned().into(),
        }));
        let asked = ordered_removal::not_held(&present);
        let undeletable = self.objects_to_keep(&asked, request.reason).await?;
        kept.extend(undeletable);
        let (_, free) = ordered_removal::divided(present.clone(), &kept);
        let occupied = Box::pin(remover.occupied(&free)).await?;
        kept.extend(occupied);
        let mut rest = OrderedRemoval::new(present.clone(), kept, &mut *left).with_search();
        let outcome = rest.remove(&remover).await;
        let progress = rest.progress().clone();
        for object in &present {
            if !progress.remaining().contains(&object.id) {
                tracing::info!(deployment = self.name, object = %object.id, "pruned");
            }
        }
        let result = outcome.and_then(|in_deletion| {
            self.warnings.extend(progress.prune_warnings(&in_deletion));
            let unpruned = progress.unpruned(&in_deletion).map(|message| {
                let code = codes::install::REMOVAL_FAILED;
                ReconcileError::new(code, request.reason, message, RetryPolicy::Soon)
            });
            unpruned.map_or(Ok(()), Err)
        });
        if result.is_err() {
            self.save_inventory(left.clone()).await?;
        }
        result
    }
}
