//! Client for OCI registries. The client bounds all data that it reads, has a deadline for every
//! call, and never treats a failure as "not found".
//!
//! `docs/explanation/decisions/registry-client.md` explains why the project has its own client.

mod auth;
mod blobs;
mod bounded_file;
mod credential_error;
mod error;
mod http;
mod http_error;
mod http_file;
mod limited_map;
mod manifests;
mod memory;
mod mirrors;
mod names;
mod repository;
mod retry;
mod transport;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bundle_core::reference::canonical_registry;

use crate::progress::{NoProgress, Progress};
use crate::transfer::rate::MinimumRate;

use auth::endpoint::{ConnectionSecurity, DiscoveryGroup};

pub use auth::credentials::Logins;
pub use auth::login::Login;
pub use blobs::download::BlobReader;
pub use blobs::push::{Pushed, TagPolicy};
pub use blobs::upload::UploadResult;
pub use credential_error::{CredentialError, CredentialFileError, UNUSABLE_PULL_SECRET};
pub use error::{RegistryError, RegistryErrorReason};
pub use http::zone::is_public_address;
pub use http_error::HttpError;
pub use http_file::{HttpFileAccess, HttpFileError, HttpFileReason, HttpFileRequest, ReceivedFile};
pub use limited_map::caches_bytes;
pub use manifests::image_metadata::ImageMetadata;
pub use manifests::raw::ManifestStored;
pub use manifests::referrers::SignatureStored;
pub use memory::MemoryReservation;
pub use mirrors::Mirrors;
pub use names::{HostAddresses, LookupLimit, NameResolver};
pub use repository::Repository;

/// Deadlines and retry pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Deadline for a connection, including the TLS handshake.
    pub connect: Duration,
    /// Maximum time without a received byte.
    pub stall: Duration,
    /// Deadline for a call that reads or writes documents: resolve, manifests, signatures.
    pub call: Duration,
    /// Deadline for a call that transfers content: pull and push. [`Self::rate`] extends the
    /// deadline for large content.
    pub transfer: Duration,
    /// Expected rate in bytes per second. The deadline for a blob is `transfer`, plus the time that
    /// the blob needs at this rate.
    pub rate: u64,
    /// Minimum rate of a blob over any `window`, in bytes per second. 0 accepts any progress.
    pub min_rate: u64,
    /// Time over which `min_rate` is measured.
    pub window: Duration,
    /// Pause before the first retry of a request or transfer. The pause doubles with each retry, up
    /// to one second. `Retry-After` overrides the pause. A busy registry (429, 5xx) gets at most
    /// three retries of a request.
    pub pause: Duration,
}

impl Deadlines {
    /// Returns the minimum rate of a blob.
    pub(in crate::registry) fn minimum_rate(&self) -> MinimumRate {
        MinimumRate {
            min_rate: self.min_rate,
            window: self.window,
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            stall: Duration::from_secs(15),
            call: Duration::from_secs(30),
            transfer: Duration::from_secs(600),
            rate: 256 << 10,
            min_rate: 0,
            window: Duration::from_secs(10),
            pause: Duration::from_millis(200),
        }
    }
}

/// Settings of a [`Client`].
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// Additional certificate authorities: PEM files, folders of PEM files, and folders like
    /// docker's `certs.d`.
    pub ca_files: Vec<PathBuf>,
    /// Optional folders like docker's `certs.d`: `HOST:PORT/ca.crt`, `client.cert`, `client.key`.
    pub host_folders: Vec<PathBuf>,
    /// PEM files of a client certificate and its key, for registries that require a client
    /// certificate.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Mirrors of registries.
    pub mirrors: Mirrors,
    /// Registries (host and port) that use plain HTTP. For loopback addresses the client detects
    /// plain HTTP.
    pub plain_http: BTreeSet<String>,
    /// Credentials.
    pub logins: Logins,
    /// Deadlines.
    pub deadlines: Deadlines,
    /// `User-Agent`. If the text is empty, the name and version of this crate are used.
    pub user_agent: String,
    /// Resolver of host names; `None` means the resolver of the operating system.
    pub resolver: Option<Arc<dyn NameResolver>>,
}

/// A registry client. Cheap to clone; clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: Arc<http::client::HttpClient>,
    endpoints: Arc<auth::endpoint::Endpoints>,
    /// Discoveries of endpoints in progress, for speculative reads. `None` if the client waits for
    /// the discovery before it sends a request.
    discoveries: Option<Arc<DiscoveryGroup>>,
    /// A registry and the connection security that the caller requires for this registry. `None` if
    /// only the settings apply.
    secured: Option<(Arc<str>, ConnectionSecurity)>,
    tokens: Arc<auth::token::Tokens>,
    mirrors: Arc<Mirrors>,
    deadlines: Box<Deadlines>,
    progress: Arc<dyn Progress>,
    memory: Arc<dyn MemoryReservation>,
}

