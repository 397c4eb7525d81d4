//! Signs with a key, or with a certificate for an identity.

mod key;
pub(crate) mod kms;

use std::time::Duration;

use bundle_core::policy::{IdentityName, RawSignature};
use bundle_trust::keyless::SigningInput;
use bundle_trust::sign::{self, SignerIdentity};
use bundle_trust::verify::Content;
use jiff::Timestamp;
use serde::Serialize;

use crate::failure::Outcome;
use crate::sigstore::{self, Services};
use crate::ui::Ui;
use crate::ui::password::PasswordSource;
use kms::KeyLocation;

/// Signer settings.
pub(crate) enum SignerSettings {
    /// A private key.
    Key(KeySettings),
    /// A certificate for the identity of a token.
    Certificate(Box<sigstore::Settings>),
}

/// A private key that is not opened yet.
pub(crate) struct KeySettings {
    /// Location.
    pub(crate) location: KeyLocation,
    /// Source of the password, for a key in a file.
    pub(crate) password: PasswordSource,
}

/// A signer that is ready.
pub(crate) enum Signer {
    /// Signer with a long-lived key.
    Key {
        /// File of the key, or the name of the key at a plugin.
        name: String,
        /// Key, or the plugin that has the key.
        key: Box<dyn sign::Signer>,
    },
    /// Signer with an ephemeral key and a certificate.
    Certificate(Box<Services>),
}

/// Content to sign.
pub(crate) enum Payload {
    /// In-toto statement. The result is a Sigstore bundle.
    Statement(Vec<u8>),
    /// Payload of cosign 2. The signature is stored in annotations.
    Simple(Vec<u8>),
    /// The content itself. The result is a Sigstore bundle.
    Content,
}

/// Result of signing.
pub(crate) struct SignatureResult {
    /// Signer.
    pub(crate) signer: SignerInfo,
    /// Signature to store; `None` if the signature exists already.
    pub(crate) signature: Option<RawSignature>,
}

/// Signer as data, for `-o json`.
#[derive(Default, Serialize)]
pub(crate) struct SignerInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    /// Description of the signer: `with release.key (ECDSA P-256, …)`.
    #[serde(skip)]
    pub(crate) text: String,
}

impl SignerSettings {
    /// Opens the key or gets the token. Errors of the key or token occur before any request to the
    /// registry.
    pub(crate) async fn open(self, ui: &mut Ui) -> Outcome<Signer> {
        Ok(match self {
            Self::Key(secret) => {
                let (name, key) = secret.open()?;
                Signer::Key { name, key }
            }
            Self::Certificate(settings) => {
                Signer::Certificate(Box::new(Box::pin(Services::open(*settings, ui)).await?))
            }
        })
    }
}

impl KeySettings {
    /// Opens the key. Returns the name of the key, and the key itself or the plugin that has the
    /// key.
    pub(crate) fn open(self) -> Outcome<(String, Box<dyn sign::Signer>)> {
        let name = self.location.to_string();
        Ok(match self.location {
            KeyLocation::File(file) => (name, Box::new(key::open(&file, &self.password)?)),
            KeyLocation::Plugin(key) => (name, Box::new(key.open()?)),
        })
    }
}

impl Signer {
    /// Signs `payload`, which approves or describes `content`. If `already` finds a signature of
    /// the same signer, no signature is created. A new signature is verified before it is returned.
    pub(crate) async fn sign(
        &self,
        ui: &mut Ui,
        payload: Payload,
        content: &Content<'_>,
        already: &dyn Fn(&SignerIdentity) -> bool,
    ) -> Outcome<SignatureResult> {
        match self {
            Self::Key { name, key } => {
                let maker = SignerIdentity::Key(key.public().clone());
                let signature = if already(&maker) {
                    None
                } else {
                    let made = by_key(key.as_ref(), payload, content)?;
                    maker.check(&made, content)?;
                    Some(made)
                };
                let (id, algorithm) = (key.public().id().to_string(), key.public().algorithm());
                Ok(SignatureResult {
                    signer: SignerInfo {
                        text: format!("with {name} ({algorithm}, {id})"),
                        key: Some(id),
                        algorithm: Some(algorithm),
                        ..SignerInfo::default()
                    },
                    signature,
                })
            }
            Self::Certificate(services) => {
                by_certificate(ui, services, payload, content, already).await
            }
        }
    }
}

fn by_key(
    key: &dyn sign::Signer,
    payload: Payload,
    content: &Content<'_>,
) -> Outcome<RawSignature> {
    Ok(match payload {
        Payload::Statement(payload) => in_bundle(sign::bundle(key, &payload)?),
        Payload::Simple(payload) => RawSignature {
            annotations: sign::annotations(key, &payload)?,
            ..simple_signing(payload)
        },
        Payload::Content => in_bundle(sign::blob(key, content)?),
    })
}

async fn by_certificate(
    ui: &mut Ui,
    services: &Services,
    payload: Payload,
    content: &Content<'_>,
    already: &dyn Fn(&SignerIdentity) -> bool,
) -> Outcome<SignatureResult> {
    let what = match &payload {
        Payload::Statement(payload) => SigningInput::Statement(payload.clone()),
        Payload::Simple(payload) => SigningInput::Bytes(payload.clone()),
        Payload::Content => SigningInput::Digest(content.digest.clone()),
    };
    let signed = {
        let _progress = ui.progress("requesting a certificate");
        services.sign(what).await?
    };
    let IdentityName { subject, issuer } = signed.identity().clone();
    let info = SignerInfo {
        text: format!("as {subject} ({issuer})"),
        identity: Some(subject),
        issuer: Some(issuer),
        ..SignerInfo::default()
    };
    let maker = services
        .root
        .as_ref()
        .map(|root| SignerIdentity::Certificate {
            name: signed.identity().clone(),
            root: root.clone(),
            now: now(),
        });
    if maker.as_ref().is_some_and(already) {
        return Ok(SignatureResult {
            signer: info,
            signature: None,
        });
    }
    let evidence = {
        let _progress = ui.progress("adding the signature to the transparency log");
        services.evidence(&signed).await?
    };
    let made = match payload {
        Payload::Statement(_) | Payload::Content => in_bundle(signed.bundle(&evidence)?),
        Payload::Simple(payload) => RawSignature {
            annotations: signed.annotations(&evidence)?,
            ..simple_signing(payload)
        },
    };
    match &services.root {
        Some(root) => SignerIdentity::Certificate {
            name: signed.identity().clone(),
            root: root.clone(),
            now: now(),
        }
        .check(&made, content)?,
        None => ui.note(
            "not verified under a trust root: none is set for these services (--trusted-root)"
                .to_owned(),
        ),
    }
    Ok(SignatureResult {
        signer: info,
        signature: Some(made),
    })
}

fn in_bundle(bytes: Vec<u8>) -> RawSignature {
    RawSignature {
        bytes,
        artifact_type: sign::BUNDLE_MEDIA_TYPE.to_owned(),
        ..RawSignature::default()
    }
}

fn simple_signing(bytes: Vec<u8>) -> RawSignature {
    RawSignature {
        bytes,
        artifact_type: bundle_oci::media::SIMPLE_SIGNING.to_owned(),
        ..RawSignature::default()
    }
}

/// Returns the time for verification: 5 minutes after the current time, because the clocks of
/// services can be ahead.
fn now() -> Timestamp {
    Timestamp::now() + Duration::from_secs(300)
}
