//! `sign FILE --bundle`: signs a file and writes the signature to a Sigstore bundle.

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use bundle_oci::media;
use bundle_trust::attest::{PredicateType, statement};
use bundle_trust::sign::{check_attested_not_image, check_not_image};
use serde::{Deserialize, Serialize};

use crate::commands::signing::hashed_file::HashedFile;
use crate::commands::signing::predicate;
use crate::failure::Outcome;
use crate::signer::{Payload, SignerInfo, SignerSettings};
use crate::system::files;
use crate::ui::Ui;
use crate::ui::format::Format;

/// Settings of `sign FILE --bundle`.
pub(crate) struct SignFile {
    /// The file.
    pub(crate) file: PathBuf,
    /// Path of the Sigstore bundle to write.
    pub(crate) bundle: PathBuf,
    /// `true` if an existing file is replaced.
    pub(crate) force: bool,
    /// File and type of a predicate, if the file is attested instead of signed.
    pub(crate) predicate: Option<(PathBuf, PredicateType)>,
    /// Signer.
    pub(crate) by: SignerSettings,
    /// Output format.
    pub(crate) format: Option<Format>,
}

#[derive(Serialize)]
struct SignFileReport {
    file: String,
    digest: String,
    bundle: String,
    #[serde(flatten)]
    signer: SignerInfo,
}

/// Returns `true` if the content is a Sigstore bundle, which `--force` may replace.
fn is_bundle(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct DocumentKind {
        media_type: String,
    }
    let kind: Result<DocumentKind, _> = bundle_core::json::read(bytes);
    kind.is_ok_and(|kind| kind.media_type.starts_with(media::SIGSTORE_BUNDLE_PREFIX))
}

impl SignFile {
    /// Checks that the signature can be written, before an entry is added to a log. The write
    /// repeats the check.
    fn check_target(&self) -> Outcome {
        let refused = |why: &str, hint: &str| {
            Err(Finding::error(codes::usage::FILE_UNWRITABLE, why)
                .in_file(self.bundle.display().to_string())
                .hint(format!("nothing was signed; {hint}"))
                .into())
        };
        if fs_err::symlink_metadata(&self.bundle).is_err() {
            return Ok(());
        }
        if !self.force {
            return refused("the file already exists", "--force overwrites it");
        }
        let canonical = |path: &Path| fs_err::canonicalize(path).ok();
        if canonical(&self.bundle).is_some_and(|bundle| canonical(&self.file) == Some(bundle)) {
            let why = "the signature would overwrite the file itself";
            return refused(why, "use another file with --bundle");
        }
        // A dangling link is replaced. A pipe is not opened, because opening it would block.
        let is_replaceable = match fs_err::metadata(&self.bundle) {
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
            Ok(there) => there.is_file() && is_bundle(&files::read(&self.bundle)?),
        };
        if !is_replaceable {
            let why = "the file exists and is not a Sigstore bundle";
            let hint = "--force only replaces Sigstore bundles: use another file with --bundle";
            return refused(why, hint);
        }
        Ok(())
    }

    /// Hashes the file, opens the key or gets the token, signs, writes the bundle, and prints its
    /// path.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        self.check_target()?;
        let hashed = {
            let _progress = ui.progress(&format!("reading {}", self.file.display()));
            HashedFile::read(&self.file)?
        };
        let bytes = hashed.payload();
        let checked = match &self.predicate {
            Some(_) => check_attested_not_image(bytes),
            None => check_not_image(bytes),
        };
        checked.map_err(|why| why.in_file(self.file.display().to_string()))?;
        let payload = if let Some((path, kind)) = self.predicate {
            let name = self.file.file_name().unwrap_or(self.file.as_os_str());
            let predicate = predicate::read(&path, kind)?;
            Payload::Statement(statement(
                &name.to_string_lossy(),
                &hashed.digest,
                &predicate,
            ))
        } else {
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
            if self.force {
                files::replace(&self.bundle, &signature.bytes, is_bundle)?;
            } else {
                files::create_all(&[(self.bundle.clone(), signature.bytes)], false)?;
            }
        }
        ui.note(format!(
            "{done} {} {}",
            self.file.display(),
            made.signer.text
        ));
        let report = SignFileReport {
            file: self.file.display().to_string(),
            digest: hashed.digest.to_string(),
            bundle: self.bundle.display().to_string(),
            signer: made.signer,
        };
        if !ui.structured(self.format, &report)? {
            ui.data(report.bundle)?;
        }
        Ok(())
    }
}
