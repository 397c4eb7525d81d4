//! `verify`: who signed a bundle, by public keys or by SignaturePolicies from files.
//! Not here: the decision (bundle-trust).

mod rules;

use std::collections::BTreeMap;
use std::path::PathBuf;

use bundle_core::diagnostic::Findings;
use bundle_core::policy::Unavailable;
use bundle_core::reference::Reference;
use serde::Serialize;

use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::ui::format::Format;
use crate::ui::{Table, Ui};

use rules::Rules;

/// What to verify against.
pub(crate) enum Against {
    /// Any of these public keys.
    Keys(Vec<PathBuf>),
    /// Every SignaturePolicy in these files that matches.
    Policies(Vec<PathBuf>),
}

/// What `verify` needs to know.
pub(crate) struct Verify {
    /// The bundle.
    pub(crate) reference: Reference,
    /// What to verify against.
    pub(crate) against: Against,
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

#[derive(Serialize)]
struct Signer {
    /// The file of the key, or the policy.
    by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    authority: Option<String>,
    key: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

impl Verify {
    /// Reads keys or policies, fetches signatures, decides, and prints who signed.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let rules = Rules::read(&self.against)?;
        let client = registry::client(&self.registry)?;
        let pinned = registry::pin(ui, &client, &self.reference).await?;
        let signatures = {
            let _progress = ui.progress("fetching signatures");
            client
                .signatures(&pinned)
                .await
                .map_err(|error| Unavailable(error.finding()))
        };
        let decided = rules::decide(&rules, &pinned, &signatures);
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
        let mut table = Table::new(["SIGNED BY", "AUTHORITY", "KEY", "SAYS"]);
        for signer in report.signed_by {
            table.row([
                signer.by,
                signer.authority.unwrap_or_default(),
                signer.key,
                signer
                    .annotations
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect::<Vec<_>>()
                    .join(","),
            ]);
        }
        ui.text(&table.render())?;
        ui.note(format!(
            "verified {}: {found} signature(s) found; each was checked against this digest, its key and its meaning",
            pinned.without_tag()
        ));
        Ok(())
    }
}
