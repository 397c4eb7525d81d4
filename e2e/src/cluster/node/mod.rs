//! Node that runs Pods: containerd with runc, kubelet and kube-proxy in their own namespaces, and
//! the scheduler on the host. Requires root and Linux.
#![expect(
    clippy::disallowed_methods,
    reason = "the code of the tests chooses all object names"
)]

mod container;
mod files;
mod namespaces;
mod network;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1 as core;
use kube::{Api, Client};
use serde_json::Value;

use crate::certs::Authority;
use crate::cluster::kubeconfig::{self, Credential};
use crate::host::janitor::Janitor;
use crate::host::packages;
use crate::host::prerequisites::RequiredProgram;
use crate::host::process::Process;
use crate::image;
use crate::registry::Registry;
use crate::tools::{self, Tool};
use crate::wait;

pub use container::{Container, NetworkCut};
use namespaces::Namespaces;
pub(super) use network::NodeNetwork;

/// Name of the Node.
pub const NAME: &str = "node-1";
const READY: Duration = Duration::from_secs(90);
/// `PATH` with the folders of the operating system's programs.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Programs of the operating system that a node needs.
const PROGRAMS: [RequiredProgram; 5] = [
    RequiredProgram::Unshare,
    RequiredProgram::Ip,
    RequiredProgram::Iptables,
    RequiredProgram::Runc,
    RequiredProgram::Busybox,
];
const RUNTIME: [Tool; 2] = [Tool::Containerd, Tool::ContainerdShim];
const NETWORK_PLUGINS: [Tool; 3] = [Tool::CniPtp, Tool::CniHostLocal, Tool::CniLoopback];

/// Programs of a node.
pub(super) struct NodePrograms {
    kubelet: PathBuf,
    kube_proxy: PathBuf,
    scheduler: PathBuf,
    runtime: PathBuf,
    network_plugins: PathBuf,
}

impl NodePrograms {
    /// Returns the programs of a node. Builds and installs missing programs.
    pub(super) async fn get() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("a node needs root permissions, for containers, networks and cgroups");
        }
        tokio::task::spawn_blocking(|| {
            packages::ensure(&PROGRAMS)?;
            Ok(Self {
                kubelet: tools::path(Tool::Kubelet, None)?,
                kube_proxy: tools::path(Tool::KubeProxy, None)?,
                scheduler: tools::path(Tool::KubeScheduler, None)?,
                runtime: tools::folder(&RUNTIME)?,
                network_plugins: tools::folder(&NETWORK_PLUGINS)?,
            })
        })
        .await
        .context("the thread that builds tools ended early")?
    }
}

/// Parts of the cluster that a node connects to.
#[derive(Clone, Copy)]
pub(super) struct NodeContext<'a> {
    pub(super) root: &'a Path,
    pub(super) authority: &'a Authority,
    pub(super) endpoint: &'a Value,
    pub(super) registries: &'a [Registry],
    pub(super) janitor: &'a Janitor,
}

/// Network link to a node. The API server listens on the address of this link, so the link exists
/// before the node runs.
pub(super) struct NodeLink {
    pub(super) network: NodeNetwork,
    namespaces: Namespaces,
}

/// Running node; it ends when dropped.
pub(super) struct Node {
    // This field is dropped before `link`, which contains the namespaces. Otherwise containerd
    // would restart the processes that end with the namespaces.
    processes: Vec<Process>,
    link: NodeLink,
}

impl NodeLink {
    /// Creates the namespaces of the node, and the link to these namespaces.
    pub(super) async fn start(root: &Path, janitor: &Janitor) -> Result<Self> {
        let network = NodeNetwork::reserve()?;
        let namespaces = Namespaces::start(root, &network, janitor).await?;
        Ok(Self {
            network,
            namespaces,
        })
    }

    /// Starts the programs of the node, and waits until the Node is ready for Pods.
    pub(super) async fn start_node(
        self,
        programs: &NodePrograms,
        context: NodeContext<'_>,
        client: Client,
    ) -> Result<Node> {
        let mut node = Node {
            processes: Vec::new(),
            link: self,
        };
        node.start_programs(programs, context).await?;
        node.wait_ready(client).await?;
        Ok(node)
    }
}

