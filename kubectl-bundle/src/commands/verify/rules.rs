//! What `verify` holds signatures against: keys and policies from files, and what each makes of them.
//! Not here: the decision itself (bundle-trust), or fetching signatures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::policy::{ClassSignatures, KeyId, Policy, RawSignature, Unavailable};
use bundle_core::reference::PinnedReference;
use bundle_core::yaml;
use bundle_trust::keys::PublicKey;
use bundle_trust::{proof, verify};
use serde_json::Value;

use super::{Against, Signer};
use crate::failure::{Failure, Outcome};
use crate::{failure, files};

/// What was read of the files.
pub(super) enum Rules {
    /// Any of these keys, with their files.
    Keys(Vec<(PathBuf, PublicKey)>),
    /// Every one that matches.
    Policies(Vec<Policy>),
}

impl Rules {
    /// Reads the files.
    pub(super) fn read(against: &Against) -> Outcome<Self> {
        Ok(match against {
            Against::Keys(paths) => Self::Keys(read_keys(paths)?),
            Against::Policies(paths) => Self::Policies(read_policies(paths)?),
        })
    }
}

/// Who signed and what is to be told, or why it is not verified.
pub(super) type Decision = Result<(Vec<Signer>, Findings), Findings>;

/// Decides.
pub(super) fn decide(
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
                annotations: BTreeMap::new(),
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
