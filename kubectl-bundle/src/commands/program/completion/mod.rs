//! `completion`: prints a completion script for a shell, or writes the program that kubectl runs.

mod arguments;

use std::path::PathBuf;

use clap_complete::Shell;

use crate::failure::Outcome;
use crate::system::files;
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// Name of the program that kubectl runs from PATH.
const PROGRAM: &str = "kubectl_complete-bundle";
/// It runs the plugin through kubectl, which knows its path.
const SCRIPT: &str = "#!/bin/sh\nexec kubectl bundle __complete -- \"$@\"\n";
const EXECUTABLE: u32 = 0o755;

/// Settings of `completion`.
pub(crate) struct Completion {
    /// All verbs and their flags.
    pub(crate) root: clap::Command,
    /// Shell; `None` for kubectl.
    pub(crate) shell: Option<Shell>,
    /// Folder for kubectl's program.
    pub(crate) install_to: Option<PathBuf>,
}

impl Completion {
    /// Prints or writes the script.
    pub(crate) fn run(mut self, ui: &mut Ui) -> Outcome {
        let Some(shell) = self.shell else {
            return match &self.install_to {
                None => ui.text(SCRIPT),
                Some(folder) => {
                    let path = folder.join(PROGRAM);
                    let is_there = fs_err::read(&path).is_ok_and(|old| old == SCRIPT.as_bytes());
                    if !is_there {
                        files::create(&path, SCRIPT.as_bytes(), EXECUTABLE)?;
                    }
                    ui.data(path.display())
                }
            };
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut self.root, "kubectl-bundle", &mut script);
        ui.text(&String::from_utf8_lossy(&script))
    }
}
