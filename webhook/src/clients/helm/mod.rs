//! The helm program: one process at a time, in its own folder. The process has no environment,
//! configuration, plugins or credentials of the pod. Its memory, time and output are limited.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::format::{RenderCommand, helm};
use bundle_oci::chart::CommandFiles;
use tokio::time::Instant;

use crate::budget::{Budget, Pool, Share, programs};
use crate::clients::process::{
    self, ChildProcess, ProcessCommand, ProcessError, ProcessFolder, ProcessLimits, UsedByProcess,
    find_program,
};

/// Maximum number of concurrent processes.
const PROCESSES: u64 = 1;
/// Maximum size of the output, in bytes.
const OUTPUT_BYTES: u64 = 8 << 20;
/// Maximum size of a folder, in bytes: the files of a chart, and the values of the package and of
/// the installation.
const FOLDER_BYTES: u64 = 40 << 20;
/// Maximum private memory of the process, in bytes. The kernel enforces this limit.
const MEMORY: u64 = programs::HELM;
/// Value of `GOMEMLIMIT`, in bytes: above this memory, Go collects garbage more often.
const COLLECTED_MEMORY: u64 = 64 << 20;
/// Maximum address space of the process, in bytes. Go reserves most of this address space, but does
/// not use it.
const ADDRESS_SPACE: u64 = 4 << 30;
/// Maximum stack of a thread, in bytes.
const STACK: u64 = 8 << 20;
/// Maximum length of all arguments of the process, in bytes. The kernel derives this limit from
/// [`STACK`]. Most arguments are API versions: those that `bundle.yaml` requires, and those of the
/// server, whose number and length `bundle_core` limits.
const ARGUMENTS: u64 = STACK / 4;
/// Time limit of all processes of one rendering. Other requesters wait for helm during this time.
const TIMEOUT: Duration = Duration::from_secs(40);
/// Maximum CPU time of one process.
const CPU_TIME: Duration = Duration::from_secs(30);

/// Limits of time, memory and output of helm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HelmLimits {
    pub(crate) output: u64,
    pub(crate) memory: u64,
    pub(crate) time: Duration,
}

impl Default for HelmLimits {
    fn default() -> Self {
        Self {
            output: OUTPUT_BYTES,
            memory: MEMORY,
            time: TIMEOUT,
        }
    }
}

