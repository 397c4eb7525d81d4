//! `verify`: verifies the signatures of a bundle with public keys, with the identity in a
//! certificate, or with SignaturePolicies in files.

pub(crate) mod accepted_signers;
mod arguments;
pub(crate) mod documents;
pub(crate) mod file;
mod rules;
pub(crate) mod signer;

use std::path::PathBuf;

use bundle_core::diagnostic::Findings;
use bundle_core::reference::Reference;
use bundle_trust::attest::PredicateType;
use jiff::Timestamp;
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::registry::{self, RegistrySettings};
use crate::sigstore::root::{RootOrigin, TrustRootSettings};
use crate::ui::Ui;
use crate::ui::format::Format;

use accepted_signers::AcceptedSigners;
use signer::Signer;

pub(crate) use arguments::Arguments;

/// Rules for signatures.
pub(crate) enum VerificationRules {
    /// The accepted signers: keys or an identity.
    Signer(AcceptedSigners),
    /// Files of SignaturePolicies. All policies that match the bundle must be satisfied.
    Policies(Vec<PathBuf>),
}

/// Settings of `verify`.
pub(crate) struct Verify {
    /// The bundle.
    pub(crate) reference: Reference,
    /// Rules for signatures.
    pub(crate) rules: VerificationRules,
    /// Predicate types of required attestations. If the list is empty, a signature is required.
    pub(crate) kinds: Vec<PredicateType>,
    /// The trust root.
    pub(crate) root: TrustRootSettings,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VerifyReport {
    reference: String,
    digest: String,
    verified: bool,
    signatures_found: usize,
    signed_by: Vec<Signer>,
    /// Origin of the trust root; `None` if keys are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    trust_root: Option<RootOrigin>,
    findings: Findings,
}

impl Verify {
    /// Reads keys or policies, fetches signatures, verifies them, and prints the signers.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let now = Timestamp::now();
        let by_keys = matches!(
            self.rules,
            VerificationRules::Signer(AcceptedSigners::Keys(_))
        );
        let client = registry::client(&self.registry)?.with_speculative_reads();
        let reference = &self.reference;
        // The rules are loaded while the registry responds. If the rules are invalid, the command
        // does not wait for the registry.
        let fetch = async {
            let fetched = registry::pin_with_signatures(&client, reference).await;
            Ok::<_, Failure>(fetched)
        };
        let load = rules::load(self.rules, self.root, now, ui);
        let (fetched, (root, rules, progress)) = futures::try_join!(fetch, load)?;
        drop(progress);
        let (pinned, signatures) = fetched?;
        if reference.digest().is_none() {
            ui.note(format!("{reference} is {}", pinned.digest()));
        }
        let decided = rules::decide(&rules, &self.kinds, &pinned, &signatures, now);
        let found = signatures.as_ref().map_or(0, Vec::len);
        let (signed_by, findings, failed) = match decided {
            Ok((signed_by, warnings)) => (signed_by, warnings, false),
            Err(findings) => (Vec::new(), findings, true),
        };
        let report = VerifyReport {
            reference: reference.to_string(),
            digest: pinned.digest().to_string(),
            verified: !failed,
            signatures_found: found,
            signed_by,
            trust_root: (!by_keys).then(|| root.origin.clone()),
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
        // The trust root is not used if all signatures were made with keys.
        let certified = report.signed_by.iter().any(|one| one.identity.is_some());
        let checked = signer::checked(&report.signed_by);
        ui.text(&signer::table(by, report.signed_by).render())?;
        ui.note(format!(
            "verified {}: {found} signature(s) found; checked: {checked}",
            pinned.without_tag()
        ));
        if certified {
            ui.note(format!("trust root: {}", root.origin));
        }
        if !self.kinds.is_empty() {
            ui.note("an attestation is not a signature: signatures were not verified".to_owned());
        }
        Ok(())
    }
}
