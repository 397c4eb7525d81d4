//! `verify`: who signed a bundle, by public keys, the identity in a certificate, or SignaturePolicies from files.
//! Not here: the decision (bundle-trust).

pub(crate) mod documents;
mod rules;
pub(crate) mod signer;
pub(crate) mod wanted;

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::Findings;
use bundle_core::reference::Reference;
use bundle_trust::attest::PredicateType;
use jiff::Timestamp;
use serde::Serialize;

use crate::failure::Outcome;
use crate::files;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;
use crate::ui::format::Format;

use rules::Rules;
use signer::Signer;
use wanted::Wanted;

/// What to verify against.
pub(crate) enum Against {
    /// Keys, or an identity.
    Signer(Wanted),
    /// Every SignaturePolicy in these files that matches.
    Policies(Vec<PathBuf>),
}

/// What `verify` needs to know.
pub(crate) struct Verify {
    /// The bundle.
    pub(crate) reference: Reference,
    /// What to verify against.
    pub(crate) against: Against,
    /// The kinds of attestation that must be there, instead of a signature; if none, a signature.
    pub(crate) kinds: Vec<PredicateType>,
    /// The trust root instead of the public one.
    pub(crate) trusted_root: Option<PathBuf>,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// How to talk to registries.
    pub(crate) registry: RegistrySettings,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    reference: String,
    digest: String,
    verified: bool,
    signatures_found: usize,
    signed_by: Vec<Signer>,
    findings: Findings,
}

/// The text of a trust root in a file, if one is named.
pub(crate) fn root_text(path: Option<&Path>) -> Outcome<Option<String>> {
    path.map(files::read_text).transpose()
}

impl Verify {
    /// Reads keys or policies, fetches signatures, decides, and prints who signed.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let now = Timestamp::now();
        let rules = Rules::read(self.against, self.trusted_root.as_deref(), now)?;
        let client = registry::client(&self.registry)?;
        let pinned = registry::pin(ui, &client, &self.reference).await?;
        let signatures = registry::signatures(ui, &client, &pinned).await;
        let decided = rules::decide(&rules, &self.kinds, &pinned, &signatures, now);
        let found = signatures.as_ref().map_or(0, Vec::len);
        let (signed_by, findings, failed) = match decided {
            Ok((signed_by, warnings)) => (signed_by, warnings, false),
            Err(findings) => (Vec::new(), findings, true),
        };
        let report = Report {
            reference: self.reference.to_string(),
            digest: pinned.digest().to_string(),
            verified: !failed,
            signatures_found: found,
            signed_by,
            findings: findings.clone(),
        };
        let structured = ui.structured(self.format, &report)?;
        if failed {
            return Err(findings.into());
        }
        ui.warnings(&findings);
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
            "verified {}: {found} signature(s) found; checked: {checked}",
            pinned.without_tag()
        ));
        if !self.kinds.is_empty() {
            ui.note(
                "an attestation is no signature: whether it is signed was not asked".to_owned(),
            );
        }
        Ok(())
    }
}
