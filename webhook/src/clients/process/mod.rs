//! Runs one external command with its child processes. The output is limited. Disk space and memory
//! are measured while the command runs.

mod group;
mod limits;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::group::ProcessGroup;
pub(crate) use self::limits::ProcessLimits;
use self::limits::{SCRIPT, SHELL, memory_of};
use crate::budget::Share;

/// Interval at which the disk space and the memory of a command are measured.
const MEASURE_INTERVAL: Duration = Duration::from_millis(100);
/// Size that is counted for each folder, in bytes. The files in the folder are counted separately.
const FOLDER_BYTES: u64 = 4 << 10;
/// Maximum number of bytes of stderr that are stored. Further bytes are discarded.
const STDERR_BYTES: usize = 16 << 10;

/// The reason why a command was not completed.
#[derive(Debug)]
pub(crate) enum ProcessError {
    /// The shell that sets the limits does not exist.
    NoShell,
    /// The process could not be created, or its pipes failed.
    Io(io::Error),
    /// The process ended with an error.
    Failed {
        /// Exit code of the process.
        code: Option<i32>,
        /// First bytes of the stderr output.
        stderr: Vec<u8>,
    },
    /// A signal ended the process, for example because it exceeded a limit or the pod has no free
    /// memory. Contains the first bytes of the stderr output.
    Killed(Vec<u8>),
    /// The process did not end in time.
    TimedOut(Duration),
    /// The folder of the command exceeds this size, in bytes.
    FolderLimit(u64),
    /// The processes of the command exceed this memory, in bytes.
    MemoryLimit(u64),
    /// The output of the command exceeds its limit.
    OutputLimit,
}

/// The folder of a command. The folder is removed after the last process that uses it has ended.
#[derive(Debug)]
pub(crate) struct ProcessFolder {
    folder: TempDir,
    _slot: Option<Share>,
}

