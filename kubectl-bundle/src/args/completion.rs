//! Arguments of `completion`.

use std::path::PathBuf;

use clap::Args;

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
pub(crate) struct Completion {
    /// Shell, or kubectl
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
    /// Write the script for kubectl to this folder of PATH, instead of printing it
    #[arg(long, value_name = "DIR")]
    pub(crate) install_to: Option<PathBuf>,
}

/// Completion candidates for kubectl: called by `kubectl_complete-bundle`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Complete {
    /// Words after `kubectl bundle`; the last one is incomplete
    #[arg(
        value_name = "WORD",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<String>,
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
