//! Kubernetes clusters for tests: started by a builder, used through clients and kubectl, removed
//! when dropped. `control_plane` starts the processes.

mod audit;
mod builder;
mod control_plane;
mod existing;
mod kubeconfig;
pub mod manifests;
pub mod node;
mod objects;
mod store;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::Value;

use crate::certs::Authority;
use crate::host::command::{Command, Output};
use crate::host::island::IsolatedNetwork;
use crate::host::janitor::Janitor;
use crate::host::process::Process;
use crate::programs;
use crate::registry::Registry;
use crate::sigstore::Sigstore;
use crate::tools::{self, Tool};

use kubeconfig::Credential;
use node::Node;
use objects::ClientCache;

pub use audit::AuditReader;
pub use builder::Builder;
pub(crate) use existing::ExistingCluster;

/// Lifetime of tokens in seconds, longer than any test run. The API server may shorten the
/// lifetime.
const TOKEN_SECONDS: i64 = 24 * 60 * 60;

/// Running control plane with its registries.
///
/// When this value is dropped, the cluster and its files are removed. After a panic the logs are
/// kept, and their path is printed. Therefore a failed scenario must panic.
pub struct Cluster {
    root: PathBuf,
    server: String,
    endpoint: Value,
    /// URL of etcd; `None` for an existing cluster.
    store: Option<String>,
    authority: Authority,
    admin: PathBuf,
    clients: ClientCache,
    registries: Vec<Registry>,
    processes: Vec<Process>,
    node: Option<Node>,
    existing: Option<ExistingCluster>,
    // Fields are dropped in the order of their declaration. The janitor is the last field, because
    // it may clear the folder only after all processes that write to the folder have ended.
    janitor: Janitor,
}

impl Cluster {
    /// Returns a builder with default options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the administrator's kubeconfig (group `system:masters`).
    pub fn kubeconfig(&self) -> &Path {
        &self.admin
    }

    /// Returns the API server's URL.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the folder of this cluster. The folder, including `data`, is removed with the
    /// cluster.
    pub fn folder(&self) -> &Path {
        &self.root
    }

    /// Returns the folder with the logs of all processes.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Returns a client with the administrator's credentials. A client works only in its async
    /// runtime, so each test creates its own client.
    pub async fn client(&self) -> Result<Client> {
        self.client_as(&self.admin).await
    }

    /// Returns a client with the credentials in `kubeconfig`.
    pub async fn client_as(&self, kubeconfig: &Path) -> Result<Client> {
        let config = Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
            .await
            .context("cannot use a kubeconfig")?;
        Client::try_from(config).context("cannot make a client")
    }

