//! The plan of the end of a BundleDeployment: from what is known, the steps that are left, in their order. The outcome of a step may change the plan, so it is
//! made again after each.
//! Not here: the order in which objects go (super), one step of deleting them (progress), or doing a step (webhook::reconcile).

use std::collections::BTreeSet;

use crate::review::deployment::CustomResources;

/// The record of the objects that a BundleDeployment installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordedObjects {
    /// There is no inventory, and nothing says that anything was ever applied.
    None,
    /// There is no inventory although something may have been applied: by the status, or by what other tools are told.
    Lost,
    /// The inventory names no objects, or none that still exist.
    Empty,
    /// The inventory names objects.
    Some,
}

/// The ServiceAccount that removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// Nobody names one: the class is gone, and it is not recorded who installed.
    None,
    /// It may be used.
    Usable,
    /// Somebody who asked for the content may not impersonate it any more.
    Withdrawn,
}

/// A step of the end of a BundleDeployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemovalStep {
    /// Fail: it is not known which objects are to be removed.
    TellInventoryLost,
    /// Forget recorded objects whose namespaces are gone, or have been created anew since.
    ForgetReplacedNamespaces,
    /// Check that somebody was asked about the deletion.
    CheckDeletion,
    /// Record that the deletion is accepted. A gap in admission that comes later does not count.
    RecordAcceptance,
    /// Read from the seal who asked for the content.
    ReadRequesters,
    /// Find the ServiceAccount that removes, and ask whether it may be used.
    FindAccount,
    /// Fail: there is no ServiceAccount to remove as.
    TellNoAccount,
    /// Find out which recorded objects exist, and forget the others.
    FindObjects,
    /// Take our labels off all objects, which stay.
    ReleaseObjects,
    /// Find definitions with custom resources that were not installed by the deployment.
    FindDefinitionsInUse,
    /// Fail: custom resources would be lost.
    TellDefinitionsInUse,
    /// Take our labels off definitions that are in use, which stay.
    ReleaseDefinitionsInUse,
    /// Delete everything but the namespaces that were created with the content.
    DeleteObjects,
    /// Take our labels off created namespaces with objects of others, which stay.
    ReleaseNamespacesInUse,
    /// Delete the namespaces that were created with the content.
    DeleteCreatedNamespaces,
    /// Take our finalizer off the BundleDeployment.
    RemoveFinalizer,
    /// Delete the inventory. Last: while the BundleDeployment exists, a removal without it would be refused.
    RemoveInventory,
}

/// Facts of the end of a BundleDeployment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObservedRemoval {
    /// True if the BundleDeployment has our finalizer.
    pub has_finalizer: bool,
    /// True if `spec.deletion.objects` is `Orphan`.
    pub is_orphan: bool,
    /// `spec.deletion.customResources`; `Refuse` if the spec is unreadable.
    pub custom_resources: Handling,
    /// The record of its objects.
    pub recorded: RecordedObjects,
    /// The outcome of [`RemovalStep::FindAccount`].
    pub account: Option<Account>,
    /// The outcome of [`RemovalStep::FindDefinitionsInUse`]: true if there are any.
    pub definitions_in_use: Option<bool>,
    /// The steps that were done.
    pub done: BTreeSet<RemovalStep>,
}

/// Handling of definitions with custom resources that the deployment did not install: `spec.deletion.customResources`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Handling {
    /// The removal waits.
    Refuse,
    /// The definition stays.
    Orphan,
    /// Both go.
    Delete,
}

impl From<CustomResources> for Handling {
    fn from(custom_resources: CustomResources) -> Self {
        match custom_resources {
            CustomResources::Refuse => Self::Refuse,
            CustomResources::Orphan => Self::Orphan,
            CustomResources::Delete => Self::Delete,
        }
    }
}

/// The steps after everything is gone or let go.
const COMPLETION: [RemovalStep; 2] = [RemovalStep::RemoveFinalizer, RemovalStep::RemoveInventory];

impl ObservedRemoval {
    /// Returns the steps that are left, as far as they are known: none of them follows a step that failed, and the list ends with the step whose outcome decides
    /// what follows. It is empty once nothing is left to do.
    pub fn steps(&self) -> Vec<RemovalStep> {
        let mut steps = self.whole();
        steps.retain(|step| !self.done.contains(step));
        steps
    }

    fn whole(&self) -> Vec<RemovalStep> {
        // Removed by an earlier reconcile, which ended before the inventory was deleted: that is swept.
        if !self.has_finalizer && !self.done.contains(&RemovalStep::RemoveFinalizer) {
            return Vec::new();
        }
        match self.recorded {
            RecordedObjects::Lost if !self.is_orphan => vec![RemovalStep::TellInventoryLost],
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
                steps.push(RemovalStep::TellNoAccount);
                return steps;
            }
            // Whoever asked for the objects to be left behind is not kept waiting for labels that nobody may take off.
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
        // As a ServiceAccount that may not be used nothing is let go either.
        if self.custom_resources != Handling::Delete && !is_withdrawn {
            steps.push(RemovalStep::FindDefinitionsInUse);
            match self.definitions_in_use {
                None => return steps,
                Some(true) if self.custom_resources == Handling::Refuse => {
                    steps.push(RemovalStep::TellDefinitionsInUse);
                    return steps;
                }
                Some(true) => steps.push(RemovalStep::ReleaseDefinitionsInUse),
                Some(false) => {}
            }
        }
        steps.push(RemovalStep::DeleteObjects);
        // Last, and only now: what was installed into them is gone.
        if !is_withdrawn {
            steps.push(RemovalStep::ReleaseNamespacesInUse);
        }
        steps.push(RemovalStep::DeleteCreatedNamespaces);
        steps.extend(COMPLETION);
        steps
    }
}

#[cfg(test)]
mod tests;
