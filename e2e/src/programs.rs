//! The two programs of this project, built once per process by the cargo that runs the tests.
//! `tools` builds other programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use object::Endianness;
use object::read::elf::{ElfFile64, ProgramHeader as _};
use serde_json::Value;
use tokio::sync::OnceCell;

/// Environment variable with the build profile. Default: the profile of [`prefer`], or else the
/// profile of this process.
const PROFILE: &str = "BUNDLE_E2E_PROFILE";
static PREFERRED: OnceLock<&str> = OnceLock::new();
const PACKAGES: [&str; 2] = ["kubectl-bundle", "bundle-webhook"];

/// Paths of the programs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The plugin, `kubectl-bundle`.
    pub plugin: PathBuf,
    /// The program of the pod, `bundle-webhook`.
    pub webhook: PathBuf,
}

/// Returns both programs, built from the current sources.
pub async fn get() -> Result<&'static Programs> {
    static BUILT: OnceCell<Programs> = OnceCell::const_new();
    BUILT
        .get_or_try_init(|| async {
            tokio::task::spawn_blocking(build)
                .await
                .context("the thread that builds the programs ended early")?
        })
        .await
}

/// Builds both programs if the sources changed, and returns their paths.
pub fn build() -> Result<Programs> {
    let profile = profile()?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args([
        "build",
        "--message-format=json-render-diagnostics",
        "--profile",
        &profile,
    ]);
    if profile == "dev" {
        // The command builds all packages of the workspace, so it enables the same features as the
        // build of the tests. Therefore cargo compiles no dependency twice.
        command.args(["--workspace", "--bins"]);
    } else {
        for package in PACKAGES {
            command.args(["--package", package]);
        }
    }
    eprintln!("programs: building {} ({profile})", PACKAGES.join(" and "));
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo, which builds kubectl-bundle and bundle-webhook")?;
    if !output.status.success() {
        bail!(
            "cargo could not build {}; its output is above",
            PACKAGES.join(" and ")
        );
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    Ok(Programs {
        plugin: executable(&messages, PACKAGES[0])?,
        webhook: executable(&messages, PACKAGES[1])?,
    })
}

/// Returns the path of the program `name` in the messages of cargo.
pub(crate) fn executable(messages: &str, name: &str) -> Result<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo built no program called `{name}`"))
}

/// Sets the default build profile. Benchmarks use the release profile.
pub fn prefer(profile: &'static str) {
    PREFERRED.get_or_init(|| profile);
}

/// Returns cargo's name of the build profile: the value of the environment variable, else the
/// profile of [`prefer`], else the profile of this process. The folder of the running executable
/// determines the profile of this process.
pub fn profile() -> Result<String> {
    if let Ok(asked) = std::env::var(PROFILE) {
        return Ok(asked);
    }
    if let Some(preferred) = PREFERRED.get() {
        return Ok((*preferred).to_owned());
    }
    let me = std::env::current_exe().context("cannot find the path of this program")?;
    let folder = me.parent().map(|parent| {
        if parent.ends_with("deps") {
            parent.parent().unwrap_or(parent)
        } else {
            parent
        }
    });
    Ok(
        match folder
            .and_then(Path::file_name)
            .and_then(|name| name.to_str())
        {
            Some("release") => "release".to_owned(),
            _ => "dev".to_owned(),
        },
    )
}

/// Returns `true` if a Linux program names an interpreter (the dynamic loader), which loads shared
/// libraries.
pub(crate) fn has_interpreter(program: &[u8]) -> Result<bool> {
    let file: ElfFile64<'_, Endianness> =
        ElfFile64::parse(program).context("the file is no program of Linux")?;
    for header in file.elf_program_headers() {
        if header.interpreter(file.endian(), program)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_program_in_cargo_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"kubectl-bundle"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"kubectl-bundle"},"executable":"/t/kubectl-bundle"}"#,
            "\nnot json\n",
        );
        assert_eq!(
            executable(messages, "kubectl-bundle").unwrap(),
            Path::new("/t/kubectl-bundle")
        );
        let error = executable(messages, "bundle-webhook")
            .unwrap_err()
            .to_string();
        assert_eq!(error, "cargo built no program called `bundle-webhook`");
    }

    #[test]
    fn programs_with_shared_libraries_have_an_interpreter() {
        let this = fs_err::read(std::env::current_exe().unwrap()).unwrap();
        assert!(has_interpreter(&this).unwrap());
        assert!(has_interpreter(b"#!/bin/sh\n").is_err());
    }
}
