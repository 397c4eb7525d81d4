//! Options of a test cluster, and the start order of its processes. `control_plane` has their
//! command lines.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Cluster;
use super::control_plane::ControlPlane;
use super::existing::{self, ExistingCluster, ExistingContext};
use super::node::{NodeContext, NodeLink, NodePrograms};
use super::objects::ClientCache;
use crate::certs::Authority;
use crate::host::janitor::Janitor;
use crate::registry::{Access, Registry, RegistryContext, RegistryOptions};
use crate::tools::{self, KubernetesRelease, ServerVersion, Tool};

/// Programs of a cluster. Each variant includes the programs of the variants before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Components {
    ApiServer,
    Controllers,
    Node,
}

/// Options of a cluster. [`Builder::start`] creates the cluster.
#[derive(Debug, Clone)]
pub struct Builder {
    release: Option<KubernetesRelease>,
    server_version: Option<String>,
    registries: usize,
    terms: RegistryOptions,
    components: Components,
    audit: bool,
    webhook_client_certificate: bool,
    existing: Option<String>,
    kubeconfig: Option<PathBuf>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            release: None,
            server_version: None,
            registries: 1,
            terms: RegistryOptions::default(),
            components: Components::Controllers,
            audit: false,
            webhook_client_certificate: false,
            existing: None,
            kubeconfig: None,
        }
    }
}

/// Paths of the programs that the options of a [`Builder`] require.
struct Paths {
    plane: ApiServerSource,
}

/// Source of the API server: the harness starts it, or it belongs to an existing cluster.
enum ApiServerSource {
    Own {
        release: KubernetesRelease,
        etcd: PathBuf,
        api_server: PathBuf,
        controller_manager: Option<PathBuf>,
        node: Option<NodePrograms>,
    },
    Existing {
        kubectl: PathBuf,
        context: String,
    },
}

impl Builder {
    /// Sets the release that the control plane is built from. The default is the release in the
    /// variable `E2E_KUBERNETES`, or the newest release.
    #[must_use]
    pub fn release(mut self, release: KubernetesRelease) -> Self {
        self.release = Some(release);
        self
    }

    /// Sets the version that the API server reports, for example `v1.33.0-eks-abcdef0`; default:
    /// the version of its sources.
    #[must_use]
    pub fn server_version(mut self, version: impl Into<String>) -> Self {
        self.server_version = Some(version.into());
        self
    }

    /// Sets the number of registries; default 1.
    #[must_use]
    pub fn registries(mut self, count: usize) -> Self {
        self.registries = count;
        self
    }

    /// Enables TLS for the registries, with certificates of the cluster's authority; default off.
    #[must_use]
    pub fn registry_tls(mut self, tls: bool) -> Self {
        self.terms.tls = tls;
        self
    }

    /// Requires [`crate::registry::USER`] and its password at the registries; default off.
    #[must_use]
    pub fn registry_password(mut self, password: bool) -> Self {
        self.terms.access = if password {
            Access::Password
        } else {
            Access::Anyone
        };
        self
    }

    /// Runs Kubernetes' controllers (ServiceAccounts, garbage collection, namespace deletion …);
    /// default on.
    #[must_use]
    pub fn controller_manager(mut self, wanted: bool) -> Self {
        self.components = if wanted {
            Components::Controllers
        } else {
            Components::ApiServer
        };
        self
    }

    /// Runs a node, so that Pods run. Default: off. Needs root and the newest release.
    ///
    /// API server and registries listen on an address that Pods can reach, and registries use TLS.
    #[must_use]
    pub fn node(mut self, wanted: bool) -> Self {
        if wanted {
            self.components = Components::Node;
            self.terms.tls = true;
        }
        self
    }

    /// Writes an audit log with one line for each request, for [`Cluster::audit`]; default off.
    #[must_use]
    pub fn audit(mut self, wanted: bool) -> Self {
        self.audit = wanted;
        self
    }

    /// Configures the API server to present a client certificate to webhooks. The authority in
    /// [`Cluster::authority_file`] signs this certificate. Default: off.
    #[must_use]
    pub fn webhook_client_certificate(mut self, wanted: bool) -> Self {
        self.webhook_client_certificate = wanted;
        self
    }

    /// Uses the cluster of this context in the user's kubeconfig, as the user of the context, and
    /// starts no control plane. Registries and webhook are processes on this host, so the API
    /// server must be able to connect to the loopback addresses of this host. [`Cluster::leave`]
    /// removes the objects of [`Cluster::start_webhook`]. The admission registrations are removed
    /// even if `leave` is not called.
    #[must_use]
    pub fn existing(mut self, context: impl Into<String>) -> Self {
        self.existing = Some(context.into());
        self
    }

    /// Sets the kubeconfig with the context of [`Builder::existing`]; default: the kubeconfig files
    /// that kubectl reads.
    #[must_use]
    pub fn kubeconfig(mut self, file: impl Into<PathBuf>) -> Self {
        self.kubeconfig = Some(file.into());
        self
    }

