//! Duration and peak memory of a program.

use std::io::{Read as _, Seek as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Interval of memory samples. The kernel records the peak itself, so only growth right before the
/// exit can be missed.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(2);

/// Duration and peak memory of a run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    pub(super) seconds: f64,
    /// Peak of resident memory in MiB.
    pub(super) mebibytes: f64,
}

/// Returns a command in a clean environment. The words of `line` are separated by spaces, and need
/// no quoting.
pub(super) fn command(program: &Path, home: &Path, line: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(line.split(' ').filter(|word| !word.is_empty()))
        .env_clear()
        .env("HOME", home)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// Runs the command, which must succeed.
pub(super) fn cost(mut command: Command) -> Result<Cost> {
    // Messages go to a file. A program that fills a pipe would wait for a reader, and the reader
    // waits for the exit of the program.
    let mut messages = tempfile::tempfile().context("cannot create a file for messages")?;
    let began = Instant::now();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(messages.try_clone()?)
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let (mut child, kib) = watch(child)?;
    let seconds = began.elapsed().as_secs_f64();
    let status = child.wait().context("cannot wait for it")?;
    if !status.success() {
        let mut text = Vec::new();
        messages.rewind()?;
        messages.read_to_end(&mut text)?;
        bail!(
            "{command:?} ended with {status}:\n{}",
            String::from_utf8_lossy(&text)
        );
    }
    Ok(Cost {
        seconds,
        mebibytes: mebibytes(kib),
    })
}

/// Returns the peak of resident memory in KiB; `None` for a process that ended.
pub(super) fn peak_kib(pid: u32) -> Option<u64> {
    let text = fs_err::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

fn watch(mut child: Child) -> Result<(Child, u64)> {
    let mut peak = 0;
    loop {
        peak = peak.max(peak_kib(child.id()).unwrap_or(0));
        if child
            .try_wait()
            .context("cannot poll the process")?
            .is_some()
        {
            return Ok((child, peak));
        }
        std::thread::sleep(SAMPLE_INTERVAL);
    }
}

/// Returns the median by duration, with the highest memory of all runs.
pub(super) fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Cost {
        seconds: costs[costs.len() / 2].seconds,
        mebibytes: costs.iter().map(|cost| cost.mebibytes).fold(0.0, f64::max),
    }
}

/// Converts KiB to MiB.
pub(super) fn mebibytes(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0
}
