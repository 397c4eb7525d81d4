//! Programs that are run once in a clean environment, with their output. `process` has long-running
//! programs.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;

/// Default time limit of a program.
const DEADLINE: Duration = Duration::from_mins(2);

/// Builder of a command line.
#[derive(Debug, Clone)]
pub struct Command {
    /// Words of another program that starts this program. They are put before the command line.
    /// Empty if the program is started directly.
    through: Vec<OsString>,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
    input: Option<Vec<u8>>,
    deadline: Duration,
}

/// Exit code and output of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Command line, for messages.
    pub line: String,
    /// Exit code; `None` if a signal ended the program.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Command {
    /// Returns a command for `program` with an empty environment.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            through: Vec::new(),
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
            input: None,
            deadline: DEADLINE,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I, S>(mut self, arguments: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.arguments.extend(
            arguments
                .into_iter()
                .map(|argument| argument.as_ref().to_owned()),
        );
        self
    }

    /// Sets a variable. A later value of the same name overrides an earlier value.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Runs the program with this kubeconfig.
    #[must_use]
    pub fn kubeconfig(self, path: &Path) -> Self {
        self.env("KUBECONFIG", path)
    }

    /// Runs in `folder`.
    #[must_use]
    pub fn current_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Sets the standard input. The default is empty.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Starts the program through another program: `words` are put before the command line.
    /// Messages contain the command line without `words`.
    #[must_use]
    pub(crate) fn through(mut self, words: Vec<OsString>) -> Self {
        self.through = words;
        self
    }

    /// Sets the time after which the program is killed.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Returns the command line for display.
    pub fn line(&self) -> String {
        let name = self.program.file_name().unwrap_or(self.program.as_os_str());
        std::iter::once(name)
            .chain(self.arguments.iter().map(OsString::as_os_str))
            .map(|word| quoted(&word.to_string_lossy()))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Runs the program. Returns an error if the program cannot be started or does not end in time.
    /// An exit code other than 0 is not an error.
    pub async fn output(self) -> Result<Output> {
        let line = self.line();
        let mut words = self
            .through
            .iter()
            .map(OsString::as_os_str)
            .chain(std::iter::once(self.program.as_os_str()))
            .chain(self.arguments.iter().map(OsString::as_os_str));
        let mut command = tokio::process::Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        let stdin = if self.input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        };
        let mut child = command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start `{}`", self.program.display()))?;
        let pipe = child.stdin.take();
        let feed = async {
            if let (Some(mut pipe), Some(input)) = (pipe, &self.input) {
                // A program may end without reading all input; its exit code and output show the
                // reason.
                drop(pipe.write_all(input).await);
            }
        };
        let run = async { tokio::join!(feed, child.wait_with_output()).1 };
        let Ok(output) = tokio::time::timeout(self.deadline, run).await else {
            bail!("`{line}` did not end within {} s", self.deadline.as_secs());
        };
        let output = output.with_context(|| format!("cannot run `{line}`"))?;
        Ok(Output {
            line,
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

impl Output {
    /// Returns `true` if the exit code is 0.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// Returns the standard output without the final line break. Returns an error with standard
    /// output and standard error if the program failed.
    pub fn success(self) -> Result<String> {
        if self.is_success() {
            Ok(self.stdout.trim_end_matches('\n').to_owned())
        } else {
            bail!("{self}")
        }
    }

    /// Returns the standard error without the final line break. Returns an error with standard
    /// output and standard error if the exit code is not `code`.
    pub fn failure(self, code: i32) -> Result<String> {
        if self.code == Some(code) {
            Ok(self.stderr.trim_end_matches('\n').to_owned())
        } else {
            bail!("expected exit code {code}: {self}")
        }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ended with ", self.line)?;
        match self.code {
            Some(code) => write!(f, "code {code}")?,
            None => f.write_str("a signal")?,
        }
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.is_empty() {
                write!(f, "\n{name}: {}", text.trim_end())?;
            }
        }
        Ok(())
    }
}

/// Returns `word`, quoted for a POSIX shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        Command::new("/bin/sh").args(["-c", script])
    }

    #[tokio::test]
    async fn code_and_both_outputs_are_kept_apart_and_shown_together() {
        let output = shell("cat; echo no >&2; exit 3")
            .stdin("yes\n")
            .output()
            .await
            .unwrap();
        assert_eq!(
            (output.code, output.stdout.as_str(), output.stderr.as_str()),
            (Some(3), "yes\n", "no\n")
        );
        assert_eq!(output.clone().failure(3).unwrap(), "no");
        let error = output.success().unwrap_err().to_string();
        assert_eq!(
            error,
            "`sh -c 'cat; echo no >&2; exit 3'` ended with code 3\nstdout: yes\nstderr: no"
        );
    }

    #[tokio::test]
    async fn does_not_inherit_the_environment() {
        let output = shell("echo \"$HOME,$MINE\"")
            .env("MINE", "1")
            .output()
            .await
            .unwrap();
        assert_eq!(output.success().unwrap(), ",1");
    }

    #[tokio::test]
    async fn kills_a_program_after_its_timeout() {
        let error = shell("exec sleep 600")
            .deadline(Duration::from_millis(50))
            .output()
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "`sh -c 'exec sleep 600'` did not end within 0 s"
        );
    }
}
