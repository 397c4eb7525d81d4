//! Runs the external command that renders content. The input of the command is exactly the files
//! that are packed, so that the checked content equals the shipped content. `bundle_core::format`
//! selects the command.

use std::io;
use std::path::Path;
use std::process::Command;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format::{Files, RenderCommand, helm};
use bundle_core::yaml::Allowance;
use bundle_oci::chart::{self, CommandFiles};

use super::program;
use crate::failure::{Failure, Outcome};

/// Returns the standard output of the command. If the output may be random, the command runs twice,
/// and the outputs are compared.
pub(super) fn run(command: &RenderCommand, files: &Files) -> Outcome<Vec<u8>> {
    let unwritable = |error| unwritable(command.program, &error);
    let folder = tempfile::tempdir().map_err(unwritable)?;
    let paths: Vec<String> = files.keys().cloned().collect();
    let read = |path: &str| {
        let found = files.get(path).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    let written = chart::write(command, folder.path(), &paths, read).map_err(unwritable)??;
    let settings = folder.path().join("settings");
    let output = once(command, &written, &settings)?;
    if written.is_random {
        let again = once(command, &written, &settings)?;
        helm::compare(command, &output, &again, &mut Allowance::default())?;
    }
    Ok(output)
}

fn once(command: &RenderCommand, files: &CommandFiles, settings: &Path) -> Outcome<Vec<u8>> {
    let mut process = Command::new(command.program);
    process.args(command.resolved(&files.content, &files.extra));
    for name in command.removed_variables {
        process.env_remove(name);
    }
    for name in command.folder_variables {
        process.env(name, settings);
    }
    process.envs(command.fixed_variables.iter().copied());
    let finished = program::finish(command.program, process, command.hint)?;
    if finished.status.success() {
        return Ok(finished.output);
    }
    Err(helm::failure(command, finished.stderr.as_bytes()).into())
}

fn unwritable(program: &str, error: &io::Error) -> Failure {
    Failure::caused(
        Finding::error(
            codes::usage::FILE_UNWRITABLE,
            format!("cannot write the temporary files for {program}"),
        )
        .hint("check the free space of the folder for temporary files"),
        error,
    )
}
