//! Arguments of `completion`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;

use super::{Install, PROGRAM, print};
use crate::failure::Outcome;
use crate::flags::Environment;
use crate::ui::Ui;

/// Print a completion script, or install completion of `kubectl bundle` for kubectl.
///
/// kubectl 1.26 and later runs the program `kubectl_complete-bundle` on PATH. `completion install`
/// writes this program, and `completion kubectl` prints this program. The scripts for shells are
/// for the command `kubectl-bundle`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # `kubectl bundle …` in every shell that completes kubectl
  kubectl bundle completion install

  # bash, for this session
  source <(kubectl bundle completion bash)

  # zsh, permanently
  kubectl bundle completion zsh > \"${fpath[1]}/_kubectl-bundle\"

  # fish, permanently
  kubectl bundle completion fish > ~/.config/fish/completions/kubectl-bundle.fish")]
pub(crate) struct Arguments {
    /// Script, or `install`.
    #[command(subcommand)]
    pub(crate) target: CompletionTarget,
}

impl Arguments {
    /// Runs the verb for clap's command `root`.
    pub(crate) fn run(
        self,
        root: clap::Command,
        environment: &Environment,
        ui: &mut Ui,
    ) -> Outcome {
        match self.target {
            CompletionTarget::Bash => print(root, Shell::Bash, ui),
            CompletionTarget::Zsh => print(root, Shell::Zsh, ui),
            CompletionTarget::Fish => print(root, Shell::Fish, ui),
            CompletionTarget::PowerShell => print(root, Shell::PowerShell, ui),
            CompletionTarget::Kubectl => ui.text(PROGRAM),
            CompletionTarget::Install(typed) => typed.settings(environment).run(ui),
        }
    }
}

/// Targets of `completion`.
#[derive(Debug, Subcommand)]
pub(crate) enum CompletionTarget {
    /// Print the script for bash
    Bash,
    /// Print the script for zsh
    Zsh,
    /// Print the script for fish
    Fish,
    /// Print the script for PowerShell
    #[command(name = "powershell")]
    PowerShell,
    /// Print the program that kubectl runs
    Kubectl,
    /// Write the program that kubectl runs to a folder of PATH
    Install(InstallArguments),
}

/// Write the program `kubectl_complete-bundle`, which kubectl runs to complete `kubectl bundle`.
///
/// The program is written to the folder of PATH in which kubectl finds the plugin. An existing file
/// of another program is an error. To remove the completion, delete the file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle completion install

  # To another folder of PATH
  kubectl bundle completion install --to ~/.local/bin")]
pub(crate) struct InstallArguments {
    /// Folder for the program [default: the folder of PATH that has the plugin]
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
}

impl InstallArguments {
    /// Returns the settings of `completion install`.
    pub(crate) fn settings(self, environment: &Environment) -> Install {
        Install {
            to: self.to,
            path: environment.path.clone(),
        }
    }
}