    /// Returns a kubeconfig with a client certificate for `user` in `groups` (at most two). Returns
    /// an error for an existing cluster.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        if let Some(existing) = &self.existing {
            bail!(
                "{existing} does not trust a client certificate for {user} that a test has issued"
            );
        }
        let name = format!(
            "{}-{}",
            file_name(user),
            groups
                .iter()
                .map(|group| file_name(group))
                .collect::<Vec<_>>()
                .join("-")
        );
        let pki = self.root.join("pki");
        let identity = self
            .authority
            .client(&pki, &format!("user-{name}"), user, groups)?;
        kubeconfig::write(
            &self.root,
            &name,
            &self.endpoint,
            &Credential::Certificate(&identity),
        )
    }

    /// Returns the kubeconfig of an existing ServiceAccount, with a token that is valid for one
    /// day.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("cannot get a token for ServiceAccount {namespace}/{name}"))?;
        let token = answer
            .status
            .context("the response to a TokenRequest has no status")?
            .token;
        let file = format!("{namespace}-{name}");
        kubeconfig::write(
            // The file is in the folder of the administrator's kubeconfig. This folder is removed
            // even for existing clusters.
            self.admin.parent().unwrap_or(&self.root),
            &file,
            &self.endpoint,
            &Credential::Token(&token),
        )
    }

    /// Starts a network namespace without routes. The namespace ends when the returned value or
    /// this cluster is dropped.
    pub async fn island(&self, name: &str) -> Result<IsolatedNetwork> {
        IsolatedNetwork::start(&self.root, name, &self.janitor).await
    }

    /// Starts a Sigstore instance.
    pub async fn sigstore(&self) -> Result<Sigstore> {
        Sigstore::start(&self.root, &self.janitor).await
    }

    /// Returns registry `n`, counted from 0. Returns an error if the cluster has no such registry.
    pub fn registry(&self, n: usize) -> Result<&Registry> {
        let count = self.registries.len();
        self.registries
            .get(n)
            .with_context(|| format!("this cluster has {count} registries, there is no number {n}"))
    }

    /// Returns all registries.
    pub fn registries(&self) -> &[Registry] {
        &self.registries
    }

    /// Returns all registries, for example to stop one.
    pub fn registries_mut(&mut self) -> &mut [Registry] {
        &mut self.registries
    }

    /// Runs kubectl as the administrator.
    pub async fn kubectl<I, S>(&self, arguments: I) -> Result<Output>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.tool(Tool::Kubectl)
            .await?
            .args(arguments)
            .output()
            .await
    }

    /// Runs the plugin as the administrator.
    pub async fn kubectl_bundle<I, S>(&self, arguments: I) -> Result<Output>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.plugin().await?.args(arguments).output().await
    }

    /// Returns a command for the plugin, `kubectl-bundle`. For `kubectl bundle`, kubectl replaces
    /// its own process with this program. Links to the plugin and to kubectl are in the first
    /// folder of the PATH of all commands of this cluster.
    pub async fn plugin(&self) -> Result<Command> {
        self.tool(Tool::Kubectl).await?;
        let bin = self.root.join("bin");
        link(&bin, "kubectl-bundle", &programs::get().await?.plugin)?;
        Ok(self.clean(Command::new(bin.join("kubectl-bundle"))))
    }

    /// Returns a command for a tool, in the clean environment of this cluster.
    pub async fn tool(&self, tool: Tool) -> Result<Command> {
        let bin = self.root.join("bin");
        link(&bin, tool.name(), &tools::path_async(tool, None).await?)?;
        Ok(self.clean(Command::new(bin.join(tool.name()))))
    }

    /// Returns `command` with this cluster's environment: its own home folder, its own Docker
    /// configuration and the administrator's kubeconfig. On an existing cluster, the environment
    /// also contains the user's environment and home, because the login to an existing cluster may
    /// need them.
    pub fn clean(&self, mut command: Command) -> Command {
        let home = self.root.join("home");
        let mut path = self.root.join("bin").into_os_string();
        if let Some(rest) = std::env::var_os("PATH") {
            path.push(":");
            path.push(rest);
        }
        if self.existing.is_some() {
            for (name, value) in std::env::vars_os() {
                command = command.env(name, value);
            }
        } else {
            command = command
                .env("XDG_CACHE_HOME", home.join(".cache"))
                .env("XDG_CONFIG_HOME", home.join(".config"))
                .env("HOME", &home);
        }
        command
            .env("PATH", path)
            .env("DOCKER_CONFIG", home.join(".docker"))
            .env("NO_COLOR", "1")
            .env("TZ", "UTC")
            .env("LC_ALL", "C.UTF-8")
            .kubeconfig(&self.admin)
    }

    /// Kills the API server, starts the API server again, and waits until the API server is ready.
    pub async fn restart_api_server(&mut self) -> Result<()> {
        for process in &mut self.processes {
            if process.name() == control_plane::API_SERVER {
                process.kill()?;
                process.start_again()?;
            }
        }
        self.wait_ready().await
    }

    /// Pauses etcd: the API server gets no response from etcd until [`Cluster::resume_store`].
    pub fn pause_store(&self) -> Result<()> {
        self.store_process()?.pause()
    }

    /// Resumes etcd after [`Cluster::pause_store`].
    pub fn resume_store(&self) -> Result<()> {
        self.store_process()?.resume()
    }

    fn store_process(&self) -> Result<&Process> {
        let mut processes = self.processes.iter();
        processes
            .find(|process| process.name() == control_plane::STORE)
            .context("tests do not pause the etcd of an existing cluster")
    }

    /// Kills etcd, the API server and the controllers. The data of etcd is not deleted.
    pub fn stop_control_plane(&mut self) -> Result<()> {
        self.processes.iter_mut().rev().try_for_each(Process::kill)
    }

    /// Starts the programs of [`Cluster::stop_control_plane`] again, and waits until the API server
    /// is ready.
    pub async fn start_control_plane(&mut self) -> Result<()> {
        for process in &mut self.processes {
            process.start_again()?;
        }
        self.wait_ready().await
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let client = self.client().await?;
        control_plane::wait_ready(&client, &mut self.processes).await
    }

    /// Keeps the logs even if no test panics, and returns their folder.
    pub fn keep_logs(&self) -> Result<PathBuf> {
        self.janitor.keep_logs()?;
        Ok(self.logs())
    }

    /// Returns the PEM file with the certificate of the cluster's certificate authority.
    pub fn authority_file(&self) -> &Path {
        self.authority.certificate()
    }

    /// Returns `true` for an existing cluster. The harness did not start its control plane, so
    /// tests must not change this control plane.
    pub fn is_existing(&self) -> bool {
        self.existing.is_some()
    }

    pub(crate) fn existing(&self) -> Option<&ExistingCluster> {
        self.existing.as_ref()
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(crate) fn janitor(&self) -> &Janitor {
        &self.janitor
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.node.take());
        // The API server must end before etcd, and all processes must end before the folder is
        // removed.
        while let Some(process) = self.processes.pop() {
            drop(process);
        }
        self.registries.clear();
        if std::thread::panicking() {
            print_logs_folder(self);
        }
    }
}

/// Prints the path of the logs at the end of a failed test.
pub(crate) fn print_logs_folder(cluster: &Cluster) {
    match cluster.keep_logs() {
        Ok(folder) => eprintln!("e2e: logs of the cluster are kept in {}", folder.display()),
        Err(error) => eprintln!("e2e: cannot keep the logs: {error:#}"),
    }
}

/// Creates the symbolic link `folder/NAME` to `target`, unless the name exists.
fn link(folder: &Path, name: &str, target: &Path) -> Result<()> {
    match fs_err::os::unix::fs::symlink(target, folder.join(name)) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns `text` with only characters that are safe in a file name.
fn file_name(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect()
}
