//! `completion`: prints a completion script for a shell, or installs the program that kubectl runs.

mod arguments;

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use clap_complete::Shell;

use crate::failure::Outcome;
use crate::system::files;
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// Name of the program that kubectl runs from PATH.
const NAME: &str = "kubectl_complete-bundle";
/// Content of the program. The program runs the plugin through kubectl, because kubectl finds the
/// path of the plugin.
pub(crate) const PROGRAM: &str = "#!/bin/sh\nexec kubectl bundle __complete -- \"$@\"\n";
const EXECUTABLE: u32 = 0o755;
/// Name of the plugin on PATH.
const PLUGIN: &str = "kubectl-bundle";

/// Prints the script for a shell.
pub(crate) fn print(mut root: clap::Command, shell: Shell, ui: &mut Ui) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root, PLUGIN, &mut script);
    ui.text(&String::from_utf8_lossy(&script))
}

/// Settings of `completion install`.
pub(crate) struct Install {
    /// Folder of the program; `None` for the folder of the plugin.
    pub(crate) to: Option<PathBuf>,
    /// Folders of PATH.
    pub(crate) path: Vec<PathBuf>,
}

impl Install {
    /// Writes the program. Changes nothing if the file already contains this program. Fails if the
    /// file is another program, a folder or a link.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let folder = match self.to {
            Some(folder) => folder,
            None => folder_of_plugin(&self.path)?,
        };
        let file = folder.join(NAME);
        match state_of(&file) {
            FileState::Missing => files::create(&file, PROGRAM.as_bytes(), EXECUTABLE)?,
            FileState::Same => {}
            FileState::Other => {
                return Err(Finding::error(
                    codes::usage::FILE_UNWRITABLE,
                    "the file already exists and belongs to another program",
                )
                .in_file(file.display().to_string())
                .hint("nothing was written; remove the file first, or choose another folder of PATH with --to")
                .into());
            }
        }
        ui.data(file.display())?;
        match first_on_path(&self.path) {
            None => ui.note(format!(
                "{} is not on PATH, so kubectl does not find the program; add it to PATH",
                folder.display()
            )),
            Some(first) if !is_same_file(&first, &file) => ui.note(format!(
                "kubectl runs {}, which comes first on PATH; remove it",
                first.display()
            )),
            Some(_) => {}
        }
        ui.note(format!("to undo: rm {}", file.display()));
        Ok(())
    }
}

/// State of the file to write.
enum FileState {
    Missing,
    /// The file already contains this program.
    Same,
    /// The file is another program, a folder or a link.
    Other,
}

fn state_of(file: &Path) -> FileState {
    match fs_err::symlink_metadata(file) {
        Err(_) => FileState::Missing,
        Ok(found) if found.len() != PROGRAM.len() as u64 || !found.is_file() => FileState::Other,
        Ok(_) => match fs_err::read(file) {
            Ok(content) if content == PROGRAM.as_bytes() => FileState::Same,
            _ => FileState::Other,
        },
    }
}

/// Returns the first folder of PATH that contains the plugin. kubectl runs the plugin from this
/// folder.
fn folder_of_plugin(path: &[PathBuf]) -> Outcome<PathBuf> {
    let plugin = format!("{PLUGIN}{}", std::env::consts::EXE_SUFFIX);
    let found = path.iter().find(|folder| folder.join(&plugin).is_file());
    found.cloned().ok_or_else(|| {
        Finding::error(
            codes::usage::BAD_ARGUMENT,
            format!("no folder of PATH has {plugin}, so there is no default folder"),
        )
        .at_field("--to")
        .hint("name a folder of PATH: kubectl bundle completion install --to ~/.local/bin")
        .into()
    })
}

/// Returns the first completion program on PATH, which kubectl runs.
fn first_on_path(path: &[PathBuf]) -> Option<PathBuf> {
    let files = path.iter().map(|folder| folder.join(NAME));
    files.into_iter().find(|file| file.is_file())
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    match (fs_err::canonicalize(one), fs_err::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