    /// Builds missing programs, starts the cluster and waits until the cluster is ready.
    pub async fn start(self) -> Result<Cluster> {
        let paths = self.paths().await?;
        crate::use_own_tls_provider();
        let root = tempfile::Builder::new()
            .prefix("kubectl-bundle-e2e-")
            .tempdir()
            .context("cannot make the cluster's folder")?
            .keep();
        let janitor = Janitor::start(&root)?;
        // The future is large and becomes part of the futures of the callers, so it is on the heap.
        let started = Box::pin(self.start_in(&root, &paths, &janitor)).await;
        started.inspect_err(|_| {
            // An existing control plane has no logs in this folder.
            if self.existing.is_none() && janitor.keep_logs().is_ok() {
                eprintln!(
                    "e2e: the cluster did not start; its logs are kept in {}",
                    root.join("logs").display()
                );
            }
        })
    }

    async fn paths(&self) -> Result<Paths> {
        let version: Option<ServerVersion> =
            self.server_version.as_deref().map(str::parse).transpose()?;
        if self.registries > 0 {
            tools::path_async(Tool::Registry, None).await?;
        }
        let plane = if let Some(context) = &self.existing {
            ApiServerSource::Existing {
                kubectl: tools::path_async(Tool::Kubectl, None).await?,
                context: context.clone(),
            }
        } else {
            let release = match self.release {
                Some(release) => release,
                None => KubernetesRelease::from_environment()?,
            };
            ensure!(
                self.components < Components::Node || release == KubernetesRelease::Newest,
                "the harness has only a kubelet of Kubernetes {}: a node does not run with \
                {release}",
                KubernetesRelease::Newest
            );
            ApiServerSource::Own {
                release,
                etcd: tools::path_async(Tool::Etcd, None).await?,
                api_server: tools::path_async(release.api_server(), version).await?,
                controller_manager: if self.components >= Components::Controllers {
                    Some(tools::path_async(release.controller_manager(), None).await?)
                } else {
                    None
                },
                node: if self.components == Components::Node {
                    Some(NodePrograms::get().await?)
                } else {
                    None
                },
            }
        };
        Ok(Paths { plane })
    }

    async fn start_in(&self, root: &Path, paths: &Paths, janitor: &Janitor) -> Result<Cluster> {
        for name in ["bin", "data", "home", "logs", "pki"] {
            fs_err::create_dir(root.join(name))?;
        }
        let mut authority = Authority::new(&root.join("pki"), "ca")?;
        match &paths.plane {
            ApiServerSource::Own {
                release,
                etcd,
                api_server,
                controller_manager,
                node,
            } => {
                let link = match node {
                    Some(programs) => Some((NodeLink::start(root, janitor).await?, programs)),
                    None => None,
                };
                let address = link
                    .as_ref()
                    .map_or(Ipv4Addr::LOCALHOST, |(link, _)| link.network.host());
                authority.add_address(address.into());
                let mut plane = ControlPlane::new(root, &authority, janitor, address)?;
                plane.start_store(etcd)?;
                plane.start_api_server(
                    api_server,
                    *release,
                    self.audit,
                    self.webhook_client_certificate,
                )?;
                let registries = self
                    .start_registries(root, &authority, janitor, address)
                    .await?;
                plane.wait_ready().await?;
                if let Some(program) = controller_manager {
                    plane.start_controllers(program)?;
                    plane.wait_for_controllers().await?;
                }
                let node = if let Some((link, programs)) = link {
                    let context = NodeContext {
                        root,
                        authority: &authority,
                        endpoint: &plane.endpoint,
                        registries: &registries,
                        janitor,
                    };
                    let client = plane.client().await?;
                    Some(link.start_node(programs, context, client).await?)
                } else {
                    None
                };
                let ControlPlane {
                    store,
                    server,
                    endpoint,
                    admin,
                    processes,
                    ..
                } = plane;
                Ok(Cluster {
                    root: root.to_owned(),
                    server,
                    endpoint,
                    store: Some(store),
                    authority,
                    admin,
                    clients: ClientCache::default(),
                    registries,
                    processes,
                    node,
                    existing: None,
                    janitor: janitor.clone(),
                })
            }
            ApiServerSource::Existing { kubectl, context } => {
                let ExistingContext {
                    admin,
                    server,
                    endpoint,
                } = existing::find(root, kubectl, self.kubeconfig.as_deref(), context).await?;
                let registries = self
                    .start_registries(root, &authority, janitor, Ipv4Addr::LOCALHOST)
                    .await?;
                Ok(Cluster {
                    root: root.to_owned(),
                    server,
                    endpoint,
                    store: None,
                    authority,
                    admin,
                    clients: ClientCache::default(),
                    registries,
                    processes: Vec::new(),
                    node: None,
                    existing: Some(ExistingCluster::new(context, kubectl)),
                    janitor: janitor.clone(),
                })
            }
        }
    }

    async fn start_registries(
        &self,
        root: &Path,
        authority: &Authority,
        janitor: &Janitor,
        address: Ipv4Addr,
    ) -> Result<Vec<Registry>> {
        let mut registries = Vec::new();
        let place = RegistryContext {
            root,
            authority,
            janitor,
            island: None,
            address,
        };
        for n in 0..self.registries {
            let name = format!("registry-{n}");
            registries.push(Registry::start(&name, &self.terms, place).await?);
        }
        Ok(registries)
    }
}