/// The reason why a chart was not rendered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HelmError {
    /// A required program, such as helm, does not exist.
    #[error("this pod has no `{0}` program, which charts require")]
    Missing(&'static str),
    /// The process or its folder could not be created.
    #[error("cannot run helm: {0}")]
    Io(#[source] io::Error),
    /// helm reports errors of the chart or of its values.
    #[error("helm reports errors")]
    Chart(Findings),
    /// The rendering exceeds a limit. Contains the message about this limit.
    #[error("rendering the chart needs more than {0}")]
    Limit(String),
    /// The memory limit of the pod is too small for helm. Contains the memory of helm in bytes.
    #[error("helm needs {} MiB, and the memory limit of the pod is too small for it", .0 >> 20)]
    MemoryTooSmall(u64),
}

impl HelmError {
    /// Returns the findings for the requester of the content.
    pub(crate) fn findings(self) -> Findings {
        let (code, hint) = match &self {
            Self::Chart(findings) => return findings.clone(),
            Self::Missing(_) => (
                codes::install::HELM_MISSING,
                "ask an administrator to use the full image of bundle-webhook, whose tag ends with -full, or build a plain+v0 bundle from the output of `helm template`",
            ),
            Self::Io(_) => (
                codes::install::CACHE_FULL,
                "the operation is retried automatically",
            ),
            Self::Limit(_) => (
                codes::install::HELM_LIMIT,
                "split the chart, or build a plain+v0 bundle from the output of `helm template`",
            ),
            Self::MemoryTooSmall(_) => (
                codes::install::CONTENT_TOO_LARGE,
                "ask an administrator to increase the memory of bundle-webhook",
            ),
        };
        Finding::error(code, self.to_string()).hint(hint).into()
    }
}

/// The helm program, and the folder in which it works.
#[derive(Debug)]
pub(crate) struct HelmProgram {
    folder: PathBuf,
    search_path: OsString,
    slots: Pool,
    /// Memory that the pod keeps free for helm, in bytes.
    memory: u64,
    limits: HelmLimits,
}

impl HelmProgram {
    /// Removes the files of earlier processes in `folder`. helm is looked up in `search_path`.
    /// `memory` is the memory that the pod keeps free for helm, in bytes.
    pub(crate) fn new(
        folder: PathBuf,
        search_path: OsString,
        memory: u64,
        limits: HelmLimits,
    ) -> Self {
        process::remove_folders(&folder);
        Self {
            folder,
            search_path,
            slots: Pool::new(PROCESSES),
            memory,
            limits,
        }
    }

    /// Creates an empty folder for a rendering. Waits until no other rendering runs. The order of
    /// waiting requesters is fair.
    pub(crate) async fn begin(&self, requester: &str) -> Result<HelmFolder, HelmError> {
        let program = find_program(&self.search_path, "helm").ok_or(HelmError::Missing("helm"))?;
        let too_small = HelmError::MemoryTooSmall(self.limits.memory);
        if self.memory < self.limits.memory {
            return Err(too_small);
        }
        let caps = Budget::part(&self.slots, requester, 1);
        // A request for one slot never exceeds the capacity.
        let slot = self.slots.take(1, caps).await.map_err(|_| too_small)?;
        let folder = ProcessFolder::create(&self.folder, "chart-", None);
        let folder = folder.map_err(HelmError::Io)?;
        fs_err::create_dir(folder.path().join(HOME)).map_err(HelmError::Io)?;
        Ok(HelmFolder {
            program,
            limits: self.limits,
            slot: Arc::new(slot),
            folder: Arc::new(folder),
        })
    }
}

/// Name of the empty folder that helm uses as home directory, and for its plugins, its
/// configuration and temporary files.
const HOME: &str = "home";

/// A folder with one rendering. The folder is removed on drop.
#[derive(Debug)]
pub(crate) struct HelmFolder {
    program: PathBuf,
    limits: HelmLimits,
    /// The slot of the rendering. A running process keeps the slot until it ends.
    slot: Arc<Share>,
    folder: Arc<ProcessFolder>,
}

impl HelmFolder {
    /// Returns the path of this folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Removes the folder and returns the slot.
    pub(crate) fn into_slot(self) -> Arc<Share> {
        self.slot
    }

    /// Renders the chart, and returns the output. If the output can be random, renders the chart
    /// again, and also returns the second output. [`HelmLimits::time`] limits both runs together.
    pub(crate) async fn render(
        &self,
        command: &RenderCommand,
        files: &CommandFiles,
    ) -> Result<(Vec<u8>, Option<Vec<u8>>), HelmError> {
        let end = Instant::now() + self.limits.time;
        let output = self.run(command, files, end).await?;
        let again = if files.is_random {
            Some(self.run(command, files, end).await?)
        } else {
            None
        };
        Ok((output, again))
    }

    /// Runs helm once until `end`, and returns its output. The output is read from a pipe and not
    /// from a file, because helm does not report an incomplete file.
    async fn run(
        &self,
        command: &RenderCommand,
        files: &CommandFiles,
        end: Instant,
    ) -> Result<Vec<u8>, HelmError> {
        let process = ProcessCommand {
            program: self.program.clone(),
            arguments: command.resolved(&files.content, &files.extra),
            environment: self.environment(command),
            limits: ProcessLimits {
                folder: FOLDER_BYTES,
                process_memory: self.limits.memory,
                command_memory: self.limits.memory,
                address_space: ADDRESS_SPACE,
                stack: STACK,
                cpu_time: CPU_TIME,
            },
        };
        let used = UsedByProcess {
            _shares: vec![self.slot.clone()],
            folder: self.folder.clone(),
        };
        let limits = self.limits;
        let failed = |error| failed(command, error, limits);
        let process = ChildProcess::start(process, used).map_err(failed)?;
        let longest = usize::try_from(limits.output).unwrap_or(usize::MAX);
        let rest = end.saturating_duration_since(Instant::now());
        let output = process.output(self.path(), &[], longest, rest);
        output.await.map_err(failed)
    }

    /// Returns all environment variables of the process. Without the variables of the pod, helm
    /// does not find the API server. With the variables of `command`, each HTTP request of helm to
    /// another host fails.
    fn environment(&self, command: &RenderCommand) -> Vec<(String, OsString)> {
        let home = OsString::from(self.path().join(HOME));
        let own = ["HOME", "PATH", "TMPDIR", "XDG_CONFIG_HOME", "HELM_PLUGINS"];
        let folders = own.iter().chain(command.folder_variables);
        let mut variables: Vec<(String, OsString)> = folders
            .map(|name| ((*name).to_owned(), home.clone()))
            .collect();
        for (name, value) in [
            ("KUBECONFIG", "/dev/null".to_owned()),
            ("LC_ALL", "C".to_owned()),
            ("GOMAXPROCS", "1".to_owned()),
            ("GOMEMLIMIT", COLLECTED_MEMORY.to_string()),
            // After a crash, Go does not print the stacks of all goroutines.
            ("GOTRACEBACK", "none".to_owned()),
        ] {
            variables.push((name.to_owned(), value.into()));
        }
        for (name, value) in command.fixed_variables {
            variables.push(((*name).to_owned(), OsString::from(*value)));
        }
        variables
    }
}

/// Exit code of a Go program after a fatal runtime error.
const FATAL: i32 = 2;
/// Messages of the Go runtime when memory cannot be allocated.
const NO_MEMORY: [&str; 2] = ["out of memory", "cannot allocate memory"];

fn failed(command: &RenderCommand, error: ProcessError, limits: HelmLimits) -> HelmError {
    let memory = |bytes: u64| HelmError::Limit(format!("{} MiB of memory", bytes >> 20));
    match error {
        ProcessError::NoShell => HelmError::Missing("sh"),
        ProcessError::Io(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => {
            HelmError::Limit(format!("{} MiB of arguments", ARGUMENTS >> 20))
        }
        ProcessError::Io(error) => HelmError::Io(error),
        ProcessError::TimedOut(_) => HelmError::Limit(format!("{} s", limits.time.as_secs())),
        ProcessError::FolderLimit(limit) => {
            HelmError::Limit(format!("{} MiB on disk", limit >> 20))
        }
        ProcessError::OutputLimit => {
            HelmError::Limit(format!("{} MiB of output", limits.output >> 20))
        }
        ProcessError::MemoryLimit(limit) => memory(limit),
        ProcessError::Killed(_) => {
            let seconds = CPU_TIME.as_secs();
            HelmError::Limit(format!("{seconds} s of CPU time or the memory of the pod"))
        }
        ProcessError::Failed { code, stderr } => {
            let text = String::from_utf8_lossy(&stderr);
            let mut fatal = text
                .lines()
                .filter(|line| line.starts_with("fatal error: "));
            let lacks_memory =
                fatal.any(|line| NO_MEMORY.iter().any(|message| line.contains(message)));
            // The exit code is checked too, because the message of a template can contain the same
            // text.
            if code == Some(FATAL) && lacks_memory {
                return memory(limits.memory);
            }
            HelmError::Chart(helm::failure(command, &stderr))
        }
    }
}
