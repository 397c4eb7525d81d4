//! `completion`: a script for a shell, or the program that kubectl asks.

use std::path::PathBuf;

use clap_complete::Shell;

use crate::failure::Outcome;
use crate::files;
use crate::ui::Ui;

/// Name of the program that kubectl looks for on PATH.
const PROGRAM: &str = "kubectl_complete-bundle";
/// It calls the plugin through kubectl, so that it need not know where that lies.
const SCRIPT: &str = "#!/bin/sh\nexec kubectl bundle __complete -- \"$@\"\n";
const EXECUTABLE: u32 = 0o755;

/// What `completion` needs to know.
pub(crate) struct Completion {
    /// All verbs and their flags.
    pub(crate) root: clap::Command,
    /// The shell; `None`: kubectl.
    pub(crate) shell: Option<Shell>,
    /// Folder to write the program for kubectl into.
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
