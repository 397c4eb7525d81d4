//! Runs all external commands with limits on time and output. A command that exceeds a limit is
//! killed. Its child processes are killed too, if the command has its own process group.

use std::io::{self, Read, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Interval for checking the exit of a command that has closed its pipes.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Limits of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessLimits {
    /// Timeout.
    pub(crate) time: Duration,
    /// Maximum number of bytes of stdout.
    pub(crate) output: u64,
    /// Number of bytes of stderr that are kept. Other bytes are discarded.
    pub(crate) stderr: u64,
}

/// Process group and terminal access of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessGroup {
    /// The command uses the terminal, and its stderr is not captured.
    Terminal,
    /// The process group of this program: Ctrl-C ends this program and the command.
    Shared,
    /// A new process group, so that the child processes of the command are killed at the timeout
    /// too.
    Own,
}

/// Output of a finished command.
pub(crate) struct CommandOutput {
    /// Stdout.
    pub(crate) output: Vec<u8>,
    /// Beginning of stderr.
    pub(crate) stderr: String,
    /// Exit status.
    pub(crate) status: ExitStatus,
}

/// Reason why a command has no result.
#[derive(Debug)]
pub(crate) enum ProcessError {
    /// The command could not be started, or the wait for its end failed.
    Io(io::Error),
    /// The command exceeded the timeout.
    Timeout,
    /// The command exceeded the output limit.
    OutputLimit,
}

/// Runs `command` with the optional `input` on stdin, and waits until the command has exited.
pub(crate) fn run(
    mut command: Command,
    input: Option<Vec<u8>>,
    group: ProcessGroup,
    limits: ProcessLimits,
) -> Result<CommandOutput, ProcessError> {
    command
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(if group == ProcessGroup::Terminal {
            Stdio::inherit()
        } else {
            Stdio::piped()
        });
    #[cfg(unix)]
    if group == ProcessGroup::Own {
        use std::os::unix::process::CommandExt as _;
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(ProcessError::Io)?;
    let finished = wait_for_output(&mut child, input, limits);
    if finished.is_err() {
        kill(&mut child, group);
    }
    finished
}

fn wait_for_output(
    child: &mut Child,
    input: Option<Vec<u8>>,
    limits: ProcessLimits,
) -> Result<CommandOutput, ProcessError> {
    let end = Instant::now() + limits.time;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // The input is written on a thread, because the write would block if the command did not
        // read its input.
        thread::spawn(move || drop(stdin.write_all(&input)));
    }
    let (sender, received) = mpsc::channel();
    let mut open = 0;
    if let Some(stdout) = child.stdout.take() {
        read(stdout, limits.output, sender.clone(), true);
        open += 1;
    }
    if let Some(stderr) = child.stderr.take() {
        read(stderr, limits.stderr, sender, false);
        open += 1;
    }
    let (mut output, mut stderr) = (Vec::new(), Vec::new());
    for _ in 0..open {
        let left = end.saturating_duration_since(Instant::now());
        match received
            .recv_timeout(left)
            .map_err(|_| ProcessError::Timeout)?
        {
            (bytes, true) if bytes.len() as u64 > limits.output => {
                return Err(ProcessError::OutputLimit);
            }
            (bytes, true) => output = bytes,
            (bytes, false) => stderr = bytes,
        }
    }
    // The pipes of the command are closed. The output is complete when the command has exited.
    let status = loop {
        match child.try_wait().map_err(ProcessError::Io)? {
            Some(status) => break status,
            None if Instant::now() >= end => return Err(ProcessError::Timeout),
            None => thread::sleep(EXIT_POLL_INTERVAL),
        }
    };
    stderr.truncate(usize::try_from(limits.stderr).unwrap_or(usize::MAX));
    Ok(CommandOutput {
        output,
        stderr: String::from_utf8_lossy(&stderr).trim().to_owned(),
        status,
    })
}

