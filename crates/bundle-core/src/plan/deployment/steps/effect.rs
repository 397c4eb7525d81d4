//! Effects of steps as texts for users.

use super::{InstallStep, MaintenanceStep};

impl InstallStep {
    /// Returns the effect of the step in one clause.
    pub fn effect(self) -> &'static str {
        match self {
            Self::ReportDelayedError => {
                "report the error of the last attempt, which is retried later"
            }
            Self::CheckPhase => "check the health of the objects of the applied phase",
            Self::CheckContent => {
                "compare the content with the content that was installed from the same template"
            }
            Self::Render => "read the content and render its objects",
            Self::CheckTargets => "check that the class allows the namespaces of the objects",
            Self::CheckApproval => "check the approval, if the class requires one",
            Self::CheckSource => "check that the class allows the source",
            Self::Verify => "verify the signatures of the content",
            Self::CheckPackageRules => {
                "check required APIs and packages, and the installed version that the package replaces"
            }
            Self::CheckDefinitions => {
                "check that changes of CustomResourceDefinitions keep existing custom resources valid"
            }
            Self::Authorize | Self::Reauthorize => "check the permissions of the requester",
            Self::CheckPreconditionsOfDecision | Self::CheckPreconditions => {
                "check that spec, class, policies and approval are unchanged"
            }
            Self::RecordDecision => "record that the class authorized the content",
            Self::Watch => "watch the kinds of the content",
            Self::FindDrift => "compare each object with the content",
            Self::Compare => "compare the objects with the recorded state",
            Self::UseRecordedState => "use the recorded state of the objects",
            Self::Apply => "apply the objects phase by phase",
            Self::Prune => "delete recorded objects that are not part of the content",
            Self::RecordInstalled => "record that the content is installed",
            Self::WatchAll => "watch all kinds of the content",
        }
    }
}

impl MaintenanceStep {
    /// Returns the effect of the step in one clause.
    pub fn effect(self) -> &'static str {
        match self {
            Self::ReportApproval => "report the approval of the content",
            Self::Maintain => "restore drift and check the health of the objects",
            Self::MaintainPartial => {
                "restore applied objects from the new content, and others from the previous content"
            }
            Self::MaintainPrevious => "restore drift from the previous content",
            Self::CheckPermissions => "check that the requester still has the permissions",
            Self::DeleteOldBundles => "delete Bundles that are no longer needed",
        }
    }
}
