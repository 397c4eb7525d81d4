//! Output settings: colour, progress, verbosity.

use super::Environment;
use crate::args::{Color, Global};
use crate::ui::{Style, Verbosity};

/// Returns the style from flags, the environment, and the types of stdout and stderr.
pub(crate) fn style(global: &Global, environment: &Environment) -> Style {
    let colored = |terminal: bool| match global.color {
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
        verbosity: if global.quiet {
            Verbosity::Quiet
        } else if global.verbose.is_some_and(|level| level > 0) {
            Verbosity::Verbose
        } else {
            Verbosity::Normal
        },
    }
}
