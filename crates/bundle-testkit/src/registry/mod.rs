//! Registry in the test process, on a free loopback port. Without a fault its responses are
//! correct. It has at most one fault at a time. End-to-end tests also run a real registry.

mod answer;
mod blobs;
mod call;
mod fault;
mod rounds;
mod store;
mod uploads;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use bundle_core::reference::Digest;
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use fault::{Fault, Ranges, UploadFault};
pub use rounds::RoundCount;
use rounds::RoundCounter;
use store::Store;

/// Authentication and features of a registry.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `true` if the registry has the referrers API of OCI 1.1.
    pub referrers_api: bool,
    /// Number of entries on one page of the referrers API.
    pub page: usize,
    /// Required login; `None` allows anonymous access.
    pub login: Option<Login>,
}

/// Credentials that a registry accepts.
#[derive(Debug, Clone)]
pub struct Login {
    /// Name of the user.
    pub user: String,
    /// Password of the user.
    pub password: String,
    /// `true` for token authentication, `false` for basic authentication with each request.
    pub token: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            referrers_api: true,
            page: 100,
            login: None,
        }
    }
}

/// Completed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRequest {
    /// HTTP method, such as `GET` or `PUT`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Value of the header `Authorization`; `None` if the request has no such header.
    pub authorization: Option<String>,
    /// Value of the header `Range`; `None` if the request has no such header.
    pub range: Option<String>,
}

/// Running registry, which stops when dropped.
#[derive(Debug)]
pub struct Registry {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    address: SocketAddr,
    store: Mutex<Store>,
    fault: Mutex<Option<Fault>>,
    seen: Mutex<Vec<RecordedRequest>>,
    /// `None` if rounds are not counted.
    rounds: Mutex<Option<RoundCounter>>,
    spared: Mutex<BTreeSet<String>>,
    /// Number of sent bytes of all oversized responses.
    sent: AtomicU64,
    /// Number of slow transfers in progress.
    slow: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Starts a registry without faults, with all features.
    pub async fn without_faults() -> std::io::Result<Self> {
        Self::start(Settings::default()).await
    }

    /// Starts a registry with these settings and without faults.
    pub async fn start(settings: Settings) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            settings,
            address,
            store: Mutex::default(),
            fault: Mutex::default(),
            seen: Mutex::default(),
            rounds: Mutex::default(),
            spared: Mutex::default(),
            sent: AtomicU64::default(),
            slow: AtomicU64::default(),
        });
        let router = Router::new()
            .fallback(answer::answer)
            .with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move {
            // The result is ignored: the server ends with the runtime, or when the registry is
            // dropped.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// Returns `HOST:PORT`, the beginning of references.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Returns a reference in this registry: `registry.reference("team/web:1.0")`.
    pub fn reference(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address)
    }

    /// Sets the fault. `None` removes the current fault.
    pub fn set_fault(&self, fault: Option<Fault>) {
        *lock(&self.shared.fault) = fault;
    }

    /// Exempts this blob from the fault, so that the fault affects only other blobs.
    pub fn exempt_from_fault(&self, blob: &Digest) {
        lock(&self.shared.spared).insert(blob.to_string());
    }

    /// Returns the requests so far, except `GET /v2/`.
    pub fn seen(&self) -> Vec<RecordedRequest> {
        lock(&self.shared.seen).clone()
    }

    /// Returns the requests as lines: `PUT /v2/team/web/manifests/1.0`.
    pub fn lines(&self) -> Vec<String> {
        self.seen()
            .into_iter()
            .map(|seen| format!("{} {}", seen.method, seen.path))
            .collect()
    }

    /// Stores an image of one layer. `tar` is the unchecked content of the layer. Returns the
    /// digest of the manifest of the image.
    pub fn publish(&self, repository: &str, tag: &str, tar: &[u8]) -> Digest {
        lock(&self.shared.store).publish(repository, tag, tar)
    }

    /// Stores a manifest without checks.
    pub fn put_manifest(&self, repository: &str, name: &str, media_type: &str, bytes: &[u8]) {
        lock(&self.shared.store).put_manifest(repository, name, media_type, &bytes.to_vec().into());
    }

    /// Stores a blob without checks.
    pub fn put_blob(&self, repository: &str, bytes: impl Into<Bytes>) -> Digest {
        lock(&self.shared.store).put_blob(repository, bytes.into())
    }

    /// Returns a stored blob; `None` if the repository does not contain it.
    pub fn blob(&self, repository: &str, digest: &Digest) -> Option<Bytes> {
        lock(&self.shared.store).blob(repository, digest.as_str())
    }

    /// Returns the number of uploads in progress.
    pub fn uploads(&self) -> usize {
        lock(&self.shared.store).uploads()
    }

    /// Returns the number of sent bytes of all oversized responses.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Returns the number of transfers of [`Fault::SlowBlob`] in progress.
    pub fn slow_transfers(&self) -> u64 {
        self.shared.slow.load(Ordering::Relaxed)
    }

    /// Returns a stored manifest; `None` if the repository does not contain it.
    pub fn manifest(&self, repository: &str, name: &str) -> Option<Vec<u8>> {
        let store = lock(&self.shared.store);
        let (_, bytes) = store.manifest(repository, name)?;
        Some(bytes.to_vec())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}
