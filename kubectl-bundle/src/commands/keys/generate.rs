//! `keys generate`: a pair of files that did not exist before, or none.
//! Not here: the keys themselves (bundle-trust).

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use bundle_trust::keys::{self, KeyKind};

use crate::failure::Outcome;
use crate::files;
use crate::password::Source;
use crate::ui::Ui;

/// What `keys generate` needs to know.
pub(crate) struct Generate {
    /// Path of the files, without their endings.
    pub(crate) prefix: PathBuf,
    /// Kind of key.
    pub(crate) kind: KeyKind,
    /// Where the password comes from.
    pub(crate) password: Source,
}

impl Generate {
    /// Makes the keys and writes both files.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let private = with_ending(&self.prefix, ".key");
        let public = with_ending(&self.prefix, ".pub");
        // Before a password is asked for; writing checks again.
        for path in [&private, &public] {
            if fs_err::symlink_metadata(path).is_ok() {
                return Err(exists(path).into());
            }
        }
        let password = self.password.choose()?;
        let pair = {
            let _progress = ui.progress("making a key pair");
            keys::generate(self.kind, &password)?
        };
        files::create(&private, pair.private_pem.as_bytes(), files::SECRET)?;
        if let Err(failure) = files::create(&public, pair.public_pem.as_bytes(), files::OPEN) {
            // Half a pair is of no use; an error here adds nothing to the first one.
            let _ = fs_err::remove_file(&private);
            return Err(failure);
        }
        ui.note(format!("private key written to {}", private.display()));
        ui.note(format!("public key written to {}", public.display()));
        Ok(())
    }
}

fn exists(path: &Path) -> Finding {
    Finding::error(codes::usage::FILE_UNWRITABLE, "the file exists already")
        .in_file(path.display().to_string())
        .hint("keys are never overwritten: choose another --output-key-prefix, or move the old pair away")
}

fn with_ending(prefix: &Path, ending: &str) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
