//! The steps of a removal, which `bundle_core::plan::removal` puts in order: finding the recorded objects, letting go of those that stay, deleting the others.
//! Single requests are in `remove`, and deleting step by step is in `rest`.

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
use crate::cluster::ServiceAccount;
use crate::reconcile::context::Context;
use crate::reconcile::error::{self, ReconcileError, RetryPolicy};
use crate::reconcile::removal::deletion;
use crate::reconcile::removal::remove::{KeptObject, Present, Remover};
use crate::reconcile::removal::rest::{self, Rest};
use crate::reconcile::rights::removal_rights::Deletions;

/// Most objects that a message names.
const NAMED: usize = 10;

/// A removal of what a BundleDeployment installed, once it is known as whom.
pub(in crate::reconcile) struct Removal<'a> {
    /// The BundleDeployment.
    pub(in crate::reconcile) object: &'a DynamicObject,
    pub(in crate::reconcile) ctx: &'a Context,
    pub(in crate::reconcile) account: ServiceAccount,
    pub(in crate::reconcile) client: Client,
    pub(in crate::reconcile) rule: ConsentRule,
    pub(in crate::reconcile) requesters: Vec<Requester>,
    /// The objects, as they were recorded when it began.
    pub(in crate::reconcile) recorded: Inventory,
    /// Those that are there, but for the namespaces that were created with the content.
    pub(in crate::reconcile) objects: Vec<Present>,
    /// The namespaces that were created with the content and are there.
    pub(in crate::reconcile) namespaces: Vec<Present>,
    /// The definitions that are in use.
    pub(in crate::reconcile) in_use: Vec<KeptObject>,
    /// Held while the objects are.
    pub(in crate::reconcile) _share: Share,
}

impl Removal<'_> {
    fn remover(&self) -> Remover<'_> {
        Remover {
            apis: &self.ctx.apis,
            client: &self.client,
            account: &self.account,
            inventory: &self.recorded,
            reason: "RemovalFailed",
        }
    }

    async fn present(&self) -> Result<Vec<Present>, ReconcileError> {
        let keys: Vec<String> = self
            .recorded
            .objects()
            .map(|(key, _)| key.to_owned())
            .collect();
        self.remover().present(&keys).await
    }

    /// Finds out which recorded objects are there. Those that are not are removed from `left`.
    pub(in crate::reconcile) async fn find_objects(
        &mut self,
        left: &mut Inventory,
    ) -> Result<(), ReconcileError> {
        let present = self.present().await?;
        let keys: HashSet<&str> = present.iter().map(|present| present.key.as_str()).collect();
        for (key, _) in self.recorded.objects() {
            if !keys.contains(key) {
                left.forget(key);
            }
        }
        (self.namespaces, self.objects) = present
            .into_iter()
            .partition(|present| self.recorded.is_created_namespace(&present.key));
        Ok(())
    }

    /// Takes our labels off all objects.
    pub(in crate::reconcile) async fn release_objects(&self) -> Result<(), ReconcileError> {
        let released = match self.present().await {
            Ok(present) => self.remover().release(&present).await,
            Err(error) => Err(error),
        };
        match released {
            // Whoever asked for the objects to be left behind is not kept waiting for labels that cannot be taken off.
            Err(error) if error.retry != RetryPolicy::Soon => {
                self.warn_of_labels(&error.message);
                Ok(())
            }
            other => other,
        }
    }

    /// Logs that objects are left behind with our labels.
    pub(in crate::reconcile) fn warn_of_labels(&self, why: &str) {
        tracing::warn!(
            deployment = self.object.name_any(),
            why,
            "objects are left behind with our labels"
        );
    }

    /// Finds definitions of whose kinds objects exist that the deployment did not install. Returns whether there are any.
    pub(in crate::reconcile) async fn find_definitions_in_use(
        &mut self,
    ) -> Result<bool, ReconcileError> {
        self.in_use = self.remover().in_use(&self.objects).await?;
        Ok(!self.in_use.is_empty())
    }

    /// Fails, since definitions are in use.
    pub(in crate::reconcile) fn definitions_in_use(&self) -> RemovalFailure {
        let list = self
            .in_use
            .iter()
            .map(|kept| format!("{}: {}", kept.id, kept.why))
            .collect();
        RemovalFailure::definitions_in_use(&error::list(list, NAMED))
    }

    /// Lets definitions go that are in use.
    pub(in crate::reconcile) async fn release_definitions_in_use(
        &mut self,
        left: &mut Inventory,
    ) -> Result<(), ReconcileError> {
        let objects = std::mem::take(&mut self.objects);
        let in_use = std::mem::take(&mut self.in_use);
        self.objects = self.release(left, objects, &in_use).await?;
        Ok(())
    }

    /// Lets created namespaces go that hold objects of others, and tells so.
    pub(in crate::reconcile) async fn release_namespaces_in_use(
        &mut self,
        left: &mut Inventory,
    ) -> Result<(), ReconcileError> {
        let in_use = Box::pin(self.remover().occupied(&self.namespaces)).await?;
        let namespaces = std::mem::take(&mut self.namespaces);
        self.namespaces = self.release(left, namespaces, &in_use).await?;
        for kept in in_use {
            let note = format!(
                "{} was created with the content and stays: {}; delete it by hand once nobody needs it",
                kept.id, kept.why
            );
            self.ctx
                .deployment_events
                .warn(self.object, codes::install::NAMESPACE_IN_USE, &note)
                .await;
        }
        Ok(())
    }

    /// Takes our labels off those of `objects` that are `in_use`, and removes them from `left`. Returns the others.
    async fn release(
        &self,
        left: &mut Inventory,
        objects: Vec<Present>,
        in_use: &[KeptObject],
    ) -> Result<Vec<Present>, ReconcileError> {
        let (kept, rest): (Vec<_>, Vec<_>) = objects
            .into_iter()
            .partition(|present| in_use.iter().any(|kept| kept.id == present.id));
        self.remover().release(&kept).await?;
        for kept in kept {
            left.forget(&kept.key);
        }
        Ok(rest)
    }

    /// Deletes everything but the created namespaces, as far as the requesters may, and removes from `left` what is gone.
    pub(in crate::reconcile) async fn delete_objects(
        &self,
        left: &mut Inventory,
    ) -> Result<(), ReconcileError> {
        self.delete(left, &self.objects).await
    }

    /// Deletes the created namespaces.
    pub(in crate::reconcile) async fn delete_namespaces(
        &self,
        left: &mut Inventory,
    ) -> Result<(), ReconcileError> {
        self.delete(left, &self.namespaces).await
    }

    async fn delete(
        &self,
        left: &mut Inventory,
        objects: &[Present],
    ) -> Result<(), ReconcileError> {
        let deletions = Deletions {
            ctx: self.ctx,
            rule: &self.rule,
            act: ObjectAction::Remove,
            requesters: &self.requesters,
            reason: REFUSED,
        };
        let kept = deletions.undeletable(&rest::not_held(objects)).await?;
        let mut rest = Rest::new(objects.to_vec(), kept, left);
        let going = rest.remove(&self.remover()).await?;
        let admit = deletion::admit_command(self.object, self.ctx);
        let result = rest.progress().removal_result(&going, &self.rule, &admit);
        Ok(result?)
    }
}
