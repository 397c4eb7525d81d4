//! `sign FILE --bundle`: a file is signed, and the signature goes into a file beside it.
//! Not here: who signs (signer) and cryptography (bundle-trust).

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use bundle_trust::attest::{PredicateType, statement};
use bundle_trust::sign::mistaken;
use serde::Serialize;

use super::Hashed;
use crate::commands::attest;
use crate::failure::Outcome;
use crate::files;
use crate::signer::{By, Payload, Who};
use crate::ui::Ui;
use crate::ui::format::Format;

/// What `sign FILE --bundle` needs to know.
pub(crate) struct SignFile {
    /// The file.
    pub(crate) file: PathBuf,
    /// Where the signature goes.
    pub(crate) bundle: PathBuf,
    /// Whether a file that is there is replaced.
    pub(crate) force: bool,
    /// What is attested of it, if it is not signed: a file, and what kind it is.
    pub(crate) predicate: Option<(PathBuf, PredicateType)>,
    /// Who signs.
    pub(crate) by: By,
    /// How to print.
    pub(crate) format: Option<Format>,
}

#[derive(Serialize)]
struct Report {
    file: String,
    digest: String,
    bundle: String,
    #[serde(flatten)]
    who: Who,
}

impl SignFile {
    /// Hashes the file, opens the key or gets the token, signs, writes, and prints where the signature is.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        // Before anything is entered in a log; writing checks again.
        if !self.force && fs_err::symlink_metadata(&self.bundle).is_ok() {
            return Err(
                Finding::error(codes::usage::FILE_UNWRITABLE, "the file exists already")
                    .in_file(self.bundle.display().to_string())
                    .hint("nothing was signed; --force overwrites it")
                    .into(),
            );
        }
        let whole = |path: &Path| fs_err::canonicalize(path).ok();
        if whole(&self.bundle).is_some_and(|bundle| whole(&self.file) == Some(bundle)) {
            return Err(Finding::error(
                codes::usage::FILE_UNWRITABLE,
                "its signature would take the place of the file itself",
            )
            .in_file(self.bundle.display().to_string())
            .hint("nothing was signed; name another file with --bundle")
            .into());
        }
        let hashed = {
            let _progress = ui.progress(&format!("reading {}", self.file.display()));
            Hashed::read(&self.file)?
        };
        let payload = if let Some((path, kind)) = self.predicate {
            let name = self.file.file_name().unwrap_or(self.file.as_os_str());
            let predicate = attest::read(&path, kind)?;
            Payload::Statement(statement(
                &name.to_string_lossy(),
                &hashed.digest,
                &predicate,
            ))
        } else {
            // What is too large to be at hand is too large to be the manifest or payload of anything.
            if let Some(bytes) = hashed.content().bytes {
                mistaken(bytes).map_err(|why| why.in_file(self.file.display().to_string()))?;
            }
            Payload::Content
        };
        let done = match &payload {
            Payload::Content => "signed",
            _ => "attested",
        };
        let signer = self.by.open(ui).await?;
        let made = signer
            .sign(ui, payload, &hashed.content(), &|_| false)
            .await?;
        if let Some(signature) = made.signature {
            files::create_all(&[(self.bundle.clone(), signature.bytes)], self.force)?;
        }
        ui.note(format!("{done} {} {}", self.file.display(), made.who.text));
        let report = Report {
            file: self.file.display().to_string(),
            digest: hashed.digest.to_string(),
            bundle: self.bundle.display().to_string(),
            who: made.who,
        };
        if !ui.structured(self.format, &report)? {
            ui.data(report.bundle)?;
        }
        Ok(())
    }
}
