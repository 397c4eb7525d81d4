//! `kubectl bundle`: parses the arguments, runs one verb, and maps its outcome to an exit code.

mod artifact;
mod cli;
mod cluster;
mod commands;
mod failure;
mod flags;
mod registry;
mod signer;
mod sigstore;
mod system;
mod ui;

use std::process::ExitCode;

use crate::failure::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::flags::{Environment, GlobalFlags};
use crate::ui::Ui;
use crate::ui::suggestions::VerbFlags;

fn main() -> ExitCode {
    let environment = Environment::read();
    artifact::packing::set_date(environment.source_date.clone());
    let (mut ui, outcome) = match cli::parse() {
        Ok(cli) => {
            ui::http_log::install(cli.global.verbose.unwrap_or_default());
            let mut ui = Ui::new(cli.global.style(&environment));
            ui.set_verb(verb_flags);
            let outcome = cli.verb.run(&environment, &mut ui);
            (ui, outcome)
        }
        Err(error) => {
            let mut ui = Ui::new(GlobalFlags::default().style(&environment));
            let outcome = help_or_usage_error(&mut ui, &error);
            (ui, outcome)
        }
    };
    match outcome {
        Ok(()) => Exit::Done,
        Err(failure) => {
            ui.failure(&failure);
            failure.exit()
        }
    }
    .into()
}

/// Returns the flags of the verb of this process, and of all other verbs.
fn verb_flags() -> VerbFlags {
    VerbFlags::of(cli::command(), &words())
}

/// Returns the command-line arguments of this process as text.
fn words() -> Vec<String> {
    std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// Handles the errors of clap. Help and version texts, which clap also returns as errors, are
/// printed on stdout. All other errors are usage errors.
fn help_or_usage_error(ui: &mut Ui, error: &clap::Error) -> Outcome {
    if error.kind() == clap::error::ErrorKind::InvalidSubcommand
        && let Some(finding) = ui::suggestions::verb(&words())
    {
        return Err(finding.into());
    }
    let text = error.render().ansi().to_string();
    if error.use_stderr() {
        ui.usage_error(&text);
        Err(Failure::Reported(Exit::Usage))
    } else {
        ui.text(&text)
    }
}
