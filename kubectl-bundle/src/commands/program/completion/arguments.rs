//! Arguments of `completion`.

use std::path::PathBuf;

use clap::Args;

use super::Completion;
use crate::failure::Outcome;
use crate::flags::invalid_flag;

/// Print a completion script.
///
/// kubectl 1.26 and later runs the program `kubectl_complete-bundle` on PATH to complete `kubectl
/// bundle`: `completion kubectl` prints it, and --install-to writes it. The scripts for shells are
/// for the command `kubectl-bundle`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # `kubectl bundle …` in every shell that completes kubectl
  kubectl bundle completion kubectl --install-to ~/.local/bin

  # bash, for this session
  source <(kubectl bundle completion bash)

  # zsh, permanently
  kubectl bundle completion zsh > \"${fpath[1]}/_kubectl-bundle\"

  # fish, permanently
  kubectl bundle completion fish > ~/.config/fish/completions/kubectl-bundle.fish")]
pub(crate) struct Arguments {
    /// Shell, or kubectl
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
    /// Write the script for kubectl to this folder of PATH, instead of printing it
    #[arg(long, value_name = "DIR")]
    pub(crate) install_to: Option<PathBuf>,
}

impl Arguments {
    /// Returns the settings of `completion`.
    pub(crate) fn settings(self, root: clap::Command) -> Outcome<Completion> {
        let shell = self.shell.generator();
        if shell.is_some() && self.install_to.is_some() {
            return Err(invalid_flag("--install-to", "only the script for kubectl can be installed")
                .hint("write `kubectl bundle completion kubectl --install-to DIR`, or save the output where your shell reads it")
                .into());
        }
        Ok(Completion {
            root,
            shell,
            install_to: self.install_to,
        })
    }
}

/// Targets of completion scripts.
#[expect(clippy::enum_variant_names, reason = "PowerShell is called so")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
    Kubectl,
}

impl Shell {
    /// Returns the shell; `None` for kubectl.
    pub(crate) fn generator(self) -> Option<clap_complete::Shell> {
        match self {
            Self::Bash => Some(clap_complete::Shell::Bash),
            Self::Zsh => Some(clap_complete::Shell::Zsh),
            Self::Fish => Some(clap_complete::Shell::Fish),
            Self::PowerShell => Some(clap_complete::Shell::PowerShell),
            Self::Kubectl => None,
        }
    }
}
