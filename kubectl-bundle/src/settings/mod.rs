//! From what was typed to what is meant: environment, defaults and checks across flags, in one place.
//! Not here: clap's types (args) and the work (commands).

mod cluster;
mod duration;
mod environment;

use bundle_core::diagnostic::{Finding, codes};

use crate::args::{Color, Global, Verb};
use crate::commands::{Command, completion, version};
use crate::failure::Outcome;
use crate::ui::{Style, Verbosity};

pub(crate) use environment::Environment;

/// How to print.
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
        } else if global.verbose {
            Verbosity::Verbose
        } else {
            Verbosity::Normal
        },
    }
}

/// The command to run.
pub(crate) fn command(verb: Verb, environment: &Environment) -> Outcome<Command> {
    Ok(match verb {
        Verb::Version(args) => Command::Version(version::Version {
            cluster: if args.client {
                None
            } else {
                Some(cluster::settings(args.kube, environment)?)
            },
            format: args.output.map(Into::into),
        }),
        Verb::Completion(args) => Command::Completion(completion::Completion {
            shell: args.shell.into(),
        }),
    })
}

/// A flag whose value cannot be used.
fn unusable(flag: &str, message: &str) -> Finding {
    Finding::error(codes::usage::BAD_ARGUMENT, message).at_field(flag)
}
