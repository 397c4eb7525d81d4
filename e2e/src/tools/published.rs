//! Packages of other projects that scenarios install. Their files are downloaded from package
//! registries. The repository contains none of these files.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::build::family_folder;
use super::{Tool, cache};
use crate::host::prerequisites::{self, RequiredProgram};

/// Time limit of one download.
const DEADLINE: Duration = Duration::from_mins(4);
const KUBERNETES: &str = "k8s.io/kubernetes";

/// Returns the folder of the addons that Kubernetes publishes. They are in the Go module of the API
/// server.
pub async fn kubernetes_addons() -> Result<PathBuf> {
    let folder = module(Tool::KubeApiserver, KUBERNETES).await?;
    Ok(folder.join("cluster/addons"))
}

/// Returns the folder of the Go module with this path, in the version that `tool` is built from. Go
/// compares the module with the checksum in `go.sum`.
pub async fn module(tool: Tool, path: &'static str) -> Result<PathBuf> {
    off_runtime(move || {
        let mut go = Command::new("go");
        go.args(["mod", "download", "-json", path])
            .current_dir(family_folder(tool));
        let source = "the Go module proxy (`go env GOPROXY`)";
        let output = fetch(RequiredProgram::Go, go, path, source)?;
        let answer: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("`go mod download` of {path} printed no JSON"))?;
        let folder = answer["Dir"]
            .as_str()
            .with_context(|| format!("`go mod download` of {path} names no folder"))?;
        Ok(PathBuf::from(folder))
    })
    .await
}

/// Returns the folder of the unpacked packages that `e2e/tools/python/requirements.txt` names. They
/// are downloaded once for each user.
pub async fn python_packages() -> Result<PathBuf> {
    off_runtime(|| unpacked("python")).await
}

/// Zig, and the cargo command that uses Zig as C compiler and linker.
#[derive(Debug, Clone)]
pub(crate) struct ZigToolchain {
    /// Path of the program `zig`.
    pub(crate) zig: PathBuf,
    /// Path of the program `cargo-zigbuild`.
    pub(crate) cargo_zigbuild: PathBuf,
    /// Sources of the C libraries.
    libraries: PathBuf,
}

impl ZigToolchain {
    /// Returns the path of a file of the C libraries.
    pub(crate) fn library(&self, path: &str) -> PathBuf {
        self.libraries.join(path)
    }
}

/// Returns the packages that `e2e/tools/zig/requirements.txt` names. They are downloaded once for
/// each user.
pub(crate) fn zig_toolchain() -> Result<ZigToolchain> {
    let (os, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
    if (os, architecture) != ("linux", "x86_64") {
        bail!(
            "programs for other platforms can only be built on linux/amd64, and this machine is {os} on {architecture}\n\
             hint: for another builder, add the digests of its packages to e2e/tools/zig/requirements.txt"
        );
    }
    let home = unpacked("zig")?;
    let zig = home.join("ziglang/zig");
    let scripts = fs_err::read_dir(&home)?
        .filter_map(|entry| Some(entry.ok()?.path().join("scripts/cargo-zigbuild")))
        .find(|script| script.is_file());
    let cargo_zigbuild = scripts.context("the package cargo-zigbuild has no program")?;
    for program in [&zig, &cargo_zigbuild] {
        // Python's module does not set the modes of unpacked files.
        fs_err::set_permissions(program, Permissions::from_mode(0o755))?;
    }
    Ok(ZigToolchain {
        zig,
        cargo_zigbuild,
        libraries: home.join("ziglang/lib"),
    })
}

/// Returns the folder of the unpacked packages that `requirements.txt` of a folder in `e2e/tools`
/// names.
fn unpacked(family: &str) -> Result<PathBuf> {
    let requirements = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tools")
        .join(family)
        .join("requirements.txt");
    let key = hex::encode(&Sha256::digest(fs_err::read(&requirements)?)[..8]);
    let root = cache::root()?;
    let home = root.join(format!("{family}-{key}"));
    if home.is_dir() {
        return Ok(home);
    }
    fs_err::create_dir_all(&root)?;
    let lock = root.join(format!("{family}-packages.lock"));
    let _lock = cache::lock(&lock, "python packages")?;
    if home.is_dir() {
        return Ok(home);
    }
    let scratch = tempfile::Builder::new()
        .prefix(".installing-")
        .tempdir_in(&root)?;
    let archives = scratch.path().join("archives");
    eprintln!("tools: downloading packages of the Python package index, once per user");
    let mut pip = python(["-m", "pip", "download", "--quiet", "--no-deps"]);
    pip.args(["--require-hashes", "--timeout", "20", "--requirement"])
        .arg(&requirements)
        .arg("--dest")
        .arg(&archives);
    let source = "the Python package index (`python3 -m pip config get global.index-url`)";
    fetch(RequiredProgram::Python, pip, "Python packages", source)?;
    let unpacked = scratch.path().join("unpacked");
    for archive in fs_err::read_dir(&archives)? {
        let archive = archive?.path();
        let is_wheel = archive.extension().is_some_and(|kind| kind == "whl");
        let module = if is_wheel { "zipfile" } else { "tarfile" };
        let mut extract = python(["-m", module, "-e"]);
        extract.arg(&archive).arg(&unpacked);
        fetch(
            RequiredProgram::Python,
            extract,
            "Python packages",
            "an archive",
        )?;
    }
    fs_err::rename(&unpacked, &home)?;
    Ok(home)
}

async fn off_runtime(work: impl FnOnce() -> Result<PathBuf> + Send + 'static) -> Result<PathBuf> {
    tokio::task::spawn_blocking(work)
        .await
        .context("the thread that fetches packages ended early")?
}

fn python<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new("python3");
    command.args(arguments);
    command
}

/// Runs the command that fetches `what` from `source`. If the command fails, the error contains the
/// output of the command. Returns an error after the deadline too.
fn fetch(
    program: RequiredProgram,
    mut command: Command,
    what: &str,
    source: &str,
) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| prerequisites::explain(program, &error))?;
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > DEADLINE {
            child.kill()?;
            child.wait()?;
            bail!(
                "{what} did not arrive within {} s\nhint: this comes from {source}",
                DEADLINE.as_secs()
            );
        }
        thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "cannot fetch {what}: {}{}\nhint: this comes from {source}",
            String::from_utf8_lossy(&output.stdout).trim(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_fetch_names_the_package_the_reason_and_the_registry() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no route to host >&2; exit 1"]);
        let text = fetch(RequiredProgram::Go, command, "web", "the module proxy").unwrap_err();
        assert_eq!(
            text.to_string(),
            "cannot fetch web: no route to host\nhint: this comes from the module proxy"
        );
    }
}
