//! Plan of a reconcile of a BundleDeployment: its remaining steps in order, computed from the
//! observed facts. The outcome of a step can change the plan, so the plan is computed again after
//! each step. Clients can compute and show the same plan. `webhook::reconcile` executes the steps.
//! The module `status` computes the conditions.

mod effect;

use std::collections::BTreeSet;

/// Content whose objects are applied, according to the memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum AppliedContent {
    /// After a restart, the process does not know which content is applied.
    #[default]
    Unknown,
    /// Other content, or the same content with other settings.
    Other,
    /// The wanted content (the content of the current template), with the settings of the spec.
    Wanted,
}

/// Step of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstallStep {
    /// Report the error of the last attempt. The retry is not due yet.
    ReportDelayedError,
    /// Check the health of the objects in the last phase that the last attempt applied.
    CheckPhase,
    /// Compare the content with the content that was installed from the same template.
    CheckContent,
    /// Check that the class allows the source.
    CheckSource,
    /// Verify the signatures of the content against the current policies. The data of the registry
    /// and the objects of [`Self::Render`] use the same memory. Therefore this step runs before the
    /// reconcile has memory for the objects.
    Verify,
    /// Read the content, and render its objects.
    Render,
    /// Check that the objects are inside the targets of the class.
    CheckTargets,
    /// Check the approval, if the class requires an approval.
    CheckApproval,
    /// Check the rules of the package: required APIs and packages, and the installed versions that
    /// the package can replace.
    CheckPackageRules,
    /// Compare each CustomResourceDefinition of the content with the CustomResourceDefinition on
    /// the cluster.
    CheckDefinitions,
    /// Check the requesters' permissions for the installation, by access reviews and dry runs.
    Authorize,
    /// Check the requesters' permissions again, because the last result is too old for a write.
    Reauthorize,
    /// Check that spec, class and policies are unchanged since the reconcile read them, and check
    /// the approval again. This step precedes [`Self::RecordDecision`].
    CheckPreconditionsOfDecision,
    /// Record that the class, with its current terms, authorized content that is already
    /// installed.
    RecordDecision,
    /// Watch the kinds of the content that are already served.
    Watch,
    /// Read each object. Objects that differ from the content have drifted.
    FindDrift,
    /// Compare the objects with the fingerprints that were recorded after the last apply.
    Compare,
    /// Use the recorded fingerprints as the state of the objects.
    UseRecordedState,
    /// Check spec, class, policies and approval immediately before the first write, even if the
    /// permission check is recent. A slow registry can delay the steps before this check.
    CheckPreconditions,
    /// Record the objects, and then apply the objects phase by phase. Later phases start after the
    /// Namespaces are active and the CustomResourceDefinitions are established.
    Apply,
    /// Delete recorded objects that are not part of the content.
    Prune,
    /// Record that the content is installed.
    RecordInstalled,
    /// Watch all kinds of the content, and stop all other watches.
    WatchAll,
}

/// Step of the maintenance of installed content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MaintenanceStep {
    /// Report the approval of the content. This step has no other effect.
    ReportApproval,
    /// Restore drift from the wanted content, and check health.
    Maintain,
    /// After an interrupted installation: if the installation applied an object, restore the object
    /// from the new content. Restore all other objects from the previously installed content.
    ///
    /// After a restart, the process does not know which objects the installation applied. Until the
    /// installation continues, only those objects of the previous content are restored that had its
    /// values or did not exist when the process read them first.
    MaintainPartial,
    /// Restore drift from the previously installed content.
    MaintainPrevious,
    /// If the check is due: check that the requesters still have the permissions for the
    /// installation.
    CheckPermissions,
    /// Delete Bundles that are no longer needed.
    DeleteOldBundles,
}

