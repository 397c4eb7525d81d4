//! The steps of a removal, in the order of `bundle_core::plan::removal`: find the recorded objects,
//! release objects that are not deleted, and delete all other objects. To release an object means
//! to remove its owner labels. The modules `remove` and `release` send the requests, and
//! `ordered_removal` deletes objects in order.

use std::collections::HashSet;

use bundle_core::diagnostic::codes;
use bundle_core::plan::consent::{ConsentRule, ObjectAction};
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::removal::{REFUSED, RemovalFailure};
use bundle_core::review::Requester;
use kube::Client;
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use crate::budget::Share;
use crate::clients::cluster::ServiceAccount;
use crate::reconcile::context::Context;
use crate::reconcile::error::{self, ReconcileError, RetryPolicy};
use crate::reconcile::inventory::present::{KeptObject, SharedPresentObject};
use crate::reconcile::removal::deletion;
use crate::reconcile::removal::ordered_removal::{self, OrderedRemoval};
use crate::reconcile::removal::remove::Remover;
use crate::reconcile::rights::removal_permissions::Deletions;

/// Maximum number of objects in a message.
const MAX_NAMED: usize = 10;

/// The removal of the objects of a BundleDeployment, with the ServiceAccount that deletes the
/// objects.
pub(in crate::reconcile) struct Removal<'a> {
    /// The BundleDeployment that is being deleted.
    pub(in crate::reconcile) object: &'a DynamicObject,
    pub(in crate::reconcile) ctx: &'a Context,
    pub(in crate::reconcile) account: ServiceAccount,
    pub(in crate::reconcile) client: Client,
    pub(in crate::reconcile) rule: ConsentRule,
    pub(in crate::reconcile) requesters: Vec<Requester>,
    /// The inventory at the start of the removal.
    pub(in crate::reconcile) recorded: Inventory,
    /// The recorded objects that exist, except Namespaces.
    pub(in crate::reconcile) objects: Vec<SharedPresentObject>,
    /// The recorded Namespaces that exist.
    pub(in crate::reconcile) namespaces: Vec<SharedPresentObject>,
    /// The CustomResourceDefinitions with custom resources that the BundleDeployment did not
    /// install (foreign custom resources).
    pub(in crate::reconcile) in_use: Vec<KeptObject>,
    /// The memory reservation for the objects.
    pub(in crate::reconcile) _share: Share,
}

