//! Content from a gzipped tar archive at a URL. The archive is downloaded to a temporary file, so
//! that the digest of its bytes is known before it is unpacked. Later, only an archive with this
//! digest is unpacked.

mod credentials;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bundle_core::content::ContentId;
use bundle_core::diagnostic::{Code, Finding, Outcome, codes};
use bundle_core::policy::{RawSignature, Unavailable};
use bundle_core::reference::Digest;
use bundle_core::review::Source;
use bundle_core::review::source::Auth;
use bundle_oci::Limits;
use bundle_oci::registry::{
    Client, HttpFileAccess, HttpFileError, HttpFileReason, HttpFileRequest, ReceivedFile,
};
use bundle_oci::unpack::{FileSink, UnpackError};
use kube::Api;

use self::credentials::HttpSecretError;
use super::{ContentSource, FetchedFiles, SourceError};
use crate::budget::lookups::LookupMemory;
use crate::clients::names;
use crate::clients::recent_digests::RecentDigests;
use crate::shared::Shared;

/// The reason why an archive could not be fetched. The messages begin like the messages of RukPak.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpSourceError {
    /// The Secret with credentials cannot be used.
    #[error("source bundle content: {0}")]
    Secret(#[from] HttpSecretError),
    /// The download or the unpacking failed.
    #[error("source bundle content: {error}")]
    Failed {
        error: HttpFileError,
        /// True if the digest of the content was recorded before.
        is_recorded: bool,
    },
    /// The bytes differ from the recorded content.
    #[error(
        "source bundle content: GET {url}: the archive is now {found}, but {expected} was recorded: only the recorded content is accepted"
    )]
    Changed {
        url: String,
        expected: Digest,
        found: Digest,
    },
}

impl HttpSourceError {
    /// Returns the finding for the requester of the content.
    pub(crate) fn finding(&self) -> Finding {
        let (code, hint) = match self {
            Self::Secret(_) => (
                codes::install::HTTP_CREDENTIALS,
                "ask an administrator: the log of the pod has the reason",
            ),
            Self::Changed { .. } => (
                codes::install::CONTENT_CHANGED,
                "create another Bundle, or change the template of the BundleDeployment, to install the current archive",
            ),
            Self::Failed { error, .. } => describe(&error.reason),
        };
        Finding::error(code, self.to_string()).hint(hint)
    }

    /// Returns `true` if the same request fails each time, and a retry cannot help. Returns `false`
    /// for content that was unpacked before, because the server may return it again.
    pub(crate) fn is_terminal(&self) -> bool {
        let Self::Failed { error, is_recorded } = self else {
            return false;
        };
        let code = describe(&error.reason).0;
        !is_recorded && code.outcome == Outcome::Refused
    }
}

/// Returns the code and the hint for a failed download.
fn describe(reason: &HttpFileReason) -> (Code, &'static str) {
    const AGAIN: &str = "correct the file, then create the Bundle again or change one of its annotations: the pod does not read the URL again before that";
    match reason {
        reason if reason.is_passing() => (
            codes::install::HTTP_UNREACHABLE,
            "the request is retried automatically",
        ),
        HttpFileReason::Certificate { .. } | HttpFileReason::ClientCertificate { .. } => (
            codes::install::HTTP_REFUSED,
            "ask an administrator to add the certificate authority of the server with --registry-ca",
        ),
        HttpFileReason::Status {
            code: 401 | 403, ..
        } => (
            codes::install::HTTP_REFUSED,
            "set auth.secret to a Secret of the system namespace with username and password, or token",
        ),
        HttpFileReason::Address { .. } => (
            codes::install::HTTP_ADDRESS,
            "an administrator can set spec.sources.privateAddresses: Allow in the class",
        ),
        HttpFileReason::NoTls { .. } => (
            codes::install::HTTP_ADDRESS,
            "use an https URL; an administrator can also list the host in spec.sources.insecureHosts of the class",
        ),
        HttpFileReason::Redirect { .. } => (
            codes::install::HTTP_ADDRESS,
            "use the URL of the file itself, or correct the server, and create the Bundle again",
        ),
        HttpFileReason::TooLarge { .. } => (codes::registry::TOO_LARGE, AGAIN),
        HttpFileReason::NotGzip { .. } => (codes::install::HTTP_ARCHIVE, AGAIN),
        HttpFileReason::Storage(_) | HttpFileReason::Content(UnpackError::Unwritable { .. }) => (
            codes::install::CACHE_FULL,
            "the operation is retried automatically",
        ),
        HttpFileReason::Content(error) => (error.finding().code, AGAIN),
        _ => (codes::install::HTTP_REFUSED, "check the URL"),
    }
}

