//! The interface between the content service, which serves archives of Bundles, and the reconciler,
//! which stores the content.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bundle_core::names::KubeName;
use bundle_core::reference::Digest;
use bundle_core::review::Requester;
use futures::future::BoxFuture;

use crate::uploads::target::UploadTargets;

/// The content of a Bundle as a gzipped tar.
pub(crate) trait BundleArchive: Send {
    /// Returns the size of the archive in bytes.
    fn size(&self) -> u64;

    /// Returns the digest of all bytes of the archive.
    fn digest(&self) -> &Digest;

    /// Reads at least one byte, starting at `offset`. Fails if the bytes were changed on disk.
    fn read(&mut self, offset: u64) -> io::Result<Vec<u8>>;
}

/// The archives of Bundles on the leader.
pub(crate) trait BundleArchives: Send + Sync {
    /// Opens the archive of `bundle`. If the cache contains the content but not the archive,
    /// creates the archive. The memory for the creation counts towards the limits of `requester`.
    fn open<'a>(
        &'a self,
        bundle: &'a KubeName,
        requester: &'a Requester,
    ) -> BoxFuture<'a, Result<Box<dyn BundleArchive>, ArchiveError>>;
}

/// The reason why no archive of a Bundle can be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    /// The Bundle does not exist.
    #[error("Bundle {0} does not exist")]
    NoBundle(KubeName),
    /// The Bundle has no content yet, or the record of its content is not valid.
    #[error("Bundle {0} is not unpacked: see its conditions")]
    NotUnpacked(KubeName),
    /// The cache does not contain the content any more.
    #[error(
        "the content of Bundle {0} is not in the cache: it is fetched again when a BundleDeployment needs it"
    )]
    NotCached(KubeName),
    /// Other work uses the memory, or the content needs too much memory.
    #[error("not enough memory to read the content of Bundle {0}; try again")]
    Busy(KubeName),
    /// A request to the API server failed.
    #[error("cannot read Bundle {0}")]
    Api(KubeName, #[source] kube::Error),
    /// The archive cannot be written to the volume of the cache.
    #[error("cannot store the archive of Bundle {0} in the cache")]
    Unstorable(KubeName, #[source] io::Error),
}

/// Access to the Bundles of the leader: the archives for downloads, and the targets of uploads.
pub(crate) trait LeaderContent: BundleArchives + UploadTargets {}

impl<T: BundleArchives + UploadTargets> LeaderContent for T {}

/// Access to the content of Bundles. The inner value is `None` while this replica is not the
/// leader.
#[derive(Default)]
pub(crate) struct LeaderArchives(Mutex<Option<Arc<dyn LeaderContent>>>);

/// Guard that ends the access to the content when it is dropped. No archive is deleted.
pub(crate) struct LeaderArchivesGuard(Arc<LeaderArchives>);

impl LeaderArchives {
    /// Makes `archives` available until the returned guard is dropped.
    pub(crate) fn provide(
        self: &Arc<Self>,
        archives: Arc<dyn LeaderContent>,
    ) -> LeaderArchivesGuard {
        *self.lock() = Some(archives);
        LeaderArchivesGuard(self.clone())
    }

    /// Returns the archives, if this replica is the leader.
    pub(crate) fn get(&self) -> Option<Arc<dyn LeaderContent>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn LeaderContent>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LeaderArchivesGuard {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}
