//! Removing what the content of a BundleDeployment does not have any more.
//! Not here: how recorded objects are found and deleted (removal::remove, removal::rest), or the removal of a whole BundleDeployment (removal::teardown).

use std::collections::{BTreeMap, BTreeSet};

use bundle_core::diagnostic::codes;
use bundle_core::object::ObjectId;
use bundle_core::plan::conditions::some_of;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::phases::Phase;
use bundle_core::plan::removal::{self, Obstacle};

use crate::reconcile::content::items::Item;
use crate::reconcile::deployment::controller::DeploymentReconcile;
use crate::reconcile::deployment::steps::InstallRequest;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::removal::remove::{self, KeptObject, Present, Remover};
use crate::reconcile::removal::rest::{self, Rest};

/// Most finalizers of one object that a warning names.
const FINALIZERS: usize = 3;

impl DeploymentReconcile<'_> {
    /// Removes what the content does not have any more, and shrinks what is recorded to what is there.
    pub(in crate::reconcile) async fn prune(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[Item],
    ) -> Result<(), ReconcileError> {
        let wanted = items.iter().map(|item| item.key.as_str()).collect();
        let unwanted = self.inventory.unwanted(&wanted);
        let mut left = (*self.inventory).clone();
        if !unwanted.is_empty() {
            // A prune that failed is tried again for as long as it takes, and the rights for the installation were asked before.
            self.ask_for_prune(request).await?;
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
        items: &[Item],
        unwanted: &[String],
        left: &mut Inventory,
    ) -> Result<(), ReconcileError> {
        let inventory = self.inventory.clone();
        let remover = Remover {
            apis: &self.ctx.apis,
            client: request.client,
            account: request.account,
            inventory: &inventory,
            reason: request.reason,
        };
        let present = remover.present(unwanted).await?;
        // What is not there any more, or was replaced by somebody else's, is forgotten.
        for key in unwanted {
            if !present.iter().any(|present| present.key == *key) {
                left.forget(key);
            }
        }
        let mut kept = remover.in_use(&present).await?;
        kept.extend(needed(&present, items));
        let is_kept = |found: &&Present| kept.iter().any(|kept| kept.id == found.id);
        let free: Vec<Present> = present
            .iter()
            .filter(|found| !is_kept(found))
            .cloned()
            .collect();
        kept.extend(Box::pin(remover.occupied(&free)).await?);
        let asked = rest::not_held(&present);
        kept.extend(self.undeletable(&asked, request.reason).await?);
        let mut rest = Rest {
            obstacles: rest::obstacles(&present, kept),
            present: present.clone(),
            inventory: &mut *left,
        };
        let outcome = rest.remove(&remover).await;
        let stayed = Stayed {
            present: rest.present,
            obstacles: rest.obstacles,
        };
        for object in &present {
            if !stayed.present.iter().any(|left| left.id == object.id) {
                tracing::info!(deployment = self.name, object = %object.id, "pruned");
            }
        }
        let result = outcome.and_then(|going| {
            self.warnings.extend(stayed.warnings(&going));
            stayed.result(&going, request.reason)
        });
        if result.is_err() {
            self.save_inventory(left.clone()).await?;
        }
        result
    }
}

/// Objects that a prune left.
struct Stayed {
    present: Vec<Present>,
    obstacles: BTreeMap<ObjectId, Obstacle>,
}

impl Stayed {
    /// Returns whether it is being deleted: a finalizer holds it, or it is among `going`.
    fn is_going(&self, id: &ObjectId, going: &[Present]) -> bool {
        matches!(self.obstacles.get(id), Some(Obstacle::Finalizers(_)))
            || going.iter().any(|going| going.id == *id)
    }

    /// Names what stays, and why; what is only `going` does not.
    fn warnings(&self, going: &[Present]) -> Vec<String> {
        let stays = self.present.iter().filter_map(|present| {
            let id = &present.id;
            let why = match self.obstacles.get(id) {
                Some(Obstacle::NotAllowed(why)) => why.clone(),
                Some(Obstacle::Finalizers(names)) => {
                    let names = some_of(names, FINALIZERS);
                    format!("it is being deleted, and finalizers of others hold it: {names}")
                }
                None if self.is_going(id, going) => return None,
                None => "objects that stay need it".to_owned(),
            };
            Some(format!(
                "{id} is no longer part of the content and stays: {why}"
            ))
        });
        stays.collect()
    }

    /// Fails while others wait for what is going, so that they are pruned soon after.
    fn result(&self, going: &[Present], reason: &'static str) -> Result<(), ReconcileError> {
        let ids = self.present.iter().map(|present| &present.id);
        if !removal::waits_for(ids, |id| self.is_going(id, going), &self.obstacles) {
            return Ok(());
        }
        let going: Vec<&Present> = self
            .present
            .iter()
            .filter(|present| self.is_going(&present.id, going))
            .collect();
        let names = remove::name_some(&going);
        let message = format!(
            "{} objects that are no longer part of the content are left; waiting for these to go: {names}",
            self.present.len()
        );
        let code = codes::install::REMOVAL_FAILED;
        Err(ReconcileError::new(
            code,
            reason,
            message,
            RetryPolicy::Soon,
        ))
    }
}

/// Those of `present` that may not go because objects of the content would go with them: their namespaces and definitions.
fn needed(present: &[Present], items: &[Item]) -> Vec<KeptObject> {
    let namespaces: BTreeSet<&str> = items
        .iter()
        .filter_map(|item| item.id.namespace.as_deref())
        .collect();
    let definitions: BTreeSet<String> = items
        .iter()
        .map(|item| format!("{}.{}", item.kind.resource.plural, item.id.group))
        .collect();
    let needed = present.iter().filter_map(|present| {
        let id = &present.id;
        let why = match Phase::of(&id.group, &id.kind) {
            Phase::Namespaces if namespaces.contains(id.name.as_str()) => {
                "objects of the content live in it"
            }
            Phase::Crds if definitions.contains(&id.name) => "objects of the content are of it",
            _ => return None,
        };
        Some(KeptObject {
            id: id.clone(),
            why: why.to_owned(),
        })
    });
    needed.collect()
}

#[cfg(test)]
mod tests;
