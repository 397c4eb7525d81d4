//! Builds of a release: the container image and the chart of bundle-webhook, and the archives of
//! the plugin.

pub(crate) mod chart;
pub(crate) mod dist;
pub(crate) mod image;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use bundle_core::reference::Digest;
use clap::Args;
use e2e::image::Provenance;

/// Flags of the signer.
#[derive(Debug, Args)]
#[group(id = "signer", multiple = false)]
struct SignerFlags {
    /// Sign with this private key; its password comes from $BUNDLE_PASSWORD
    #[arg(long, value_name = "FILE")]
    key: Option<String>,
    /// Sign with a certificate for the identity of this CI job, instead of --key
    #[arg(long)]
    keyless: bool,
}

impl SignerFlags {
    /// Returns the flags of `kubectl bundle sign` and `attest`. Returns `None` without a signer.
    fn flags(&self) -> Option<Vec<String>> {
        match &self.key {
            Some(key) => Some(vec!["--key".to_owned(), key.clone()]),
            None => self.keyless.then(Vec::new),
        }
    }

    /// Fails if a signer is set and nothing is pushed, for commands that sign only in a registry.
    fn require_push(&self, is_pushed: bool) -> Result<()> {
        ensure!(
            is_pushed || self.flags().is_none(),
            "--key and --keyless require --push"
        );
        Ok(())
    }
}

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
    /// Returns the current commit if the sources are a git checkout without changes.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory as _, Parser as _};

    /// Returns the words after `cargo xtask` of each such command in the steps of a workflow.
    fn commands(workflow: &str) -> Vec<Vec<String>> {
        let workflow = workflow
            .replace("\\\n", " ")
            .replace("${{ matrix.kubernetes }}", "1.36");
        let steps = workflow.lines().map(str::trim).filter(|line| {
            let is_name = line.trim_start_matches("- ").starts_with("name:");
            !is_name && !line.starts_with('#')
        });
        steps
            .filter_map(|line| line.split_once("cargo xtask "))
            .map(|(_, words)| {
                let words = words.trim_end_matches(')').split_whitespace();
                words
                    .map(|word| word.trim_matches('"').to_owned())
                    .collect()
            })
            .collect()
    }

    #[test]
    fn commands_of_the_workflows_and_their_flags_exist() {
        crate::Arguments::command().debug_assert();
        let folder = crate::apis::root().unwrap().join(".github/workflows");
        let mut found = BTreeSet::new();
        for file in ["ci.yaml", "release.yaml"] {
            let workflow = fs_err::read_to_string(folder.join(file)).unwrap();
            for words in commands(&workflow) {
                let line = std::iter::once("xtask").chain(words.iter().map(String::as_str));
                if let Err(error) = crate::Arguments::try_parse_from(line) {
                    panic!("{file}: {words:?}: {error}");
                }
                found.insert(words[0].clone());
            }
        }
        for command in ["chart", "dist", "image", "test"] {
            assert!(found.contains(command), "no workflow runs {command}");
        }
    }
}