/// Facts of a reconcile, known after class, requesters, inventory and the Bundle of the template
/// are read. The *wanted content* is the content of the Bundle of the template.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the facts are independent, and every combination has a plan"
)]
pub struct ObservedDeployment {
    /// `spec.paused`.
    pub is_paused: bool,
    /// True if `spec.drift.mode` is `Correct`.
    pub corrects_drift: bool,
    /// True if the Bundle of the template is unpacked.
    pub is_unpacked: bool,
    /// Applied content at the start of the reconcile.
    pub in_place: AppliedContent,
    /// True if, at the start of the reconcile, the inventory recorded the wanted content as
    /// completely installed by the same ServiceAccount and into the same namespace.
    pub is_installed: bool,
    /// True if the wanted content was completely installed last, even if an installation of other
    /// content has started since then.
    pub was_installed: bool,
    /// True if `spec.config` is the configuration of the content that was completely installed
    /// last. Another configuration can change each object, in the same way as other content, so the
    /// signatures and the definitions are checked again.
    pub has_installed_config: bool,
    /// True if, at the start of the reconcile, the inventory recorded an incomplete installation.
    pub is_unfinished: bool,
    /// True if, at the start of the reconcile, the inventory recorded that the class, with its
    /// current terms, authorized the wanted content.
    pub is_decided: bool,
    /// True if, at the start of the reconcile, the inventory recorded the Bundle of the template as
    /// installed.
    pub is_active: bool,
    /// True if the same attempt failed before, and its retry is not due yet.
    pub is_held: bool,
    /// True if the last attempt of this installation waits until the objects of a phase are
    /// healthy.
    pub waits_for_phase: bool,
    /// Result of [`InstallStep::CheckPhase`]; `None` if this step did not run.
    pub is_phase_ready: Option<bool>,
    /// Result of [`InstallStep::Compare`]; `None` if this step did not run.
    pub is_as_recorded: Option<bool>,
    /// True if the result of [`InstallStep::Authorize`] is too old for a write.
    pub is_authorization_old: bool,
    /// Completed steps of this reconcile.
    pub done: BTreeSet<InstallStep>,
}

/// Facts that are known after all steps of [`ObservedDeployment::installation`] succeeded, or after
/// one step failed. The *wanted content* is the content of the current template.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstallOutcome {
    /// Content that is applied completely, at the end of the installation.
    pub in_place: AppliedContent,
    /// True if this process knows that an installation ended before all objects were applied.
    pub is_partly_applied: bool,
    /// True if the inventory records an incomplete installation. An earlier process may have begun
    /// this installation.
    pub is_unfinished: bool,
    /// True if this reconcile completed the installation.
    pub has_completed: bool,
}

/// Steps after the apply.
const COMPLETION: [InstallStep; 3] = [
    InstallStep::Prune,
    InstallStep::RecordInstalled,
    InstallStep::WatchAll,
];

impl ObservedDeployment {
    /// Returns true if the inventory records that the wanted content is completely installed and
    /// that the class authorized it.
    fn is_recorded(&self) -> bool {
        self.is_installed && self.is_decided && self.is_active && !self.is_unfinished
    }

    /// Returns true if the content was never installed, or if the class, with its current terms,
    /// has not authorized it.
    pub fn is_first(&self) -> bool {
        !self.is_decided || !self.is_installed
    }

    /// For a spec with `spec.rollout.waitFor: Ready`, returns true if each phase waits until the
    /// objects of the previous phase are healthy. Content that was completely installed last is
    /// restored without waiting. `is_rollback` is true for an automatic rollback.
    pub fn is_gated(&self, is_rollback: bool) -> bool {
        let is_restored = self.was_installed && self.has_installed_config;
        !is_rollback && !is_restored
    }

    /// Returns the remaining steps until the wanted content is applied. A step runs only if all
    /// earlier steps succeeded. If the steps after [`InstallStep::CheckPhase`] or
    /// [`InstallStep::Compare`] depend on its result, the list ends with this step.
    pub fn installation(&self) -> Vec<InstallStep> {
        let mut steps = self.whole_installation();
        steps.retain(|step| !self.done.contains(step));
        steps
    }

