//! Printer: data to stdout, messages to stderr, progress only on terminals.

pub(crate) mod age;
pub(crate) mod confirm;
pub(crate) mod escape;
pub(crate) mod findings;
pub(crate) mod format;
pub(crate) mod http_log;
pub(crate) mod password;
mod progress;
pub(crate) mod suggestions;
mod table;

use std::cell::LazyCell;
use std::io::{self, Write};
use std::sync::Arc;

use anstream::AutoStream;
use bundle_core::diagnostic::{Finding, Findings, Severity};

use crate::failure::{Failure, Outcome};
use escape::visible;
pub(crate) use escape::{one_line, safe};
pub(crate) use progress::{Progress, StepProgress, TransferProgress, format_size};
use suggestions::VerbFlags;
pub(crate) use table::Table;

/// Verbosity of messages on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Prints errors only.
    Quiet,
    /// Prints errors, warnings and notes.
    Normal,
    /// Also prints each step.
    Verbose,
}

/// Output style, from flags and environment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// Colour on stdout.
    pub(crate) color_out: bool,
    /// Colour on stderr.
    pub(crate) color_err: bool,
    /// `true` if progress is drawn on stderr.
    pub(crate) progress: bool,
    /// Verbosity.
    pub(crate) verbosity: Verbosity,
}

/// Printer. The printer is created once, and passed to all functions that print.
pub(crate) struct Ui {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    progress: bool,
    verbosity: Verbosity,
    /// Created for the first hint, because collecting the flags of all verbs takes as long as
    /// parsing the command line.
    verb: Option<LazyCell<VerbFlags>>,
}

fn choice(color: bool) -> anstream::ColorChoice {
    if color {
        anstream::ColorChoice::Always
    } else {
        anstream::ColorChoice::Never
    }
}

impl Ui {
    /// Returns a printer for stdout and stderr of the process.
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

    /// Sets the function that returns the flags of the current verb and of all other verbs. If a
    /// hint names a flag that the current verb does not have, the printed hint also names a verb
    /// that has it.
    pub(crate) fn set_verb(&mut self, verb: fn() -> VerbFlags) {
        self.verb = Some(LazyCell::new(verb));
    }

    /// Returns the finding with its hint for the current verb.
    fn for_verb(&self, finding: &Finding) -> Finding {
        let mut finding = finding.clone();
        if let (Some(verb), Some(hint)) = (&self.verb, &mut finding.hint) {
            *hint = verb.complete(hint);
        }
        finding
    }

    /// Prints one line of data on stdout.
    pub(crate) fn data(&mut self, line: impl std::fmt::Display) -> Outcome {
        writeln!(self.out, "{line}")
            .and_then(|()| self.out.flush())
            .map_err(|error| Failure::stdout(&error))
    }

    /// Prints a text as data on stdout, unchanged.
    pub(crate) fn text(&mut self, text: &str) -> Outcome {
        self.out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
            .map_err(|error| Failure::stdout(&error))
    }

    /// Copies bytes to stdout unchanged, including bytes that a terminal would interpret.
    pub(crate) fn binary(&mut self, input: &mut impl io::Read) -> Outcome {
        self.out
            .flush()
            .and_then(|()| {
                let mut out = io::stdout().lock();
                io::copy(input, &mut out)?;
                out.flush()
            })
            .map_err(|error| Failure::stdout(&error))
    }

    /// Prints a note on stderr, with hidden characters escaped.
    pub(crate) fn note(&mut self, line: impl std::fmt::Display) {
        if self.verbosity >= Verbosity::Normal {
            self.prompt(line);
        }
    }

    /// Prints a text that the user must read to continue, even with `--quiet`. Hidden characters
    /// are escaped.
    pub(crate) fn prompt(&mut self, line: impl std::fmt::Display) {
        let line = visible(&line.to_string());
        self.write_stderr(&format!("{line}\n"));
    }

    /// Prints a finding. Errors are always printed. Warnings are printed unless `--quiet` is set.
    pub(crate) fn finding(&mut self, finding: &Finding) {
        if finding.severity == Severity::Error || self.verbosity >= Verbosity::Normal {
            self.write_stderr(&findings::finding(&self.for_verb(finding), &[]));
        }
    }

    /// Prints every warning among `findings`.
    pub(crate) fn warnings(&mut self, findings: &Findings) {
        for finding in findings.warnings() {
            self.finding(finding);
        }
    }

    /// Prints a warning of the API server like kubectl.
    pub(crate) fn server_warning(&mut self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            self.write_stderr(&findings::server_warning(text));
        }
    }

    /// Prints the failure of the command.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        match failure {
            Failure::Findings { findings, causes } => {
                let findings = findings.iter().map(|one| self.for_verb(one)).collect();
                self.write_stderr(&findings::findings(&findings, causes));
            }
            Failure::Server(status) => {
                self.prompt(crate::failure::api_server::message(status));
                if let Some(hint) = crate::failure::api_server::hint(status) {
                    self.write_stderr(&findings::hint(hint));
                }
            }
            Failure::Reported(_) | Failure::BrokenPipe => {}
        }
    }

    /// Prints a usage error in clap's format.
    pub(crate) fn usage_error(&mut self, text: &str) {
        self.write_stderr(text);
    }

    /// Returns a progress line on stderr, which is drawn only on a terminal. With `-v`, each step
    /// is printed too.
    pub(crate) fn progress(&mut self, message: &str) -> Progress {
        if self.verbosity >= Verbosity::Verbose {
            self.prompt(message);
        }
        Progress::start(self.progress, message)
    }

    /// Returns the steps of a wait on stderr: a changing line on a terminal, otherwise one line for
    /// each step.
    pub(crate) fn steps(&mut self, first: &str) -> StepProgress {
        if !self.progress {
            self.note(first);
        }
        StepProgress::start(self.progress, first)
    }

    /// Returns a progress bar for transfers on stderr, drawn only on a terminal.
    pub(crate) fn transfer(&mut self, message: &str) -> Arc<TransferProgress> {
        if self.verbosity >= Verbosity::Verbose {
            self.prompt(message);
        }
        Arc::new(TransferProgress::start(self.progress, message))
    }

    fn write_stderr(&mut self, text: &str) {
        // Errors of stderr cannot be reported.
        let _ = self.err.write_all(text.as_bytes());
        let _ = self.err.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use kube::core::Status;

    use super::*;

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn hidden_characters_of_notes_and_server_errors_are_escaped() {
        let screen = Screen::default();
        let mut ui = Ui {
            out: Box::new(io::sink()),
            err: Box::new(screen.clone()),
            progress: false,
            verbosity: Verbosity::Normal,
            verb: None,
        };
        let hidden = "a\u{1b}]52;c;\u{7}\u{202e}b";
        ui.note(hidden);
        ui.failure(&Failure::Server(Box::new(Status {
            message: hidden.to_owned(),
            reason: "Forbidden".to_owned(),
            ..Status::default()
        })));
        let shown = String::from_utf8(screen.0.lock().unwrap().clone()).unwrap();
        let escaped = r"a\u{1b}]52;c;\u{7}\u{202e}b";
        assert_eq!(
            shown,
            format!("{escaped}\nError from server (Forbidden): {escaped}\n")
        );
    }
}
