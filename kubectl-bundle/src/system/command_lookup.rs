//! Search for external commands in the absolute folders of PATH, never in the current folder.

use std::env;
use std::path::{Path, PathBuf};

/// Result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CommandLookup {
    /// An executable file.
    Program(PathBuf),
    /// A file that is not executable.
    NotExecutable(PathBuf),
    /// No file with this name.
    Missing,
}

impl CommandLookup {
    /// Returns the path of an executable.
    pub(crate) fn program(self) -> Option<PathBuf> {
        match self {
            Self::Program(path) => Some(path),
            Self::NotExecutable(_) | Self::Missing => None,
        }
    }
}

/// Searches for a command. `name` has no file extension. The search adds the extension that the
/// operating system requires.
pub(crate) fn find(name: &str) -> CommandLookup {
    let folders: Vec<PathBuf> = env::var_os("PATH")
        .map(|path| env::split_paths(&path).collect())
        .unwrap_or_default();
    find_in(&folders, name)
}

fn find_in(folders: &[PathBuf], name: &str) -> CommandLookup {
    let name = format!("{name}{}", env::consts::EXE_SUFFIX);
    let mut found = CommandLookup::Missing;
    for folder in folders.iter().filter(|folder| folder.is_absolute()) {
        let path = folder.join(&name);
        if !path.is_file() {
            continue;
        }
        if is_executable(&path) {
            return CommandLookup::Program(path);
        }
        if found == CommandLookup::Missing {
            found = CommandLookup::NotExecutable(path);
        }
    }
    found
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(_: &Path) -> bool {
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
        assert_eq!(
            find_in(&folders, "tool"),
            CommandLookup::Program(files[2].clone())
        );
        assert_eq!(
            find_in(&folders[..2], "tool"),
            CommandLookup::NotExecutable(files[1].clone())
        );
        assert_eq!(find_in(&folders[..1], "tool"), CommandLookup::Missing);
        for here in [".", "", "c"] {
            assert_eq!(
                find_in(&[PathBuf::from(here)], "tool"),
                CommandLookup::Missing
            );
        }
    }
}
