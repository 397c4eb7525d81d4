//! What admission and reconciler share: ways to the cluster, keys, caches, metrics, settings.
//! Not here: the tasks that keep these fresh (certs, watches, version) and any decision.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use bundle_core::diagnostic::Findings;
use bundle_core::names::KubeName;
use bundle_core::policy::Policy;
use bundle_core::review::Requester;
use bundle_core::review::class::Class;
use bundle_core::version::ServerVersion;
use bundle_oci::registry;
use bundle_trust::proof;
use kube::{Api, Client};

use crate::budget::Budget;
use crate::caller::Paths;
use crate::cluster::{Clients, ClusterError, ServiceAccount};
use crate::dry_run::{IdentityError, RequesterDryRun};
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::registrations::Integrity;
use crate::registries::{PullSecretError, Registries};
use crate::settings::Settings;
use crate::shelf::Shelf;

/// The key of the admission stamp; never printed, wiped when dropped.
pub struct StampKey(zeroize::Zeroizing<Vec<u8>>);

impl StampKey {
    /// Takes key material.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(zeroize::Zeroizing::new(bytes))
    }

    /// The key material, for the HMAC alone.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One per process, behind an `Arc`.
pub struct Shared {
    /// What was set.
    pub settings: Settings,
    /// What is counted.
    pub metrics: Metrics,
    /// What must have happened before this replica can be asked.
    pub readiness: Arc<Readiness>,
    /// Whether the API server asks us about every write, and since when.
    pub registrations: Integrity,
    /// The tokens of callers that are answered.
    pub paths: Paths,
    /// The ProvisionerClasses of the cluster, or why one cannot be read.
    pub classes: Shelf<Result<Class, Findings>>,
    /// The SignaturePolicies of the cluster, with the keys of their Secrets filled in; also those with problems.
    pub policies: Shelf<Policy>,
    /// The examinations of signatures that admission and reconciler have made.
    pub examinations: proof::Memory,
    /// What reviews and reconciles take of the memory.
    pub budget: Arc<Budget>,
    clients: Clients,
    registries: Registries,
    stamp_key: ArcSwap<StampKey>,
    server_version: ArcSwapOption<ServerVersion>,
}

impl Shared {
    /// Puts it together; the caches are empty until their watches run.
    pub fn new(
        settings: Settings,
        clients: Clients,
        registries: Registries,
        metrics: Metrics,
        readiness: Arc<Readiness>,
        stamp_key: StampKey,
    ) -> Self {
        Self {
            budget: Arc::new(Budget::new(settings.memory_limit)),
            settings,
            metrics,
            registrations: readiness.registrations().clone(),
            readiness,
            paths: Paths::default(),
            classes: Shelf::default(),
            policies: Shelf::default(),
            examinations: proof::Memory::default(),
            clients,
            registries,
            stamp_key: ArcSwap::from_pointee(stamp_key),
            server_version: ArcSwapOption::empty(),
        }
    }

    /// The pod's own identity. It can do nothing to the objects of bundles.
    pub fn client(&self) -> Client {
        self.clients.own()
    }

    /// Acts as a ServiceAccount; all clients share one pool of connections.
    pub fn client_as(&self, account: &ServiceAccount) -> Result<Client, ClusterError> {
        self.clients.acting_as(account)
    }

    /// Sends dry runs as a requester, and nothing else.
    pub fn dry_run_as(&self, requester: &Requester) -> Result<RequesterDryRun, IdentityError> {
        RequesterDryRun::new(self.client(), requester)
    }

    /// The registry client in nobody's name; clones share connections.
    pub fn registry(&self) -> &registry::Client {
        self.registries.anonymous()
    }

    /// The registry client for a source: with the pull secret that it names, which is in the system namespace.
    pub async fn registry_for(
        &self,
        pull_secret: Option<&KubeName>,
    ) -> Result<registry::Client, PullSecretError> {
        match pull_secret {
            None => Ok(self.registry().clone()),
            Some(name) => {
                let secrets = Api::namespaced(self.client(), &self.settings.namespace);
                self.registries.with_secret(&secrets, name).await
            }
        }
    }

    /// The key that stamps are made and checked with.
    pub fn stamp_key(&self) -> Arc<StampKey> {
        self.stamp_key.load_full()
    }

    /// Takes another key into use: the Secret was changed, by an administrator or another replica.
    pub fn set_stamp_key(&self, key: StampKey) {
        self.stamp_key.store(Arc::new(key));
    }

    /// The server's version; `None` until it has told one that can be read.
    pub fn server_version(&self) -> Option<Arc<ServerVersion>> {
        self.server_version.load_full()
    }

    /// Remembers what the server reported.
    pub fn set_server_version(&self, version: ServerVersion) {
        self.server_version.store(Some(Arc::new(version)));
    }
}
