//! Programs of others on PATH: in the folders that are named in full, never in the folder in which somebody happens to stand.

use std::env;
use std::path::{Path, PathBuf};

/// What there is of a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A program.
    Program(PathBuf),
    /// A file that may not be run.
    Barred(PathBuf),
    /// Nothing.
    Nothing,
}

impl Found {
    /// The program.
    pub(crate) fn program(self) -> Option<PathBuf> {
        match self {
            Self::Program(path) => Some(path),
            Self::Barred(_) | Self::Nothing => None,
        }
    }
}

/// Looks for a program. `name` is without the ending that some systems have.
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
    fn the_first_that_may_be_run_is_taken_and_none_of_the_folder_we_stand_in() {
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
