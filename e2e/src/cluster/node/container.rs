//! Disturbances of a running container: signals to its processes, and the loss of its network.

use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Unit of times in `/proc/PID/stat` (`USER_HZ`). Linux uses 100 on all supported architectures.
const TICKS_PER_SECOND: f64 = 100.0;

/// A running container.
#[derive(Debug)]
pub struct Container {
    processes: Vec<Pid>,
}

impl Container {
    /// Finds the container with this ID. Fails if the container has no process.
    pub fn find(id: &str) -> Result<Self> {
        let mut processes = Vec::new();
        for entry in fs_err::read_dir("/proc")? {
            let path = entry?.path();
            let pid = path
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok());
            let Some(pid) = pid.and_then(Pid::from_raw) else {
                continue;
            };
            // If the process has ended in the meantime, the file does not exist.
            let groups = fs_err::read_to_string(path.join("cgroup")).unwrap_or_default();
            if groups.lines().any(|line| line.ends_with(&format!("/{id}"))) {
                processes.push(pid);
            }
        }
        if processes.is_empty() {
            bail!("container {id} has no process");
        }
        Ok(Self { processes })
    }

    /// Sends SIGKILL to all processes. The kubelet detects this like any other crash.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)
    }

    /// Stops all processes until [`Container::resume`].
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes all processes after [`Container::pause`].
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Returns the resident memory of all processes, in KiB.
    pub fn resident_memory(&self) -> Result<u64> {
        let mut sum = 0;
        for pid in &self.processes {
            let path = format!("/proc/{}/status", pid.as_raw_nonzero());
            let status = fs_err::read_to_string(&path)?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let size = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            sum += size.with_context(|| format!("{path} has no VmRSS"))?;
        }
        Ok(sum)
    }

    /// Returns the time since the start of the first process. Its resolution is 10 ms.
    pub fn age(&self) -> Result<Duration> {
        let first = self.processes.first().context("it has no process")?;
        let path = format!("/proc/{}/stat", first.as_raw_nonzero());
        let stat = fs_err::read_to_string(&path)?;
        // The second field is the name, in parentheses. The 22nd field is the start time.
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
        let ticks =
            fields.and_then(|fields| fields.split_whitespace().nth(19)?.parse::<f64>().ok());
        let ticks = ticks.with_context(|| format!("{path} has no start"))?;
        let uptime = fs_err::read_to_string("/proc/uptime")?;
        let uptime = uptime.split_whitespace().next().unwrap_or_default();
        let uptime: f64 = uptime.parse().context("/proc/uptime has no number")?;
        Ok(Duration::from_secs_f64(
            (uptime - ticks / TICKS_PER_SECOND).max(0.0),
        ))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        for pid in &self.processes {
            kill_process(*pid, signal)
                .with_context(|| format!("cannot send {signal:?} to a container"))?;
        }
        Ok(())
    }

    /// Drops all packets from and to the Pod of the container until the returned value is dropped.
    /// Connections are not closed, as with an unplugged network cable.
    pub fn cut_network(&self) -> Result<NetworkCut> {
        let first = self.processes.first().context("it has no process")?;
        // The network namespace belongs to the Pod. The namespace exists as long as the Pod exists
        // or this file is open.
        let namespace =
            fs_err::File::open(format!("/proc/{}/ns/net", first.as_raw_nonzero()))?.into_file();
        let cut = NetworkCut { namespace };
        for chain in CHAINS {
            cut.rule("-I", chain)?;
        }
        Ok(cut)
    }
}

/// Chains of the packets from and to a Pod.
const CHAINS: [&str; 2] = ["INPUT", "OUTPUT"];

/// Interruption of a Pod's network. The interruption ends when this value is dropped.
#[derive(Debug)]
pub struct NetworkCut {
    namespace: std::fs::File,
}

impl NetworkCut {
    fn rule(&self, action: &str, chain: &str) -> Result<()> {
        let namespace = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.namespace.as_raw_fd()
        );
        let status = Command::new("nsenter")
            .arg(format!("--net={namespace}"))
            .args(["--", "iptables", "-w", action, chain])
            .args(["-j", "DROP"])
            .status()
            .context("cannot start nsenter")?;
        if !status.success() {
            bail!("iptables {action} {chain} in the network of a Pod ended with {status}");
        }
        Ok(())
    }
}

impl Drop for NetworkCut {
    fn drop(&mut self) {
        for chain in CHAINS {
            if let Err(error) = self.rule("-D", chain) {
                eprintln!("e2e: {error:#}");
            }
        }
    }
}
