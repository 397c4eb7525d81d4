//! The description of signers that `verify` and `policy test` print.

use std::collections::BTreeMap;

use bundle_core::policy::{self, IdentityName, SignedAt, SignedBy, ValidSignature};
use bundle_trust::verify::Attestation;
use serde::Serialize;
use serde_json::Value;

use crate::ui::Table;

/// A verified signature.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Signer {
    /// File of the key, issuer of the identity, or name of the policy.
    pub(crate) by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) authority: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<IdentityName>,
    /// Signing time and its source; `None` without a trusted source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signed_at: Option<SignedAt>,
    /// Checks that passed.
    pub(crate) checked: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) attestations: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    /// Predicate type of an attestation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) predicate_type: Option<String>,
    /// Predicate of an attestation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) predicate: Option<Value>,
}

impl Signer {
    /// Returns the signer of a valid signature. `by` is the file of the key, or the issuer of the
    /// identity.
    pub(crate) fn from_signature(by: String, accepted: ValidSignature) -> Self {
        let (key, identity) = signer_parts(accepted.signer);
        Self {
            by,
            authority: None,
            key,
            identity,
            signed_at: accepted.signed_at,
            checked: accepted.checked,
            attestations: Vec::new(),
            annotations: accepted.annotations,
            predicate_type: None,
            predicate: None,
        }
    }

    /// Returns the signer of a valid attestation. `by` is the file of the key, or the issuer of the
    /// identity.
    pub(crate) fn from_attestation(by: String, attestation: Attestation) -> Self {
        Self {
            predicate_type: Some(attestation.predicate_type),
            predicate: Some(attestation.predicate),
            ..Self::from_signature(by, attestation.accepted)
        }
    }

    /// Returns the subject of the certificate, or the key hint.
    pub(crate) fn subject_or_key_hint(&self) -> String {
        match (&self.identity, &self.key) {
            (Some(name), _) => name.subject.clone(),
            (None, key) => key.clone().unwrap_or_default(),
        }
    }

    /// Returns the signed annotations or the predicate type.
    pub(crate) fn description(&self) -> String {
        let annotations = self.annotations.iter();
        let annotations = annotations.map(|(key, value)| format!("{key}={value}"));
        let kind = self.predicate_type.iter().cloned();
        kind.chain(annotations).collect::<Vec<_>>().join(",")
    }

    /// Returns the signing time and its source.
    pub(crate) fn time_text(&self) -> String {
        match &self.signed_at {
            Some(SignedAt { at, source }) => format!("{at} ({source})"),
            None => "unknown".to_owned(),
        }
    }
}

impl From<SignedBy> for Signer {
    fn from(signed: SignedBy) -> Self {
        let (key, identity) = signer_parts(signed.signer);
        Self {
            by: signed.policy,
            authority: Some(signed.authority),
            key,
            identity,
            signed_at: signed.signed_at,
            checked: signed.checked,
            attestations: signed.attestations,
            annotations: BTreeMap::new(),
            predicate_type: None,
            predicate: None,
        }
    }
}

fn signer_parts(signer: policy::Signer) -> (Option<String>, Option<IdentityName>) {
    match signer {
        policy::Signer::Key(key) => (Some(key.to_string()), None),
        policy::Signer::Identity { name, .. } => (None, Some(name)),
    }
}

/// Returns a table of the signers.
pub(crate) fn table(by: &'static str, signers: Vec<Signer>) -> Table {
    let mut table = Table::new([by, "AUTHORITY", "SIGNER", "WHEN", "SAYS"]);
    for signer in signers {
        let (short, time_text, says) = (
            signer.subject_or_key_hint(),
            signer.time_text(),
            signer.description(),
        );
        table.row([
            signer.by,
            signer.authority.unwrap_or_default(),
            short,
            time_text,
            says,
        ]);
    }
    table
}

/// Returns the checks of all signers, without duplicates.
pub(crate) fn checked(signers: &[Signer]) -> String {
    let mut checked: Vec<&str> = Vec::new();
    for one in signers.iter().flat_map(|signer| &signer.checked) {
        if !checked.contains(one) {
            checked.push(one);
        }
    }
    checked.join(", ")
}
