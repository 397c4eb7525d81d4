//! A client for OCI registries as they are: bounded in everything it reads, with deadlines on every call, and never taking a failure for "nothing there".
//! Not here: what the content means (bundle_core) and whether its signatures hold (bundle_trust).
//!
//! `docs/decisions/registry-client.md` has the reasons why it is our own.

mod auth;
mod budget;
mod challenge;
mod contended;
mod detail;
mod download;
mod endpoint;
mod error;
mod feed;
mod files;
mod http;
mod legacy;
mod login;
mod look;
mod manifests;
mod memory;
mod mirrors;
mod pull;
mod push;
mod reach;
mod read;
mod referrers;
mod remembered;
mod repository;
mod request_log;
mod stored;
mod tls;
mod token;
mod transport;
mod upload;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::progress::{Progress, Silent};

pub use auth::{Logins, UNUSABLE_PULL_SECRET};
pub use download::BlobReader;
pub use error::{Reason, RegistryError};
pub use login::Login;
pub use look::Looked;
pub use manifests::ManifestStored;
pub use memory::MemoryReservation;
pub use mirrors::Mirrors;
pub use push::{Pushed, TagPolicy};
pub use referrers::SignatureStored;
pub use repository::Repository;
pub use upload::Upload;

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Until a connection stands, TLS included.
    pub connect: Duration,
    /// Between two pieces of an answer.
    pub stall: Duration,
    /// A whole call that reads or writes documents: resolving, manifests, signatures.
    pub call: Duration,
    /// A whole call that transfers content: pull and push. Large content gets more, by `rate`.
    pub transfer: Duration,
    /// Bytes a second: what a blob needs at this rate is added to `transfer`.
    pub rate: u64,
    /// Bytes a second that a blob has to bring over any [`Deadlines::WINDOW`]; 0: any progress will do.
    pub slowest: u64,
    /// First pause before a busy registry (429, 5xx) is asked again; it grows, and is asked three times at most. `Retry-After` comes before it.
    pub pause: Duration,
}

impl Deadlines {
    /// The time over which [`Deadlines::slowest`] is measured.
    pub const WINDOW: Duration = Duration::from_secs(10);
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            stall: Duration::from_secs(15),
            call: Duration::from_secs(30),
            transfer: Duration::from_secs(600),
            rate: 256 << 10,
            slowest: 0,
            pause: Duration::from_millis(200),
        }
    }
}

/// Settings of a [`Client`].
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// Authorities that are trusted beside the system's: PEM files, folders of them, and folders like docker's `certs.d`.
    pub ca_files: Vec<PathBuf>,
    /// Folders like docker's `certs.d` that may or may not be there: `HOST:PORT/ca.crt`, `client.cert`, `client.key`.
    pub host_folders: Vec<PathBuf>,
    /// PEM files of a certificate to show to registries that want one, and of its key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Where registries are read from in place of themselves.
    pub mirrors: Mirrors,
    /// Registries (host and port) that are spoken to without TLS. Those on loopback are found out by asking.
    pub plain_http: BTreeSet<String>,
    /// In whose name.
    pub logins: Logins,
    /// How long things may take.
    pub deadlines: Deadlines,
    /// What we call ourselves; empty for the name and version of this crate.
    pub user_agent: String,
}

/// A registry client. Cheap to clone; clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    pools: Arc<http::Pools>,
    endpoints: Arc<endpoint::Endpoints>,
    tokens: Arc<token::Tokens>,
    mirrors: Arc<Mirrors>,
    deadlines: Deadlines,
    progress: Arc<dyn Progress>,
    memory: Arc<dyn MemoryReservation>,
}

impl Client {
    /// Makes a client. Reads the authorities' files; connects to nothing.
    pub fn new(options: ClientOptions) -> Result<Self, RegistryError> {
        Ok(Self {
            pools: Arc::new(http::Pools::new(&options)?),
            endpoints: Arc::new(endpoint::Endpoints::new(
                options.plain_http,
                options.mirrors.insecure(),
            )),
            mirrors: Arc::new(options.mirrors),
            tokens: Arc::new(token::Tokens::new(options.logins)),
            deadlines: options.deadlines,
            progress: Arc::new(Silent),
            memory: Arc::new(memory::Unlimited),
        })
    }

    /// The same connections in another's name: tokens are not shared.
    #[must_use]
    pub fn with_logins(&self, logins: Logins) -> Self {
        Self {
            tokens: Arc::new(token::Tokens::new(logins)),
            ..self.clone()
        }
    }

    /// The same client without mirrors: what is read in order to be written again must be what is there.
    fn origin(&self) -> Self {
        Self {
            mirrors: Arc::new(self.mirrors.blocking_only()),
            ..self.clone()
        }
    }

    /// The same client with less (or more) time for every call; an admission review has seconds.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self {
            deadlines: Deadlines {
                call: deadline,
                transfer: deadline,
                rate: u64::MAX,
                ..self.deadlines
            },
            ..self.clone()
        }
    }

    /// The same client, telling somebody of the bytes that it transfers.
    #[must_use]
    pub fn with_progress(&self, progress: Arc<dyn Progress>) -> Self {
        Self {
            progress,
            ..self.clone()
        }
    }

    /// Returns a client that reserves `memory` before it holds documents and signatures.
    #[must_use]
    pub fn with_memory(&self, memory: Arc<dyn MemoryReservation>) -> Self {
        Self {
            memory,
            ..self.clone()
        }
    }

    /// How long a blob of that size may take.
    fn allowance(&self, size: u64) -> Duration {
        let Deadlines { transfer, rate, .. } = self.deadlines;
        transfer.saturating_add(Duration::from_secs(size / rate.max(1)))
    }

    /// Runs `work` within `deadline` and says what it was about if it fails.
    async fn run<T>(
        &self,
        doing: &'static str,
        subject: &(dyn std::fmt::Display + Sync),
        deadline: Duration,
        work: impl Future<Output = Result<T, Reason>>,
    ) -> Result<T, RegistryError> {
        let outcome = tokio::time::timeout(deadline, work)
            .await
            .unwrap_or(Err(Reason::Stalled { after: deadline }));
        outcome.map_err(|reason| RegistryError {
            doing,
            subject: subject.to_string(),
            reason,
        })
    }
}

#[cfg(test)]
mod tests;
