//! One call of a plugin: what it gets, for how long it may run, and how much it may write.
//! Not here: what is asked and answered (protocol).

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::pipe;

/// How often it is looked whether a plugin that has said everything has ended.
const GLANCE: Duration = Duration::from_millis(5);
/// As much of its complaints as a person reads, in bytes.
const COMPLAINTS: u64 = 4096;

/// What a plugin may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Until it has to have ended.
    pub(super) time: Duration,
    /// What it may write to stdout, in bytes.
    pub(super) output: u64,
}

impl Default for Limits {
    /// Long enough to find a token and touch it; more than any answer holds.
    fn default() -> Self {
        Self {
            time: Duration::from_secs(60),
            output: 256 << 10,
        }
    }
}

/// What a plugin wrote, and how it ended.
pub(super) struct Said {
    pub(super) output: Vec<u8>,
    pub(super) complaints: String,
    pub(super) status: ExitStatus,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It cannot be started, or was lost.
    Lost(io::Error),
    /// It did not end in time.
    Late,
    /// It wrote too much.
    Flood,
}

/// Runs `program` with these arguments, and `message` on stdin. Where somebody is there, it may speak to them: it keeps the terminal, and its complaints go
/// straight there. Else it gets a process group of its own, so that none of it outlives the deadline.
pub(super) fn call(
    program: &Path,
    arguments: [&str; 2],
    message: &[u8],
    attended: bool,
    limits: Limits,
) -> Result<Said, Trouble> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(if attended {
            Stdio::inherit()
        } else {
            Stdio::piped()
        });
    // What its service asks for stays in the environment: that is where the protocol has it.
    crate::secrets::withhold_ours(&mut command);
    #[cfg(unix)]
    if !attended {
        use std::os::unix::process::CommandExt as _;
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(Trouble::Lost)?;
    let said = listen(&mut child, message, limits);
    if said.is_err() {
        end(&mut child, attended);
    }
    said
}

fn listen(child: &mut Child, message: &[u8], limits: Limits) -> Result<Said, Trouble> {
    let end = Instant::now() + limits.time;
    if let Some(mut stdin) = child.stdin.take() {
        let message = message.to_vec();
        // On a thread: a plugin that does not read must not stop us. One that does not care what it signs is found out by its signature.
        thread::spawn(move || drop(stdin.write_all(&message)));
    }
    let (tell, heard) = mpsc::channel();
    let mut open = 0;
    if let Some(stdout) = child.stdout.take() {
        pipe::read(stdout, limits.output, tell.clone(), true);
        open += 1;
    }
    if let Some(stderr) = child.stderr.take() {
        pipe::read(stderr, COMPLAINTS, tell, false);
        open += 1;
    }
    let (mut output, mut complaints) = (Vec::new(), Vec::new());
    for _ in 0..open {
        let left = end.saturating_duration_since(Instant::now());
        match heard.recv_timeout(left).map_err(|_| Trouble::Late)? {
            (bytes, true) if bytes.len() as u64 > limits.output => return Err(Trouble::Flood),
            (bytes, true) => output = bytes,
            (bytes, false) => complaints = bytes,
        }
    }
    // Its pipes are closed; an answer counts when it has ended.
    let status = loop {
        match child.try_wait().map_err(Trouble::Lost)? {
            Some(status) => break status,
            None if Instant::now() >= end => return Err(Trouble::Late),
            None => thread::sleep(GLANCE),
        }
    };
    complaints.truncate(usize::try_from(COMPLAINTS).unwrap_or(usize::MAX));
    Ok(Said {
        output,
        complaints: String::from_utf8_lossy(&complaints).trim().to_owned(),
        status,
    })
}

/// Ends it, and with it what it has started, as far as it is in its group. It has not been waited for, so its number is still its own.
fn end(child: &mut Child, attended: bool) {
    #[cfg(unix)]
    if !attended {
        let group = i32::try_from(child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group {
            // An error means that all of it is gone.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
    #[cfg(not(unix))]
    let _ = attended;
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(all(test, unix))]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const SHORT: Limits = Limits {
        time: Duration::from_millis(400),
        output: 1000,
    };
    const LONG: Limits = Limits {
        time: Duration::from_secs(20),
        output: 1000,
    };

    fn shell(script: &str, message: &[u8], limits: Limits) -> Result<Said, Trouble> {
        call(
            &PathBuf::from("/bin/sh"),
            ["-c", script],
            message,
            false,
            limits,
        )
    }

    #[test]
    fn it_gets_the_message_and_its_answer_counts_when_it_has_ended() {
        let said = shell("cat; echo why >&2; exit 3", b"message", LONG)
            .ok()
            .unwrap();
        assert_eq!(said.output, b"message");
        assert_eq!(said.complaints, "why");
        assert_eq!(said.status.code(), Some(3));
    }

    #[test]
    fn what_does_not_read_is_not_waited_for() {
        let message = vec![0; 4 << 20];
        let said = shell("echo done", &message, LONG).ok().unwrap();
        assert_eq!(said.output, b"done\n");
    }

    #[test]
    fn what_does_not_end_is_ended_with_all_that_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        for (index, script) in [
            "sleep 60 & echo $! > PIDS; wait",
            // Its pipes closed, and going on.
            "exec >&- 2>&- <&-; echo $$ > PIDS; sleep 60",
            // Gone, and leaving something that holds the pipe.
            "sleep 60 & echo $! > PIDS",
        ]
        .into_iter()
        .enumerate()
        {
            let pids = folder.path().join(index.to_string());
            let script = script.replace("PIDS", &pids.display().to_string());
            let limits = Limits {
                time: Duration::from_secs(1),
                ..SHORT
            };
            let trouble = shell(&script, b"", limits).err();
            assert!(matches!(trouble, Some(Trouble::Late)), "{script}");
            let pid = std::fs::read_to_string(&pids).unwrap();
            let status = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
            let end = Instant::now() + Duration::from_secs(10);
            // Gone, or waiting for somebody to notice.
            while std::fs::read_to_string(&status).is_ok_and(|text| !text.contains(") Z ")) {
                assert!(Instant::now() < end, "{script}: still there");
                thread::yield_now();
            }
        }
    }

    #[test]
    fn what_writes_without_end_is_cut_off() {
        let trouble = shell("yes", b"", LONG).err();
        assert!(matches!(trouble, Some(Trouble::Flood)));
        let trouble = shell("yes >&2", b"", SHORT).err();
        assert!(matches!(trouble, Some(Trouble::Late)));
    }

    #[test]
    fn what_is_no_program_cannot_be_started() {
        let folder = tempfile::tempdir().unwrap();
        let trouble = call(folder.path(), ["", ""], b"", false, SHORT).err();
        assert!(matches!(trouble, Some(Trouble::Lost(_))));
    }
}
