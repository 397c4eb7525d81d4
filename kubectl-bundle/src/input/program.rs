//! A program of others that renders content: found on PATH, within a time and an amount of output, and never left running.
//! Not here: what its output means (chart, kustomize).

use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bundle_core::diagnostic::{Finding, codes};

use crate::failure::{Failure, Outcome};
use crate::pipe;

/// Longer than any rendering takes.
const DEADLINE: Duration = Duration::from_secs(60);
/// More than any rendering writes, in bytes.
const OUTPUT: u64 = 32 << 20;
/// As much of its complaints as a person reads, in bytes.
const COMPLAINTS: u64 = 64 << 10;

/// What the program wrote to stdout. `install` says how to get it.
pub(super) fn run(name: &str, mut command: Command, install: &str) -> Outcome<Vec<u8>> {
    crate::secrets::withhold(&mut command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                Finding::error(
                    codes::usage::NO_PROGRAM,
                    format!("`{name}` is needed for this content and is not on PATH"),
                )
                .hint(install)
                .into()
            } else {
                Failure::caused(
                    Finding::error(
                        codes::usage::NO_PROGRAM,
                        format!("`{name}` cannot be started"),
                    )
                    .hint(install),
                    &error,
                )
            }
        })?;
    let outcome = watch(name, &mut child);
    // Ended already, or of no more use. An error means that it is gone.
    let _ = child.kill();
    let _ = child.wait();
    outcome
}

fn watch(name: &str, child: &mut Child) -> Outcome<Vec<u8>> {
    let (said, heard) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        pipe::read(stdout, OUTPUT, said.clone(), true);
    }
    if let Some(stderr) = child.stderr.take() {
        pipe::read(stderr, COMPLAINTS, said, false);
    }
    let end = Instant::now() + DEADLINE;
    let late = || {
        failed(
            name,
            &format!("did not end within {} s", DEADLINE.as_secs()),
            "",
        )
    };
    let (mut output, mut complaints) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let left = end.saturating_duration_since(Instant::now());
        match heard.recv_timeout(left) {
            Ok((bytes, true)) if bytes.len() as u64 > OUTPUT => {
                return Err(failed(
                    name,
                    &format!("wrote more than {} MiB", OUTPUT >> 20),
                    "",
                ));
            }
            Ok((bytes, true)) => output = bytes,
            Ok((bytes, false)) => complaints = bytes,
            Err(mpsc::RecvTimeoutError::Timeout) => return Err(late()),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    // Both pipes are closed: it has ended, or has nothing more to say.
    let status = child.wait().map_err(|error| {
        Failure::caused(
            Finding::error(codes::usage::PROGRAM_FAILED, format!("`{name}` was lost")),
            &error,
        )
    })?;
    if status.success() {
        return Ok(output);
    }
    Err(failed(
        name,
        &format!("ended with {status}"),
        String::from_utf8_lossy(&complaints).trim(),
    ))
}

fn failed(name: &str, why: &str, complaints: &str) -> Failure {
    let complaints: String = complaints.chars().take(4000).collect();
    let message = if complaints.is_empty() {
        format!("`{name}` {why}")
    } else {
        format!("`{name}` {why}: {complaints}")
    };
    Finding::error(codes::usage::PROGRAM_FAILED, message)
        .hint("run it yourself on the same folder to see more")
        .into()
}
