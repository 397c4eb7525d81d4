//! The state that admission and reconciler share: clients, keys, caches, metrics and settings.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bundle_core::diagnostic::Findings;
use bundle_core::policy::Policy;
use bundle_core::reference::Reference;
use bundle_core::review::Requester;
use bundle_core::review::class::Class;
use bundle_core::review::source::PullCredentials;
use bundle_core::version::ServerVersion;
use bundle_oci::registry;
use bundle_trust::proof;
use kube::{Api, Client};

use crate::archives::LeaderArchives;
use crate::attempts::Attempts;
use crate::budget::requests::RequestMemory;
use crate::budget::{Budget, ExternalPrograms};
use crate::caller::AcceptedTokens;
use crate::clients::allowed_reviews::AllowedReviews;
use crate::clients::cluster::{ClusterError, ReplicaClients, ServiceAccount};
use crate::clients::git::{GitLimits, GitProgram};
use crate::clients::helm::{HelmLimits, HelmProgram};
use crate::clients::names::LimitedResolver;
use crate::clients::process::find_program;
use crate::clients::recent_digests::RecentDigests;
use crate::clients::registries::{PullSecretError, Registries};
use crate::config::settings::Settings;
use crate::config::stamp_key::{CurrentStampKey, StampKey};
use crate::dry_run::{IdentityError, RequesterDryRun};
use crate::lease::Fence;
use crate::object_cache::ObjectCache;
use crate::readiness::Readiness;
use crate::registrations::Integrity;
use crate::telemetry::metrics::Metrics;
use crate::uploads::UploadStore;

/// The shared state. Each process has one shared state, in an `Arc`.
pub struct Shared {
    /// The settings of the process, from flags and environment.
    pub settings: Settings,
    /// The metrics of the process.
    pub metrics: Metrics,
    /// The readiness of this replica.
    pub readiness: Arc<Readiness>,
    /// The integrity of the webhook registrations, and the start of the period in which they have
    /// been intact.
    pub registrations: Integrity,
    /// The accepted tokens of webhook paths.
    pub paths: AcceptedTokens,
    /// The ProvisionerClasses of the cluster. For an invalid class, the cache contains its
    /// findings.
    pub classes: ObjectCache<Result<Class, Findings>>,
    /// The SignaturePolicies of the cluster, with the keys of their Secrets. Policies with problems
    /// are included.
    pub policies: ObjectCache<Policy>,
    /// The cached results of signature checks.
    pub examinations: proof::ExaminationCache,
    /// The access reviews that the API server has allowed in the last second.
    pub(crate) allowed_reviews: AllowedReviews,
    /// The memory budget of reviews and reconciles.
    pub budget: Arc<Budget>,
    /// The records of attempts to parse content.
    pub attempts: Arc<Attempts>,
    /// The digests of archives that were downloaded recently.
    pub(crate) recent_archives: RecentDigests,
    /// The archives of Bundles while this replica is the leader.
    pub(crate) leader_archives: Arc<LeaderArchives>,
    /// The uploaded archives of Bundles. Only the leader has uploaded archives.
    pub(crate) uploads: Arc<UploadStore>,
    clients: ReplicaClients,
    registries: Registries,
    git: Arc<GitProgram>,
    helm: Arc<HelmProgram>,
    stamp_key: CurrentStampKey,
    server_version: ArcSwapOption<ServerVersion>,
}

impl Shared {
    /// Creates the state. The caches are empty until their watches run.
    pub fn new(
        settings: Settings,
        clients: ReplicaClients,
        registries: Registries,
        metrics: Metrics,
        readiness: Arc<Readiness>,
        stamp_key: StampKey,
    ) -> Self {
        let has_program = |name| find_program(&settings.search_path, name).is_some();
        let programs = ExternalPrograms {
            git: has_program("git"),
            helm: has_program("helm"),
        };
        let budget = Arc::new(Budget::new(settings.memory_limit, programs));
        let stamp_key = CurrentStampKey::new(stamp_key);
        let uploads = UploadStore::new(settings.cache_dir.join("uploads"), stamp_key.clone());
        Self {
            attempts: Arc::new(Attempts::read(settings.cache_dir.join("attempts"))),
            git: Arc::new(GitProgram::new(
                settings.cache_dir.join("git"),
                settings.search_path.clone(),
                settings.registry_ca.clone(),
                budget.git.clone(),
                GitLimits::default(),
            )),
            helm: Arc::new(HelmProgram::new(
                settings.cache_dir.join("helm"),
                settings.search_path.clone(),
                budget.helm,
                HelmLimits::default(),
            )),
            budget,
            uploads: Arc::new(uploads),
            recent_archives: RecentDigests::new(settings.source_check_interval),
            settings,
            metrics,
            registrations: readiness.registrations().clone(),
            readiness,
            paths: AcceptedTokens::default(),
            classes: ObjectCache::default(),
            policies: ObjectCache::default(),
            examinations: proof::ExaminationCache::default(),
            allowed_reviews: AllowedReviews::default(),
            leader_archives: Arc::default(),
            clients,
            registries,
            stamp_key,
            server_version: ArcSwapOption::empty(),
        }
    }

