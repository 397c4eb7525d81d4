//! Plan of a reconcile of a Bundle: the remaining steps in order, computed from the observed facts.
//! The plan is computed again after each step. The content is unpacked only once. Later reconciles
//! only compare the source with the unpacked content. `webhook::reconcile` executes the steps.

pub mod attempts;
mod compatibility;
mod failed_unpack;
mod status;
pub mod upload;

use std::collections::BTreeSet;

pub use compatibility::{Compatibility, compatibility};
pub use failed_unpack::{FailedUnpack, NextUnpack};
pub use status::{
    BundleFailure, BundleOutcome, Phase, SourceComparison, StatusPlan, UnpackedContent,
    VerifiedFailure,
};

/// Record in the seal of a Bundle about the content that was unpacked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SealedRecord {
    /// No content was unpacked.
    None,
    /// Content was unpacked from the current spec.
    SameSpec,
    /// Content was unpacked from a spec that differs from the current spec.
    OtherSpec,
}

/// Step of a reconcile of a Bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BundleStep {
    /// Delete the cached copy of the content and the upload of the Bundle. The copy is kept if
    /// another Bundle needs it. This step runs only while a finalizer delays the deletion of the
    /// Bundle. The pod adds no finalizer to a Bundle.
    RemoveCachedContent,
    /// Remove the finalizer with which RukPak protected its cached copy. Bundles that RukPak
    /// created have this finalizer.
    RemoveFinalizer,
    /// Read the requesters of the Bundle from its seal, and parse its spec.
    CheckAdmission,
    /// Check that this build of the pod supports the provisioner of the class.
    CheckProvisioner,
    /// Fail: the spec changed after content was unpacked. A Bundle accepts only the content that
    /// was unpacked first.
    ReportContentChanged,
    /// Check that the class allows this source.
    CheckSource,
    /// Fetch, verify and read the content, and record its digest in the seal `status.content.seal`.
    Unpack,
    /// Write the facts about the sealed content into the status, because another client may have
    /// changed the status.
    RestoreStatus,
    /// Resolve the source again. The result changes only a condition.
    CompareSource,
}

/// Facts of a reconcile of a Bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObservedBundle {
    /// True if the Bundle is being deleted.
    pub is_deleted: bool,
    /// Result of [`BundleStep::CheckAdmission`]: the record of the content. `None` before this
    /// step.
    pub sealed: Option<SealedRecord>,
    /// Result of [`BundleStep::CheckAdmission`]: true if the source always refers to the same
    /// content, for example by a digest.
    pub is_source_fixed: bool,
    /// Completed steps.
    pub done: BTreeSet<BundleStep>,
}

impl ObservedBundle {
    /// Returns the remaining steps. A step runs only if all earlier steps succeeded. The steps that
    /// depend on the result of [`BundleStep::CheckAdmission`] are listed only after this step.
    pub fn steps(&self) -> Vec<BundleStep> {
        let mut steps = self.whole();
        steps.retain(|step| !self.done.contains(step));
        steps
    }

    fn whole(&self) -> Vec<BundleStep> {
        if self.is_deleted {
            return vec![BundleStep::RemoveCachedContent, BundleStep::RemoveFinalizer];
        }
        let mut steps = vec![BundleStep::CheckAdmission, BundleStep::CheckProvisioner];
        match self.sealed {
            None => {}
            Some(SealedRecord::OtherSpec) => steps.push(BundleStep::ReportContentChanged),
            Some(SealedRecord::None) => {
                steps.extend([BundleStep::CheckSource, BundleStep::Unpack]);
            }
            Some(SealedRecord::SameSpec) => {
                steps.push(BundleStep::RestoreStatus);
                if !self.is_source_fixed {
                    steps.push(BundleStep::CompareSource);
                }
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests;
