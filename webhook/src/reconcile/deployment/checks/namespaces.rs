//! Detection of recreated namespaces: a namespace whose uid has changed since the installation may
//! have another owner. Namespaces that are objects of the content are handled like all other
//! objects.

use std::collections::BTreeSet;

use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::some_of;
use bundle_core::plan::consent::{Consent, ObjectAction};
use bundle_core::plan::inventory::Inventory;

use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::{MAX_LISTED, ReconcileError, RetryPolicy};
use crate::reconcile::inventory::namespaces::{self, NamespaceUids};

fn names_of<'i>(items: &[&'i PreparedObject]) -> BTreeSet<&'i str> {
    let names = items.iter().filter_map(|item| item.id.namespace.as_deref());
    names.collect()
}

impl DeploymentReconcile<'_> {
    /// Returns the uids of the namespaces of `items`, without missing and terminating namespaces.
    pub(in crate::reconcile) async fn namespaces_of(
        &self,
        items: &[&PreparedObject],
    ) -> Result<NamespaceUids, ReconcileError> {
        namespaces::active(&self.ctx.own, names_of(items))
            .await
            .map_err(|error| {
                ReconcileError::api("read the namespaces", self.install_reason(), &error)
            })
    }

    /// Like [`Self::namespaces_of`], for objects that are about to be created. Fails if a namespace
    /// is missing or terminating. Without this check, the API server would reject the creation, or
    /// create the objects in a new namespace of the same name.
    pub(in crate::reconcile) async fn existing_namespaces_of(
        &self,
        items: &[&PreparedObject],
    ) -> Result<NamespaceUids, ReconcileError> {
        let live = self.namespaces_of(items).await?;
        let missing = namespaces::missing(names_of(items), &live);
        if missing.is_empty() {
            return Ok(live);
        }
        Err(missing_namespaces(&missing, self.install_reason()))
    }

    /// Checks that no namespace in `live` was recreated since the installation. Called before
    /// objects are created.
    ///
    /// If a namespace was recreated, checks the permissions of the requesters in the new namespace.
    /// Objects that are installed with the permissions of the class are created in the new
    /// namespace only after a write of the spec ([`Inventory::is_new_spec`]).
    pub(in crate::reconcile) async fn check_namespaces(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[&PreparedObject],
        (act, live): (ObjectAction, &NamespaceUids),
    ) -> Result<(), ReconcileError> {
        let replaced: BTreeSet<&str> = live
            .iter()
            .filter(|(name, uid)| {
                self.inventory
                    .namespace(name)
                    .is_some_and(|recorded| recorded != uid.as_str())
            })
            .map(|(name, _)| name.as_str())
            .collect();
        if replaced.is_empty() {
            return Ok(());
        }
        let rule = self.consent_rule(request);
        let is_delegated =
            |item: &PreparedObject| rule.consent(act, &item.id) == Consent::Delegated;
        let is_in_replaced = |item: &PreparedObject| {
            let namespace = item.id.namespace.as_deref();
            namespace.is_some_and(|namespace| replaced.contains(namespace))
        };
        let conditions = replaced_since_installation(&replaced);
        let concerned = |item: &&&PreparedObject| is_in_replaced(item);
        if items
            .iter()
            .filter(concerned)
            .any(|item| !is_delegated(item))
        {
            let items: Vec<PreparedObject> = items.iter().map(|item| (*item).clone()).collect();
            self.authorize(request, &items, (act, true))
                .await
                .map_err(|error| ReconcileError {
                    message: format!(
                        "{conditions}, so nothing is created in the new namespace: {}",
                        error.message
                    ),
                    ..error
                })?;
        }
        let digest = self.requested.spec.digest.as_str();
        // Only the installation of a new spec creates delegated objects in recreated namespaces. A
        // restore does not.
        let is_permitted =
            act == ObjectAction::Install && self.inventory.is_new_spec(self.generation(), digest);
        if is_permitted
            || !items
                .iter()
                .filter(concerned)
                .any(|item| is_delegated(item))
        {
            return Ok(());
        }
        Err(namespaces_replaced(&replaced, self.install_reason()))
    }

    /// Checks the namespaces before a restore creates missing objects again, and before it replaces
    /// objects that other actors created with the same names.
    pub(in crate::reconcile) async fn check_before_recreate(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[&PreparedObject],
    ) -> Result<(), ReconcileError> {
        let live = self.existing_namespaces_of(items).await?;
        self.check_namespaces(request, items, (ObjectAction::Restore, &live))
            .await?;
        self.record_live(&live).await
    }

    /// Records the uids of namespaces into which objects are installed.
    pub(in crate::reconcile) async fn record_live(
        &mut self,
        live: &NamespaceUids,
    ) -> Result<(), ReconcileError> {
        let mut inventory = (*self.inventory).clone();
        for (name, uid) in live {
            inventory.record_namespace(name, uid);
        }
        self.save_inventory(inventory).await
    }

    /// Returns the inventory with a record of the beginning of an installation and of the existing
    /// namespaces. The caller must store it before the first object is applied.
    pub(in crate::reconcile) fn with_installation(
        &self,
        request: &InstallRequest<'_>,
        live: &NamespaceUids,
    ) -> Inventory {
        let mut inventory = (*self.inventory).clone();
        inventory.record_healthy_namespaces();
        if inventory.installation.is_empty() || inventory.record.is_some() {
            self.note_decision(&mut inventory, request);
            let record = inventory.record.get_or_insert_default();
            record.is_unfinished = true;
            self.note_begin(record, request);
        }
        inventory.installation = self.content_key(request);
        for (name, uid) in live {
            inventory.record_namespace(name, uid);
        }
        inventory
    }
}

/// Returns the error for namespaces that do not exist. `missing` contains one message for each
/// namespace.
pub(in crate::reconcile) fn missing_namespaces(
    missing: &[String],
    reason: &'static str,
) -> ReconcileError {
    ReconcileError::new(
        codes::install::APPLY_FAILED,
        reason,
        format!(
            "{}; create the namespace, or wait until its deletion has ended",
            some_of(missing, MAX_LISTED)
        ),
        RetryPolicy::Soon,
    )
}

fn replaced_since_installation(names: &BTreeSet<&str>) -> String {
    let names: Vec<String> = names
        .iter()
        .map(|name| format!("namespace {name}"))
        .collect();
    let list = some_of(&names, MAX_LISTED);
    format!("{list} was deleted and created again since the content was installed into it")
}

/// Returns the error for recreated namespaces. Objects in these namespaces are installed with the
/// permissions of the class.
pub(in crate::reconcile) fn namespaces_replaced(
    names: &BTreeSet<&str>,
    reason: &'static str,
) -> ReconcileError {
    ReconcileError::new(
        codes::install::NAMESPACE_REPLACED,
        reason,
        format!(
            "{}: nothing is created in the new namespace until a user with permission to use the class changes the spec",
            replaced_since_installation(names)
        ),
        RetryPolicy::Slowly,
    )
}