    /// Returns the client of the pod, for tasks of every replica. The client has no permissions on
    /// the objects of bundles.
    pub fn client(&self) -> Client {
        self.clients.replica.own()
    }

    /// Returns the client of the pod for tasks of the leader. Writes of this client fail if this
    /// replica is not the leader.
    pub fn leader_client(&self) -> Client {
        self.clients.leader.own()
    }

    /// Returns a client of the leader that impersonates a ServiceAccount. All clients share one
    /// connection pool.
    pub fn leader_client_as(&self, account: &ServiceAccount) -> Result<Client, ClusterError> {
        self.clients.leader.acting_as(account)
    }

    /// Returns the fence of the leader's writes.
    pub(crate) fn fence(&self) -> &Fence {
        &self.clients.fence
    }

    /// Returns the memory of large requests to the API server.
    pub(crate) fn request_memory(&self) -> &RequestMemory {
        &self.clients.request_memory
    }

    /// Returns a client that sends only dry runs, as a requester.
    pub fn dry_run_as(&self, requester: &Requester) -> Result<RequesterDryRun, IdentityError> {
        RequesterDryRun::new(self.client(), requester)
    }

    /// Returns the registry client without credentials. Clones of this client use the same
    /// connection pool.
    pub fn registry(&self) -> &registry::Client {
        self.registries.anonymous()
    }

    /// Returns `true` if the class `class` allows content from `host` without verified TLS. An
    /// unknown class allows no host.
    pub(crate) fn allows_insecure(&self, class: &str, host: &str) -> bool {
        let class = self.classes.get(class);
        managed(class.as_deref()).is_some_and(|class| class.allows_insecure(host))
    }

    /// Returns `true` if the class `class` has pull secrets for images.
    pub(crate) fn has_pull_secrets(&self, class: &str) -> bool {
        let class = self.classes.get(class);
        managed(class.as_deref()).is_some_and(|class| !class.pull_secrets.is_empty())
    }

    /// Returns the registry client for an image of a Bundle of `class`. `credentials` selects the
    /// Secrets with the credentials, in the system namespace.
    pub async fn registry_for(
        &self,
        reference: &Reference,
        class: &str,
        credentials: &PullCredentials,
    ) -> Result<registry::Client, PullSecretError> {
        let secrets = Api::namespaced(self.client(), &self.settings.namespace);
        let registry = reference.registry();
        // The class is read only once, so that credentials and TLS verification belong to the same
        // version of the class.
        let class = self.classes.get(class);
        let class = managed(class.as_deref());
        let allows_insecure = class.is_some_and(|class| class.allows_insecure(registry));
        let client = match credentials {
            PullCredentials::Secret(name) => self.registries.with_secret(&secrets, name).await?,
            PullCredentials::Class(name) => {
                let names = class.map_or(&[][..], |class| class.pull_secrets.as_slice());
                let registries = &self.registries;
                registries.with_class_secrets(&secrets, name, names).await?
            }
        };
        Ok(if allows_insecure {
            client.with_insecure_registry(registry)
        } else {
            client.with_verified_registry(registry)
        })
    }

    /// Returns the git program.
    pub(crate) fn git(&self) -> Arc<GitProgram> {
        self.git.clone()
    }

    /// Returns the helm program.
    pub(crate) fn helm(&self) -> Arc<HelmProgram> {
        self.helm.clone()
    }

    /// Returns the resolver of host names. Each requester can use only some of the resolver's
    /// threads.
    pub(crate) fn resolver(&self) -> &LimitedResolver {
        self.registries.resolver()
    }

    /// Returns the current stamp key.
    pub fn stamp_key(&self) -> Arc<StampKey> {
        self.stamp_key.get()
    }

    /// Replaces the stamp key, after its Secret was changed.
    pub fn set_stamp_key(&self, key: StampKey) {
        self.stamp_key.set(key);
    }

    /// Returns the version of the API server, or `None` until the version is known.
    pub fn server_version(&self) -> Option<Arc<ServerVersion>> {
        self.server_version.load_full()
    }

    /// Sets the version of the API server.
    pub fn set_server_version(&self, version: ServerVersion) {
        self.server_version.store(Some(Arc::new(version)));
    }
}

/// Returns the class if the class is valid and has a provisioner of this project.
fn managed(class: Option<&Result<Class, Findings>>) -> Option<&Class> {
    match class {
        Some(Ok(class)) if class.is_ours() => Some(class),
        _ => None,
    }
}
