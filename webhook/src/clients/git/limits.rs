//! Limits of git. They are necessary because the server determines how much git allocates and
//! writes.

use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

/// Maximum size of one folder, in bytes: a packed commit with a bundle.
const FOLDER_BYTES: u64 = 192 << 20;
/// Maximum private memory of one process, in bytes. git-remote-https uses 9 MiB, mostly for the
/// certificate authorities. index-pack uses 8 MiB for a pack of 3 MiB.
const PROCESS_MEMORY: u64 = 24 << 20;
/// Maximum memory of all processes of one command, in bytes. This memory is reserved while the
/// command runs.
const COMMAND_MEMORY: u64 = 32 << 20;
/// Number of commands for which the pod must have memory: while the command of one requester waits
/// for a slow server, the command of another requester can run.
pub(super) const CONCURRENT_COMMANDS: u64 = 2;
/// Time limit of one process that uses the network.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit of one process that reads a folder.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of all commands that resolve, compare or fetch one content.
const CONTENT_TIMEOUT: Duration = Duration::from_secs(240);
/// Time limit of a wait for a folder, or for the memory of a command.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Limits of the folders and processes of git.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GitLimits {
    pub(crate) folder: u64,
    pub(crate) process_memory: u64,
    pub(crate) command_memory: u64,
    pub(crate) network: Duration,
    pub(crate) local: Duration,
    pub(crate) content: Duration,
    pub(crate) wait: Duration,
}

impl Default for GitLimits {
    fn default() -> Self {
        Self {
            folder: FOLDER_BYTES,
            process_memory: PROCESS_MEMORY,
            command_memory: COMMAND_MEMORY,
            network: NETWORK_TIMEOUT,
            local: LOCAL_TIMEOUT,
            content: CONTENT_TIMEOUT,
            wait: WAIT_TIMEOUT,
        }
    }
}

/// The shell that sets the limits of a process and then becomes git. The helpers of git inherit the
/// limits. Limits that are set after git has started would not apply to helpers that git has
/// already started, and code between fork and exec is unsafe.
pub(super) const SHELL: &str = "/bin/sh";
/// Script of [`SHELL`]: size of a file in blocks of 512 bytes, private memory in KiB, then the
/// command. No core dumps, 1 MiB of stack for each thread, 60 s of CPU time, and 128 MiB of address
/// space, which also limits memory on kernels that do not count all private memory.
pub(super) const SCRIPT: &str = r#"ulimit -c 0 && ulimit -s 1024 && ulimit -t 60 && ulimit -v 131072 && ulimit -f "$1" && ulimit -d "$2" && shift 2 && exec "$@""#;

impl GitLimits {
    /// Returns the first arguments of [`SCRIPT`].
    pub(super) fn script_arguments(&self) -> [String; 2] {
        let blocks = self.folder.div_ceil(512);
        [blocks.to_string(), (self.process_memory >> 10).to_string()]
    }
}

/// Returns the private memory of the processes of a group, in bytes. Memory of files is not
/// counted, because the kernel can free it.
pub(super) fn memory_of(group: Pid) -> u64 {
    let entries = fs_err::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.map(|entry| entry.path());
    let members = processes.filter(|process| is_member(process, group));
    members.map(|process| private_memory(&process)).sum()
}

fn is_member(process: &Path, group: Pid) -> bool {
    // `ID (NAME) STATE PARENT GROUP …`; the name can contain any character.
    let stat = fs_err::read_to_string(process.join("stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
    let found = fields.and_then(|fields| fields.split(' ').nth(2)?.parse().ok());
    found == Some(group.as_raw_nonzero().get())
}

fn private_memory(process: &Path) -> u64 {
    let status = fs_err::read_to_string(process.join("status")).unwrap_or_default();
    let mut lines = status.lines();
    let kib = lines.find_map(|line| line.strip_prefix("RssAnon:")?.strip_suffix("kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib << 10)
}
