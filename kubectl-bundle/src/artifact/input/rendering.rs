//! Runs the external command that renders content. The input of the command is exactly the files
//! that are packed, so that the checked content equals the shipped content. `bundle_core::format`
//! selects the command.

use std::path::Path;
use std::process::Command;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format::{Files, RenderArgument, RenderCommand};

use super::program;
use crate::failure::{Failure, Outcome};

/// Returns the standard output of the command.
pub(super) fn run(command: &RenderCommand, files: &Files) -> Outcome<Vec<u8>> {
    let unwritable = |error| unwritable(command.program, &error);
    let folder = tempfile::tempdir().map_err(unwritable)?;
    let [content, extra, settings] =
        ["content", "extra", "settings"].map(|name| folder.path().join(name));
    for (path, text) in files.iter().filter(|(path, _)| !path.ends_with('/')) {
        write(&content.join(path), text).map_err(unwritable)?;
    }
    for (name, text) in &command.extra_files {
        write(&extra.join(name), text).map_err(unwritable)?;
    }
    let mut process = Command::new(command.program);
    for argument in &command.arguments {
        match argument {
            RenderArgument::Text(text) => process.arg(text),
            RenderArgument::ContentPath(path) => process.arg(content.join(path)),
            RenderArgument::ExtraFile(name) => process.arg(extra.join(name)),
        };
    }
    for name in command.removed_variables {
        process.env_remove(name);
    }
    for name in command.folder_variables {
        process.env(name, &settings);
    }
    program::run(command.program, process, command.hint)
}

fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        fs_err::create_dir_all(parent)?;
    }
    fs_err::write(path, text)
}

fn unwritable(program: &str, error: &std::io::Error) -> Failure {
    Failure::caused(
        Finding::error(
            codes::usage::FILE_UNWRITABLE,
            format!("cannot write the temporary files for {program}"),
        )
        .hint("check the free space of the folder for temporary files"),
        error,
    )
}
