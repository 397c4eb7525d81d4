//! Programs from system packages (skopeo, ip): installed if possible, otherwise reported with an
//! install hint. `tools` builds programs from sources.

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::host::prerequisites::{self, RequiredProgram};

static INSTALLING: Mutex<()> = Mutex::new(());

/// Ensures that `programs` are installed. As root on Debian, installs the packages of missing
/// programs. Elsewhere, the error contains each missing program and an install hint.
pub fn ensure(programs: &[RequiredProgram]) -> Result<()> {
    // The package manager fails if two of its processes run at the same time.
    let _one = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let missing: Vec<&str> = programs
        .iter()
        .filter(|program| prerequisites::check(&[**program]).is_err())
        .filter_map(|program| program.debian())
        .flat_map(str::split_whitespace)
        .collect();
    if !missing.is_empty() && rustix::process::geteuid().is_root() && answers("apt-get") {
        eprintln!("packages: installing {}", missing.join(" "));
        // The package lists are updated first. A new machine has no lists, and old lists have
        // versions that no longer exist.
        apt(&["update"])?;
        let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
        arguments.extend(&missing);
        apt(&arguments)?;
    }
    prerequisites::check(programs)
}

fn apt(arguments: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .args(["--quiet", "--quiet"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .context("cannot start apt-get")?;
    if output.status.success() {
        return Ok(());
    }
    bail!(
        "`apt-get {}` failed with {}:\n{}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )
}

pub(crate) fn answers(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}
