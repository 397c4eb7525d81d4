//! `policy test`: evaluates the SignaturePolicies of a file for a bundle, each and together.

use std::path::PathBuf;

use bundle_core::diagnostic::Findings;
use bundle_core::policy::{ClassSignatures, Mode, Policy, RawSignature, Unavailable};
use bundle_core::reference::{PinnedReference, Reference};
use bundle_trust::proof::{self, Refusal};
use jiff::Timestamp;
use serde::Serialize;

use crate::commands::signing::verify::documents;
use crate::commands::signing::verify::signer::Signer;
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::sigstore::root::TrustRootSettings;
use crate::ui::format::Format;
use crate::ui::{Table, Ui};

/// Settings of `policy test`.
pub(crate) struct PolicyTest {
    /// File of policies.
    pub(crate) file: PathBuf,
    /// The bundle.
    pub(crate) image: Reference,
    /// Trust root for policies without a trust root.
    pub(crate) root: TrustRootSettings,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyTestReport {
    reference: String,
    digest: String,
    decision: &'static str,
    signatures_found: usize,
    policies: Vec<PolicyRow>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyRow {
    policy: String,
    mode: &'static str,
    decision: &'static str,
    signed_by: Vec<Signer>,
    findings: Findings,
}

impl PolicyTest {
    /// Reads the policies, fetches signatures, and prints the decision of each policy and of all
    /// policies together.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let root = self.root.open(ui).await?;
        let policies = documents::read(std::slice::from_ref(&self.file), root.custom_root_text())?;
        let client = registry::client(&self.registry)?;
        let pinned = registry::pin(ui, &client, &self.image).await?;
        let signatures = registry::signatures(ui, &client, &pinned).await;
        let now = Timestamp::now();
        let rows = policies
            .iter()
            .map(|policy| row(policy, &pinned, &signatures, now))
            .collect();
        let class = ClassSignatures::IfPolicy;
        let together = proof::decide(pinned.clone(), &signatures, &policies, class, now);
        let is_covered = policies.iter().any(|policy| policy.matches(&self.image));
        let report = PolicyTestReport {
            reference: self.image.to_string(),
            digest: pinned.digest().to_string(),
            decision: match &together {
                _ if !is_covered => "not covered",
                Ok(_) => "admitted",
                Err(refusal) => refused(refusal),
            },
            signatures_found: signatures.as_ref().map_or(0, Vec::len),
            policies: rows,
        };
        if !ui.structured(self.format, &report)? {
            let mut table = Table::new(["POLICY", "MODE", "DECISION", "SIGNED BY"]);
            for row in &report.policies {
                let signers: Vec<String> = row
                    .signed_by
                    .iter()
                    .map(Signer::subject_or_key_hint)
                    .collect();
                table.row([
                    row.policy.clone(),
                    row.mode.to_owned(),
                    row.decision.to_owned(),
                    signers.join(","),
                ]);
            }
            ui.text(&table.render())?;
        }
        // A class may admit content that no policy matches. For `policy test`, a bundle that no
        // policy matches is an error.
        if !is_covered {
            return Err(documents::no_matching_policy(&pinned).into());
        }
        match together {
            Ok(decided) => {
                ui.warnings(&decided.warnings);
                Ok(())
            }
            Err(refusal) => Err(refusal.findings.into()),
        }
    }
}

fn row(
    policy: &Policy,
    pinned: &PinnedReference,
    signatures: &Result<Vec<RawSignature>, Unavailable>,
    now: Timestamp,
) -> PolicyRow {
    let mut row = PolicyRow {
        policy: policy.name().to_owned(),
        mode: match policy.mode() {
            Mode::Enforce => "enforce",
            Mode::Warn => "warn",
        },
        decision: "no match",
        signed_by: Vec::new(),
        findings: Findings::default(),
    };
    if !policy.matches(pinned.reference()) {
        return row;
    }
    // With `ClassSignatures::Required`, policies in mode `warn` must be satisfied too.
    let class = ClassSignatures::Required;
    match proof::decide(pinned.clone(), signatures, [policy], class, now) {
        Ok(decided) => {
            row.decision = "satisfied";
            row.signed_by = decided.signed_by.into_iter().map(Signer::from).collect();
            row.findings = decided.warnings;
        }
        Err(refusal) => {
            row.decision = refused(&refusal);
            row.findings = refusal.findings;
        }
    }
    row
}

fn refused(refusal: &Refusal) -> &'static str {
    if refusal.is_unknown {
        "unknown"
    } else {
        "refused"
    }
}
