//! Plan of the removal of a BundleDeployment: its remaining steps in order, computed from the
//! observed facts. The outcome of a step can change the plan, so the plan is computed again after
//! each step. The parent module has the order of objects. `progress` deletes the objects of one
//! step. `webhook::reconcile` executes the steps.

use std::collections::BTreeSet;

pub use crate::review::deployment::CustomResources;

/// Record of the objects that a BundleDeployment installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordedObjects {
    /// No inventory exists, and nothing indicates an installation.
    None,
    /// No inventory exists, but objects may have been applied, according to the status or the
    /// ApplySet annotations.
    Lost,
    /// The inventory has no objects, or no object in the inventory exists any more.
    Empty,
    /// The inventory has objects.
    Some,
}

/// ServiceAccount for the removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// No ServiceAccount: the class does not exist, and no installer is recorded.
    None,
    /// All requesters may use the ServiceAccount.
    Usable,
    /// A requester of the content has lost the permission to impersonate the ServiceAccount.
    Withdrawn,
}

/// Step of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemovalStep {
    /// Fail: the objects to remove are unknown.
    ReportInventoryLost,
    /// Remove records of objects whose namespaces were deleted, even if a new namespace of the same
    /// name exists.
    ForgetReplacedNamespaces,
    /// Check that the deletion was reviewed.
    CheckDeletion,
    /// Record that the deletion is accepted. If the webhook registrations are missing later, the
    /// deletion is still accepted.
    RecordAcceptance,
    /// Read the requesters of the content from the seal.
    ReadRequesters,
    /// Find the ServiceAccount for the removal, and check that the requesters may use it.
    FindAccount,
    /// Fail: no ServiceAccount exists for the removal.
    ReportNoAccount,
    /// Find the recorded objects that exist, and remove the records of missing objects.
    FindObjects,
    /// Remove this project's labels from all objects. The objects are not deleted.
    ReleaseObjects,
    /// Find the CustomResourceDefinitions in use: definitions with custom resources that the
    /// BundleDeployment did not install.
    FindDefinitionsInUse,
    /// Fail: definitions are in use, and their deletion would delete custom resources.
    ReportDefinitionsInUse,
    /// Remove this project's labels from definitions in use. These definitions are not deleted.
    ReleaseDefinitionsInUse,
    /// Delete all objects except namespaces, which [`Self::DeleteNamespaces`] deletes.
    DeleteObjects,
    /// Remove this project's labels from namespaces that contain objects of other owners. These
    /// namespaces are not deleted.
    ReleaseNamespacesInUse,
    /// Delete the namespaces that contain no objects of other owners.
    DeleteNamespaces,
    /// Remove this project's finalizer from the BundleDeployment.
    RemoveFinalizer,
    /// Delete the inventory. This is the last step, because a removal without an inventory fails
    /// while the BundleDeployment exists.
    RemoveInventory,
}

/// Facts of a removal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObservedRemoval {
    /// True if the BundleDeployment has this project's finalizer.
    pub has_finalizer: bool,
    /// True if `spec.deletion.objects` is `Orphan`.
    pub is_orphan: bool,
    /// `spec.deletion.customResources`; `Refuse` if the spec is invalid.
    pub custom_resources: CustomResources,
    /// Record of the objects.
    pub recorded: RecordedObjects,
    /// Result of [`RemovalStep::FindAccount`]; `None` before this step.
    pub account: Option<Account>,
    /// Result of [`RemovalStep::FindDefinitionsInUse`]: true if definitions are in use. `None`
    /// before this step.
    pub definitions_in_use: Option<bool>,
    /// Completed steps.
    pub done: BTreeSet<RemovalStep>,
}

/// Steps after all objects are deleted or released.
const COMPLETION: [RemovalStep; 2] = [RemovalStep::RemoveFinalizer, RemovalStep::RemoveInventory];

impl ObservedRemoval {
    /// Returns the remaining steps. A step runs only if all earlier steps succeeded. The list ends
    /// with a step whose result decides the following steps. The list is empty when the removal is
    /// complete.
    pub fn steps(&self) -> Vec<RemovalStep> {
        let mut steps = self.whole();
        steps.retain(|step| !self.done.contains(step));
        steps
    }

    fn whole(&self) -> Vec<RemovalStep> {
        // An earlier reconcile removed the finalizer, and ended before it deleted the inventory.
        // The cleanup of inventories deletes this inventory.
        if !self.has_finalizer && !self.done.contains(&RemovalStep::RemoveFinalizer) {
            return Vec::new();
        }
        match self.recorded {
            RecordedObjects::Lost if !self.is_orphan => vec![RemovalStep::ReportInventoryLost],
            RecordedObjects::None | RecordedObjects::Lost => COMPLETION.to_vec(),
            RecordedObjects::Empty => {
                let mut steps = vec![RemovalStep::ForgetReplacedNamespaces];
                steps.extend(COMPLETION);
                steps
            }
            RecordedObjects::Some => self.of_objects(),
        }
    }

    fn of_objects(&self) -> Vec<RemovalStep> {
        let mut steps = vec![
            RemovalStep::ForgetReplacedNamespaces,
            RemovalStep::CheckDeletion,
            RemovalStep::RecordAcceptance,
            RemovalStep::ReadRequesters,
            RemovalStep::FindAccount,
        ];
        let is_withdrawn = match self.account {
            None => return steps,
            Some(Account::None) if !self.is_orphan => {
                steps.push(RemovalStep::ReportNoAccount);
                return steps;
            }
            // The objects are orphaned, but no ServiceAccount can remove their labels. The deletion
            // does not wait until the labels are removed.
            Some(Account::None | Account::Withdrawn) if self.is_orphan => {
                steps.extend(COMPLETION);
                return steps;
            }
            Some(account) => account == Account::Withdrawn,
        };
        if self.is_orphan {
            steps.push(RemovalStep::ReleaseObjects);
            steps.extend(COMPLETION);
            return steps;
        }
        steps.push(RemovalStep::FindObjects);
        // Without a usable ServiceAccount, definitions in use cannot be released.
        if self.custom_resources != CustomResources::Delete && !is_withdrawn {
            steps.push(RemovalStep::FindDefinitionsInUse);
            match self.definitions_in_use {
                None => return steps,
                Some(true) if self.custom_resources == CustomResources::Refuse => {
                    steps.push(RemovalStep::ReportDefinitionsInUse);
                    return steps;
                }
                Some(true) => steps.push(RemovalStep::ReleaseDefinitionsInUse),
                Some(false) => {}
            }
        }
        steps.push(RemovalStep::DeleteObjects);
        // The objects in namespaces are deleted first. Only afterwards, the pod can find objects of
        // other owners that remain in the namespaces.
        if !is_withdrawn {
            steps.push(RemovalStep::ReleaseNamespacesInUse);
        }
        steps.push(RemovalStep::DeleteNamespaces);
        steps.extend(COMPLETION);
        steps
    }
}

#[cfg(test)]
mod tests;
