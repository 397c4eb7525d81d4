//! Content that was uploaded to the pod. The uid of the Bundle identifies an upload until it is
//! unpacked. After that, the digest identifies it.

use std::io;
use std::sync::Arc;

use bundle_core::content::ContentId;
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy::{RawSignature, Unavailable};
use bundle_core::reference::Digest;
use bundle_core::review::Source;
use bundle_oci::Limits;
use bundle_oci::transfer::archive_file::{self, ArchiveFileError};
use bundle_oci::unpack::{FileSink, UnpackError};

use super::{ContentSource, FetchedFiles, SourceError};
use crate::shared::Shared;
use crate::uploads::UploadStore;

/// The reason why an upload could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadSourceError {
    /// No content was uploaded yet. The text is the same as in RukPak.
    #[error("waiting for bundle to be uploaded")]
    NotUploaded,
    /// The content is neither in the cache nor in the uploads any more.
    #[error("the uploaded content {0} is lost")]
    Lost(Digest),
    /// The archive cannot be read from the disk.
    #[error("cannot read the uploaded archive: {0}")]
    Storage(#[source] io::Error),
    /// The archive cannot be unpacked.
    #[error("the uploaded archive is rejected: {0}")]
    Content(#[source] UnpackError),
}

impl UploadSourceError {
    /// Returns the finding for the requester of the content.
    pub(crate) fn finding(&self) -> Finding {
        const AGAIN: &str = "upload the archive to /uploads/NAME.tgz of the content service";
        let (code, hint) = match self {
            Self::NotUploaded => (codes::install::NOT_UPLOADED, AGAIN),
            Self::Lost(_) => (
                codes::install::NOT_UPLOADED,
                "upload the same archive again: only the recorded content is accepted",
            ),
            Self::Storage(_) | Self::Content(UnpackError::Unwritable { .. }) => (
                codes::install::CACHE_FULL,
                "the operation is retried automatically",
            ),
            Self::Content(error) => (error.finding().code, "upload another archive"),
        };
        Finding::error(code, self.to_string()).hint(hint)
    }
}

impl From<ArchiveFileError> for UploadSourceError {
    fn from(error: ArchiveFileError) -> Self {
        match error {
            ArchiveFileError::Storage(error) => Self::Storage(error),
            ArchiveFileError::Content(error) => Self::Content(error),
        }
    }
}

/// The upload of one Bundle.
pub(crate) struct UploadSource {
    uploads: Arc<UploadStore>,
    /// Uid of the Bundle that is unpacked for the first time. `None` for content that was already
    /// unpacked.
    bundle: Option<String>,
}

impl UploadSource {
    pub(super) fn open(shared: &Shared, bundle: Option<&str>) -> Self {
        Self {
            uploads: shared.uploads.clone(),
            bundle: bundle.map(str::to_owned),
        }
    }
}

impl ContentSource for UploadSource {
    async fn resolve(&self) -> Result<ContentId, SourceError> {
        let digest = self
            .bundle
            .as_deref()
            .and_then(|uid| self.uploads.digest(uid));
        let digest = digest.ok_or(UploadSourceError::NotUploaded)?;
        Ok(ContentId::new(&Source::Upload, digest))
    }

    async fn fetch<S>(&self, content: &ContentId, sink: S) -> Result<FetchedFiles<S>, SourceError>
    where
        S: FileSink<File: Send> + Send + 'static,
    {
        let digest = content.digest();
        let file = self.uploads.open(digest);
        let file = file.map_err(UploadSourceError::Storage)?;
        let file = file.ok_or_else(|| UploadSourceError::Lost(digest.clone()))?;
        let size = file.metadata().map_err(UploadSourceError::Storage)?.len();
        let archive = archive_file::gzip_descriptor(digest.clone(), size);
        let unpacked = archive_file::unpack(file, archive, Limits::default(), sink).await;
        Ok(unpacked.map_err(UploadSourceError::from)?)
    }

    async fn signatures(&self, _: &ContentId) -> Result<Vec<RawSignature>, Unavailable> {
        Ok(Vec::new())
    }
}