impl ProcessFolder {
    /// Creates an empty folder in `parent`. `slot` is released when the folder is removed.
    pub(crate) fn create(parent: &Path, prefix: &str, slot: Option<Share>) -> io::Result<Self> {
        fs_err::create_dir_all(parent)?;
        let mut named = tempfile::Builder::new();
        let folder = named.prefix(prefix).tempdir_in(parent)?;
        Ok(Self {
            folder,
            _slot: slot,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders of earlier processes in `parent`.
pub(crate) fn remove_folders(parent: &Path) {
    // The folder does not exist at the first start.
    if let Err(error) = fs_err::remove_dir_all(parent)
        && error.kind() != io::ErrorKind::NotFound
    {
        let folder = parent.display();
        tracing::warn!(%folder, %error, "cannot remove the folders of an earlier process");
    }
}

/// Looks up `program` in the absolute folders of `search_path`, and returns its path.
pub(crate) fn find_program(search_path: &OsStr, program: &str) -> Option<PathBuf> {
    let folders = std::env::split_paths(search_path).filter(|folder| folder.is_absolute());
    let mut paths = folders.map(|folder| folder.join(program));
    paths.find(|path| fs_err::metadata(path).is_ok_and(|found| found.is_file()))
}

/// Memory, slots and folder of a running command. All of them are released after the last process
/// of the command has ended.
#[derive(Debug)]
pub(crate) struct UsedByProcess {
    pub(crate) _shares: Vec<Arc<Share>>,
    pub(crate) folder: Arc<ProcessFolder>,
}

/// A command that has not started.
pub(crate) struct ProcessCommand {
    /// Path of the program to run.
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// All environment variables of the process.
    pub(crate) environment: Vec<(String, OsString)>,
    pub(crate) limits: ProcessLimits,
}

/// A running process and its process group.
pub(crate) struct ChildProcess {
    limits: ProcessLimits,
    group: ProcessGroup,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

/// The process group and stderr of a process whose stdin and stdout the caller uses
/// ([`ChildProcess::into_parts`]).
pub(crate) struct ProcessEnd {
    group: ProcessGroup,
    stderr: Option<ChildStderr>,
}

impl ChildProcess {
    /// Starts the command in a process group of its own, in its folder.
    pub(crate) fn start(
        command: ProcessCommand,
        used: UsedByProcess,
    ) -> Result<Self, ProcessError> {
        let limits = command.limits;
        let mut shell = Command::new(SHELL);
        shell
            .args(["-c", SCRIPT, "limited"])
            .args(limits.script_arguments())
            .arg(command.program)
            .args(command.arguments)
            .env_clear()
            .envs(command.environment)
            .current_dir(used.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = shell.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ProcessError::NoShell,
            _ => ProcessError::Io(error),
        })?;
        Ok(Self {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            group: ProcessGroup::new(child, used),
            limits,
        })
    }

    /// Returns stdin, stdout and the rest of the process. The caller can read stdout while the
    /// process runs.
    pub(crate) fn into_parts(
        self,
    ) -> (
        Option<ChildStdin>,
        Option<BufReader<ChildStdout>>,
        ProcessEnd,
    ) {
        let end = ProcessEnd {
            group: self.group,
            stderr: self.stderr,
        };
        (self.stdin, self.stdout.map(BufReader::new), end)
    }

    /// Writes `input`, and returns the output of a successful process. Kills the process after the
    /// time `limit`, or when the output exceeds `longest` bytes. Also kills the process when it
    /// exceeds its limit of memory or of disk space in `folder`.
    pub(crate) async fn output(
        self,
        folder: &Path,
        input: &[u8],
        max_output: usize,
        limit: Duration,
    ) -> Result<Vec<u8>, ProcessError> {
        let (limits, group) = (self.limits, self.group.id());
        let (stdin, stdout, end) = self.into_parts();
        let write = async {
            write_all(stdin, input).await;
            Ok::<(), ProcessError>(())
        };
        let read = async {
            match stdout {
                Some(stdout) => read_all(stdout, max_output).await,
                None => Ok(Vec::new()),
            }
        };
        let work = async {
            let ((), output, ()) = tokio::try_join!(write, read, end.wait())?;
            Ok(output)
        };
        let done = tokio::select! {
            done = timeout(limit, work) => done.unwrap_or(Err(ProcessError::TimedOut(limit))),
            error = exceeded_limit(folder, group, &limits) => Err(error),
        };
        match done {
            // The kernel kills a process that writes a file above the size limit. The file remains,
            // so its size shows the reason.
            Err(error @ (ProcessError::Failed { .. } | ProcessError::Killed(_))) => {
                let (used, _) = measure(folder, None, &limits).await;
                Err(if used >= limits.folder {
                    ProcessError::FolderLimit(limits.folder)
                } else {
                    error
                })
            }
            done => done,
        }
    }
}

impl ProcessEnd {
    /// Waits for the end of the process. If the process fails, the error contains its messages.
    pub(crate) async fn wait(mut self) -> Result<(), ProcessError> {
        let stderr = self.stderr.take();
        let messages = async {
            match stderr {
                Some(stderr) => read_start(stderr).await,
                None => Vec::new(),
            }
        };
        let (messages, status) = tokio::join!(messages, self.group.wait());
        let status = status.map_err(ProcessError::Io)?;
        if status.success() {
            Ok(())
        } else if status.signal().is_some() {
            Err(ProcessError::Killed(messages))
        } else {
            Err(ProcessError::Failed {
                code: status.code(),
                stderr: messages,
            })
        }
    }
}

/// Writes `input` and closes the pipe. If the process ends before it has read all of `input`, its
/// exit status shows the error.
pub(crate) async fn write_all(stdin: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut stdin) = stdin {
        stdin.write_all(input).await.ok();
        stdin.shutdown().await.ok();
    }
}

async fn read_all(stdout: impl AsyncRead + Unpin, longest: usize) -> Result<Vec<u8>, ProcessError> {
    let mut bytes = Vec::new();
    let most = u64::try_from(longest).unwrap_or(u64::MAX).saturating_add(1);
    let read = stdout.take(most).read_to_end(&mut bytes).await;
    read.map_err(ProcessError::Io)?;
    if bytes.len() > longest {
        return Err(ProcessError::OutputLimit);
    }
    Ok(bytes)
}

/// Reads stderr to its end, and returns only the first [`STDERR_BYTES`] bytes.
async fn read_start(mut stderr: ChildStderr) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        let left = STDERR_BYTES - kept.len();
        kept.extend_from_slice(&buffer[..read.min(left)]);
    }
    kept
}

/// Measures until the files of `folder` or the processes of `group` exceed a limit, and then
/// returns the error.
async fn exceeded_limit(folder: &Path, group: Option<Pid>, limits: &ProcessLimits) -> ProcessError {
    let mut ticks = interval(MEASURE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (used, memory) = measure(folder, group, limits).await;
        if used > limits.folder {
            return ProcessError::FolderLimit(limits.folder);
        }
        if memory > limits.command_memory {
            return ProcessError::MemoryLimit(limits.command_memory);
        }
    }
}

/// Returns the size of `folder` and the memory of `group`, in bytes. The measurement runs on
/// another thread, because a folder can have many files.
async fn measure(folder: &Path, group: Option<Pid>, limits: &ProcessLimits) -> (u64, u64) {
    let (folder, most) = (folder.to_owned(), limits.folder);
    let measure = move || (size(folder, most), group.map_or(0, memory_of));
    // The measurement does not panic, so it fails only if the runtime shuts down because the
    // webhook ends.
    let measured = tokio::task::spawn_blocking(measure).await;
    measured.unwrap_or_default()
}

/// Returns the size of all files and folders in bytes. Stops when the size exceeds `most`. Files
/// that are removed during the measurement do not count.
fn size(folder: PathBuf, most: u64) -> u64 {
    let mut folders = vec![folder];
    let mut size = 0_u64;
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => {
                    size = size.saturating_add(FOLDER_BYTES);
                    folders.push(entry.path());
                }
                Ok(metadata) => size = size.saturating_add(metadata.len()),
                Err(_) => {}
            }
            if size > most {
                return size;
            }
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_count_in_the_size() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(folder.path().join("a/b/c")).unwrap();
        fs_err::write(folder.path().join("a/b/c/d"), [0; 10]).unwrap();
        let measured = |most| size(folder.path().to_owned(), most);
        assert_eq!(measured(u64::MAX), 3 * FOLDER_BYTES + 10);
        assert_eq!(measured(FOLDER_BYTES), 2 * FOLDER_BYTES);
    }
}