/// Reads a pipe on a thread, because a full pipe would block the command. From stdout, at most
/// `limit` + 1 bytes are read, so that the caller detects an exceeded limit. Stderr is read to its
/// end, and bytes above the limit are discarded. The thread sends the bytes with a flag, which is
/// `true` for stdout.
fn read(
    pipe: impl Read + Send + 'static,
    limit: u64,
    sender: mpsc::Sender<(Vec<u8>, bool)>,
    is_output: bool,
) {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut pipe = pipe.take(limit + 1);
        // After a read error, the bytes before the error are used.
        let _ = pipe.read_to_end(&mut bytes);
        if !is_output {
            let _ = io::copy(&mut pipe.into_inner(), &mut io::sink());
        }
        let _ = sender.send((bytes, is_output));
    });
}

/// Kills the command. For a command in its own group, kills its child processes too. This program
/// has not waited for the command yet, so the process ID cannot belong to another process.
fn kill(child: &mut Child, group: ProcessGroup) {
    #[cfg(unix)]
    if group == ProcessGroup::Own {
        let group = i32::try_from(child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group {
            // An error means that no process of the group exists any more.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
    #[cfg(not(unix))]
    let _ = group;
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(all(test, unix))]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const SHORT: ProcessLimits = ProcessLimits {
        time: Duration::from_millis(400),
        output: 1000,
        stderr: 4096,
    };
    const LONG: ProcessLimits = ProcessLimits {
        time: Duration::from_secs(20),
        output: 1000,
        stderr: 4096,
    };

    fn shell(
        script: &str,
        input: &[u8],
        limits: ProcessLimits,
    ) -> Result<CommandOutput, ProcessError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        run(command, Some(input.to_vec()), ProcessGroup::Own, limits)
    }

    #[test]
    fn command_gets_its_input_and_returns_output_and_status() {
        let output = shell("cat; echo why >&2; exit 3", b"message", LONG)
            .ok()
            .unwrap();
        assert_eq!(output.output, b"message");
        assert_eq!(output.stderr, "why");
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn command_that_does_not_read_stdin_does_not_block() {
        let message = vec![0; 4 << 20];
        let output = shell("echo done", &message, LONG).ok().unwrap();
        assert_eq!(output.output, b"done\n");
    }

    #[test]
    fn command_is_killed_at_the_timeout_with_its_child_processes() {
        let folder = tempfile::tempdir().unwrap();
        for (index, script) in [
            "sleep 60 & echo $! > PIDS; wait",
            // The command closes its pipes and does not exit.
            "exec >&- 2>&- <&-; echo $$ > PIDS; sleep 60",
            // The command exits, but a child process keeps the pipe open.
            "sleep 60 & echo $! > PIDS",
        ]
        .into_iter()
        .enumerate()
        {
            let pids = folder.path().join(index.to_string());
            let script = script.replace("PIDS", &pids.display().to_string());
            let limits = ProcessLimits {
                time: Duration::from_secs(1),
                ..SHORT
            };
            let error = shell(&script, b"", limits).err();
            assert!(matches!(error, Some(ProcessError::Timeout)), "{script}");
            let pid = std::fs::read_to_string(&pids).unwrap();
            let status = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
            let end = Instant::now() + Duration::from_secs(10);
            // The process has exited, or is a zombie.
            while std::fs::read_to_string(&status).is_ok_and(|text| !text.contains(") Z ")) {
                assert!(Instant::now() < end, "{script}: still there");
                thread::yield_now();
            }
        }
    }

    #[test]
    fn command_is_stopped_at_the_output_limit() {
        let error = shell("yes", b"", LONG).err();
        assert!(matches!(error, Some(ProcessError::OutputLimit)));
        let error = shell("yes >&2", b"", SHORT).err();
        assert!(matches!(error, Some(ProcessError::Timeout)));
    }

    #[test]
    fn missing_command_cannot_be_started() {
        let folder = tempfile::tempdir().unwrap();
        let error = run(Command::new(folder.path()), None, ProcessGroup::Own, SHORT).err();
        assert!(matches!(error, Some(ProcessError::Io(_))));
    }
}
