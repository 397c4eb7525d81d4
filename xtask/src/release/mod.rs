//! Builds of a release: the container image of bundle-webhook, and the archives of the plugin.

pub(crate) mod dist;
pub(crate) mod image;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use bundle_core::reference::Digest;
use e2e::image::Provenance;

/// Arguments that the provenance of a build names.
struct ProvenanceInput<'a> {
    /// Command, such as `cargo-xtask-image`.
    command: &'static str,
    /// Repository of the sources. Without a repository, no provenance is written.
    source: Option<&'a str>,
    /// Builder; `None` for a build on a developer's machine.
    builder: Option<&'a str>,
    /// Cargo's profile.
    profile: &'a str,
    /// Platforms, such as `linux/amd64`.
    platforms: Vec<String>,
}

impl ProvenanceInput<'_> {
    /// Returns the facts of the provenance if a source is named.
    fn read(self, root: &Path, commit: Option<&Commit>) -> Result<Option<Provenance>> {
        let Some(source) = self.source else {
            return Ok(None);
        };
        let Some(commit) = commit else {
            bail!(
                "files differ from the last commit, so the provenance cannot name a commit\n\
                 hint: commit the files, or omit --source"
            );
        };
        let compiler = Command::new("rustc")
            .arg("--version")
            .output()
            .context("cannot start rustc")?;
        Ok(Some(Provenance {
            command: self.command,
            source: source.to_owned(),
            commit: commit.hex.clone(),
            lock: Digest::of(&fs_err::read(root.join("Cargo.lock"))?)
                .hex()
                .to_owned(),
            profile: self.profile.to_owned(),
            platforms: self.platforms,
            compiler: String::from_utf8_lossy(&compiler.stdout).trim().to_owned(),
            builder: self.builder.map(str::to_owned),
        }))
    }
}

/// Runs the plugin with the environment of this process, and returns its output.
fn run_plugin(plugin: &Path, arguments: &[String]) -> Result<String> {
    let output = Command::new(plugin)
        .args(arguments)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start kubectl-bundle")?;
    if !output.status.success() {
        bail!(
            "`kubectl bundle {}` failed with {}",
            arguments.join(" "),
            output.status
        );
    }
    String::from_utf8(output.stdout).context("kubectl-bundle printed no UTF-8")
}

/// A commit of the sources.
struct Commit {
    hex: String,
    /// Time of the commit, UTC.
    time: String,
}

impl Commit {
    /// Returns the current commit if the sources are a git checkout and no file differs from this
    /// commit.
    fn of_sources() -> Option<Self> {
        let git = |arguments: &[&str]| {
            let output = Command::new("git")
                .args(arguments)
                .env("TZ", "UTC")
                .output()
                .ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            output.status.success().then(|| text.trim().to_owned())
        };
        let format = "--format=%cd";
        let date = "--date=format-local:%Y-%m-%dT%H:%M:%SZ";
        git(&["status", "--porcelain"])?.is_empty().then(|| {
            Some(Self {
                hex: git(&["rev-parse", "HEAD"])?,
                time: git(&["log", "-1", format, date])?,
            })
        })?
    }
}