impl Node {
    async fn start_programs(
        &mut self,
        programs: &NodePrograms,
        context: NodeContext<'_>,
    ) -> Result<()> {
        let first = context.registries.first().context(
            "a node needs a registry, from which it pulls the image of its Pods' first container",
        )?;
        let sandbox = image::push_busybox(first).await?;
        let user = format!("system:node:{NAME}");
        let kubelet_config = kubeconfig(context, "kubelet", &user, &["system:nodes"])?;
        let proxy_config = kubeconfig(context, "kube-proxy", "system:kube-proxy", &[])?;
        let scheduler = "kube-scheduler";
        let scheduler_config = kubeconfig(context, scheduler, "system:kube-scheduler", &[])?;

        let mut command = Command::new(&programs.scheduler);
        command
            .arg(format!("--kubeconfig={}", scheduler_config.display()))
            .args(["--leader-elect=false", "--secure-port=0"]);
        self.start(scheduler, command, &programs.runtime, context)?;

        let link = &self.link;
        let (network, folder) = (&link.network, link.namespaces.folder());
        let config = files::containerd(
            folder,
            &programs.network_plugins,
            &sandbox,
            network,
            context.registries,
        )?;
        let mut containerd = link.namespaces.inside(&programs.runtime.join("containerd"));
        containerd.arg("--config").arg(config);

        let config = files::kubelet(folder, context.authority.certificate(), network)?;
        let mut kubelet = link.namespaces.inside(&programs.kubelet);
        kubelet
            .arg(format!("--config={}", config.display()))
            .arg(format!("--kubeconfig={}", kubelet_config.display()))
            .arg(format!("--hostname-override={NAME}"))
            .arg(format!("--node-ip={}", network.node()))
            .arg("--root-dir=/var/lib/kubelet");

        let config = files::kube_proxy(folder, &proxy_config, network)?;
        let mut kube_proxy = link.namespaces.inside(&programs.kube_proxy);
        kube_proxy
            .arg(format!("--config={}", config.display()))
            .arg(format!("--hostname-override={NAME}"));

        self.start("containerd", containerd, &programs.runtime, context)?;
        wait::until_true(READY, "containerd responds", || {
            let alive = self.check_alive();
            let is_up = self.link.namespaces.has(files::SOCKET);
            async move {
                alive?;
                Ok(is_up)
            }
        })
        .await?;
        self.start("kubelet", kubelet, &programs.runtime, context)?;
        self.start("kube-proxy", kube_proxy, &programs.runtime, context)
    }

    /// Waits until the Node is ready and Pods without tolerations can be scheduled to the Node.
    async fn wait_ready(&mut self, client: Client) -> Result<()> {
        let nodes: Api<core::Node> = Api::all(client);
        wait::until_true(READY, "the node is ready", || {
            let alive = self.check_alive();
            let nodes = nodes.clone();
            async move {
                alive?;
                let Some(node) = nodes.get_opt(NAME).await? else {
                    bail!("the kubelet has not registered it");
                };
                let conditions = node.status.and_then(|status| status.conditions);
                let ready = conditions
                    .unwrap_or_default()
                    .into_iter()
                    .find(|condition| condition.type_ == "Ready");
                let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
                match ready {
                    Some(ready) if ready.status != "True" => {
                        bail!("{}", ready.message.unwrap_or_default())
                    }
                    Some(_) => Ok(taints.is_empty()),
                    None => Ok(false),
                }
            }
        })
        .await
    }

    fn start(
        &mut self,
        name: &str,
        mut command: Command,
        programs: &Path,
        context: NodeContext<'_>,
    ) -> Result<()> {
        command
            .env_clear()
            .env("HOME", context.root.join("home"))
            .env("PATH", format!("{}:{SYSTEM_PATH}", programs.display()))
            .current_dir(context.root.join("data"));
        let log = context.root.join("logs").join(format!("{name}.log"));
        let process = Process::start(name, command, &log, context.janitor)?;
        self.processes.push(process);
        Ok(())
    }

    fn check_alive(&mut self) -> Result<()> {
        self.link.namespaces.check_alive()?;
        self.processes.iter_mut().try_for_each(Process::check_alive)
    }
}

fn kubeconfig(
    context: NodeContext<'_>,
    name: &str,
    user: &str,
    groups: &[&str],
) -> Result<PathBuf> {
    let pki = context.root.join("pki");
    let identity = context.authority.client(&pki, name, user, groups)?;
    let credential = Credential::Certificate(&identity);
    kubeconfig::write(context.root, name, context.endpoint, &credential)
}
