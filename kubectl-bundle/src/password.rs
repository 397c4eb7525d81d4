//! Where a password comes from, and asking for it without echo.

use std::io::{BufRead as _, IsTerminal as _};

use bundle_core::diagnostic::{Finding, codes};
use zeroize::Zeroizing;

use crate::failure::{Failure, Outcome};

/// A password that is wiped from memory when it is done with.
pub(crate) type Password = Zeroizing<String>;

/// Where it comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// The environment.
    Given(Password),
    /// The first line of standard input.
    Stdin,
    /// The terminal.
    Prompt,
}

fn no_password(message: &str) -> Finding {
    Finding::error(codes::usage::NO_PASSWORD, message).hint(
        "set BUNDLE_PASSWORD or COSIGN_PASSWORD, or give it on standard input with --password-stdin",
    )
}

impl Source {
    /// The password of a key that exists.
    pub(crate) fn get(&self, prompt: &str) -> Outcome<Password> {
        match self {
            Self::Given(password) => Ok(password.clone()),
            Self::Stdin => {
                let mut line = Zeroizing::new(String::new());
                let read = std::io::stdin()
                    .lock()
                    .read_line(&mut line)
                    .map_err(|error| {
                        Failure::caused(no_password("standard input cannot be read"), &error)
                    })?;
                // An empty line is an empty password; no line is none.
                if read == 0 {
                    return Err(
                        no_password("standard input ended before there was a password").into(),
                    );
                }
                let end = line.trim_end_matches(['\n', '\r']).len();
                line.truncate(end);
                Ok(line)
            }
            // Asked on the terminal itself: standard input may be what brings a key. Whether somebody sees the question, either tells.
            Self::Prompt if std::io::stdin().is_terminal() || std::io::stderr().is_terminal() => {
                rpassword::prompt_password(format!("{prompt}: "))
                    .map(Zeroizing::new)
                    .map_err(|error| {
                        Failure::caused(no_password("the terminal cannot be read"), &error)
                    })
            }
            Self::Prompt => {
                Err(no_password("a password is needed, and there is no terminal to ask on").into())
            }
        }
    }

    /// The password for a new key: asked for twice where it is asked for at all.
    pub(crate) fn choose(&self) -> Outcome<Password> {
        let first = self.get("Password for the private key")?;
        if matches!(self, Self::Prompt) && *self.get("The same again")? != *first {
            return Err(Finding::error(
                codes::usage::NO_PASSWORD,
                "the two passwords are not the same",
            )
            .hint("start again; nothing was written")
            .into());
        }
        Ok(first)
    }
}
