//! `SignaturePolicy`: which references must be signed, and by whom. Field names are those of policy-controller's ClusterImagePolicy.
//! Not here: reading it into rules (bundle_core::policy) or verifying anything (bundle-trust).

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{class::ReadyStatus, source::LocalName};

/// Which references must be signed, and by whom.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "core.rukpak.io",
    version = "v1alpha1",
    kind = "SignaturePolicy",
    plural = "signaturepolicies",
    status = "ReadyStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "SignaturePolicy says which references must be signed, and by whom. Every policy that matches a reference must be satisfied; a policy that cannot be read refuses what it matches.",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Images", type_ = "string", json_path = ".spec.images[*].glob"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SignaturePolicySpec {
    /// The references that this policy is about; one match is enough.
    #[schemars(length(min = 1))]
    pub images: Vec<ImagePattern>,
    /// `enforce` refuses what is not signed as it says; `warn` only says so. Default: enforce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<PolicyMode>,
    /// How many distinct authorities must have signed. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub threshold: Option<u32>,
    /// Whose signatures count. Each must be met by a single signature that fulfils all that it asks for.
    #[schemars(length(min = 1))]
    pub authorities: Vec<Authority>,
    /// What versions may follow each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
}

/// References by pattern.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImagePattern {
    /// Pattern on registry and repository, never on the tag: `registry.example.com/team/**`. `*` stands for any run of characters but `/`, `**` for any run.
    pub glob: String,
}

/// `enforce` refuses what is not signed as it says; `warn` only says so. Default: enforce.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyMode {
    /// Refuses.
    #[default]
    Enforce,
    /// Warns.
    Warn,
}

/// Whose signature counts: a key, or identities in certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Authority {
    /// Name of the authority, as messages and status call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A public key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// Identities in short-lived certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyless: Option<Keyless>,
    /// Attestations that must be there as well, signed by the same authority.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attestations: Vec<Attestation>,
}

/// A public key: exactly one of the two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// The key as PEM (`-----BEGIN PUBLIC KEY-----`): ECDSA P-256 or Ed25519.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// A Secret in the system namespace with the key in `cosign.pub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalName>,
}

/// Identities in short-lived certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Keyless {
    /// Identities; one match is enough.
    #[schemars(length(min = 1))]
    pub identities: Vec<Identity>,
    /// Who issues certificates and keeps the log. Default: the public Sigstore instance, whose root is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_root: Option<TrustRoot>,
}

/// One identity: an issuer and a subject, each given exactly or as a regular expression.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The issuer, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The issuer, as a regular expression that must match it whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_reg_exp: Option<String>,
    /// The subject, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The subject, as a regular expression that must match it whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_reg_exp: Option<String>,
}

/// A trust root of one's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrustRoot {
    /// A ConfigMap in the system namespace with the root in `trusted_root.json`.
    pub config_map_ref: LocalName,
}

/// An attestation that must be there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attestation {
    /// Its predicate type: `https://slsa.dev/provenance/v1`.
    pub predicate_type: String,
}

/// What versions may follow each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// Whether a lower version may replace a higher one. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_downgrade: Option<bool>,
}
