//! `verify FILE --bundle`: verifies the signature of a file with public keys, or with the identity
//! in a certificate.

use std::path::PathBuf;

use bundle_core::diagnostic::Findings;
use bundle_trust::attest::PredicateType;
use jiff::Timestamp;
use serde::Serialize;

use super::accepted_signers::AcceptedSigners;
use super::signer::{self, Signer};
use crate::commands::signing::hashed_file::HashedFile;
use crate::failure::Outcome;
use crate::sigstore::root::{RootOrigin, TrustRootSettings};
use crate::system::files;
use crate::ui::Ui;
use crate::ui::format::Format;

/// Settings of `verify FILE --bundle`.
pub(crate) struct VerifyFile {
    /// The file.
    pub(crate) file: PathBuf,
    /// Sigstore bundle with the signature.
    pub(crate) bundle: PathBuf,
    /// Accepted signers.
    pub(crate) accepted_signers: AcceptedSigners,
    /// Predicate types of required attestations. If the list is empty, a signature is required.
    pub(crate) kinds: Vec<PredicateType>,
    /// The trust root.
    pub(crate) root: TrustRootSettings,
    /// Output format.
    pub(crate) format: Option<Format>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VerifyFileReport {
    file: String,
    digest: String,
    verified: bool,
    signed_by: Vec<Signer>,
    /// Origin of the trust root; `None` if keys are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    trust_root: Option<RootOrigin>,
    findings: Findings,
}

impl VerifyFile {
    /// Reads keys, Sigstore bundle and file, verifies the signature, and prints the signers.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let now = Timestamp::now();
        let by_keys = matches!(self.accepted_signers, AcceptedSigners::Keys(_));
        let root = self.accepted_signers.root(self.root, ui).await?;
        let ready = self.accepted_signers.read(&root, now)?;
        let bundle = files::read(&self.bundle)?;
        let hashed = {
            let _progress = ui.progress(&format!("reading {}", self.file.display()));
            HashedFile::read(&self.file)?
        };
        let (signed_by, findings) = match ready.of_file(&self.kinds, bundle, &hashed.content()) {
            Ok(signer) => (vec![signer], Findings::default()),
            Err(finding) => (Vec::new(), finding.into()),
        };
        let report = VerifyFileReport {
            file: self.file.display().to_string(),
            digest: hashed.digest.to_string(),
            verified: !signed_by.is_empty(),
            signed_by,
            trust_root: (!by_keys).then(|| root.origin.clone()),
            findings: findings.clone(),
        };
        let structured = ui.structured(self.format, &report)?;
        if findings.has_errors() {
            return Err(findings.into());
        }
        if structured {
            return Ok(());
        }
        let by = if self.kinds.is_empty() {
            "SIGNED BY"
        } else {
            "ATTESTED BY"
        };
        let checked = signer::checked(&report.signed_by);
        ui.text(&signer::table(by, report.signed_by).render())?;
        ui.note(format!(
            "verified {} ({}); checked: {checked}",
            report.file, report.digest
        ));
        if let Some(origin) = report.trust_root {
            ui.note(format!("trust root: {origin}"));
        }
        if !self.kinds.is_empty() {
            ui.note("an attestation is not a signature: signatures were not verified".to_owned());
        }
        Ok(())
    }
}