/// An archive at a URL, and a client with its credentials.
pub(crate) struct HttpSource {
    client: Client,
    request: HttpFileRequest,
    /// The fields `url` and `auth` of the source.
    url: String,
    auth: Auth,
    /// Folder in which temporary files are created.
    folder: PathBuf,
    memory: Arc<LookupMemory>,
    recent: RecentDigests,
    access: HttpFileAccess,
    /// The archive that was downloaded to resolve the source. `None` before the download, and after
    /// [`ContentSource::fetch`] has taken the archive.
    received: Mutex<Option<ReceivedFile>>,
}

impl HttpSource {
    /// Opens the source, and reads its Secret. The class decides whether private addresses are
    /// allowed. `is_insecure` is true if the class allows the host without verified TLS.
    pub(super) async fn open(
        shared: &Shared,
        (url, auth): (&str, &Auth),
        (class, is_insecure): (&str, bool),
        memory: Arc<LookupMemory>,
    ) -> Result<Self, HttpSourceError> {
        let login = match &auth.secret {
            Some(name) => {
                let secrets = Api::namespaced(shared.client(), &shared.settings.namespace);
                Some(credentials::read(&secrets, name).await?)
            }
            None => None,
        };
        let class = shared.classes.get(class);
        let access = HttpFileAccess {
            private_addresses: matches!(class.as_deref(), Some(Ok(class)) if class.private_addresses),
            plain_http: is_insecure,
            any_certificate: is_insecure && auth.insecure_skip_verify,
        };
        let request = HttpFileRequest::new(url, login.as_ref(), access);
        let request = request.map_err(|error| HttpSourceError::Failed {
            error,
            is_recorded: false,
        })?;
        Ok(Self {
            client: shared.registry().clone(),
            request,
            url: url.to_owned(),
            auth: auth.clone(),
            folder: shared.settings.cache_dir.clone(),
            memory,
            recent: shared.recent_archives.clone(),
            access,
            received: Mutex::default(),
        })
    }

    fn content(&self, digest: Digest) -> ContentId {
        let source = Source::Http {
            url: self.url.clone(),
            auth: self.auth.clone(),
        };
        ContentId::new(&source, digest)
    }

    /// Returns the key of the digest in `RecentDigests`. The key depends on the URL, the Secret,
    /// and the allowed connections.
    fn key(&self) -> Digest {
        let scope = self.content(Digest::of(b"")).scope();
        Digest::of(format!("{scope} {:?}", self.access).as_bytes())
    }

    /// Downloads the archive. DNS lookups count towards the limit of the requester.
    async fn receive(&self) -> Result<ReceivedFile, HttpFileError> {
        let limits = Limits::default();
        let receiving = self
            .client
            .receive_file(&self.request, &limits, &self.folder);
        names::for_requester(self.memory.requester(), receiving).await
    }

    /// Downloads the archive, and returns the digest of its bytes.
    async fn describe(&self) -> Result<Digest, HttpSourceError> {
        let limits = Limits::default();
        let describing = self.client.describe_file(&self.request, &limits);
        let described = names::for_requester(self.memory.requester(), describing).await;
        let described = described.map_err(|error| HttpSourceError::Failed {
            error,
            is_recorded: true,
        })?;
        let digest = described.digest;
        self.recent.insert(self.key(), digest.clone()).await;
        Ok(digest)
    }

    fn received_archive(&self) -> std::sync::MutexGuard<'_, Option<ReceivedFile>> {
        // Each change is complete before a panic can occur.
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ContentSource for HttpSource {
    async fn resolve(&self) -> Result<ContentId, SourceError> {
        let failed = |error| HttpSourceError::Failed {
            error,
            is_recorded: false,
        };
        let received = self.receive().await.map_err(failed)?;
        received.check().map_err(failed)?;
        let digest = received.descriptor().digest.clone();
        self.recent.insert(self.key(), digest.clone()).await;
        *self.received_archive() = Some(received);
        Ok(self.content(digest))
    }

    async fn changed(&self, recorded: &ContentId) -> Result<Option<ContentId>, SourceError> {
        let found = match self.recent.get(&self.key()).await {
            Some(found) => found,
            None => self.describe().await?,
        };
        let is_same = found == *recorded.digest();
        Ok((!is_same).then(|| self.content(found)))
    }

    async fn fetch<S>(&self, content: &ContentId, sink: S) -> Result<FetchedFiles<S>, SourceError>
    where
        S: FileSink<File: Send> + Send + 'static,
    {
        let held = self.received_archive().take();
        let is_recorded = held.is_none();
        let failed = |error| HttpSourceError::Failed { error, is_recorded };
        let received = match held {
            Some(received) => received,
            None => self.receive().await.map_err(failed)?,
        };
        let found = &received.descriptor().digest;
        if found != content.digest() {
            let changed = HttpSourceError::Changed {
                url: received.url().to_owned(),
                expected: content.digest().clone(),
                found: found.clone(),
            };
            return Err(changed.into());
        }
        let unpacked = received.unpack(Limits::default(), sink).await;
        Ok(unpacked.map_err(failed)?)
    }

    async fn signatures(&self, _: &ContentId) -> Result<Vec<RawSignature>, Unavailable> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests;
