//! Flags of every verb: messages and colour.

use clap::{Args, ValueEnum};

use super::Environment;
use crate::ui::{Style, Verbosity};

/// Flags of every verb.
#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct GlobalFlags {
    /// Print only errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print each step. Level 6 also prints each HTTP request, and level 7 also its headers, as in
    /// kubectl
    #[arg(
        short,
        long,
        alias = "v",
        global = true,
        value_name = "LEVEL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1"
    )]
    pub(crate) verbose: Option<u8>,
    /// Use of colour; `auto` uses colour only on terminals, and not if NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
}

impl Default for GlobalFlags {
    /// Returns the flags that are used if the arguments are invalid.
    fn default() -> Self {
        Self {
            quiet: false,
            verbose: None,
            color: Color::Auto,
        }
    }
}

impl GlobalFlags {
    /// Returns the style from flags, the environment, and the types of stdout and stderr.
    pub(crate) fn style(&self, environment: &Environment) -> Style {
        let colored = |terminal: bool| match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                !environment.no_color
                    && (environment.force_color || (terminal && !environment.dumb_terminal))
            }
        };
        Style {
            color_out: colored(environment.stdout_is_terminal),
            color_err: colored(environment.stderr_is_terminal),
            progress: environment.stderr_is_terminal && !environment.dumb_terminal,
            verbosity: if self.quiet {
                Verbosity::Quiet
            } else if self.verbose.is_some_and(|level| level > 0) {
                Verbosity::Verbose
            } else {
                Verbosity::Normal
            },
        }
    }
}

/// Use of colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On terminals, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
