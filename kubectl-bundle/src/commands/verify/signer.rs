//! Who signed, as `verify` and `policy test` print it.
//! Not here: who counts (bundle-core::policy).

use std::collections::BTreeMap;

use bundle_core::policy::{self, Accepted, IdentityName, SignedAt, SignedBy};
use serde::Serialize;

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
        }
    }

    /// The subject, or the key's hint.
    pub(crate) fn short(&self) -> String {
        match (&self.identity, &self.key) {
            (Some(name), _) => name.subject.clone(),
            (None, key) => key.clone().unwrap_or_default(),
        }
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
        }
    }
}

fn halves(signer: policy::Signer) -> (Option<String>, Option<IdentityName>) {
    match signer {
        policy::Signer::Key(key) => (Some(key.to_string()), None),
        policy::Signer::Identity { name, .. } => (None, Some(name)),
    }
}
