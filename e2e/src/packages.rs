//! Programs that come as packages of the system (skopeo, ip): installed where we may, explained where we may not.
//! What is built from sources is in `tools`.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::prerequisites::{self, Program};

/// Sees to it that `programs` are there. As root on a Debian, what is missing is installed by its package; elsewhere the error names each and the way to get it.
pub fn ensure(programs: &[Program]) -> Result<()> {
    let missing: Vec<&str> = programs
        .iter()
        .filter(|program| prerequisites::check(&[**program]).is_err())
        .filter_map(|program| program.debian())
        .collect();
    if !missing.is_empty() && rustix::process::geteuid().is_root() && answers("apt-get") {
        eprintln!("packages: installing {}", missing.join(" "));
        // Lists first: on a new machine there are none, and an old one names versions that are gone.
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

fn answers(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}
