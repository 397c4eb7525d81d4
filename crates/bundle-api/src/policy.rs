//! `SignaturePolicy`: references that must be signed, and their signers. Field names follow
//! policy-controller's ClusterImagePolicy.

#[cfg(feature = "resources")]
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "resources")]
use crate::class::ReadyStatus;
use crate::source::LocalName;

/// References that must be signed, and their signers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(
    feature = "resources",
    derive(CustomResource),
    kube(
        group = "core.rukpak.io",
        version = "v1alpha1",
        kind = "SignaturePolicy",
        plural = "signaturepolicies",
        status = "ReadyStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "SignaturePolicy defines the references that must be signed, and the accepted signers. Every policy that matches a reference must be satisfied. An invalid policy rejects every reference that it matches.",
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
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SignaturePolicySpec {
    /// References to which this policy applies. One match is sufficient.
    #[schemars(length(min = 1))]
    pub images: Vec<ImagePattern>,
    /// `enforce` rejects content that does not satisfy the policy. `warn` admits this content with
    /// a warning. Default: `enforce`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<PolicyMode>,
    /// Number of distinct authorities that must have signed. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub threshold: Option<u32>,
    /// Accepted signers. An authority is satisfied if one signature meets all requirements of the
    /// authority.
    #[schemars(length(min = 1))]
    pub authorities: Vec<Authority>,
    /// Allowed changes of the version when new content replaces installed content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
}

/// Pattern for image references.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImagePattern {
    /// Pattern for registry and repository, never for the tag: `registry.example.com/team/**`. `*`
    /// matches any sequence of characters except `/`. `**` matches any sequence of characters.
    pub glob: String,
}

/// `enforce` rejects content that does not satisfy the policy. `warn` admits this content with a
/// warning. Default: `enforce`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyMode {
    /// Reject content that does not satisfy the policy.
    #[default]
    Enforce,
    /// Admit content that does not satisfy the policy, with a warning.
    Warn,
}

/// Accepted signer: a key, or identities in certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Authority {
    /// Name of the authority in messages and in the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Public key of the signer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// Identities in short-lived certificates. One of these identities must have signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyless: Option<Keyless>,
    /// Attestations that the same authority must also have signed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attestations: Vec<Attestation>,
}

/// Public key: inline text or a reference to a Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// Public key as PEM (`-----BEGIN PUBLIC KEY-----`): ECDSA P-256, Ed25519, or RSA of 2048 to
    /// 8192 bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Secret in the system namespace with the key in `cosign.pub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalName>,
}

/// Identities in short-lived certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Keyless {
    /// Accepted identities. One match is sufficient.
    #[schemars(length(min = 1))]
    pub identities: Vec<Identity>,
    /// Trust root: the trusted certificate authorities and logs. Default: the built-in trust root
    /// of the public Sigstore instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_root: Option<TrustRoot>,
}

/// Identity: an issuer and a subject. Each of the two is an exact text or a regular expression.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Issuer of the identity, as exact text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Issuer of the identity, as a regular expression that must match the whole text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_reg_exp: Option<String>,
    /// Subject of the identity, as exact text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Subject of the identity, as a regular expression that must match the whole text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_reg_exp: Option<String>,
}

/// Trust root of a private Sigstore instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrustRoot {
    /// ConfigMap in the system namespace with the root in `trusted_root.json`.
    pub config_map_ref: LocalName,
}

/// Attestation that must exist for the content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attestation {
    /// Predicate type of the attestation, as a URI such as `https://slsa.dev/provenance/v1`.
    pub predicate_type: String,
}

/// Allowed changes of the version when new content replaces installed content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// Allow a lower version to replace a higher version. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_downgrade: Option<bool>,
}
