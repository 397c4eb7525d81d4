//! Folder with registries, a Sigstore instance and external tools in a clean environment, without a
//! cluster, for scenarios about packages and signatures.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::certs::Authority;
use crate::host::command::{Command, Output};
use crate::host::island::IsolatedNetwork;
use crate::host::janitor::Janitor;
use crate::registry::token_server::TokenServer;
use crate::registry::{Registry, RegistryOptions};
use crate::sigstore::{Sigstore, TiledLog, TufRepository};
use crate::tools::{self, Tool};
use crate::{programs, registry};

/// Password of every key in a scenario.
const PASSWORD: &str = "fixture";

/// Working folder; removed when dropped. After a panic the logs are kept, and their path is
/// printed.
pub struct ToolEnvironment {
    root: PathBuf,
    authority: Authority,
    janitor: Janitor,
}

impl ToolEnvironment {
    /// Creates an empty folder. Starts no programs.
    pub fn new() -> Result<Self> {
        crate::use_own_tls_provider();
        let root = tempfile::Builder::new()
            .prefix("kubectl-bundle-bench-")
            .tempdir()
            .context("cannot make the folder")?
            .keep();
        let janitor = Janitor::start(&root)?;
        for name in ["data", "home", "logs", "pki"] {
            fs_err::create_dir(root.join(name))?;
        }
        let authority = Authority::new(&root.join("pki"), "ca")?;
        Ok(Self {
            root,
            authority,
            janitor,
        })
    }

    /// Returns the folder. Its content is removed when this value is dropped.
    pub fn folder(&self) -> &Path {
        &self.root
    }

    /// Returns the authority that issues the certificates of the registries and their clients.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the folder with certificates and keys.
    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// Starts a registry without authentication.
    pub async fn registry(&self) -> Result<Registry> {
        self.registry_with(RegistryOptions::default()).await
    }

    /// Starts a registry with these options.
    pub async fn registry_with(&self, terms: RegistryOptions) -> Result<Registry> {
        Registry::start(&registry::unique_name(), &terms, self.place(None)).await
    }

    /// Starts a registry with these options in the network namespace `island`. Only programs in
    /// this namespace can reach the registry.
    pub async fn registry_on(
        &self,
        island: &IsolatedNetwork,
        terms: RegistryOptions,
    ) -> Result<Registry> {
        Registry::start(&registry::unique_name(), &terms, self.place(Some(island))).await
    }

    fn place<'a>(&'a self, island: Option<&'a IsolatedNetwork>) -> registry::RegistryContext<'a> {
        registry::RegistryContext {
            root: &self.root,
            authority: &self.authority,
            janitor: &self.janitor,
            island,
            address: Ipv4Addr::LOCALHOST,
        }
    }

    /// Starts a network namespace without routes.
    pub async fn island(&self) -> Result<IsolatedNetwork> {
        IsolatedNetwork::start(&self.root, "island", &self.janitor).await
    }

    /// Starts a token server. A registry trusts this server if the options of the registry contain
    /// [`TokenServer::issuer`].
    pub async fn token_server(&self) -> Result<TokenServer> {
        TokenServer::start(&self.root).await
    }

    /// Starts a Sigstore instance.
    pub async fn sigstore(&self) -> Result<Sigstore> {
        Sigstore::start(&self.root, &self.janitor).await
    }

    /// Starts a Rekor v2 log for `sigstore`. The trust root and the signing config of the new log
    /// contain this log and the Rekor v1 log of `sigstore`.
    pub async fn tiled_log(&self, sigstore: &Sigstore) -> Result<TiledLog> {
        TiledLog::start(sigstore, &self.root, &self.janitor).await
    }

    /// Starts a TUF repository with the trust root and the signing config of `sigstore`. The
    /// metadata is valid for years.
    pub async fn tuf_repository(&self, sigstore: &Sigstore) -> Result<TufRepository> {
        let mut repository = TufRepository::start(&self.root.join("data")).await?;
        repository.target("trusted_root.json", &sigstore.trusted_root());
        repository.target("signing_config.v0.2.json", &sigstore.signing_config());
        repository.write()?;
        Ok(repository)
    }

    /// Returns a command for an external tool, in a clean environment.
    pub async fn tool(&self, tool: Tool) -> Result<Command> {
        let program = tools::path_async(tool, None).await?;
        Ok(self.clean(Command::new(program)))
    }

    /// Returns a command for `kubectl-bundle`, in a clean environment.
    pub async fn plugin(&self) -> Result<Command> {
        Ok(self.clean(Command::new(&programs::get().await?.plugin)))
    }

    /// Runs `kubectl-bundle` with this command line. The password of keys is the password that
    /// [`Self::cosign`] uses.
    pub async fn run_plugin(&self, line: &str) -> Result<Output> {
        let plugin = self.plugin().await?;
        let plugin = plugin.env("BUNDLE_PASSWORD", PASSWORD);
        plugin.args(line.split(' ')).output().await
    }

    /// Runs a version of cosign with this command line.
    pub async fn cosign(&self, tool: Tool, line: &str) -> Result<Output> {
        let cosign = self.tool(tool).await?;
        let cosign = cosign.env("COSIGN_PASSWORD", PASSWORD);
        cosign.args(line.split(' ')).output().await
    }

    /// Returns `command` with its own home folder and Docker configuration. `PATH` is the only
    /// variable from the environment of this process.
    pub fn clean(&self, command: Command) -> Command {
        let home = self.root.join("home");
        command
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &home)
            .env("DOCKER_CONFIG", home.join(".docker"))
            .env("NO_COLOR", "1")
            .env("TZ", "UTC")
            .env("LC_ALL", "C.UTF-8")
            .current_dir(&self.root)
    }
}

impl Drop for ToolEnvironment {
    fn drop(&mut self) {
        if std::thread::panicking() && self.janitor.keep_logs().is_ok() {
            eprintln!(
                "e2e: logs of the workbench are kept in {}",
                self.root.join("logs").display()
            );
        }
    }
}
