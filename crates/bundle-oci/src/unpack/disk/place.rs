//! The folder that a person named, and the hidden one in which everything grows until it is complete.
//! Not here: what is written into it (the module above).

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use tempfile::TempDir;

/// What hidden folders begin with.
const PREFIX: &str = ".kubectl-bundle-";

/// Where an image is going to be. What is not [kept](Self::keep) leaves nothing behind.
#[derive(Debug)]
pub struct Place {
    target: PathBuf,
    growing: TempDir,
    how: How,
}

#[derive(Debug)]
enum How {
    /// The target is not there: the new folder becomes it.
    New,
    /// The target is there and empty, perhaps a mount or the current folder: its content moves in.
    Inside,
    /// The target is there, and goes.
    Instead,
}

impl Place {
    /// Prepares for `target`: a folder that does not exist or is empty, or, with `replace`, any that is not a part of where this program runs.
    pub fn prepare(target: &Path, replace: bool) -> Result<Self, Finding> {
        let how = match fs_err::symlink_metadata(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => How::New,
            Err(error) => return Err(unwritable(target, &error)),
            Ok(found) if !found.is_dir() => {
                return Err(occupied(target, "exists and is not a folder"));
            }
            Ok(_) => {
                let mut entries =
                    fs_err::read_dir(target).map_err(|error| unwritable(target, &error))?;
                match entries.next() {
                    None => How::Inside,
                    Some(_) if !replace => {
                        return Err(occupied(target, "exists and is not empty").hint(
                            "name a new or an empty folder, or replace this one whole with --force",
                        ));
                    }
                    Some(_) => {
                        replaceable(target)?;
                        How::Instead
                    }
                }
            }
        };
        let beside = match how {
            How::Inside => target,
            How::New | How::Instead => parent(target),
        };
        // Renaming is atomic only within one file system.
        let growing = fs_err::create_dir_all(beside)
            .and_then(|()| tempfile::Builder::new().prefix(PREFIX).tempdir_in(beside))
            .map_err(|error| unwritable(target, &error))?;
        fs_err::create_dir(growing.path().join("new"))
            .map_err(|error| unwritable(target, &error))?;
        Ok(Self {
            target: target.to_owned(),
            growing,
            how,
        })
    }

    /// The folder in which everything grows: new, private and empty.
    pub fn folder(&self) -> PathBuf {
        self.growing.path().join("new")
    }

    /// Puts what has grown where it was meant to be.
    pub fn keep(self) -> Result<(), Finding> {
        let new = self.folder();
        let target = &self.target;
        match self.how {
            How::New => fs_err::rename(&new, target),
            How::Inside => move_in(&new, target),
            How::Instead => {
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

/// Moves what is in one folder into another; if something cannot be, what was moved goes back.
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

/// A folder that this program runs in, or that holds it, is never what is meant.
fn replaceable(target: &Path) -> Result<(), Finding> {
    let real = fs_err::canonicalize(target).map_err(|error| unwritable(target, &error))?;
    let here = std::env::current_dir().and_then(fs_err::canonicalize);
    let home = std::env::home_dir().and_then(|home| fs_err::canonicalize(home).ok());
    let holds = |place: &PathBuf| place.starts_with(&real);
    if target.file_name().is_none() || here.iter().chain(&home).any(holds) {
        return Err(occupied(
            target,
            "is or holds the current folder or your home, and is not replaced",
        ));
    }
    Ok(())
}

fn occupied(target: &Path, why: &str) -> Finding {
    Finding::error(
        codes::usage::FILE_UNWRITABLE,
        format!("`{}` {why}", target.display()),
    )
    .hint("name a folder that does not exist yet; nothing was overwritten")
}

fn unwritable(target: &Path, error: &io::Error) -> Finding {
    Finding::error(
        codes::usage::FILE_UNWRITABLE,
        format!("cannot write `{}`: {error}", target.display()),
    )
    .hint("choose a place that may be written to and has room; nothing was left behind")
}
