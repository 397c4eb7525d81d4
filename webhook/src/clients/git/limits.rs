//! Limits of git. The limits are necessary because the git server controls how much memory git
//! allocates and how much data git writes.

use std::time::Duration;

use crate::budget::programs;
use crate::clients::process::ProcessLimits;

/// Maximum size of one folder, in bytes. A packed commit with a bundle fits into this size.
const FOLDER_BYTES: u64 = 192 << 20;
/// Maximum private memory of one process, in bytes. git-remote-https uses 9 MiB, mostly for the
/// certificate authorities. index-pack uses 8 MiB for a pack of 3 MiB.
pub(super) const PROCESS_MEMORY: u64 = 24 << 20;
/// Maximum address space of a process, in bytes. This limit is effective even on kernels that do
/// not count all private memory.
const ADDRESS_SPACE: u64 = 128 << 20;
/// Maximum stack of each thread, in bytes.
const STACK: u64 = 1 << 20;
/// Maximum CPU time of a process.
const CPU_TIME: Duration = Duration::from_secs(60);
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
            command_memory: programs::GIT_COMMAND,
            network: NETWORK_TIMEOUT,
            local: LOCAL_TIMEOUT,
            content: CONTENT_TIMEOUT,
            wait: WAIT_TIMEOUT,
        }
    }
}

impl GitLimits {
    /// Returns the limits for the processes of one command.
    pub(super) fn of_command(&self) -> ProcessLimits {
        ProcessLimits {
            folder: self.folder,
            process_memory: self.process_memory,
            command_memory: self.command_memory,
            address_space: ADDRESS_SPACE,
            stack: STACK,
            cpu_time: CPU_TIME,
        }
    }
}
