//! The target folder of an unpacked image. The content is written to a hidden folder next to the
//! target, and is moved to the target when it is complete.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use tempfile::TempDir;

/// Prefix of the hidden folders.
const PREFIX: &str = ".kubectl-bundle-";

/// Target folder of an image. If the value is dropped without a call of [`keep`](Self::keep), all
/// files are removed.
#[derive(Debug)]
pub struct TargetFolder {
    target: PathBuf,
    growing: TempDir,
    how: TargetState,
}

#[derive(Debug)]
enum TargetState {
    /// The target does not exist: the hidden folder is renamed to the target.
    New,
    /// The target is an empty folder, for example a mount or the current folder: the content is
    /// moved into this folder.
    Empty,
    /// The target exists and is replaced.
    Replaced,
}

impl TargetFolder {
    /// Prepares `target`. The target must not exist, or must be an empty folder. With `replace`,
    /// the target can be any folder that does not contain the current folder or the home folder.
    pub fn prepare(target: &Path, replace: bool) -> Result<Self, Finding> {
        let how = match fs_err::symlink_metadata(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => TargetState::New,
            Err(error) => return Err(unwritable(target, &error)),
            Ok(found) if !found.is_dir() => {
                return Err(occupied(target, "exists and is not a folder"));
            }
            Ok(_) => {
                let mut entries =
                    fs_err::read_dir(target).map_err(|error| unwritable(target, &error))?;
                match entries.next() {
                    None => TargetState::Empty,
                    Some(_) if !replace => {
                        return Err(occupied(target, "exists and is not empty").hint(
                            "choose a new or an empty folder, or replace this folder with --force",
                        ));
                    }
                    Some(_) => {
                        replaceable(target)?;
                        TargetState::Replaced
                    }
                }
            }
        };
        let parent_folder = match how {
            TargetState::Empty => target,
            TargetState::New | TargetState::Replaced => parent(target),
        };
        // A rename is atomic only within one file system.
        let growing = fs_err::create_dir_all(parent_folder)
            .and_then(|()| {
                tempfile::Builder::new()
                    .prefix(PREFIX)
                    .tempdir_in(parent_folder)
            })
            .map_err(|error| unwritable(target, &error))?;
        fs_err::create_dir(growing.path().join("new"))
            .map_err(|error| unwritable(target, &error))?;
        Ok(Self {
            target: target.to_owned(),
            growing,
            how,
        })
    }

    /// Returns the path of the hidden folder: new, private and empty.
    pub fn folder(&self) -> PathBuf {
        self.growing.path().join("new")
    }

    /// Moves the content to the target.
    pub fn keep(self) -> Result<(), Finding> {
        let new = self.folder();
        let target = &self.target;
        match self.how {
            TargetState::New => fs_err::rename(&new, target),
            TargetState::Empty => move_in(&new, target),
            TargetState::Replaced => {
                let old = self.growing.path().join("old");
                fs_err::rename(target, &old).and_then(|()| {
                    fs_err::rename(&new, target).or_else(|error| {
                        fs_err::rename(&old, target)?;
                        Err(error)
                    })
                })
            }
        }
        .map_err(|error| unwritable(target, &error))?;
        self.growing
            .close()
            .map_err(|error| unwritable(target, &error))
    }
}

/// Moves the content of one folder into another. After an error, moved entries are moved back.
fn move_in(new: &Path, target: &Path) -> io::Result<()> {
    let names: Vec<OsString> = fs_err::read_dir(new)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<_>>()?;
    for (index, name) in names.iter().enumerate() {
        let free = match fs_err::symlink_metadata(target.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        };
        if let Err(error) = free.and_then(|()| fs_err::rename(new.join(name), target.join(name))) {
            for moved in &names[..index] {
                fs_err::rename(target.join(moved), new.join(moved))?;
            }
            return Err(error);
        }
    }
    Ok(())
}

fn parent(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns an error if the target is or contains the current folder or the home folder.
fn replaceable(target: &Path) -> Result<(), Finding> {
    let real = fs_err::canonicalize(target).map_err(|error| unwritable(target, &error))?;
    let here = std::env::current_dir().and_then(fs_err::canonicalize);
    let home = std::env::home_dir().and_then(|home| fs_err::canonicalize(home).ok());
    let holds = |place: &PathBuf| place.starts_with(&real);
    if target.file_name().is_none() || here.iter().chain(&home).any(holds) {
        return Err(occupied(
            target,
            "is or contains the current folder or your home folder, and is not replaced",
        ));
    }
    Ok(())
}

fn occupied(target: &Path, why: &str) -> Finding {
    Finding::error(
        codes::usage::FILE_UNWRITABLE,
        format!("`{}` {why}", target.display()),
    )
    .hint("choose a folder that does not exist; nothing was overwritten")
}

fn unwritable(target: &Path, error: &io::Error) -> Finding {
    Finding::error(
        codes::usage::FILE_UNWRITABLE,
        format!("cannot write `{}`: {error}", target.display()),
    )
    .hint("choose a writable folder with enough space; no partial files remain")
}
