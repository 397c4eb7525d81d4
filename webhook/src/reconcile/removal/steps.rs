//! The steps of a removal: what the requesters may not delete stays, everything else goes in the reverse order, and a finalizer holds up only its own object.
//! The order and the messages are in `bundle_core::plan::removal`, the steps in `rest`, single requests in `remove`.

use std::collections::BTreeMap;

use bundle_core::diagnostic::{Code, codes};
use bundle_core::object::ObjectId;
use bundle_core::plan::consent::{Act, ConsentRule};
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::removal::{self, Obstacle};
use bundle_core::review::Requester;
use bundle_core::review::deployment::CustomResources;
use kube::api::DynamicObject;

use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::removal::remove::{Present, Remover, name_some};
use crate::reconcile::removal::rest::{self, Rest};
use crate::reconcile::removal::teardown::{REFUSED, REMOVING, refused};
use crate::reconcile::rights::removal_rights::Deletions;

/// The removal of what a BundleDeployment installed.
pub(in crate::reconcile) struct Removal<'a> {
    /// The BundleDeployment.
    pub(in crate::reconcile) object: &'a DynamicObject,
    pub(in crate::reconcile) ctx: &'a Context,
    pub(in crate::reconcile) remover: &'a Remover<'a>,
    pub(in crate::reconcile) policy: CustomResources,
    pub(in crate::reconcile) rule: &'a ConsentRule,
    pub(in crate::reconcile) requesters: &'a [Requester],
    /// The command with which somebody takes the deployment over.
    pub(in crate::reconcile) admit: &'a str,
}

impl Removal<'_> {
    /// Removes the objects that are there, and forgets those in `inventory` that are gone.
    pub(in crate::reconcile) async fn run(
        &self,
        inventory: &mut Inventory,
        mut present: Vec<Present>,
    ) -> Result<(), ReconcileError> {
        // As a ServiceAccount that may not be used nothing is let go either.
        if self.policy != CustomResources::Delete && self.rule.account_withdrawn().is_none() {
            present = self.without_definitions_in_use(inventory, present).await?;
        }
        let (created, present): (Vec<_>, Vec<_>) = present
            .into_iter()
            .partition(|present| inventory.is_created_namespace(&present.key));
        self.remove(inventory, present).await?;
        // Last, and only now: what was installed into them is gone.
        let created = self.without_namespaces_in_use(inventory, created).await?;
        self.remove(inventory, created).await
    }

    async fn remove(
        &self,
        inventory: &mut Inventory,
        present: Vec<Present>,
    ) -> Result<(), ReconcileError> {
        let mut rest = Rest {
            obstacles: self.obstacles(&present).await?,
            present,
            inventory,
        };
        let going = rest.remove(self.remover).await?;
        if !going.is_empty() {
            let left = rest.present.len();
            let names = name_some(&going.iter().collect::<Vec<_>>());
            return Err(ReconcileError::new(
                codes::install::REMOVAL_FAILED,
                REMOVING,
                format!("{left} objects are left; waiting for these to go: {names}"),
                RetryPolicy::Soon,
            ));
        }
        self.result(&rest)
    }

    /// Returns what stays from the beginning: objects that a requester may not delete, and those that finalizers have held since an earlier try.
    async fn obstacles(
        &self,
        present: &[Present],
    ) -> Result<BTreeMap<ObjectId, Obstacle>, ReconcileError> {
        let deletions = Deletions {
            ctx: self.ctx,
            rule: self.rule,
            act: Act::Remove,
            requesters: self.requesters,
            reason: REFUSED,
        };
        let refused = deletions.undeletable(&rest::not_held(present)).await?;
        Ok(rest::obstacles(present, refused))
    }

    /// Lets definitions go of whose kinds objects exist that the deployment did not install, or fails, as the spec says.
    async fn without_definitions_in_use(
        &self,
        inventory: &mut Inventory,
        present: Vec<Present>,
    ) -> Result<Vec<Present>, ReconcileError> {
        let in_use = self.remover.in_use(&present).await?;
        if self.policy == CustomResources::Refuse && !in_use.is_empty() {
            let list = in_use
                .iter()
                .map(|kept| format!("{}: {}", kept.id, kept.why))
                .collect();
            return Err(ReconcileError {
                retry: RetryPolicy::Soon,
                ..refused(
                    codes::install::RESOURCES_LEFT,
                    format!(
                        "nothing is torn down while custom resources exist that were not installed by it: {} (delete them, or set spec.deletion.customResources: Orphan or Delete)",
                        crate::reconcile::error::list(list, 10)
                    ),
                )
            });
        }
        let (orphans, rest): (Vec<_>, Vec<_>) = present
            .into_iter()
            .partition(|present| in_use.iter().any(|kept| kept.id == present.id));
        self.remover.release(&orphans).await?;
        for orphan in orphans {
            inventory.forget(&orphan.key);
        }
        Ok(rest)
    }

    /// Lets created namespaces go that hold objects of others, and tells so. As a ServiceAccount that may not be used nothing is let go.
    async fn without_namespaces_in_use(
        &self,
        inventory: &mut Inventory,
        created: Vec<Present>,
    ) -> Result<Vec<Present>, ReconcileError> {
        if self.rule.account_withdrawn().is_some() {
            return Ok(created);
        }
        let in_use = Box::pin(self.remover.occupied(&created)).await?;
        let (kept, rest): (Vec<_>, Vec<_>) = created
            .into_iter()
            .partition(|present| in_use.iter().any(|kept| kept.id == present.id));
        self.remover.release(&kept).await?;
        for kept in kept {
            inventory.forget(&kept.key);
        }
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
        Ok(rest)
    }

    fn result(&self, rest: &Rest<'_>) -> Result<(), ReconcileError> {
        if rest.present.is_empty() {
            return Ok(());
        }
        let message = removal::message(rest.present.len(), &rest.obstacles, self.admit);
        let refuses = |obstacle: &Obstacle| matches!(obstacle, Obstacle::NotAllowed(_));
        if !rest.obstacles.values().any(refuses) {
            let code = codes::install::REMOVAL_FAILED;
            return Err(ReconcileError::new(
                code,
                REMOVING,
                message,
                RetryPolicy::Soon,
            ));
        }
        let retry = if rest.held().is_empty() {
            RetryPolicy::Slowly
        } else {
            RetryPolicy::Soon
        };
        Err(ReconcileError {
            retry,
            ..refused(self.code(rest), message)
        })
    }

    /// The code for objects that may not be deleted.
    fn code(&self, rest: &Rest<'_>) -> Code {
        if self.rule.account_withdrawn().is_some() {
            return codes::install::ACCOUNT_WITHDRAWN;
        }
        let mut refused = rest
            .obstacles
            .iter()
            .filter(|(_, obstacle)| matches!(obstacle, Obstacle::NotAllowed(_)));
        if refused.all(|(id, _)| self.rule.exceeds_delegation(id)) {
            codes::install::OUTSIDE_DELEGATION
        } else {
            codes::install::REMOVAL_NOT_ALLOWED
        }
    }
}
