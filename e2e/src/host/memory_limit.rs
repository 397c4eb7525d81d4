//! Memory limit for one process, by a cgroup (version 1 or 2). The kubelet sets the limit of a
//! container in the same way.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};

/// Mount points: the memory controller of cgroup version 1, and the hierarchy of version 2.
const V1: &str = "/sys/fs/cgroup/memory";
const V2: &str = "/sys/fs/cgroup";

/// Cgroup with a memory limit; removed when dropped.
#[derive(Debug)]
pub struct MemoryLimit {
    folder: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl MemoryLimit {
    /// Creates a cgroup. Its processes can use `bytes` of memory together, without swap if the
    /// kernel accounts for swap.
    ///
    /// `setrlimit(RLIMIT_AS)` is not equivalent: it limits address space instead of memory, and
    /// results in failed allocations instead of SIGKILL.
    pub fn new(bytes: u64) -> Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (root, version) = if Path::new(V1).join("memory.limit_in_bytes").exists() {
            (V1, Version::One)
        } else if Path::new(V2).join("cgroup.controllers").exists() {
            (V2, Version::Two)
        } else {
            bail!(
                "this machine has no memory cgroups, which tests of memory limits require: neither \
                {V1} nor {V2} is a cgroup hierarchy"
            );
        };
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(root).join(format!("bundle-e2e-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| {
            format!(
                "cannot make the cgroup {}: the tests of memory limits need root permissions on the memory controller",
                folder.display()
            )
        })?;
        let limit = Self { folder, version };
        let (file, swap) = match version {
            Version::One => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
            Version::Two => ("memory.max", "memory.swap.max"),
        };
        limit.write(file, bytes)?;
        if limit.folder.join(swap).exists() {
            limit.write(swap, if version == Version::One { bytes } else { 0 })?;
        }
        Ok(limit)
    }

    /// Returns a command that starts `command` inside the cgroup, so that all memory of the program
    /// is counted.
    pub(crate) fn starting_inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("/bin/sh");
        inside
            .args(["-c", r#"echo $$ > "$0" && exec "$@""#])
            .arg(self.folder.join("cgroup.procs"))
            .arg(command.get_program())
            .args(command.get_args());
        inside.env_clear().envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, OsString::from(value?)))),
        );
        inside
    }

    /// Returns the peak memory use in bytes, including the page cache.
    pub fn peak(&self) -> Result<u64> {
        self.read(match self.version {
            Version::One => "memory.max_usage_in_bytes",
            Version::Two => "memory.peak",
        })
    }

    /// Returns the number of processes that the kernel killed because of the limit.
    pub fn kills(&self) -> Result<u64> {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = fs_err::read_to_string(self.folder.join(file))?;
        text.lines()
            .find_map(|line| line.strip_prefix("oom_kill "))
            .with_context(|| format!("{file} does not count kills:\n{text}"))?
            .trim()
            .parse()
            .context("the number of kills is no number")
    }

    fn write(&self, file: &str, bytes: u64) -> Result<()> {
        Ok(fs_err::write(self.folder.join(file), bytes.to_string())?)
    }

    fn read(&self, file: &str) -> Result<u64> {
        let text = fs_err::read_to_string(self.folder.join(file))?;
        text.trim()
            .parse()
            .with_context(|| format!("{file} holds no number: {text}"))
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // The kernel releases the last process with a delay, so the removal is retried for one
        // second. A remaining folder does no harm.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
