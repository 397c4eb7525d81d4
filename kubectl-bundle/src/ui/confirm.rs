//! Confirmation of a change by the user.

use std::io::BufRead as _;

use bundle_core::diagnostic::{Finding, codes};

use super::Ui;
use crate::failure::{Failure, Outcome};

/// Settings of a confirmation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Confirmation {
    /// `true` if the user confirmed with `--yes`.
    pub(crate) is_given: bool,
    /// `true` if a user is present for a prompt.
    pub(crate) is_attended: bool,
}

impl Confirmation {
    /// Asks the question, and returns an error if the user does not confirm. `--yes`
    /// replaces the question.
    pub(crate) fn ask(self, ui: &mut Ui, question: &str) -> Outcome {
        if self.is_given {
            return Ok(());
        }
        if !self.is_attended {
            return Err(unconfirmed("no terminal is available for a confirmation"));
        }
        ui.prompt(format!("{question} [y/N]"));
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        read.map_err(|error| {
            let finding = Finding::error(codes::cluster::NOT_CONFIRMED, "cannot read the answer");
            Failure::caused(finding, &error)
        })?;
        if is_yes(&line) {
            return Ok(());
        }
        Err(unconfirmed("you did not confirm the change"))
    }
}

fn is_yes(answer: &str) -> bool {
    let answer = answer.trim();
    answer.eq_ignore_ascii_case("y") || answer.eq_ignore_ascii_case("yes")
}

fn unconfirmed(message: &str) -> Failure {
    Finding::error(codes::cluster::NOT_CONFIRMED, message)
        .hint("nothing was changed; --yes confirms the change")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_confirms() {
        for (answer, expected) in [
            ("y\n", true),
            ("Yes\r\n", true),
            ("\n", false),
            ("no\n", false),
            ("yesterday\n", false),
        ] {
            assert_eq!(is_yes(answer), expected, "{answer:?}");
        }
    }
}
