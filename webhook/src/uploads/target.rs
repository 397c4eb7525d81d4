//! The interface between the content service, which receives uploads, and the reconciler, which
//! decides whether a Bundle accepts an upload.

use bundle_core::names::KubeName;
use bundle_core::plan::bundle::upload::UploadRejection;
use bundle_core::reference::Digest;
use bundle_core::review::Requester;
use futures::future::BoxFuture;

/// A Bundle for which a caller can upload content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UploadTarget {
    pub(crate) uid: String,
    /// Digest of the unpacked content. `None` if no content is unpacked yet.
    pub(crate) unpacked: Option<Digest>,
    /// True if the cache contains the unpacked content.
    pub(crate) is_cached: bool,
    /// Name of the BundleDeployment for which the Bundle was generated.
    pub(crate) deployment: Option<String>,
}

/// The Bundles that receive uploads.
pub(crate) trait UploadTargets: Send + Sync {
    /// Returns the Bundle if `caller` can upload its content.
    fn find<'a>(
        &'a self,
        bundle: &'a KubeName,
        caller: &'a Requester,
    ) -> BoxFuture<'a, Result<UploadTarget, TargetError>>;

    /// Starts a reconcile of the Bundle after an upload was stored.
    fn uploaded(&self, bundle: &KubeName, target: &UploadTarget);
}

/// The reason why an upload is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    /// The Bundle does not exist.
    #[error("Bundle {0} does not exist")]
    NoBundle(KubeName),
    /// The Bundle has another source or other content.
    #[error(transparent)]
    Rejected(#[from] UploadRejection),
    /// The Bundle is not reconciled. Contains the reason.
    #[error("Bundle {0} is not unpacked: {1}")]
    NotReconciled(KubeName, String),
    /// Another user requested the Bundle, or the template that it was generated from.
    #[error(
        "{user} cannot upload content of Bundle {bundle}, which {requester} requested: upload as {requester}, or get permission to impersonate this user and its groups"
    )]
    OtherRequester {
        bundle: KubeName,
        user: String,
        requester: String,
    },
    /// The caller requested the Bundle, but no longer has all groups of that request.
    #[error(
        "{user} cannot upload content of Bundle {bundle}, which was requested with further groups ({groups}): upload with a token that has them, or get permission to impersonate this user and its groups"
    )]
    OtherGroups {
        bundle: KubeName,
        user: String,
        groups: String,
    },
    /// A request to the API server failed.
    #[error("cannot read Bundle {0}")]
    Api(KubeName, #[source] kube::Error),
}
