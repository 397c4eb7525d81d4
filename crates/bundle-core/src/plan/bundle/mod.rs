//! The plan of a reconcile of a Bundle whose class is ours: its content is unpacked once, and afterwards only compared with what its source names. From what is known, the steps that
//! are left, in their order; it is made again after each step.
//! Not here: doing a step (webhook::reconcile), or which Bundle a BundleDeployment wants (pivot).

mod compatibility;
mod status;

use std::collections::BTreeSet;

pub use compatibility::{Compatibility, compatibility};
pub use status::{
    BundleFailure, BundleOutcome, Phase, SourceAnswer, StatusPlan, UnpackedContent, VerifiedFailure,
};

/// The record of the content that was first unpacked under the name of a Bundle, which is in its seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SealedRecord {
    /// Nothing was unpacked yet.
    None,
    /// Content was unpacked from the spec that the Bundle has.
    SameSpec,
    /// Content was unpacked from another spec.
    OtherSpec,
}

/// A step of a reconcile of a Bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BundleStep {
    /// Delete the copy of the content, unless another Bundle needs it.
    RemoveCachedContent,
    /// Take RukPak's finalizer off the Bundle.
    RemoveFinalizer,
    /// Read from the seal who asked for the Bundle, and parse its spec.
    CheckAdmission,
    /// Check that the provisioner of the class is built.
    CheckProvisioner,
    /// Check that sources of this kind are supported.
    CheckSourceKind,
    /// Fail: the spec was changed after its content was unpacked, and only that content is accepted under this name.
    TellContentChanged,
    /// Check that the class takes content from this source.
    CheckSource,
    /// Fetch, verify and read the content, and seal it.
    Unpack,
    /// Show the content that is sealed, whatever others have written into the status.
    ShowSealedContent,
    /// Ask what the source names now. The answer changes a condition and nothing else.
    AskSource,
}

/// Facts of a reconcile of a Bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObservedBundle {
    /// True if the Bundle is being deleted.
    pub is_deleted: bool,
    /// The outcome of [`BundleStep::CheckAdmission`]: the record of its content.
    pub sealed: Option<SealedRecord>,
    /// The outcome of [`BundleStep::CheckAdmission`]: true if the source names exactly one content for ever, such as a digest.
    pub is_source_fixed: bool,
    /// The steps that were done.
    pub done: BTreeSet<BundleStep>,
}

impl ObservedBundle {
    /// Returns the steps that are left, as far as they are known: none of them follows a step that failed.
    pub fn steps(&self) -> Vec<BundleStep> {
        let mut steps = self.whole();
        steps.retain(|step| !self.done.contains(step));
        steps
    }

    fn whole(&self) -> Vec<BundleStep> {
        if self.is_deleted {
            return vec![BundleStep::RemoveCachedContent, BundleStep::RemoveFinalizer];
        }
        let mut steps = vec![
            BundleStep::CheckAdmission,
            BundleStep::CheckProvisioner,
            BundleStep::CheckSourceKind,
        ];
        match self.sealed {
            None => {}
            Some(SealedRecord::OtherSpec) => steps.push(BundleStep::TellContentChanged),
            Some(SealedRecord::None) => {
                steps.extend([BundleStep::CheckSource, BundleStep::Unpack]);
            }
            Some(SealedRecord::SameSpec) => {
                steps.push(BundleStep::ShowSealedContent);
                if !self.is_source_fixed {
                    steps.push(BundleStep::AskSource);
                }
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests;
