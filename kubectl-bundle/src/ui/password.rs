//! Sources of passwords, and a prompt without echo.

use std::io::{BufRead as _, IsTerminal as _};

use bundle_core::diagnostic::{Finding, codes};
use zeroize::Zeroizing;

use crate::failure::{Failure, Outcome};

/// A password that is erased from memory when it is dropped.
pub(crate) type Password = Zeroizing<String>;

/// Source of a password.
#[derive(Debug, Clone)]
pub(crate) enum PasswordSource {
    /// Environment variable.
    Environment(Password),
    /// First line of standard input.
    Stdin,
    /// Prompt on the terminal.
    Prompt,
}

fn no_password(message: &str) -> Finding {
    Finding::error(codes::usage::NO_PASSWORD, message).hint(
        "set BUNDLE_PASSWORD or COSIGN_PASSWORD, or pass the password on standard input with --password-stdin",
    )
}

impl PasswordSource {
    /// Returns the password of an existing key.
    pub(crate) fn get(&self, prompt: &str) -> Outcome<Password> {
        match self {
            Self::Environment(password) => Ok(password.clone()),
            Self::Stdin => {
                let mut line = Zeroizing::new(String::new());
                let read = std::io::stdin()
                    .lock()
                    .read_line(&mut line)
                    .map_err(|error| {
                        Failure::caused(no_password("cannot read standard input"), &error)
                    })?;
                // An empty line is an empty password. A missing line is an error.
                if read == 0 {
                    return Err(no_password("standard input has no password").into());
                }
                let end = line.trim_end_matches(['\n', '\r']).len();
                line.truncate(end);
                Ok(line)
            }
            // The prompt opens the terminal itself, because standard input may provide the key. A
            // user is present if stdin or stderr is a terminal.
            Self::Prompt if std::io::stdin().is_terminal() || std::io::stderr().is_terminal() => {
                rpassword::prompt_password(format!("{prompt}: "))
                    .map(Zeroizing::new)
                    .map_err(|error| {
                        Failure::caused(no_password("cannot read from the terminal"), &error)
                    })
            }
            Self::Prompt => Err(no_password(
                "a password is required, and there is no terminal for a prompt",
            )
            .into()),
        }
    }

    /// Returns the password for a new key. A prompt requests the password twice.
    pub(crate) fn get_new_password(&self) -> Outcome<Password> {
        let first = self.get("Password for the private key")?;
        if matches!(self, Self::Prompt) && *self.get("Repeat the password")? != *first {
            return Err(
                Finding::error(codes::usage::NO_PASSWORD, "the passwords do not match")
                    .hint("run the command again; nothing was written")
                    .into(),
            );
        }
        Ok(first)
    }
}
