//! Runs command lines in a shell, prints them with their output, and checks the results.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::host::command::{Command, Output};
use crate::{Cluster, Tool, Webhook, wait};

/// Output of the demo: a terminal, or no output.
pub trait DemoOutput: Send {
    /// Prints the title of a chapter.
    fn chapter(&mut self, number: usize, title: &str);
    /// Prints an explanation for the reader of the demo.
    fn say(&mut self, text: &str);
    /// Prints a command line that had the expected result.
    fn ran(&mut self, output: &Output, took: Duration);
    /// Prints a condition that became true.
    fn observed(&mut self, what: &str, took: Duration);
}

/// A run of the demo: cluster, webhook, and working folder.
pub struct DemoRunner<'a> {
    /// Cluster of the demo.
    pub cluster: &'a Cluster,
    /// The webhook. Chapters stop and start the webhook.
    pub webhook: &'a mut Webhook,
    output: &'a mut dyn DemoOutput,
    folder: PathBuf,
    kills: bool,
}

/// Deadline for each step of the demo.
const STEP_DEADLINE: Duration = Duration::from_secs(60);

impl<'a> DemoRunner<'a> {
    /// Creates a run in `folder`. The folder is created if it does not exist.
    pub async fn new(
        cluster: &'a Cluster,
        webhook: &'a mut Webhook,
        output: &'a mut dyn DemoOutput,
        folder: PathBuf,
    ) -> Result<Self> {
        fs_err::create_dir_all(&folder)?;
        // Both calls create a link to the program in the first folder of the shell's PATH.
        cluster.plugin().await?;
        cluster.tool(Tool::Kubectl).await?;
        Ok(Self {
            cluster,
            webhook,
            output,
            folder,
            kills: false,
        })
    }

    /// After each successful command line, kills the webhook with SIGKILL while it handles the
    /// resulting changes, and starts the webhook again.
    #[must_use]
    pub fn killing_the_webhook(mut self) -> Self {
        self.kills = true;
        self
    }

    /// Returns the working folder of the command lines.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Prints the title of a chapter.
    pub fn chapter(&mut self, number: usize, title: &str) {
        self.output.chapter(number, title);
    }

    /// Prints an explanation.
    pub fn say(&mut self, text: &str) {
        self.output.say(text);
    }

    async fn execute(&self, line: &str) -> Result<(Output, Duration)> {
        let began = Instant::now();
        let shell = self.cluster.clean(Command::new("/bin/sh"));
        let mut output = shell
            .env("BUNDLE_PASSWORD", "correct horse battery staple")
            .args(["-c", line])
            .current_dir(&self.folder)
            .output()
            .await?;
        line.clone_into(&mut output.line);
        Ok((output, began.elapsed()))
    }

    /// Runs a command line that must succeed, and returns its standard output.
    pub async fn run(&mut self, line: &str) -> Result<String> {
        let (output, took) = self.execute(line).await?;
        ensure!(output.is_success(), "{output}");
        self.output.ran(&output, took);
        // A chapter may have stopped the webhook on purpose.
        if self.kills && self.webhook.is_running() {
            self.webhook.kill()?;
            self.webhook.start().await?;
        }
        output.success()
    }

    /// Runs a command line that must succeed, and returns its standard output. Prints nothing.
    pub async fn run_without_output(&self, line: &str) -> Result<String> {
        self.execute(line).await?.0.success()
    }

    /// Runs a command line that must fail, with each of `texts` in its output.
    pub async fn rejects(&mut self, line: &str, texts: &[&str]) -> Result<()> {
        let (output, took) = self.execute(line).await?;
        ensure!(!output.is_success(), "expected a failure: {output}");
        for text in texts {
            ensure!(
                output.stderr.contains(text) || output.stdout.contains(text),
                "`{text}` is missing in: {output}"
            );
        }
        self.output.ran(&output, took);
        Ok(())
    }

    /// Runs a command line repeatedly until `accepts` returns `true` for its output, and prints the
    /// command line once.
    pub async fn until(
        &mut self,
        what: &str,
        line: &str,
        accepts: impl Fn(&str) -> bool,
    ) -> Result<Duration> {
        let began = Instant::now();
        let output = self.eventually(what, line, accepts).await?;
        let took = began.elapsed();
        self.output.ran(&output, took);
        self.output.observed(what, took);
        Ok(took)
    }

    /// Like `until`, but prints only the result and its duration, not the command line.
    pub async fn until_quietly(
        &mut self,
        what: &str,
        line: &str,
        accepts: impl Fn(&str) -> bool,
    ) -> Result<Duration> {
        let began = Instant::now();
        self.eventually(what, line, accepts).await?;
        let took = began.elapsed();
        self.output.observed(what, took);
        Ok(took)
    }

    async fn eventually(
        &self,
        what: &str,
        line: &str,
        accepts: impl Fn(&str) -> bool,
    ) -> Result<Output> {
        wait::until(STEP_DEADLINE, what, || async {
            let (output, _) = self.execute(line).await?;
            if output.is_success() && accepts(&output.stdout) {
                return Ok(Some(output));
            }
            bail!("{output}")
        })
        .await
    }

    /// Writes a file into the folder, to be displayed with `cat`.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        fs_err::write(self.folder.join(name), text)?;
        Ok(())
    }

    /// Parses the last line of an output as a pinned reference.
    pub fn pinned(output: &str) -> Result<String> {
        let line = output.lines().last().unwrap_or_default().trim();
        if line.contains("@sha256:") {
            return Ok(line.to_owned());
        }
        bail!("`{line}` is not a pinned reference")
    }
}