    fn whole_installation(&self) -> Vec<InstallStep> {
        let is_in_place = self.in_place == AppliedContent::Wanted;
        if !self.is_unpacked || self.is_paused || (is_in_place && self.is_recorded()) {
            return Vec::new();
        }
        if self.is_held {
            return vec![InstallStep::ReportDelayedError];
        }
        if self.waits_for_phase {
            match self.is_phase_ready {
                None => return vec![InstallStep::CheckPhase],
                Some(false) => return Vec::new(),
                // All phases are applied again, because their objects can have changed.
                Some(true) => {}
            }
        }
        let mut steps = vec![InstallStep::CheckContent];
        if is_in_place && self.is_decided {
            steps.push(InstallStep::Render);
            // The last attempt failed after the apply. Permissions may have been withdrawn since
            // then.
            steps.push(InstallStep::Authorize);
            steps.extend(COMPLETION);
            return steps;
        }
        // A registry can respond slowly, so it is contacted before the permission check, and before
        // the reconcile waits for the memory of the objects.
        if self.is_first() || !self.has_installed_config {
            steps.extend([InstallStep::CheckSource, InstallStep::Verify]);
        }
        steps.extend([
            InstallStep::Render,
            InstallStep::CheckTargets,
            InstallStep::CheckApproval,
        ]);
        // Users must always be able to roll back an incomplete upgrade. Therefore the package rules
        // are not checked for the content that was completely installed last.
        if self.is_first() && !self.was_installed {
            steps.push(InstallStep::CheckPackageRules);
        }
        if !self.was_installed || !self.has_installed_config {
            steps.push(InstallStep::CheckDefinitions);
        }
        if self.is_first() {
            steps.push(InstallStep::Authorize);
            if self.is_installed {
                steps.extend([
                    InstallStep::CheckPreconditionsOfDecision,
                    InstallStep::RecordDecision,
                ]);
                if is_in_place {
                    if self.is_unfinished {
                        steps.extend(COMPLETION);
                    }
                    return steps;
                }
            }
        }
        steps.push(InstallStep::Watch);
        // Objects of an interrupted installation are not compared with the recorded content.
        if self.in_place == AppliedContent::Unknown && self.is_installed && !self.is_unfinished {
            // If the spec has a new configuration, a difference between object and content is not
            // drift.
            if !self.corrects_drift && self.has_installed_config {
                steps.push(InstallStep::FindDrift);
                return steps;
            }
            steps.push(InstallStep::Compare);
            match self.is_as_recorded {
                None => return steps,
                Some(true) => {
                    steps.push(InstallStep::UseRecordedState);
                    return steps;
                }
                Some(false) => {}
            }
        }
        if !self.is_first() {
            steps.push(InstallStep::Authorize);
        } else if self.is_authorization_old && !self.done.contains(&InstallStep::Apply) {
            steps.push(InstallStep::Reauthorize);
        }
        steps.extend([InstallStep::CheckPreconditions, InstallStep::Apply]);
        steps.extend(COMPLETION);
        steps
    }
}

impl InstallOutcome {
    /// Returns true if the wanted content is applied completely.
    pub fn is_in_place(self) -> bool {
        self.in_place == AppliedContent::Wanted
    }

    /// Returns the steps after the installation. [`MaintenanceStep::CheckPermissions`] runs only if
    /// all earlier steps succeeded.
    pub fn maintenance(self) -> Vec<MaintenanceStep> {
        // After a restart, objects of an incomplete installation can be applied, although this
        // process does not know them.
        let may_be_partly_applied = self.is_partly_applied
            || (self.is_unfinished && self.in_place == AppliedContent::Unknown);
        let keep = if self.is_in_place() {
            MaintenanceStep::Maintain
        } else if may_be_partly_applied {
            MaintenanceStep::MaintainPartial
        } else {
            // No object of the new content is applied yet.
            MaintenanceStep::MaintainPrevious
        };
        let mut steps = vec![MaintenanceStep::ReportApproval, keep];
        if self.is_in_place() {
            steps.push(MaintenanceStep::CheckPermissions);
        }
        if self.has_completed || !self.is_in_place() {
            steps.push(MaintenanceStep::DeleteOldBundles);
        }
        steps
    }
}

#[cfg(test)]
mod tests;
