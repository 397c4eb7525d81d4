//! The plan of a reconcile of a BundleDeployment: from what is known, the steps that are left, in their order. The outcome of a step may change the plan, so it
//! is made again after each; it is also what a client can show without doing anything.
//! Not here: doing a step (webhook::reconcile), or what the conditions tell (summary).

use std::collections::BTreeSet;

/// Content that the process knows to be in place. After a restart it knows nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum InPlace {
    /// Nothing is known.
    #[default]
    Unknown,
    /// Other content, or the same with other settings.
    Other,
    /// The content that is wanted, with the settings of the spec.
    Wanted,
}

/// A step towards the wanted content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstallStep {
    /// Tell the error of the last attempt, which is not repeated yet.
    TellHeldError,
    /// Compare the content with what was installed from the same template before.
    CheckContent,
    /// Read the content, and prepare its objects.
    Render,
    /// Check that the class lets the objects land where they would.
    CheckTargets,
    /// Ask whether the content is approved, if the class asks for an approval.
    AskApproval,
    /// Check that the class takes content from its source.
    CheckSource,
    /// Verify the signatures of the content by the present policies.
    Verify,
    /// Ask whether the requesters may do what the installation does, and try it.
    Authorize,
    /// Ask about the requesters' permissions again, since the answer is too old for a write.
    AuthorizeAgain,
    /// Check that spec, class and policies are still those that the decision is made from, and ask
    /// again whether the content is approved.
    CheckBasisOfDecision,
    /// Record that the class, with its present terms, decided about content that is installed already.
    RecordDecision,
    /// Watch the kinds of the content that are served.
    Watch,
    /// Read the objects one by one. Those that are not as the content says have drifted.
    FindDrift,
    /// Compare the objects with what is recorded that the last apply left.
    Compare,
    /// Take the objects to be as they are recorded.
    TakeAsRecorded,
    /// Check spec, class, policies and approval again right before the first write, however recent the
    /// answer about permissions is: a registry can stall the steps before it.
    CheckBasis,
    /// Record the objects, then apply them phase by phase. Phases after Namespaces and
    /// CustomResourceDefinitions begin once those are established.
    Apply,
    /// Delete recorded objects that the content does not have.
    Prune,
    /// Record that the content is installed.
    RecordInstalled,
    /// Watch all kinds of the content, and no others.
    WatchAll,
}

/// A step after the installation: of keeping what is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UpkeepStep {
    /// Tell whether the content is approved. Nothing depends on it.
    TellApproval,
    /// Restore what drifted from the wanted content, and look at health.
    Keep,
    /// Restore objects that an interrupted installation applied, and all others as they were installed before.
    KeepPartly,
    /// Restore what drifted from the content that was installed before.
    KeepFormer,
    /// Ask, if it is time, whether the requesters may still do what the installation does.
    CheckRights,
    /// Delete Bundles that nothing needs any more.
    DeleteOldBundles,
}

/// Facts of a reconcile, known once class, requesters, inventory and the Bundle of the template are read.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and every combination has a plan"
)]
pub struct Observed {
    /// `spec.paused`.
    pub is_paused: bool,
    /// True if `spec.drift.mode` is `Correct`.
    pub corrects_drift: bool,
    /// True if the content of the Bundle of the template is known.
    pub is_unpacked: bool,
    /// The content that was in place when the reconcile began.
    pub in_place: InPlace,
    /// True if the inventory recorded then that the wanted content was installed completely, by the same ServiceAccount and into the same namespace.
    pub is_installed: bool,
    /// True if the inventory recorded then that an installation had begun, and not that it was complete.
    pub is_unfinished: bool,
    /// True if the inventory recorded then that the class, with its present terms, decided about the wanted content.
    pub is_decided: bool,
    /// True if the Bundle of the template is the one that the inventory named then as installed.
    pub is_active: bool,
    /// True if the same attempt failed before and is not repeated yet.
    pub is_held: bool,
    /// The outcome of [`InstallStep::Compare`].
    pub is_as_recorded: Option<bool>,
    /// True if the answer of [`InstallStep::Authorize`] is too old for a write.
    pub is_authorization_old: bool,
    /// The steps of this reconcile that were done.
    pub done: BTreeSet<InstallStep>,
}

