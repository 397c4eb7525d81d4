//! The user's cache folder of built tools. Each recipe has its own path. Only one process at a time
//! builds the tools of one family, which share a Go module. A complete program is moved to its path
//! with a rename. `build` builds a tool.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use etcetera::BaseStrategy;
use sha2::{Digest, Sha256};

use super::build::Recipe;
use crate::host::janitor::Janitor;

/// Returns `$XDG_CACHE_HOME/kubectl-bundle/tools`, or its equivalent on this system.
pub(super) fn root() -> Result<PathBuf> {
    let base = etcetera::choose_base_strategy().context("cannot find the user's cache folder")?;
    Ok(base.cache_dir().join("kubectl-bundle").join("tools"))
}

/// Returns the program of `recipe`. If the program does not exist, builds it under the lock of its
/// family.
pub(super) fn built(recipe: &Recipe) -> Result<PathBuf> {
    let root = root()?;
    let tool = recipe.tool;
    let home = root.join(format!("{tool}-{}", recipe.key()?));
    let program = home.join(tool.name());
    if program.is_file() {
        return Ok(program);
    }
    fs_err::create_dir_all(&root)?;
    // Tools of one family share most of their packages: two builders at once would compile them
    // twice.
    let _lock = lock(&root.join(format!("{}.lock", tool.family())), tool.name())?;
    if program.is_file() {
        return Ok(program);
    }
    let scratch = tempfile::Builder::new()
        .prefix(".building-")
        .tempdir_in(&root)?
        .keep();
    // The janitor ends the build and removes the folder even if this process is killed.
    let janitor = Janitor::start(&scratch)?;
    let fresh = scratch.join(tool.name());
    recipe.build(&fresh, &janitor)?;
    fs_err::create_dir_all(&home)?;
    fs_err::rename(&fresh, &program)?;
    Ok(program)
}

/// Returns a folder with a link for each of `programs`. The name of the folder is derived from the
/// programs, so that equal arguments give the same folder.
pub(super) fn folder_of(programs: &[(&str, PathBuf)]) -> Result<PathBuf> {
    let mut hash = Sha256::new();
    for (name, path) in programs {
        hash.update(name);
        hash.update(path.as_os_str().as_encoded_bytes());
        hash.update([0]);
    }
    let root = root()?;
    let folder = root.join(format!("path-{}", hex::encode(&hash.finalize()[..8])));
    if folder.is_dir() {
        return Ok(folder);
    }
    fs_err::create_dir_all(&root)?;
    let scratch = tempfile::Builder::new()
        .prefix(".linking-")
        .tempdir_in(&root)?;
    for (name, path) in programs {
        fs_err::os::unix::fs::symlink(path, scratch.path().join(name))?;
    }
    let scratch = scratch.keep();
    if let Err(error) = fs_err::rename(&scratch, &folder) {
        fs_err::remove_dir_all(&scratch)?;
        // Another process has created the same folder.
        if !folder.is_dir() {
            return Err(error.into());
        }
    }
    Ok(folder)
}

/// Waits for the exclusive lock on `path`. The lock is released when the file is dropped or the
/// process dies.
pub(super) fn lock(path: &Path, tool: &str) -> Result<std::fs::File> {
    let file = fs_err::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?
        .into_file();
    if file.try_lock().is_err() {
        eprintln!("tools: another process is building; waiting for {tool}");
        file.lock()
            .with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_lock_waits_for_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("family.lock");
        let first = lock(&path, "etcd").unwrap();
        let second = std::thread::spawn({
            let path = path.clone();
            move || lock(&path, "etcd").map(drop)
        });
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap().unwrap();
    }
}
