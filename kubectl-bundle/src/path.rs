//! Search for external commands in the absolute folders of PATH, never in the current folder.

use std::env;
use std::path::{Path, PathBuf};

/// Result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// An executable file.
    Program(PathBuf),
    /// A file that is not executable.
    Barred(PathBuf),
    /// Not found.
    Nothing,
}

impl Found {
    /// Returns the path of an executable.
    pub(crate) fn program(self) -> Option<PathBuf> {
        match self {
            Self::Program(path) => Some(path),
            Self::Barred(_) | Self::Nothing => None,
        }
    }
}

/// Searches for a command. `name` is without the extension that some operating systems use.
pub(crate) fn find(name: &str) -> Found {
    let folders: Vec<PathBuf> = env::var_os("PATH")
        .map(|path| env::split_paths(&path).collect())
        .unwrap_or_default();
    within(&folders, name)
}

fn within(folders: &[PathBuf], name: &str) -> Found {
    let name = format!("{name}{}", env::consts::EXE_SUFFIX);
    let mut found = Found::Nothing;
    for folder in folders.iter().filter(|folder| folder.is_absolute()) {
        let path = folder.join(&name);
        if !path.is_file() {
            continue;
        }
        if may_run(&path) {
            return Found::Program(path);
        }
        if found == Found::Nothing {
            found = Found::Barred(path);
        }
    }
    found
}

#[cfg(unix)]
fn may_run(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn may_run(_: &Path) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn finds_the_first_executable_and_ignores_the_current_folder() {
        let root = tempfile::tempdir().unwrap();
        let folders = ["a", "b", "c"].map(|name| root.path().join(name));
        let files = folders.clone().map(|folder| folder.join("tool"));
        for (index, mode) in [(1, 0o644), (2, 0o755)] {
            std::fs::create_dir(&folders[index]).unwrap();
            std::fs::write(&files[index], "").unwrap();
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&files[index], permissions).unwrap();
        }
        assert_eq!(within(&folders, "tool"), Found::Program(files[2].clone()));
        assert_eq!(
            within(&folders[..2], "tool"),
            Found::Barred(files[1].clone())
        );
        assert_eq!(within(&folders[..1], "tool"), Found::Nothing);
        for here in [".", "", "c"] {
            assert_eq!(within(&[PathBuf::from(here)], "tool"), Found::Nothing);
        }
    }
}
