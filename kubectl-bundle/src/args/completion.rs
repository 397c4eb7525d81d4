//! `completion`: which shell.
//! Not here: the scripts.

use clap::Args;

/// Print a completion script for a shell, for `kubectl-bundle` as a command of its own.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # bash, for this session
  source <(kubectl bundle completion bash)

  # zsh, for good
  kubectl bundle completion zsh > \"${fpath[1]}/_kubectl-bundle\"

  # fish, for good
  kubectl bundle completion fish > ~/.config/fish/completions/kubectl-bundle.fish")]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// The shells that we have scripts for.
#[expect(clippy::enum_variant_names, reason = "PowerShell is called so")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
}

impl From<Shell> for clap_complete::Shell {
    fn from(shell: Shell) -> Self {
        match shell {
            Shell::Bash => Self::Bash,
            Shell::Zsh => Self::Zsh,
            Shell::Fish => Self::Fish,
            Shell::PowerShell => Self::PowerShell,
        }
    }
}
