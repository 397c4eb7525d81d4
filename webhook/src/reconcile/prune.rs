//! Removing what the content of a BundleDeployment does not have any more.
//! Not here: how recorded objects are found and deleted (remove), or the removal of a whole BundleDeployment (teardown).

use std::collections::BTreeSet;

use bundle_core::plan::inventory::Inventory;

use super::deployment::Turn;
use super::items::Item;
use super::place::Placing;
use super::remove::{self, Remover};
use super::trouble::Trouble;

impl Turn<'_> {
    /// Removes what the content does not have any more, and shrinks what is recorded to what is there.
    pub(super) async fn prune(
        &mut self,
        placing: &Placing<'_>,
        items: &[Item],
    ) -> Result<(), Trouble> {
        let wanted = items.iter().map(|item| item.key.as_str()).collect();
        let unwanted = self.inventory.unwanted(&wanted);
        let mut left = (*self.inventory).clone();
        if !unwanted.is_empty() {
            self.prune_objects(placing, &unwanted, &mut left).await?;
        }
        left.shrink_namespaces();
        self.save_inventory(left).await?;
        self.write_applyset().await
    }

    async fn prune_objects(
        &mut self,
        placing: &Placing<'_>,
        unwanted: &[String],
        left: &mut Inventory,
    ) -> Result<(), Trouble> {
        let inventory = self.inventory.clone();
        let remover = Remover {
            apis: &self.room.apis,
            client: placing.client,
            account: placing.account,
            inventory: &inventory,
            reason: placing.reason,
        };
        let mut going = remover.present(unwanted).await?;
        // What is not there any more, or was replaced by somebody else's, is forgotten.
        for key in unwanted {
            if !going.iter().any(|present| present.key == *key) {
                left.forget(key);
            }
        }
        let mut kept = remover.in_use(&going).await?;
        kept.extend(self.undeletable(&going, placing.reason).await?);
        for kept in kept {
            self.warnings.insert(format!(
                "{} is no longer part of the content and stays: {}",
                kept.id, kept.why
            ));
            going.retain(|present| present.id != kept.id);
        }
        let mut rest = going;
        while !rest.is_empty() {
            let step: Vec<_> = remove::next_step(&rest).into_iter().cloned().collect();
            let mut gone = BTreeSet::new();
            let deleted = remover.delete(&step, &mut gone).await;
            for key in &gone {
                left.forget(key);
            }
            if let Err(trouble) = deleted {
                self.save_inventory(left.clone()).await?;
                return Err(trouble);
            }
            rest.retain(|present| !step.iter().any(|gone| gone.id == present.id));
            for gone in &step {
                tracing::info!(deployment = self.name, object = %gone.id, "pruned");
            }
        }
        Ok(())
    }
}
