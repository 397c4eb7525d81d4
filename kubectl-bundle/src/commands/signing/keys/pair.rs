//! The two files of a key pair. If one file cannot be created, no file is created.

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use bundle_trust::keys::KeyPairFiles;

use crate::failure::Outcome;
use crate::system::files;
use crate::ui::Ui;

/// Paths of a key pair.
pub(super) struct Files {
    private: PathBuf,
    public: PathBuf,
}

impl Files {
    /// Returns the paths `PREFIX.key` and `PREFIX.pub`. Returns an error if one of these files
    /// exists. This check runs before the password is requested. The write repeats the check.
    pub(super) fn new(prefix: &Path) -> Outcome<Self> {
        let files = Self {
            private: with_extension(prefix, ".key"),
            public: with_extension(prefix, ".pub"),
        };
        for path in [&files.private, &files.public] {
            if fs_err::symlink_metadata(path).is_ok() {
                return Err(exists(path).into());
            }
        }
        Ok(files)
    }

    /// Writes both files.
    pub(super) fn write(&self, ui: &mut Ui, pair: &KeyPairFiles) -> Outcome {
        let Self { private, public } = self;
        files::create(private, pair.private_pem.as_bytes(), files::SECRET)?;
        if let Err(failure) =
            files::create(public, pair.public_pem.as_bytes(), files::PUBLIC_FILE_MODE)
        {
            // A private key without its public key is removed. The first error is the cause, so an
            // error of the removal is ignored.
            let _ = fs_err::remove_file(private);
            return Err(failure);
        }
        ui.note(format!("private key written to {}", private.display()));
        ui.note(format!("public key written to {}", public.display()));
        Ok(())
    }
}

fn exists(path: &Path) -> Finding {
    Finding::error(codes::usage::FILE_UNWRITABLE, "the file already exists")
        .in_file(path.display().to_string())
        .hint("keys are never overwritten: use another --output-key-prefix, or move the existing files")
}

fn with_extension(prefix: &Path, ending: &str) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
