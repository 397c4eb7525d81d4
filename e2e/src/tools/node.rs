//! The only tool that runs on Node.js: the Sigstore instance of `e2e/tools/sigstore` with its
//! packages, installed once into the user's cache folder. `sigstore` starts this tool.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::cache;
use crate::host::prerequisites::{self, RequiredProgram};

const NAME: &str = "sigstore";

/// Returns the folder with `server.mjs` and all of its imports.
pub(crate) fn sigstore() -> Result<PathBuf> {
    prerequisites::check(&[
        RequiredProgram::Node,
        RequiredProgram::Npm,
        RequiredProgram::OpenSsl,
    ])?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tools")
        .join(NAME);
    let files = files(&source)?;
    let mut hash = Sha256::new();
    for (name, content) in &files {
        hash.update(name);
        hash.update([0]);
        hash.update(content);
    }
    let root = cache::root()?;
    let home = root.join(format!("{NAME}-{}", hex::encode(&hash.finalize()[..8])));
    if home.is_dir() {
        return Ok(home);
    }
    fs_err::create_dir_all(&root)?;
    let _lock = cache::lock(&root.join(format!("{NAME}.lock")), NAME)?;
    if home.is_dir() {
        return Ok(home);
    }
    let scratch = tempfile::Builder::new()
        .prefix(".installing-")
        .tempdir_in(&root)?;
    for (name, content) in &files {
        fs_err::write(scratch.path().join(name), content)?;
    }
    eprintln!("tools: installing the packages of {NAME} with npm, once per user");
    let installed = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| prerequisites::explain(RequiredProgram::Npm, &error))?;
    if !installed.status.success() {
        bail!(
            "`npm ci` of {NAME} failed:\n{}\nhint: the packages come from the registry of `npm config get registry`",
            String::from_utf8_lossy(&installed.stderr).trim()
        );
    }
    fs_err::rename(scratch.keep(), &home)?;
    Ok(home)
}

/// Returns the names and contents of the files in `folder`, in the order of their names.
fn files(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            let name = path.file_name().context("a file without a name")?;
            files.push((name.to_string_lossy().into_owned(), fs_err::read(&path)?));
        }
    }
    files.sort();
    Ok(files)
}
