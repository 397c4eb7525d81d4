//! Size of the release binaries, duration of `--help`, and memory of the webhook. `install`
//! measures the memory with installed objects.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use e2e::programs;

use super::install::Memory;
use super::table::Table;

const STARTS: usize = 50;

pub(super) async fn measure(memory: Memory) -> Result<Table> {
    let programs = programs::get().await?;
    let mut table = Table::new(&["", "measured", "aim"]);
    for (name, path) in [
        ("kubectl-bundle", &programs.plugin),
        ("bundle-webhook", &programs.webhook),
    ] {
        let bytes = u32::try_from(fs_err::metadata(path)?.len()).unwrap_or(u32::MAX);
        table.row([
            format!("{name}, stripped release binary"),
            format!("{:.1} MB", f64::from(bytes) / 1e6),
            "20 MB".to_owned(),
        ]);
    }
    let mut starts = Vec::with_capacity(STARTS);
    for _ in 0..STARTS {
        let began = Instant::now();
        let status = Command::new(&programs.plugin)
            .arg("--help")
            .stdout(Stdio::null())
            .status()
            .context("cannot start the plugin")?;
        ensure!(
            status.success(),
            "kubectl-bundle --help ended with {status}"
        );
        starts.push(began.elapsed());
    }
    starts.sort_unstable();
    table.row([
        format!("kubectl-bundle --help, median of {STARTS}"),
        format!("{:.1} ms", starts[STARTS / 2].as_secs_f64() * 1_000.0),
        "10 ms".to_owned(),
    ]);
    table.row([
        "bundle-webhook, resident, idle".to_owned(),
        format!("{:.1} MiB", memory.idle),
        "15 MiB".to_owned(),
    ]);
    table.row([
        "bundle-webhook, resident, after 3 × 1,000 objects".to_owned(),
        format!("{:.1} MiB", memory.after),
        "40 MiB".to_owned(),
    ]);
    Ok(table)
}
