//! Limits of the processes of one command.

use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

/// Limits of the processes and the folder of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessLimits {
    /// Maximum size of the folder of the command, in bytes.
    pub(crate) folder: u64,
    /// Maximum private memory of one process, in bytes. The kernel enforces this limit.
    pub(crate) process_memory: u64,
    /// Maximum memory of all processes of the command, in bytes. The memory is measured while the
    /// processes run.
    pub(crate) command_memory: u64,
    /// Maximum address space of one process, in bytes.
    pub(crate) address_space: u64,
    /// Maximum stack of each thread, in bytes.
    pub(crate) stack: u64,
    /// Maximum CPU time of one process.
    pub(crate) cpu_time: Duration,
}

/// The shell that sets limits for its own process and then executes the command. Child processes
/// inherit the limits. Limits that are set after the start would not apply to children that the
/// process already started. Code between fork and exec could set limits, but is unsafe.
pub(super) const SHELL: &str = "/bin/sh";
/// Script of [`SHELL`]. It disables core dumps, sets the limits, and executes the command. The
/// first arguments are stack, address space and private memory in KiB. CPU time in seconds and the
/// maximum size of a file in blocks of 512 bytes follow. The last arguments are the command.
pub(super) const SCRIPT: &str = r#"ulimit -c 0 && ulimit -s "$1" && ulimit -v "$2" && ulimit -d "$3" && ulimit -t "$4" && ulimit -f "$5" && shift 5 && exec "$@""#;

impl ProcessLimits {
    /// Returns the first arguments of [`SCRIPT`].
    pub(super) fn script_arguments(&self) -> [String; 5] {
        [
            self.stack >> 10,
            self.address_space >> 10,
            self.process_memory >> 10,
            self.cpu_time.as_secs(),
            self.folder.div_ceil(512),
        ]
        .map(|limit| limit.to_string())
    }
}

/// Returns the private memory of the processes of a group, in bytes. The page cache is not counted,
/// because the kernel can free it.
pub(super) fn memory_of(group: Pid) -> u64 {
    let entries = fs_err::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.map(|entry| entry.path());
    let members = processes.filter(|process| is_member(process, group));
    members.map(|process| private_memory(&process)).sum()
}

fn is_member(process: &Path, group: Pid) -> bool {
    // Format of the text: `ID (NAME) STATE PARENT GROUP …`. The name can contain any character.
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
