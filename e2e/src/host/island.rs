//! Network namespace with only a loopback interface, as on a site without internet access. Programs
//! run inside this namespace.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::host::command;
use crate::host::janitor::Janitor;
use crate::host::prerequisites::{self, RequiredProgram};
use crate::host::process::Process;
use crate::wait;

const START: Duration = Duration::from_secs(90);

/// Shell command that enables loopback and then sleeps. The network namespace exists as long as the
/// process of this command.
const KEEPER: &str = r#"ip link set lo up && : > "$1" && exec sleep 2147483647"#;

/// A network namespace with only loopback; ends when dropped.
pub struct IsolatedNetwork {
    keeper: Process,
}

impl IsolatedNetwork {
    /// Starts a network namespace. No privileges are needed if unprivileged user namespaces are
    /// enabled.
    pub(crate) async fn start(root: &Path, name: &str, janitor: &Janitor) -> Result<Self> {
        prerequisites::check(&[RequiredProgram::Unshare, RequiredProgram::Ip])?;
        let ready = root.join("data").join(format!("{name}.up"));
        fs_err::create_dir_all(root.join("data"))?;
        let mut command = std::process::Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--net", "sh", "-c", KEEPER])
            .arg(name)
            .arg(&ready);
        let log = root.join("logs").join(format!("{name}.log"));
        let mut keeper = Process::start(name, command, &log, janitor)?;
        wait::until_true(START, &format!("{name} has its loopback"), || {
            let alive = keeper.check_alive();
            let is_up = ready.exists();
            async move {
                alive?;
                Ok(is_up)
            }
        })
        .await?;
        Ok(Self { keeper })
    }

    /// Returns a command that runs `command` inside the network namespace.
    pub fn inside(&self, command: command::Command) -> command::Command {
        command.through(self.namespace_command())
    }

    /// Returns a command that starts a long-running program inside the network namespace.
    pub(crate) fn starting_inside(&self, command: &std::process::Command) -> std::process::Command {
        let mut words = self.namespace_command().into_iter();
        let mut inside = std::process::Command::new(words.next().unwrap_or_default());
        inside
            .args(words)
            .arg(command.get_program())
            .args(command.get_args())
            .env_clear()
            .envs(
                command
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
        inside
    }

    /// Returns `true` if a process in the namespace listens on this port.
    pub(crate) fn listens(&self, port: u16) -> Result<bool> {
        const LISTENING: &str = "0A";
        let ending = format!(":{port:04X}");
        let mut is_there = false;
        for table in ["tcp", "tcp6"] {
            let table = format!("/proc/{}/net/{table}", self.keeper.pid());
            is_there |= fs_err::read_to_string(table)?.lines().any(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.get(1).is_some_and(|local| local.ends_with(&ending))
                    && words.get(3) == Some(&LISTENING)
            });
        }
        Ok(is_there)
    }

    /// Returns the words before a command line that runs inside the network namespace.
    pub(crate) fn namespace_command(&self) -> Vec<OsString> {
        let target = self.keeper.pid().to_string();
        [
            "nsenter",
            "--target",
            &target,
            "--user",
            "--net",
            "--preserve-credentials",
            "--",
        ]
        .map(OsString::from)
        .into()
    }
}
