//! External commands that render content, found on PATH, with limits on time and output.

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};

use crate::failure::{Failure, Outcome};
use crate::system::process::{self, CommandOutput, ProcessError, ProcessGroup, ProcessLimits};

/// Limits of a command. No realistic rendering reaches the timeout or the output limit. Stderr is
/// truncated to a readable length.
const LIMITS: ProcessLimits = ProcessLimits {
    time: Duration::from_secs(60),
    output: 32 << 20,
    stderr: 64 << 10,
};

/// Returns the stdout of the command. `install` is the hint about the installation of the command.
pub(super) fn run(name: &str, command: Command, install: &str) -> Outcome<Vec<u8>> {
    let finished = finish(name, command, install)?;
    if finished.status.success() {
        return Ok(finished.output);
    }
    let why = format!("ended with {}", finished.status);
    Err(failed(name, &why, &finished.stderr))
}

/// Runs the command until it exits. `install` is the hint about the installation of the command.
pub(super) fn finish(name: &str, mut command: Command, install: &str) -> Outcome<CommandOutput> {
    crate::system::secrets::remove_secrets(&mut command);
    process::run(command, None, ProcessGroup::Shared, LIMITS)
        .map_err(|error| process_failure(name, error, install))
}

fn process_failure(name: &str, error: ProcessError, install: &str) -> Failure {
    match error {
        ProcessError::Io(error) if error.kind() == ErrorKind::NotFound => Finding::error(
            codes::usage::NO_PROGRAM,
            format!("`{name}` is required for this content and was not found on PATH"),
        )
        .hint(install)
        .into(),
        ProcessError::Io(error) => Failure::caused(
            Finding::error(codes::usage::NO_PROGRAM, format!("cannot start `{name}`"))
                .hint(install),
            &error,
        ),
        ProcessError::Timeout => failed(
            name,
            &format!("did not exit within {} s", LIMITS.time.as_secs()),
            "",
        ),
        ProcessError::OutputLimit => failed(
            name,
            &format!("wrote more than {} MiB", LIMITS.output >> 20),
            "",
        ),
    }
}

fn failed(name: &str, why: &str, stderr: &str) -> Failure {
    let stderr: String = stderr.chars().take(4000).collect();
    let message = if stderr.is_empty() {
        format!("`{name}` {why}")
    } else {
        format!("`{name}` {why}: {stderr}")
    };
    Finding::error(codes::usage::PROGRAM_FAILED, message)
        .hint("run the command on the same folder for details")
        .into()
}
