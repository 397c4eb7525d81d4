//! `cargo xtask test`: all checks of the repository, the fastest first: rustfmt, clippy, `gen` and
//! the tests. Skipped checks are printed.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use e2e::Tool;
use e2e::host::prerequisites::RequiredProgram;
use e2e::tools::{KubernetesRelease, RELEASE_VARIABLE};

/// Tools that the tests need. Missing tools are built first.
const TOOLS: &[Tool] = &[
    Tool::KubeApiserver,
    Tool::KubeControllerManager,
    Tool::OldestKubeApiserver,
    Tool::OldestKubeControllerManager,
    Tool::Kubectl,
    Tool::Etcd,
    Tool::Registry,
    Tool::Crane,
    Tool::ReferrersRegistry,
    Tool::Cosign2,
    Tool::Cosign3,
    Tool::Helm,
    Tool::Helm3,
    Tool::Kubelet,
    Tool::KubeProxy,
    Tool::KubeScheduler,
    Tool::Containerd,
    Tool::ContainerdShim,
    Tool::CniPtp,
    Tool::CniHostLocal,
    Tool::CniLoopback,
    Tool::Krew,
    Tool::ValidateKrewManifest,
];

/// Programs that the tests need and that operating systems package.
const PACKAGES: &[RequiredProgram] = &[
    RequiredProgram::Skopeo,
    RequiredProgram::Unshare,
    RequiredProgram::Ip,
    RequiredProgram::Node,
    RequiredProgram::Npm,
    RequiredProgram::OpenSsl,
    RequiredProgram::Runc,
    RequiredProgram::Iptables,
    RequiredProgram::Busybox,
    RequiredProgram::Zsh,
    RequiredProgram::Fish,
    RequiredProgram::BashCompletion,
];

/// Checks to run.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Skip the end-to-end scenarios and the build of their tools. The end of the output lists the
    /// skipped checks.
    #[arg(long)]
    quick: bool,
    /// Kubernetes release for the scenarios: 1.33 or 1.36. The default is 1.36. Some scenarios
    /// request 1.33 and use 1.33 by default.
    #[arg(long, value_name = "RELEASE", default_value_t)]
    kubernetes: KubernetesRelease,
}

struct Step {
    name: &'static str,
    took: Duration,
    failure: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut steps = Vec::new();
    step(&mut steps, "formatting", || {
        cargo(&["fmt", "--all", "--check"], &[])
    });
    step(&mut steps, "clippy, warnings denied", || {
        cargo(
            &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--locked",
                "--",
                "--deny",
                "warnings",
            ],
            &[],
        )
    });
    step(&mut steps, "generated files unchanged", || {
        crate::generate::run(&crate::generate::Arguments { check: true })
    });
    step(&mut steps, "one TLS provider in the tree", one_provider);
    step(
        &mut steps,
        "modules, headers, pages and language rules",
        || crate::modules::check(&crate::apis::root()?),
    );
    if arguments.quick {
        step(&mut steps, "unit and doc tests", || {
            cargo(
                &["test", "--workspace", "--locked", "--exclude", "e2e"],
                &[],
            )
        });
    } else {
        step(&mut steps, "tools for the tests", || {
            e2e::host::packages::ensure(PACKAGES)?;
            e2e::tools::folder(TOOLS).map(drop)
        });
        let release = arguments.kubernetes.to_string();
        step(&mut steps, "unit, doc and end-to-end tests", || {
            cargo(
                &["test", "--workspace", "--locked", "--no-fail-fast"],
                &[("RUST_BACKTRACE", "0"), (RELEASE_VARIABLE, &release)],
            )
        });
    }
    eprintln!();
    for Step {
        name,
        took,
        failure,
    } in &steps
    {
        let mark = if failure.is_none() { "✓" } else { "✗" };
        eprintln!("{mark} {name} ({:.0} s)", took.as_secs_f64());
    }
    if arguments.quick {
        eprintln!("- end-to-end scenarios were skipped, as requested");
    }
    let failed: Vec<_> = steps
        .iter()
        .filter_map(|step| {
            step.failure
                .as_ref()
                .map(|why| format!("{}: {why}", step.name))
        })
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    bail!(
        "{} of {} steps failed:\n{}",
        failed.len(),
        steps.len(),
        failed.join("\n")
    )
}

fn step(steps: &mut Vec<Step>, name: &'static str, work: impl FnOnce() -> Result<()>) {
    eprintln!("\n── {name}");
    let began = Instant::now();
    let failure = work().err().map(|error| format!("{error:#}"));
    if let Some(why) = &failure {
        eprintln!("✗ {name}: {why}");
    }
    steps.push(Step {
        name,
        took: began.elapsed(),
        failure,
    });
}

/// Returns an error if a package depends on `ring`. With both `ring` and aws-lc-rs, rustls could
/// not select a provider and would panic at the first connection.
fn one_provider() -> Result<()> {
    let tree = Command::new(cargo_program())
        .args([
            "tree",
            "--workspace",
            "--locked",
            "--target",
            "all",
            "--invert",
            "ring",
        ])
        .output()
        .context("cannot start cargo")?;
    // If the lock file does not contain `ring`, cargo fails and prints no tree. The check succeeds
    // in this case.
    if tree.stdout.is_empty() {
        return Ok(());
    }
    bail!(
        "`ring` is in the tree:\n{}",
        String::from_utf8_lossy(&tree.stdout)
    )
}

fn cargo_program() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let status = Command::new(cargo_program())
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .status()
        .context("cannot start cargo")?;
    if status.success() {
        return Ok(());
    }
    bail!("`cargo {}` ended with {status}", arguments.join(" "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn libraries_are_forbidden_what_the_workspace_is() {
        let libraries = include_str!("../../crates/clippy.toml");
        for line in include_str!("../../clippy.toml").lines() {
            assert!(libraries.contains(line), "crates/clippy.toml lacks {line}");
        }
    }
}