impl Client {
    /// Creates a client. Reads the files of certificate authorities. Opens no connection.
    pub fn new(options: ClientOptions) -> Result<Self, RegistryError> {
        Ok(Self {
            http: Arc::new(http::client::HttpClient::new(&options)?),
            endpoints: Arc::new(auth::endpoint::Endpoints::new(
                options.plain_http,
                options.mirrors.insecure(),
            )),
            discoveries: None,
            mirrors: Arc::new(options.mirrors),
            secured: None,
            tokens: Arc::new(auth::token::Tokens::new(options.logins)),
            deadlines: Box::new(options.deadlines),
            progress: Arc::new(NoProgress),
            memory: Arc::new(memory::Unlimited),
        })
    }

    /// Returns a client with other credentials and the same connections. Tokens are not shared.
    #[must_use]
    pub fn with_logins(&self, logins: Logins) -> Self {
        Self {
            tokens: Arc::new(auth::token::Tokens::new(logins)),
            ..self.clone()
        }
    }

    /// Returns a client with speculative reads: it sends its first reads to a registry without
    /// credentials, while one request discovers the authentication of the registry. If the registry
    /// requires authentication, the client discards the responses and sends the reads again.
    ///
    /// The client is for one caller, because concurrent reads wait for the same discovery.
    #[must_use]
    pub fn with_speculative_reads(&self) -> Self {
        Self {
            discoveries: Some(Arc::default()),
            ..self.clone()
        }
    }

    /// Returns a client that uses `registry` only over TLS with a verified certificate, or over
    /// plain HTTP on loopback. `insecure` in registries.conf has no effect for this registry.
    /// `insecure` still applies to mirrors and to other locations of the registry.
    #[must_use]
    pub fn with_verified_registry(&self, registry: &str) -> Self {
        let security = ConnectionSecurity::Verified;
        Self {
            secured: Some((registry.into(), security)),
            ..self.clone()
        }
    }

    /// Returns a client that accepts every certificate of `registry`, and uses plain HTTP if the
    /// registry has no TLS.
    #[must_use]
    pub fn with_insecure_registry(&self, registry: &str) -> Self {
        // For an invalid host there is no base URL, and each request to the host fails.
        let base = auth::endpoint::base("https", registry).ok();
        Self {
            http: base.map_or_else(
                || Arc::clone(&self.http),
                |base| Arc::new(self.http.without_verification(&base)),
            ),
            secured: Some((registry.into(), ConnectionSecurity::Insecure)),
            ..self.clone()
        }
    }

    fn security_of(&self, registry: &str) -> ConnectionSecurity {
        let Some((secured, security)) = &self.secured else {
            return ConnectionSecurity::default();
        };
        // `location` in registries.conf can be another spelling of the registry for which
        // verification is required.
        let is_other_spelling = *security == ConnectionSecurity::Verified
            && canonical_registry(secured) == canonical_registry(registry);
        if **secured == *registry || is_other_spelling {
            *security
        } else {
            ConnectionSecurity::default()
        }
    }

    /// Returns a client that uses no mirrors. A document that the client changes and writes back
    /// must be read from the registry itself.
    fn origin(&self) -> Self {
        Self {
            mirrors: Arc::new(self.mirrors.blocking_only()),
            ..self.clone()
        }
    }

    /// Returns a client with another deadline for every call. Admission reviews need short
    /// deadlines.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self {
            deadlines: Box::new(Deadlines {
                call: deadline,
                transfer: deadline,
                rate: u64::MAX,
                ..*self.deadlines
            }),
            ..self.clone()
        }
    }

    /// Returns a client that reports transferred bytes to `progress`.
    #[must_use]
    pub fn with_progress(&self, progress: Arc<dyn Progress>) -> Self {
        Self {
            progress,
            ..self.clone()
        }
    }

    /// Returns a client that reserves bytes from `memory` before it stores documents and signatures
    /// in memory.
    #[must_use]
    pub fn with_memory(&self, memory: Arc<dyn MemoryReservation>) -> Self {
        Self {
            memory,
            ..self.clone()
        }
    }

    /// Returns the deadline for a blob of this size.
    fn allowance(&self, size: u64) -> Duration {
        let Deadlines { transfer, rate, .. } = *self.deadlines;
        transfer.saturating_add(Duration::from_secs(size / rate.max(1)))
    }

    /// Runs `work` until `deadline`. Adds the operation and its object to an error of `work`.
    async fn run<T>(
        &self,
        doing: &'static str,
        subject: &(dyn std::fmt::Display + Sync),
        deadline: Duration,
        work: impl Future<Output = Result<T, RegistryErrorReason>>,
    ) -> Result<T, RegistryError> {
        let outcome = tokio::time::timeout(deadline, work)
            .await
            .unwrap_or(Err(RegistryErrorReason::Stalled { after: deadline }));
        outcome.map_err(|reason| RegistryError {
            doing,
            subject: subject.to_string(),
            reason,
        })
    }
}

#[cfg(test)]
mod tests;
