//! Programs on PATH that kubectl could run for the plugin.

use std::env::consts::EXE_SUFFIX;
use std::path::{Path, PathBuf};

use bundle_core::doctor::client::Programs;

/// File name of the plugin that kubectl searches for.
const NAME: &str = "kubectl-bundle";
/// Maximum number of entries of a folder that are read.
const ENTRIES: usize = 20_000;

/// Finds the programs in the folders of PATH. `running` is the path of this program.
pub(super) fn find(folders: &[PathBuf], running: &Path) -> Programs {
    let mut programs = Programs {
        running: resolved(running),
        ..Programs::default()
    };
    for folder in folders {
        let plugin = folder.join(format!("{NAME}{EXE_SUFFIX}"));
        if is_program(&plugin) {
            add(&mut programs.on_path, &plugin);
        }
        let Ok(entries) = fs_err::read_dir(folder) else {
            continue;
        };
        for entry in entries.take(ENTRIES).flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let verb = name
                .strip_prefix(NAME)
                .and_then(|rest| rest.strip_prefix('-'));
            if verb.is_some_and(|verb| !verb.is_empty()) && is_program(&entry.path()) {
                add(&mut programs.verbs, &entry.path());
            }
        }
    }
    programs
}

fn add(paths: &mut Vec<String>, path: &Path) {
    let path = resolved(path);
    if !paths.contains(&path) {
        paths.push(path);
    }
}

/// Returns the path without symbolic links, so that two paths of one program are equal.
fn resolved(path: &Path) -> String {
    let path = fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    path.display().to_string()
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs_err::metadata(path)
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    fs_err::metadata(path).is_ok_and(|file| file.is_file())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn programs_are_found_in_the_order_of_path_and_links_are_resolved() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs_err::canonicalize(folder.path()).unwrap();
        let program = |folder: &str, name: &str, mode: u32| {
            let path = root.join(folder).join(name);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(&path, "").unwrap();
            let mode = std::fs::Permissions::from_mode(mode);
            fs_err::set_permissions(&path, mode).unwrap();
            path
        };
        let first = program("first", NAME, 0o755);
        let running = program("store", NAME, 0o755);
        program("text", NAME, 0o644);
        let verb = program("second", "kubectl-bundle-get", 0o755);
        program("second", "kubectl-bundler", 0o755);
        fs_err::create_dir_all(root.join("links")).unwrap();
        symlink(&running, root.join("links").join(NAME)).unwrap();
        let folders =
            ["missing", "text", "first", "second", "links", "store"].map(|name| root.join(name));

        let shown = |path: &Path| path.display().to_string();
        assert_eq!(
            find(&folders, &root.join("links").join(NAME)),
            Programs {
                running: shown(&running),
                on_path: vec![shown(&first), shown(&running)],
                verbs: vec![shown(&verb)],
            }
        );
    }
}
