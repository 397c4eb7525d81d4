//! The one printer: data to stdout, talk to stderr, progress only where somebody watches.

pub(crate) mod age;
pub(crate) mod format;
mod progress;
mod table;

use std::io::{self, Write};
use std::sync::Arc;

use anstream::AutoStream;
use bundle_core::diagnostic::{Finding, Findings, Severity};

use crate::failure::{Failure, Outcome};
use crate::habits::VerbFlags;
use crate::report;

pub(crate) use crate::safe::safe;
pub(crate) use progress::{Progress, Steps, Transfer};
pub(crate) use table::Table;

/// How much is said on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors only.
    Quiet,
    /// Errors, warnings and what a person would want to know.
    Normal,
    /// Also each step.
    Verbose,
}

/// How the printer is set up; settings decide, from flags and environment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// Colour on stdout.
    pub(crate) color_out: bool,
    /// Colour on stderr.
    pub(crate) color_err: bool,
    /// `true` if stderr is a terminal that progress may be drawn on.
    pub(crate) progress: bool,
    /// How much is said.
    pub(crate) verbosity: Verbosity,
}

/// The printer. Made once, handed down.
pub(crate) struct Ui {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    progress: bool,
    verbosity: Verbosity,
    verb: Option<VerbFlags>,
}

fn choice(color: bool) -> anstream::ColorChoice {
    if color {
        anstream::ColorChoice::Always
    } else {
        anstream::ColorChoice::Never
    }
}

impl Ui {
    /// A printer on the process's own stdout and stderr.
    pub(crate) fn new(style: Style) -> Self {
        Self {
            out: Box::new(io::BufWriter::new(AutoStream::new(
                io::stdout(),
                choice(style.color_out),
            ))),
            err: Box::new(AutoStream::new(io::stderr(), choice(style.color_err))),
            progress: style.progress && style.verbosity != Verbosity::Quiet,
            verbosity: style.verbosity,
            verb: None,
        }
    }

    /// From now on hints name the verb of a flag that this one does not have.
    pub(crate) fn set_verb(&mut self, verb: VerbFlags) {
        self.verb = Some(verb);
    }

    /// The finding with its hint for the verb that runs.
    fn for_verb(&self, finding: &Finding) -> Finding {
        let mut finding = finding.clone();
        if let (Some(verb), Some(hint)) = (&self.verb, &mut finding.hint) {
            *hint = verb.complete(hint);
        }
        finding
    }

    /// Data: one line on stdout.
    pub(crate) fn data(&mut self, line: impl std::fmt::Display) -> Outcome {
        writeln!(self.out, "{line}")
            .and_then(|()| self.out.flush())
            .map_err(|error| Failure::stdout(&error))
    }

    /// Data: a whole text on stdout, as it is.
    pub(crate) fn text(&mut self, text: &str) -> Outcome {
        self.out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
            .map_err(|error| Failure::stdout(&error))
    }

    /// Talk: what a person would want to know.
    pub(crate) fn note(&mut self, line: impl std::fmt::Display) {
        if self.verbosity >= Verbosity::Normal {
            self.say(&format!("{line}\n"));
        }
    }

    /// What somebody has to do now, or the command cannot go on: said always.
    pub(crate) fn ask(&mut self, line: impl std::fmt::Display) {
        self.say(&format!("{line}\n"));
    }

    /// A finding: an error always, a warning unless only errors are wanted.
    pub(crate) fn finding(&mut self, finding: &Finding) {
        if finding.severity == Severity::Error || self.verbosity >= Verbosity::Normal {
            self.say(&report::finding(&self.for_verb(finding), &[]));
        }
    }

    /// Every warning among `findings`.
    pub(crate) fn warnings(&mut self, findings: &Findings) {
        for finding in findings.warnings() {
            self.finding(finding);
        }
    }

    /// A warning of the API server, as kubectl prints it.
    pub(crate) fn server_warning(&mut self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            self.say(&report::server_warning(text));
        }
    }

    /// Why the command stopped.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        match failure {
            Failure::Findings { findings, causes } => {
                let findings = findings.0.iter().map(|one| self.for_verb(one)).collect();
                self.say(&report::findings(&findings, causes));
            }
            Failure::Server(status) => {
                self.say(&format!("{}\n", crate::refusal::message(status)));
                if let Some(hint) = crate::refusal::hint(status) {
                    self.say(&report::hint(hint));
                }
            }
            Failure::Said(_) | Failure::BrokenPipe => {}
        }
    }

    /// How the command should have been called, in clap's words.
    pub(crate) fn misuse(&mut self, text: &str) {
        self.say(text);
    }

    /// A progress line on stderr, which draws nothing where nobody watches. The curious see each step in any case.
    pub(crate) fn progress(&mut self, what: &str) -> Progress {
        if self.verbosity >= Verbosity::Verbose {
            self.say(&format!("{what}\n"));
        }
        Progress::start(self.progress, what)
    }

    /// The steps of a wait, on stderr: a line that changes on a terminal, else a line for each.
    pub(crate) fn steps(&mut self, first: &str) -> Steps {
        if !self.progress {
            self.note(first);
        }
        Steps::start(self.progress, first)
    }

    /// A bar for content that moves, on stderr, which draws nothing where nobody watches.
    pub(crate) fn transfer(&mut self, what: &str) -> Arc<Transfer> {
        if self.verbosity >= Verbosity::Verbose {
            self.say(&format!("{what}\n"));
        }
        Arc::new(Transfer::start(self.progress, what))
    }

    fn say(&mut self, text: &str) {
        // There is nobody left to tell when stderr is gone.
        let _ = self.err.write_all(text.as_bytes());
        let _ = self.err.flush();
    }
}