/// Facts that are known once the steps of [`Observed::installation`] were done, or one of them failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outcome {
    /// True if the wanted content is in place.
    pub is_in_place: bool,
    /// True if an installation ended before all objects were applied.
    pub is_partly_applied: bool,
    /// True if this reconcile changed something to get the content in place.
    pub has_changed: bool,
}

/// The steps after everything was applied.
const COMPLETION: [InstallStep; 3] = [
    InstallStep::Prune,
    InstallStep::RecordInstalled,
    InstallStep::WatchAll,
];

impl Observed {
    /// True if everything about the wanted content was decided, done and recorded before.
    fn is_recorded(&self) -> bool {
        self.is_installed && self.is_decided && self.is_active && !self.is_unfinished
    }

    /// True if the class, with its present terms, has not decided yet about this content, or it was never installed.
    pub fn is_first(&self) -> bool {
        !self.is_decided || !self.is_installed
    }

    /// Returns the steps that are left until the wanted content is in place, as far as they are known: none of them follows a step that failed, and the list
    /// ends with [`InstallStep::Compare`] if its outcome decides what follows.
    pub fn installation(&self) -> Vec<InstallStep> {
        let mut steps = self.whole_installation();
        steps.retain(|step| !self.done.contains(step));
        steps
    }

    fn whole_installation(&self) -> Vec<InstallStep> {
        let is_in_place = self.in_place == InPlace::Wanted;
        if !self.is_unpacked || self.is_paused || (is_in_place && self.is_recorded()) {
            return Vec::new();
        }
        if self.is_held {
            return vec![InstallStep::TellHeldError];
        }
        let mut steps = vec![InstallStep::CheckContent, InstallStep::Render];
        if is_in_place && self.is_decided {
            // The last time it went wrong after everything had been applied. Rights may have been withdrawn since.
            steps.push(InstallStep::Authorize);
            steps.extend(COMPLETION);
            return steps;
        }
        // A registry decides how long it takes: it is asked before the rights.
        steps.extend([InstallStep::CheckTargets, InstallStep::AskApproval]);
        if self.is_first() {
            steps.extend([
                InstallStep::CheckSource,
                InstallStep::Verify,
                InstallStep::Authorize,
            ]);
            if self.is_installed {
                steps.extend([
                    InstallStep::CheckBasisOfDecision,
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
        // What an interrupted installation left beside the recorded content is not compared.
        if self.in_place == InPlace::Unknown && self.is_installed && !self.is_unfinished {
            if !self.corrects_drift {
                steps.push(InstallStep::FindDrift);
                return steps;
            }
            steps.push(InstallStep::Compare);
            match self.is_as_recorded {
                None => return steps,
                Some(true) => {
                    steps.push(InstallStep::TakeAsRecorded);
                    return steps;
                }
                Some(false) => {}
            }
        }
        if !self.is_first() {
            steps.push(InstallStep::Authorize);
        } else if self.is_authorization_old && !self.done.contains(&InstallStep::Apply) {
            steps.push(InstallStep::AuthorizeAgain);
        }
        steps.extend([InstallStep::CheckBasis, InstallStep::Apply]);
        steps.extend(COMPLETION);
        steps
    }
}

impl Outcome {
    /// Returns the steps after the installation. [`UpkeepStep::CheckRights`] follows only if nothing failed before it.
    pub fn upkeep(self) -> Vec<UpkeepStep> {
        let keep = if self.is_in_place {
            UpkeepStep::Keep
        } else if self.is_partly_applied {
            UpkeepStep::KeepPartly
        } else {
            // While new content is on its way, or may not be installed, the old is kept as it was.
            UpkeepStep::KeepFormer
        };
        let mut steps = vec![UpkeepStep::TellApproval, keep];
        if self.is_in_place {
            steps.push(UpkeepStep::CheckRights);
        }
        if self.has_changed || !self.is_in_place {
            steps.push(UpkeepStep::DeleteOldBundles);
        }
        steps
    }
}

#[cfg(test)]
mod tests;