impl Removal<'_> {
    fn remover(&self) -> Remover<'_> {
        Remover {
            apis: &self.ctx.apis,
            client: &self.client,
            own: &self.ctx.own,
            account: &self.account,
            inventory: &self.recorded,
            reason: "RemovalFailed",
        }
    }

    /// Returns the object keys of all recorded objects.
    fn recorded_keys(&self) -> Vec<String> {
        self.recorded
            .objects()
            .map(|(key, _)| key.to_owned())
            .collect()
    }

    /// Finds the recorded objects that exist. Removes the records of missing objects from the
    /// inventory `left`.
    pub(in crate::reconcile) async fn find_objects(
        &mut self,
        left: &mut Inventory,
    ) -> Result<(), ReconcileError> {
        let present = self.remover().present(&self.recorded_keys()).await?;
        let keys: HashSet<&str> = present.iter().map(|present| present.key.as_str()).collect();
        for (key, _) in self.recorded.objects() {
            if !keys.contains(key) {
                left.remove(key);
            }
        }
        (self.namespaces, self.objects) = present
            .into_iter()
            .partition(|present| present.id.is_namespace());
        Ok(())
    }

    /// Removes the owner labels from all recorded objects. Permanent errors, and errors that
    /// concern one object, are only logged.
    pub(in crate::reconcile) async fn release_objects(&self) -> Result<(), ReconcileError> {
        let keys = self.recorded_keys();
        let released = match self.remover().present_for_release(&keys).await {
            Ok(present) => self.send_releases(&present).await,
            Err(error) => Err(error),
        };
        match released {
            // This removal does not delete objects, so a permanent error must not block it.
            Err(error) if error.retry != RetryPolicy::Soon => {
                self.warn_of_labels(&error.message);
                Ok(())
            }
            other => other,
        }
    }

    /// Removes the owner labels from `objects`. The slots count towards the limit of the first
    /// requester. If there is no requester, they count towards the limit of the ServiceAccount.
    async fn send_releases(&self, objects: &[SharedPresentObject]) -> Result<(), ReconcileError> {
        let requester = self.requesters.first().map(|requester| &requester.user);
        let account = self.account.user_name();
        let slots = (
            &self.ctx.apply_slots,
            requester.unwrap_or(&account).as_str(),
        );
        self.remover().release(objects, slots).await
    }

    /// Logs that objects keep their owner labels.
    pub(in crate::reconcile) fn warn_of_labels(&self, why: &str) {
        tracing::warn!(
            deployment = self.object.name_any(),
            why,
            "objects stay with the owner labels of the BundleDeployment"
        );
    }

    /// Finds CustomResourceDefinitions with foreign custom resources. Returns true if at least one
    /// is found.
    pub(in crate::reconcile) async fn find_definitions_in_use(
        &mut self,
    ) -> Result<bool, ReconcileError> {
        self.in_use = self.remover().in_use(&self.objects).await?;
        Ok(!self.in_use.is_empty())
    }

    /// Returns the error about CustomResourceDefinitions with foreign custom resources.
    pub(in crate::reconcile) fn definitions_in_use(&self) -> RemovalFailure {
        let list = self
            .in_use
            .iter()
            .map(|kept| format!("{}: {}", kept.id, kept.why))
            .collect();
        RemovalFailure::definitions_in_use(&error::joined(list, MAX_NAMED))
    }

    /// Removes the owner labels from CustomResourceDefinitions with foreign custom resources, and
    /// their records from `left`.
    pub(in crate::reconcile) async fn release_definitions_in_use(
        &mut self,
        left: &mut Inventory,
    ) -> Result<(), ReconcileError> {
        let objects = std::mem::take(&mut self.objects);
        let in_use = std::mem::take(&mut self.in_use);
        self.objects = self.release(left, objects, &in_use).await?;
        Ok(())
    }

    /// Removes the owner labels from namespaces with foreign objects, and their records from
    /// `left`. Emits an Event for each of these namespaces.
    pub(in crate::reconcile) async fn release_namespaces_in_use(
        &mut self,
        left: &mut Inventory,
    ) -> Result<(), ReconcileError> {
        // The pod searches only in namespaces that the requesters have permission to delete.
        // `delete_namespaces` reports the other namespaces. It checks the permissions again,
        // because the search takes time.
        let asked = ordered_removal::not_held(&self.namespaces);
        let undeletable = self.deletions().undeletable(&asked).await?;
        let (_, deletable) = ordered_removal::divided(self.namespaces.clone(), &undeletable);
        let in_use = Box::pin(self.remover().occupied(&deletable)).await?;
        let namespaces = std::mem::take(&mut self.namespaces);
        self.namespaces = self.release(left, namespaces, &in_use).await?;
        for kept in in_use {
            let note = namespace_in_use(&kept);
            self.ctx
                .deployment_events
                .warn(self.object, codes::install::NAMESPACE_IN_USE, &note)
                .await;
        }
        Ok(())
    }

    /// Removes the owner labels from those `objects` that are in `in_use`, and their records from
    /// `left`. Returns the other objects.
    async fn release(
        &self,
        left: &mut Inventory,
        objects: Vec<SharedPresentObject>,
        in_use: &[KeptObject],
    ) -> Result<Vec<SharedPresentObject>, ReconcileError> {
        let (kept, rest) = ordered_removal::divided(objects, in_use);
        self.send_releases(&kept).await?;
        for kept in kept {
            left.remove(&kept.key);
        }
        Ok(rest)
    }

    /// Deletes all objects except Namespaces, if the requesters have permission. Removes the
    /// records of deleted objects from `left`. If the deletion fails, also deletes the namespaces
    /// that contain no remaining recorded objects.
    pub(in crate::reconcile) async fn delete_objects(
        &mut self,
        left: &mut Inventory,
    ) -> Result<(), ReconcileError> {
        let deleted = self.delete(left, &self.objects).await;
        if deleted.is_err() {
            let used = left.namespaces_of_objects();
            self.namespaces
                .retain(|namespace| !used.contains(&namespace.id.name));
            // Only the error about the objects is returned. An error about namespaces is logged,
            // and the next attempt repeats this step.
            let namespaces = match self.release_namespaces_in_use(left).await {
                Ok(()) => self.delete_namespaces(left).await,
                Err(error) => Err(error),
            };
            if let Err(error) = namespaces {
                tracing::debug!(
                    deployment = self.object.name_any(),
                    error = error.message,
                    "namespaces are not deleted yet"
                );
            }
        }
        deleted
    }

    /// Deletes the recorded Namespaces, if the requesters have permission.
    pub(in crate::reconcile) async fn delete_namespaces(
        &self,
        left: &mut Inventory,
    ) -> Result<(), ReconcileError> {
        self.delete(left, &self.namespaces).await
    }

    fn deletions(&self) -> Deletions<'_> {
        Deletions {
            ctx: self.ctx,
            rule: &self.rule,
            act: ObjectAction::Remove,
            requesters: &self.requesters,
            reason: REFUSED,
        }
    }

    async fn delete(
        &self,
        left: &mut Inventory,
        objects: &[SharedPresentObject],
    ) -> Result<(), ReconcileError> {
        let asked = ordered_removal::not_held(objects);
        let kept = self.deletions().undeletable(&asked).await?;
        let mut rest = OrderedRemoval::new(objects.to_vec(), kept, left);
        let going = rest.remove(&self.remover()).await?;
        let admit = deletion::admit_command(self.object, self.ctx);
        let result = rest.progress().removal_result(&going, &self.rule, &admit);
        Ok(result?)
    }
}

/// Returns the note of the Event about a namespace that contains foreign objects.
pub(in crate::reconcile) fn namespace_in_use(kept: &KeptObject) -> String {
    format!(
        "{} was installed with the content and stays: {}; delete the namespace when it is no longer needed, or set spec.collision: Adopt to install content that contains the namespace",
        kept.id, kept.why
    )
}
