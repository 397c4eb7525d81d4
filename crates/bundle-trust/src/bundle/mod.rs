//! Sigstore bundles of versions 0.1 to 0.3: all fields, and the requirements of each version.
//! Parsing a bundle verifies no signature; see [`crate::verify`].

mod evidence;

use bundle_core::policy::Rejection;
use serde::{Deserialize, Serialize};

use crate::dsse::{self, Envelope};
use crate::{der, json};
use evidence::{LogEntry, Timestamps};

/// Version of the Sigstore bundle format. The protobuf definition of the bundle and the client
/// specification state the requirements of each version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// Version 0.1, with a certificate chain. The SET is required, and the inclusion proof is
    /// optional.
    V0_1,
    /// Version 0.2, with a certificate chain. The inclusion proof with its checkpoint is required,
    /// and the SET is optional.
    V0_2,
    /// Version 0.3, with one certificate. The required evidence is the same as in version 0.2.
    V0_3,
}

impl Version {
    fn of(media_type: &str) -> Option<Self> {
        match media_type {
            "application/vnd.dev.sigstore.bundle+json;version=0.1" => Some(Self::V0_1),
            "application/vnd.dev.sigstore.bundle+json;version=0.2" => Some(Self::V0_2),
            dsse::BUNDLE | dsse::BUNDLE_OLD_SPELLING => Some(Self::V0_3),
            _ => None,
        }
    }
}

/// Sigstore bundle. Unknown fields are rejected, as in cosign, because an unknown field could be a
/// condition. sigstore-verify gets the JSON of this struct, so that sigstore-verify and this crate
/// read the same fields.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Bundle {
    #[serde(default)]
    pub(crate) media_type: String,
    #[serde(default)]
    pub(crate) verification_material: Material,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dsse_envelope: Option<Envelope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message_signature: Option<MessageSignature>,
}

/// Signature over the content, without an envelope.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MessageSignature {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message_digest: Option<MessageDigest>,
    pub(crate) signature: String,
}

/// Digest of the content, as the message signature claims. For Ed25519, cosign leaves `algorithm`
/// and `digest` empty.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageDigest {
    #[serde(default)]
    pub(crate) algorithm: String,
    #[serde(default)]
    pub(crate) digest: String,
}

/// Verification material: the claimed key or certificate, log entries and timestamps.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Material {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) public_key: Option<KeyHint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate: Option<Certificate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) x509_certificate_chain: Option<CertificateChain>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tlog_entries: Option<Vec<LogEntry>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timestamp_verification_data: Option<Timestamps>,
}

/// Hint that names the key of the signature. The hint affects only the order in which keys are
/// tried.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyHint {
    #[serde(default)]
    pub(crate) hint: String,
}

/// Certificate: DER in Base64.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Certificate {
    raw_bytes: String,
}

/// Certificates. The certificate of the signer is first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CertificateChain {
    certificates: Vec<Certificate>,
}

impl Material {
    /// Returns the verification material of a signature that is made with a key: only a key hint.
    pub(crate) fn by_key(hint: impl Into<String>) -> Self {
        Self {
            public_key: Some(KeyHint { hint: hint.into() }),
            ..Self::default()
        }
    }
}

impl Bundle {
    /// Parses a Sigstore bundle. Unknown versions and fields are rejected.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, Version), Rejection> {
        let bundle: Self = json::read(bytes, "not the JSON of a Sigstore bundle")?;
        match Version::of(&bundle.media_type) {
            Some(version) => Ok((bundle, version)),
            None => Err(Rejection::OtherForm(bundle.media_type)),
        }
    }

    /// Checks the requirements of bundle version `version` for a Sigstore bundle with a
    /// certificate.
    pub(crate) fn check_certified(&self, version: Version) -> Result<(), Rejection> {
        let material = &self.verification_material;
        match (
            version,
            &material.certificate,
            &material.x509_certificate_chain,
        ) {
            (Version::V0_3, Some(_), None) => {}
            (Version::V0_1 | Version::V0_2, None, Some(chain)) => chain.check()?,
            (Version::V0_3, ..) => {
                return Err(unreadable("version 0.3 requires exactly one certificate"));
            }
            (Version::V0_1 | Version::V0_2, ..) => {
                return Err(unreadable(
                    "versions 0.1 and 0.2 require a list of certificates",
                ));
            }
        }
        self.check_entries(version)
    }

    /// Checks the log entries: the requirements of `version`, and the format of each body.
    pub(crate) fn check_entries(&self, version: Version) -> Result<(), Rejection> {
        let entries = &self.verification_material.tlog_entries;
        for entry in entries.iter().flatten() {
            entry.check_evidence(version)?;
            entry.check_body()?;
        }
        Ok(())
    }
}

impl CertificateChain {
    /// Checks that the chain is not empty, that each certificate is base64, and that no certificate
    /// is a root certificate. Only a trust root may define root certificates.
    fn check(&self) -> Result<(), Rejection> {
        if self.certificates.is_empty() {
            return Err(unreadable("its list of certificates is empty"));
        }
        for certificate in &self.certificates {
            let bytes = dsse::decode(&certificate.raw_bytes)
                .ok_or_else(|| unreadable("a certificate is not base64"))?;
            if der::is_self_issued(&bytes) {
                return Err(unreadable(
                    "its certificates contain a root, which is only allowed in a trust root",
                ));
            }
        }
        Ok(())
    }
}

fn unreadable(why: &str) -> Rejection {
    Rejection::Unreadable(why.to_owned())
}
