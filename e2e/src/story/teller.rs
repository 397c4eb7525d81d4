//! Runs command lines in a shell, prints them with their output, and checks the results. `chapters`
//! has the command lines.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::command::{Command, Output};
use crate::{Cluster, Tool, Webhook, wait};

/// Output of the story: a terminal, or none.
pub trait Narrator: Send {
    /// A new chapter begins.
    fn chapter(&mut self, number: usize, title: &str);
    /// A sentence to the reader.
    fn say(&mut self, text: &str);
    /// A command line ended as it should, with this output.
    fn ran(&mut self, output: &Output, took: Duration);
    /// Something that was to be seen has been seen.
    fn seen(&mut self, what: &str, took: Duration);
}

/// Prints nothing; for tests.
pub struct Silent;

impl Narrator for Silent {
    fn chapter(&mut self, _: usize, _: &str) {}
    fn say(&mut self, _: &str) {}
    fn ran(&mut self, _: &Output, _: Duration) {}
    fn seen(&mut self, _: &str, _: Duration) {}
}

/// Run of the story: cluster, webhook, and working folder.
pub struct Teller<'a> {
    /// Cluster for the story.
    pub cluster: &'a Cluster,
    /// The webhook; chapters stop and start it.
    pub webhook: &'a mut Webhook,
    narrator: &'a mut dyn Narrator,
    folder: PathBuf,
    kills: bool,
}

/// Deadline for each step of the story.
const PATIENCE: Duration = Duration::from_secs(60);

impl<'a> Teller<'a> {
    /// A telling in `folder`, which is made if it is not there.
    pub async fn new(
        cluster: &'a Cluster,
        webhook: &'a mut Webhook,
        narrator: &'a mut dyn Narrator,
        folder: PathBuf,
    ) -> Result<Self> {
        fs_err::create_dir_all(&folder)?;
        // Both make their links in the folder that the shell's PATH begins with.
        cluster.plugin().await?;
        cluster.tool(Tool::Kubectl).await?;
        Ok(Self {
            cluster,
            webhook,
            narrator,
            folder,
            kills: false,
        })
    }

    /// From now on kills the webhook with SIGKILL after each successful line, during the work that
    /// the line started, and starts it again.
    #[must_use]
    pub fn killing_the_webhook(mut self) -> Self {
        self.kills = true;
        self
    }

    /// The folder in which everything is typed.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Begins a chapter.
    pub fn chapter(&mut self, number: usize, title: &str) {
        self.narrator.chapter(number, title);
    }

    /// Prints a sentence.
    pub fn say(&mut self, text: &str) {
        self.narrator.say(text);
    }

    async fn type_line(&self, line: &str) -> Result<(Output, Duration)> {
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

    /// Runs a line that must succeed, and returns its standard output.
    pub async fn run(&mut self, line: &str) -> Result<String> {
        let (output, took) = self.type_line(line).await?;
        ensure!(output.is_success(), "{output}");
        self.narrator.ran(&output, took);
        // Not where a chapter has stopped it on purpose.
        if self.kills && self.webhook.is_running() {
            self.webhook.kill()?;
            self.webhook.start().await?;
        }
        output.success()
    }

    /// Runs a line that must succeed without printing it, and returns its standard output.
    pub async fn quietly(&self, line: &str) -> Result<String> {
        self.type_line(line).await?.0.success()
    }

    /// Runs a line that must fail with each of `texts` in its output.
    pub async fn refused(&mut self, line: &str, texts: &[&str]) -> Result<()> {
        let (output, took) = self.type_line(line).await?;
        ensure!(
            !output.is_success(),
            "this should have been refused: {output}"
        );
        for text in texts {
            ensure!(
                output.stderr.contains(text) || output.stdout.contains(text),
                "this should say `{text}`: {output}"
            );
        }
        self.narrator.ran(&output, took);
        Ok(())
    }

    /// Waits until a line, typed again and again, prints something that `accepts` likes; then shows
    /// it once.
    pub async fn until(
        &mut self,
        what: &str,
        line: &str,
        accepts: impl Fn(&str) -> bool,
    ) -> Result<Duration> {
        let began = Instant::now();
        let output = self.eventually(what, line, accepts).await?;
        let took = began.elapsed();
        self.narrator.ran(&output, took);
        self.narrator.seen(what, took);
        Ok(took)
    }

    /// Like `until`, but prints only the result and its duration, not the line.
    pub async fn sees(
        &mut self,
        what: &str,
        line: &str,
        accepts: impl Fn(&str) -> bool,
    ) -> Result<Duration> {
        let began = Instant::now();
        self.eventually(what, line, accepts).await?;
        let took = began.elapsed();
        self.narrator.seen(what, took);
        Ok(took)
    }

    async fn eventually(
        &self,
        what: &str,
        line: &str,
        accepts: impl Fn(&str) -> bool,
    ) -> Result<Output> {
        wait::until(PATIENCE, what, || async {
            let (output, _) = self.type_line(line).await?;
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
