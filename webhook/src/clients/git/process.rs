//! One process of git with its children: its output is limited, and its disk space and memory are
//! measured while it runs.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::group::ProcessGroup;
use super::limits::{SCRIPT, SHELL, memory_of};
use super::{GitError, GitFailure, GitLimits, UsedByProcess};

/// Interval at which the disk space and the memory of a command are measured.
const MEASURED_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of bytes of stderr that are kept. The rest is discarded.
const STDERR_BYTES: usize = 16 << 10;

/// A running process and its group.
pub(crate) struct GitProcess {
    limits: GitLimits,
    group: ProcessGroup,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

/// Stdin, stdout and the end of a process whose output is read while it runs.
pub(crate) struct ProcessEnd {
    limits: GitLimits,
    group: ProcessGroup,
    stderr: Option<ChildStderr>,
}

impl GitProcess {
    /// Starts git in its own process group, with exactly these environment variables.
    pub(super) fn start(
        (git, arguments): (&Path, &[&str]),
        environment: Vec<(String, OsString)>,
        limits: GitLimits,
        used: UsedByProcess,
    ) -> Result<Self, GitError> {
        let mut command = Command::new(SHELL);
        command
            .args(["-c", SCRIPT, "git"])
            .args(limits.script_arguments())
            .arg(git)
            .args(arguments)
            .env_clear()
            .envs(environment)
            .current_dir(used.space.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => GitError::Missing("sh"),
            _ => GitError::Io(error),
        })?;
        Ok(Self {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            group: ProcessGroup::new(child, used),
            limits,
        })
    }

    /// Returns the parts for reading the output while the process runs.
    pub(crate) fn into_parts(
        self,
    ) -> (
        Option<ChildStdin>,
        Option<BufReader<ChildStdout>>,
        ProcessEnd,
    ) {
        let end = ProcessEnd {
            limits: self.limits,
            group: self.group,
            stderr: self.stderr,
        };
        (self.stdin, self.stdout.map(BufReader::new), end)
    }

    /// Writes `input`, and returns the output of a successful process. Kills the process after
    /// `limit`, or when the process exceeds the limits of memory or of disk space in `folder`.
    pub(super) async fn output(
        self,
        folder: &Path,
        input: &[u8],
        longest: usize,
        limit: Duration,
    ) -> Result<Vec<u8>, GitError> {
        let (limits, group) = (self.limits, self.group.id());
        let (stdin, stdout, end) = self.into_parts();
        let write = async {
            write_all(stdin, input).await;
            Ok::<(), GitError>(())
        };
        let read = async {
            match stdout {
                Some(stdout) => read_all(stdout, longest).await,
                None => Ok(Vec::new()),
            }
        };
        let work = async {
            let ((), output, ()) = tokio::try_join!(write, read, end.wait())?;
            Ok(output)
        };
        let done = tokio::select! {
            done = timeout(limit, work) => done.unwrap_or(Err(GitError::TimedOut(limit))),
            error = exceeded(folder, group, &limits) => Err(error),
        };
        match done {
            // A process that writes a file above its limit is killed, and leaves the file.
            Err(GitError::Failed(_)) if size(folder) >= limits.folder => {
                Err(GitError::TooLarge(limits.folder))
            }
            done => done,
        }
    }
}

impl ProcessEnd {
    /// Waits for the end of the process. Fails with the messages of a process that failed.
    pub(crate) async fn wait(mut self) -> Result<(), GitError> {
        let stderr = self.stderr.take();
        let messages = async {
            match stderr {
                Some(stderr) => read_start(stderr).await,
                None => Vec::new(),
            }
        };
        let (messages, status) = tokio::join!(messages, self.group.wait());
        let status = status.map_err(GitError::Io)?;
        if status.success() {
            return Ok(());
        }
        if GitFailure::lacks_ssh(&messages) {
            return Err(GitError::Missing("ssh"));
        }
        if GitFailure::exceeds_memory(&messages) {
            return Err(GitError::OutOfMemory(self.limits.process_memory));
        }
        Err(GitError::Failed(GitFailure::new(&messages)))
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

async fn read_all(stdout: impl AsyncRead + Unpin, longest: usize) -> Result<Vec<u8>, GitError> {
    let mut bytes = Vec::new();
    let most = u64::try_from(longest).unwrap_or(u64::MAX).saturating_add(1);
    let read = stdout.take(most).read_to_end(&mut bytes).await;
    read.map_err(GitError::Io)?;
    if bytes.len() > longest {
        return Err(GitError::Output(
            "the revision has too many files, or its paths are too long",
        ));
    }
    Ok(bytes)
}

/// Reads the whole stream, and keeps its first bytes.
async fn read_start(mut stderr: ChildStderr) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        let left = STDERR_BYTES - kept.len();
        kept.extend_from_slice(&buffer[..read.min(left)]);
    }
    kept
}

/// Returns the error when the files of `folder` or the processes of `group` exceed a limit.
async fn exceeded(folder: &Path, group: Option<Pid>, limits: &GitLimits) -> GitError {
    let mut ticks = interval(MEASURED_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if size(folder) > limits.folder {
            return GitError::TooLarge(limits.folder);
        }
        if group.map_or(0, memory_of) > limits.command_memory {
            return GitError::OutOfMemory(limits.command_memory);
        }
    }
}

/// Returns the size of all files. Files that are removed during the measurement do not count.
fn size(folder: &Path) -> u64 {
    let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
