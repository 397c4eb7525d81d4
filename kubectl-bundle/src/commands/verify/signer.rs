//! Who signed, as `verify` and `policy test` print it.

use std::collections::BTreeMap;

use bundle_core::policy::{self, Accepted, IdentityName, SignedAt, SignedBy};
use bundle_trust::verify::Attestation;
use serde::Serialize;
use serde_json::Value;

use crate::ui::Table;

/// A signature that counted.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Signer {
    /// The file of the key, the identity's issuer, or the policy.
    pub(crate) by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) authority: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<IdentityName>,
    /// When, and who says so; absent where nobody who is trusted does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signed_at: Option<SignedAt>,
    /// What was checked and held.
    pub(crate) checked: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) attestations: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    /// What kind of attestation it is, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) predicate_type: Option<String>,
    /// What it attests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) predicate: Option<Value>,
}

impl Signer {
    /// A signature by one of the given keys or identities.
    pub(crate) fn found(by: String, accepted: Accepted) -> Self {
        let (key, identity) = halves(accepted.signer);
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

    /// An attestation by one of them.
    pub(crate) fn attested(by: String, attestation: Attestation) -> Self {
        Self {
            predicate_type: Some(attestation.predicate_type),
            predicate: Some(attestation.predicate),
            ..Self::found(by, attestation.accepted)
        }
    }

    /// The subject, or the key's hint.
    pub(crate) fn short(&self) -> String {
        match (&self.identity, &self.key) {
            (Some(name), _) => name.subject.clone(),
            (None, key) => key.clone().unwrap_or_default(),
        }
    }

    /// What was signed beside the digest, or what kind of thing was attested.
    pub(crate) fn says(&self) -> String {
        let beside = self.annotations.iter();
        let beside = beside.map(|(key, value)| format!("{key}={value}"));
        let kind = self.predicate_type.iter().cloned();
        kind.chain(beside).collect::<Vec<_>>().join(",")
    }

    /// When, and who says so.
    pub(crate) fn when(&self) -> String {
        match &self.signed_at {
            Some(SignedAt { at, source }) => format!("{at} ({source})"),
            None => "not known".to_owned(),
        }
    }
}

impl From<SignedBy> for Signer {
    fn from(signed: SignedBy) -> Self {
        let (key, identity) = halves(signed.signer);
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

fn halves(signer: policy::Signer) -> (Option<String>, Option<IdentityName>) {
    match signer {
        policy::Signer::Key(key) => (Some(key.to_string()), None),
        policy::Signer::Identity { name, .. } => (None, Some(name)),
    }
}

/// Who signed, one row each.
pub(crate) fn table(by: &'static str, signers: Vec<Signer>) -> Table {
    let mut table = Table::new([by, "AUTHORITY", "SIGNER", "WHEN", "SAYS"]);
    for signer in signers {
        let (short, when, says) = (signer.short(), signer.when(), signer.says());
        table.row([
            signer.by,
            signer.authority.unwrap_or_default(),
            short,
            when,
            says,
        ]);
    }
    table
}

/// What was checked of any of them, each once.
pub(crate) fn checked(signers: &[Signer]) -> String {
    let mut checked: Vec<&str> = Vec::new();
    for one in signers.iter().flat_map(|signer| &signer.checked) {
        if !checked.contains(one) {
            checked.push(one);
        }
    }
    checked.join(", ")
}
