//! `completion`: a script for a shell.
//! Not here: installing it.

use clap_complete::Shell;

use crate::failure::Outcome;
use crate::ui::Ui;

/// What `completion` needs to know.
pub(crate) struct Completion {
    /// The shell.
    pub(crate) shell: Shell,
}

impl Completion {
    /// Prints the script.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(
            self.shell,
            &mut crate::args::command(),
            "kubectl-bundle",
            &mut script,
        );
        ui.text(&String::from_utf8_lossy(&script))
    }
}
