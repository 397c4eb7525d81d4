//! Types, reasons and phases that the plans use. They are those of `bundle_api::names`, which this crate does not depend on; a test of the webhook compares them.

/// Types of conditions.
pub mod condition {
    /// Bundle: the content was fetched and read.
    pub const UNPACKED: &str = "Unpacked";
    /// Bundle: the signatures that policies ask for were found.
    pub const VERIFIED: &str = "Verified";
    /// Bundle: the content supports this Kubernetes version.
    pub const COMPATIBLE: &str = "Compatible";
    /// Bundle: the source names other content than was first unpacked.
    pub const SOURCE_MOVED: &str = "SourceMoved";
    /// BundleDeployment: a Bundle of the present template is unpacked.
    pub const HAS_VALID_BUNDLE: &str = "HasValidBundle";
    /// BundleDeployment: the content is installed.
    pub const INSTALLED: &str = "Installed";
    /// BundleDeployment: the requesters may do what the content does.
    pub const AUTHORIZED: &str = "Authorized";
    /// BundleDeployment: the content was approved, where the class asks for that.
    pub const APPROVED: &str = "Approved";
    /// BundleDeployment: the installed objects are healthy.
    pub const HEALTHY: &str = "Healthy";
    /// BundleDeployment: installed objects differ from the content.
    pub const DRIFTED: &str = "Drifted";
    /// BundleDeployment: work is under way.
    pub const PROGRESSING: &str = "Progressing";
    /// All kinds: the one that kstatus and `kubectl wait` read.
    pub const READY: &str = "Ready";
}

/// Reasons of conditions.
pub mod reason {
    /// Not begun.
    pub const UNPACK_PENDING: &str = "UnpackPending";
    /// Under way.
    pub const UNPACKING: &str = "Unpacking";
    /// Done.
    pub const UNPACK_SUCCESSFUL: &str = "UnpackSuccessful";
    /// Failed.
    pub const UNPACK_FAILED: &str = "UnpackFailed";
    /// A watch on installed objects could not be opened.
    pub const CREATE_DYNAMIC_WATCH_FAILED: &str = "CreateDynamicWatchFailed";
    /// Installed.
    pub const INSTALLATION_SUCCEEDED: &str = "InstallationSucceeded";
    /// Requesters have lost rights that the installed content needs.
    pub const RIGHTS_WITHDRAWN: &str = "RightsWithdrawn";
    /// The source names other content now.
    pub const SOURCE_MOVED: &str = "SourceMoved";
    /// The source names what was unpacked.
    pub const SOURCE_UNCHANGED: &str = "SourceUnchanged";
    /// `spec.paused` is true.
    pub const PAUSED: &str = "Paused";
}

/// `status.phase` of a Bundle.
pub mod phase {
    /// The content is on its way.
    pub const UNPACKING: &str = "Unpacking";
    /// The content could not be fetched, or is refused.
    pub const FAILING: &str = "Failing";
    /// The content is there.
    pub const UNPACKED: &str = "Unpacked";
}
