//! `verify`: who signed a bundle, by public keys or by SignaturePolicies from files.
//! Not here: the decision (bundle-trust).

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::policy::{ClassSignatures, KeyId, Policy, RawSignature, Unavailable};
use bundle_core::reference::{PinnedReference, Reference};
use bundle_core::yaml;
use bundle_trust::keys::PublicKey;
use bundle_trust::{proof, verify};
use serde::Serialize;
use serde_json::Value;

use crate::failure::{Failure, Outcome};
use crate::registry::{self, RegistrySettings};
use crate::ui::format::Format;
use crate::ui::{Table, Ui};
use crate::{failure, files};

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
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    annotations: std::collections::BTreeMap<String, String>,
}

enum Rules {
    Keys(Vec<(PathBuf, PublicKey)>),
    Policies(Vec<Policy>),
}

impl Verify {
    /// Reads keys or policies, fetches signatures, decides, and prints who signed.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let rules = match &self.against {
            Against::Keys(paths) => Rules::Keys(read_keys(paths)?),
            Against::Policies(paths) => Rules::Policies(read_policies(paths)?),
        };
        let client = registry::client(&self.registry)?;
        let pinned = registry::pin(ui, &client, &self.reference).await?;
        let signatures = {
            let _progress = ui.progress("fetching signatures");
            client
                .signatures(&pinned)
                .await
                .map_err(|error| Unavailable(error.finding()))
        };
        let decided = decide(&rules, &pinned, &signatures);
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

type Decision = Result<(Vec<Signer>, Findings), Findings>;

fn decide(
    rules: &Rules,
    pinned: &PinnedReference,
    signatures: &Result<Vec<RawSignature>, Unavailable>,
) -> Decision {
    match rules {
        Rules::Keys(keys) => {
            let signatures = signatures
                .as_ref()
                .map_err(|unavailable| Findings::from(unavailable.0.clone()))?;
            let public: Vec<_> = keys.iter().map(|(_, key)| key.clone()).collect();
            let accepted = verify::with_keys(signatures, pinned, &public)?;
            let file = |id: &KeyId| {
                keys.iter()
                    .find(|(_, key)| key.id() == id)
                    .map(|(path, _)| path.display().to_string())
                    .unwrap_or_default()
            };
            let signers = accepted.into_iter().map(|one| Signer {
                by: file(&one.key),
                authority: None,
                key: one.key.to_string(),
                annotations: one.annotations,
            });
            Ok((signers.collect(), Findings::default()))
        }
        Rules::Policies(policies) => {
            let covers = |policy: &Policy| policy.matches(pinned.reference());
            if !policies.iter().any(covers) {
                return Err(uncovered(pinned).into());
            }
            let decided = proof::decide(
                pinned.clone(),
                signatures,
                policies,
                ClassSignatures::Required,
            )
            .map_err(|refusal| refusal.findings)?;
            let signers = decided.signed_by.into_iter().map(|one| Signer {
                by: one.policy,
                authority: Some(one.authority),
                key: one.key.to_string(),
                annotations: std::collections::BTreeMap::new(),
            });
            Ok((signers.collect(), decided.warnings))
        }
    }
}

fn uncovered(pinned: &PinnedReference) -> Finding {
    Finding::error(
        codes::trust::NO_POLICY,
        format!(
            "none of these SignaturePolicies covers {}, so nothing was verified",
            pinned.reference().name()
        ),
    )
    .about(pinned.without_tag())
    .hint("check images[].glob in the policies")
}

fn read_keys(paths: &[PathBuf]) -> Outcome<Vec<(PathBuf, PublicKey)>> {
    paths
        .iter()
        .map(|path| {
            let key = PublicKey::parse(&files::read_text(path)?)
                .map_err(|finding| Failure::from(failure::in_file(finding, path)))?;
            Ok((path.clone(), key))
        })
        .collect()
}

fn read_policies(paths: &[PathBuf]) -> Outcome<Vec<Policy>> {
    let mut policies = Vec::new();
    let mut findings = Findings::default();
    for path in paths {
        let name = path.display().to_string();
        for document in yaml::documents(&files::read(path)?, &name)? {
            let kind = document.value.get("kind").and_then(Value::as_str);
            if kind != Some("SignaturePolicy") {
                findings.push(other_kind(path, document.line, kind));
                continue;
            }
            let text = |pointer: &str| document.value.pointer(pointer).and_then(Value::as_str);
            let title = text("/metadata/name").unwrap_or("unnamed");
            let nothing = Value::Null;
            let spec = document.value.get("spec").unwrap_or(&nothing);
            match Policy::parse(title, spec) {
                Ok(policy) => policies.push(policy),
                Err(errors) => findings
                    .0
                    .extend(errors.0.into_iter().map(|one| one.in_file(&name))),
            }
        }
    }
    if findings.has_errors() {
        return Err(findings.into());
    }
    Ok(policies)
}

fn other_kind(path: &Path, line: usize, kind: Option<&str>) -> Finding {
    Finding::error(
        codes::trust::POLICY_UNREADABLE,
        format!(
            "this is {}, not a SignaturePolicy",
            kind.unwrap_or("nothing with a kind")
        ),
    )
    .in_file(path.display().to_string())
    .at_line(line)
    .hint("name files that hold SignaturePolicies only")
}
