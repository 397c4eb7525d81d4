//! Namespaces and cgroups of a node, and the programs in these namespaces. The namespaces, cgroups
//! and programs end with this process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::network::NodeNetwork;
use crate::host::janitor::Janitor;
use crate::host::process::Process;
use crate::wait;

const SCRIPT: &str = include_str!("namespaces.sh");
/// Shell command that moves its own process into the cgroups of the node, and then runs the program
/// in its arguments.
const ENTER: &str =
    "for file in /sys/fs/cgroup/*/cgroup.procs; do echo 0 > \"$file\"; done; exec \"$@\"";
const READY: Duration = Duration::from_secs(90);

/// Network, mount, PID and cgroup namespaces of a node. When this value is dropped, the namespaces
/// and all processes in the namespaces end.
pub(super) struct Namespaces {
    /// Process ID of the first process in the PID namespace.
    first: u32,
    folder: PathBuf,
    keeper: Process,
}

impl Namespaces {
    /// Creates the namespaces, with a link between this host and the node.
    pub(super) async fn start(
        root: &Path,
        network: &NodeNetwork,
        janitor: &Janitor,
    ) -> Result<Self> {
        let folder = root.join("data").join("node");
        fs_err::create_dir(&folder)?;
        let group = root
            .file_name()
            .context("the cluster's folder has no name")?;
        janitor.at_the_end(&remove_cgroups(&group.to_string_lossy()))?;
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--mount", "sh", "-c", SCRIPT, "node"])
            .arg(root.join("data"))
            .arg(network.interface())
            .args([network.host(), network.node()].map(|address| address.to_string()))
            .arg(network.pods())
            .arg(group)
            .arg(std::process::id().to_string());
        let log = root.join("logs").join("node.log");
        let mut keeper = Process::start("the node", command, &log, janitor)?;
        let up = folder.join("up");
        wait::until_true(READY, "the namespaces of the node are ready", || {
            let alive = keeper.check_alive();
            let is_up = up.exists();
            async move {
                alive?;
                Ok(is_up)
            }
        })
        .await?;
        let children = format!("/proc/{0}/task/{0}/children", keeper.pid());
        let first = fs_err::read_to_string(children)?;
        let first = first.trim().parse().context("the node has no process")?;
        Ok(Self {
            first,
            folder,
            keeper,
        })
    }

    /// Returns the folder for the files of the node's programs. The folder has the same path inside
    /// of the namespaces.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the command line that starts a program inside of the namespaces.
    pub(super) fn inside(&self, program: &Path) -> Command {
        let words: [OsString; 11] = [
            "--target".into(),
            self.first.to_string().into(),
            "--mount".into(),
            "--net".into(),
            "--pid".into(),
            "--cgroup".into(),
            "--".into(),
            "sh".into(),
            "-c".into(),
            ENTER.into(),
            "node".into(),
        ];
        let mut command = Command::new("nsenter");
        command.args(words).arg(program);
        command
    }

    /// Returns `true` if this path exists inside of the namespaces.
    pub(super) fn has(&self, path: &str) -> bool {
        Path::new(&format!("/proc/{}/root{path}", self.first)).exists()
    }

    /// Fails if the namespaces have ended.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        self.keeper.check_alive()
    }
}

/// Returns a shell command that ends the processes in the cgroups `group`, and removes the cgroups.
/// When this process ends, the kernel neither ends these processes nor removes the cgroups.
fn remove_cgroups(group: &str) -> String {
    format!(
        "for n in $(seq 100); do \
         folders=$(ls -d /sys/fs/cgroup/{group} /sys/fs/cgroup/*/{group}); [ -n \"$folders\" ] || break; \
         find $folders -name cgroup.procs -exec cat {{}} + | sort -u | xargs -r kill -KILL; \
         find $folders -depth -type d -exec rmdir {{}} \\;; \
         sleep 0.1; done"
    )
}
