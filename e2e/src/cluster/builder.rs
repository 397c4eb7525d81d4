//! What a cluster shall be like, and the order in which its parts start.
//! The command lines of the parts are in `control_plane`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Cluster;
use super::control_plane::ControlPlane;
use super::existing::{self, Existing};
use super::guest::Guest;
use crate::certs::Authority;
use crate::janitor::Janitor;
use crate::registry::{Access, Place, Registry, Terms};
use crate::tools::{self, KubernetesRelease, ServerVersion, Tool};

/// Describes a cluster; [`Builder::start`] makes it.
#[derive(Debug, Clone)]
pub struct Builder {
    release: Option<KubernetesRelease>,
    server_version: Option<String>,
    registries: usize,
    terms: Terms,
    controller_manager: bool,
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
            terms: Terms::default(),
            controller_manager: true,
            audit: false,
            webhook_client_certificate: false,
            existing: None,
            kubeconfig: None,
        }
    }
}

/// The programs that a description asks for.
struct Paths {
    plane: Plane,
}

/// Where the API server comes from.
enum Plane {
    Own {
        etcd: PathBuf,
        api_server: PathBuf,
        controller_manager: Option<PathBuf>,
    },
    Existing {
        kubectl: PathBuf,
        context: String,
    },
}

impl Builder {
    /// Sets the release that the control plane is built from; default: that of `E2E_KUBERNETES`, else the newest.
    #[must_use]
    pub fn release(mut self, release: KubernetesRelease) -> Self {
        self.release = Some(release);
        self
    }

    /// What the API server says its version is, for example `v1.33.0-eks-abcdef0`; default: what it was built from.
    #[must_use]
    pub fn server_version(mut self, version: impl Into<String>) -> Self {
        self.server_version = Some(version.into());
        self
    }

    /// How many registries; default 1.
    #[must_use]
    pub fn registries(mut self, count: usize) -> Self {
        self.registries = count;
        self
    }

    /// Whether the registries speak TLS, with certificates of the cluster's authority; default no.
    #[must_use]
    pub fn registry_tls(mut self, tls: bool) -> Self {
        self.terms.tls = tls;
        self
    }

    /// Whether the registries ask for [`crate::registry::USER`] and its password; default no.
    #[must_use]
    pub fn registry_password(mut self, password: bool) -> Self {
        self.terms.access = if password {
            Access::Password
        } else {
            Access::Anyone
        };
        self
    }

    /// Whether Kubernetes' controllers run (ServiceAccounts, garbage collection, namespace deletion …); default yes.
    #[must_use]
    pub fn controller_manager(mut self, wanted: bool) -> Self {
        self.controller_manager = wanted;
        self
    }

    /// Whether the API server keeps a line per answered request, for [`Cluster::audit`]; default no.
    #[must_use]
    pub fn audit(mut self, wanted: bool) -> Self {
        self.audit = wanted;
        self
    }

    /// Whether the API server presents a client certificate to webhooks, of the authority in [`Cluster::authority_file`]; default no.
    #[must_use]
    pub fn webhook_client_certificate(mut self, wanted: bool) -> Self {
        self.webhook_client_certificate = wanted;
        self
    }

    /// Starts no control plane, but uses the cluster of this context of the user's kubeconfig, as whoever the context is for.
    ///
    /// Registries and webhook are processes on this host all the same: that cluster's API server must reach its loopback addresses.
    /// What [`Cluster::start_webhook`] puts there goes with [`Cluster::leave`]; its admission registrations go in any case.
    #[must_use]
    pub fn existing(mut self, context: impl Into<String>) -> Self {
        self.existing = Some(context.into());
        self
    }

    /// Where [`Builder::existing`] looks for its context instead of the user's own files.
    #[must_use]
    pub fn kubeconfig(mut self, file: impl Into<PathBuf>) -> Self {
        self.kubeconfig = Some(file.into());
        self
    }

    /// Builds what is not built yet, starts everything and waits until it answers.
    pub async fn start(self) -> Result<Cluster> {
        let paths = self.paths().await?;
        crate::use_own_tls_provider();
        let root = tempfile::Builder::new()
            .prefix("kubectl-bundle-e2e-")
            .tempdir()
            .context("cannot make the cluster's folder")?
            .keep();
        let janitor = Janitor::start(&root)?;
        let started = self.start_in(&root, &paths, &janitor).await;
        started.inspect_err(|_| {
            // Of a control plane that is not ours there are none.
            if self.existing.is_none() && janitor.spare_logs().is_ok() {
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
            Plane::Existing {
                kubectl: tools::path_async(Tool::Kubectl, None).await?,
                context: context.clone(),
            }
        } else {
            let release = match self.release {
                Some(release) => release,
                None => KubernetesRelease::from_environment()?,
            };
            Plane::Own {
                etcd: tools::path_async(Tool::Etcd, None).await?,
                api_server: tools::path_async(release.api_server(), version).await?,
                controller_manager: if self.controller_manager {
                    Some(tools::path_async(release.controller_manager(), None).await?)
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
        let authority = Authority::new(&root.join("pki"), "ca")?;
        match &paths.plane {
            Plane::Own {
                etcd,
                api_server,
                controller_manager,
            } => {
                let mut plane = ControlPlane::new(root, &authority, janitor)?;
                plane.start_store(etcd)?;
                plane.start_api_server(api_server, self.audit, self.webhook_client_certificate)?;
                let registries = self.start_registries(root, &authority, janitor).await?;
                plane.wait_ready().await?;
                if let Some(program) = controller_manager {
                    plane.start_controllers(program)?;
                    plane.wait_for_controllers().await?;
                }
                let ControlPlane {
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
                    authority,
                    admin,
                    registries,
                    processes,
                    guest: None,
                    janitor: janitor.clone(),
                })
            }
            Plane::Existing { kubectl, context } => {
                let Existing {
                    admin,
                    server,
                    endpoint,
                } = existing::find(root, kubectl, self.kubeconfig.as_deref(), context).await?;
                let registries = self.start_registries(root, &authority, janitor).await?;
                Ok(Cluster {
                    root: root.to_owned(),
                    server,
                    endpoint,
                    authority,
                    admin,
                    registries,
                    processes: Vec::new(),
                    guest: Some(Guest::new(context, kubectl)),
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
    ) -> Result<Vec<Registry>> {
        let mut registries = Vec::new();
        let place = Place {
            root,
            authority,
            janitor,
            island: None,
        };
        for n in 0..self.registries {
            let name = format!("registry-{n}");
            registries.push(Registry::start(&name, &self.terms, place).await?);
        }
        Ok(registries)
    }
}
