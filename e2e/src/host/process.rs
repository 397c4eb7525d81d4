//! Long-running programs: log file, and termination when dropped or when this process ends.
//! `command` has programs that run once.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::host::janitor::Janitor;

/// Number of lines at the end of a log that an error shows.
const TAIL_LINES: usize = 20;

/// Running program, which is killed and reaped when dropped.
pub(crate) struct Process {
    name: String,
    command: Command,
    child: Child,
    log: PathBuf,
    janitor: Janitor,
}

impl Process {
    /// Starts `command` with its output appended to `log`.
    pub(crate) fn start(
        name: &str,
        mut command: Command,
        log: &Path,
        janitor: &Janitor,
    ) -> Result<Self> {
        let file = fs_err::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)?
            .into_file();
        let twin = file
            .try_clone()
            .with_context(|| format!("cannot share {}", log.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(twin)
            // Ctrl-C must reach only this process, which ends its programs in order. A signal to a
            // process group ends all processes of the group.
            .process_group(0);
        let child = spawn(name, &mut command)?;
        let process = Self {
            name: name.to_owned(),
            command,
            child,
            log: log.to_owned(),
            janitor: janitor.clone(),
        };
        process.janitor.watch(process.pid())?;
        Ok(process)
    }

    /// Starts the program again, with the same command line. The program must have ended before.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        self.janitor.forget(self.pid())?;
        self.child = spawn(&self.name, &mut self.command)?;
        self.janitor.watch(self.pid())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status; `None` while the process runs.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Returns an error with the end of the log if the program has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.ended()? {
            Some(status) => bail!("{} ended with {status}:\n{}", self.name, self.log_tail()),
            None => Ok(()),
        }
    }

    /// Returns the last lines of the log.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs_err::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// Sends SIGKILL to the process group and waits until the process ends.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if self.ended()?.is_none() {
            kill_process_group(self.raw_pid()?, Signal::KILL)
                .with_context(|| format!("cannot kill {}", self.name))?;
        }
        self.child
            .wait()
            .with_context(|| format!("cannot reap {}", self.name))?;
        Ok(())
    }

    /// Sends SIGSTOP: the process does not run until [`Process::resume`]. Its connections remain
    /// open.
    pub(crate) fn pause(&self) -> Result<()> {
        kill_process(self.raw_pid()?, Signal::STOP)
            .with_context(|| format!("cannot pause {}", self.name))
    }

    /// Sends SIGCONT.
    pub(crate) fn resume(&self) -> Result<()> {
        kill_process(self.raw_pid()?, Signal::CONT)
            .with_context(|| format!("cannot resume {}", self.name))
    }

    fn raw_pid(&self) -> Result<Pid> {
        i32::try_from(self.pid())
            .ok()
            .and_then(Pid::from_raw)
            .context("a process number out of range")
    }

    /// Sends SIGTERM and waits until the process ends, at most for `timeout`.
    pub(crate) async fn terminate(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let began = Instant::now();
        kill_process(self.raw_pid()?, Signal::TERM)
            .with_context(|| format!("cannot send SIGTERM to {}", self.name))?;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if began.elapsed() > timeout {
                bail!(
                    "{} still runs {:.1} s after SIGTERM:\n{}",
                    self.name,
                    timeout.as_secs_f64(),
                    self.log_tail()
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn spawn(name: &str, command: &mut Command) -> Result<Child> {
    command
        .spawn()
        .with_context(|| format!("cannot start {name} ({})", command.get_program().display()))
}

impl Drop for Process {
    fn drop(&mut self) {
        let ended = self.kill().and_then(|()| self.janitor.forget(self.pid()));
        if let Err(error) = ended {
            eprintln!("e2e: {error:#}");
        }
    }
}
