//! Keyless signing: requests to Fulcio, Rekor and a timestamp authority, and checks that their
//! responses belong to the key and signature. The caller sends the requests. This module does not
//! verify the signature with a trust root; see `sign::maker`.

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy::IdentityName;
use bundle_core::reference::Digest;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sigstore_verify::crypto::parse_certificate_info;
use sigstore_verify::types::DerCertificate;

use crate::keys::{KeyKind, PrivateKey};
use crate::sign::{self, Annotations};
use crate::verify::Content;
use crate::{dsse, legacy};

mod entry;
mod services;

pub use entry::{Entry, LogVersion};
pub use services::SigningConfig;

/// Maximum length of an identity token, in bytes.
const LONGEST_TOKEN: usize = 64 * 1024;
/// Maximum number of certificates in a chain.
const MOST_CERTIFICATES: usize = 16;
/// First bytes of a timestamp request in DER: version 1 and the hash algorithm. The 32 bytes of the
/// sha256 digest follow.
const TIMESTAMP_PREFIX: &[u8] = &[
    0x30, 0x43, 0x02, 0x01, 0x01, 0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65,
    0x03, 0x04, 0x02, 0x01, 0x05, 0x00, 0x04, 0x20,
];

/// Claims of an identity token that are checked before a request is sent. The certificate authority
/// verifies the token.
#[derive(Debug, Deserialize)]
struct Claims {
    iss: String,
    #[serde(default)]
    sub: String,
    aud: Value,
    exp: i64,
    #[serde(default)]
    email: Option<String>,
    #[serde(default)]
    nonce: Option<String>,
}

/// An identity token.
pub struct Token {
    text: String,
    subject: String,
    issuer: String,
    nonce: Option<String>,
}

impl Token {
    /// Parses a token. `now` is in seconds since 1970. `audience` is the required audience.
    pub fn parse(text: &str, audience: &str, now: i64) -> Result<Self, Finding> {
        let text = text.trim();
        let unreadable = |why: &str| {
            Finding::error(
                codes::trust::TOKEN_REFUSED,
                format!("invalid identity token: {why}"),
            )
            .hint("an identity token is a JWT of an OpenID Connect issuer, with the audience that the certificate authority requires")
        };
        if text.len() > LONGEST_TOKEN {
            return Err(unreadable("it is longer than 64 KiB"));
        }
        let mut parts = text.split('.');
        let (Some(_), Some(claims), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(unreadable("it is not a JWT"));
        };
        let claims: Claims = dsse::decode_url(claims)
            .and_then(|bytes| bundle_core::json::read(&bytes).ok())
            .ok_or_else(|| unreadable("its claims are malformed"))?;
        if claims.exp <= now {
            return Err(unreadable("it has expired"));
        }
        let is_for = |value: &Value| value.as_str() == Some(audience);
        let meant = match &claims.aud {
            Value::Array(list) => list.iter().any(is_for),
            one => is_for(one),
        };
        if !meant {
            return Err(unreadable(&format!("its audience is not `{audience}`")));
        }
        let subject = claims
            .email
            .filter(|email| !email.is_empty())
            .unwrap_or(claims.sub);
        if subject.is_empty() {
            return Err(unreadable("it has no subject or email"));
        }
        Ok(Self {
            text: text.to_owned(),
            subject,
            issuer: claims.iss,
            nonce: claims.nonce,
        })
    }

    /// Returns the subject and the issuer of the token. Neither is verified.
    pub fn names(&self) -> (&str, &str) {
        (&self.subject, &self.issuer)
    }

    /// Returns the nonce of the login request for which the token was issued. `None` if the token
    /// has no nonce.
    pub fn nonce(&self) -> Option<&str> {
        self.nonce.as_deref()
    }

    /// Returns the text of the token.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Ephemeral key, which is used for a single signature.
pub struct Ephemeral(PrivateKey);

/// Certificate chain of an [`Ephemeral`] key, with the certificate of the key first, and the
/// identity in that certificate.
struct Certificates(Vec<Vec<u8>>, IdentityName);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CertificateResponse {
    signed_certificate_embedded_sct: Option<IssuedChain>,
}

#[derive(Deserialize)]
struct IssuedChain {
    chain: Chain,
}

#[derive(Deserialize)]
struct Chain {
    certificates: Vec<String>,
}

impl Ephemeral {
    /// Generates a key.
    pub fn new() -> Result<Self, Finding> {
        PrivateKey::ephemeral(KeyKind::EcdsaP256).map(Self)
    }

    /// Returns the body of the certificate request to Fulcio: the token, the public key, and a
    /// signature that proves possession of the private key.
    pub fn certificate_request(&self, token: &Token) -> Result<Vec<u8>, Finding> {
        let proof = sign::sign_and_verify(&self.0, token.subject.as_bytes())?;
        let request = json!({
            "credentials": { "oidcIdentityToken": token.text },
            "publicKeyRequest": {
                "publicKey": { "algorithm": "ECDSA", "content": self.0.public().to_pem() },
                "proofOfPossession": dsse::encode(&proof),
            },
        });
        Ok(request.to_string().into_bytes())
    }

    fn certificates(&self, answer: &[u8]) -> Result<Certificates, Finding> {
        let wrong = |why: &str| unusable("the certificate authority", why);
        let issued: CertificateResponse = bundle_core::json::read(answer)
            .map_err(|_| wrong("it is not the JSON of a certificate"))?;
        let Some(issued) = issued.signed_certificate_embedded_sct else {
            return Err(wrong(
                "the certificate has no signed certificate timestamp (SCT)",
            ));
        };
        let texts = issued.chain.certificates;
        if texts.is_empty() || texts.len() > MOST_CERTIFICATES {
            return Err(wrong("it has no certificate or too many"));
        }
        let mut certificates = Vec::new();
        for text in texts {
            let block = pem::parse(text).map_err(|_| wrong("a certificate is not PEM"))?;
            if block.tag() != "CERTIFICATE" {
                return Err(wrong(
                    "its certificate chain contains a PEM block of another type",
                ));
            }
            certificates.push(block.into_contents());
        }
        let info = parse_certificate_info(&DerCertificate::new(certificates[0].clone()))
            .map_err(|_| wrong("the certificate is malformed"))?;
        if info.public_key.as_bytes() != self.0.public().der() {
            return Err(wrong("the certificate is for another key"));
        }
        let (Some(subject), Some(by)) = (info.identity, info.issuer) else {
            return Err(wrong("the certificate has no identity or no issuer"));
        };
        let name = IdentityName {
            subject: subject.as_str().to_owned(),
            issuer: by,
        };
        Ok(Certificates(certificates, name))
    }

    /// Signs `what`. `answer` is the response of Fulcio, whose certificates become part of the
    /// result. The private key is dropped after signing.
    pub fn sign(self, what: SigningInput, answer: &[u8]) -> Result<KeylessSignature, Finding> {
        let certificates = self.certificates(answer)?;
        let signature = match &what {
            SigningInput::Statement(payload) => {
                sign::sign_and_verify(&self.0, &dsse::pre_authentication(payload))?
            }
            SigningInput::Bytes(bytes) => sign::sign_and_verify(&self.0, bytes)?,
            SigningInput::Digest(digest) => {
                let sha256 = Content::named(digest).sha256();
                sign::sign_digest_and_verify(&self.0, &sha256)?
            }
        };
        Ok(KeylessSignature {
            what,
            signature,
            certificates,
        })
    }
}

/// Content to sign.
pub enum SigningInput {
    /// An in-toto statement, in an envelope.
    Statement(Vec<u8>),
    /// Bytes without an envelope: the payload of cosign 2, or a file.
    Bytes(Vec<u8>),
    /// Content without an envelope. Only the digest of the content is known.
    Digest(Digest),
}

/// Signature without evidence.
pub struct KeylessSignature {
    what: SigningInput,
    signature: Vec<u8>,
    certificates: Certificates,
}

/// Evidence for a signature: log entries, and the times that logs and timestamp authorities
/// confirm.
#[derive(Default)]
pub struct Evidence {
    /// Log entries.
    pub entries: Vec<Entry>,
    /// Timestamp responses.
    pub timestamps: Vec<Vec<u8>>,
}

impl KeylessSignature {
    /// Returns the identity in the certificate. The certificate is not verified with a trust root.
    pub fn identity(&self) -> &IdentityName {
        &self.certificates.1
    }

    fn envelope(&self, payload: &[u8]) -> Value {
        json!({
            "payload": dsse::encode(payload),
            "payloadType": dsse::PAYLOAD,
            "signatures": [{ "sig": dsse::encode(&self.signature) }],
        })
    }

    /// Returns the DER of the request to a timestamp authority (RFC 3161). `nonce` can be any
    /// number. The request uses its lower 62 bits.
    pub fn timestamp_request(&self, nonce: u64) -> Vec<u8> {
        let mut request = TIMESTAMP_PREFIX.to_vec();
        request.extend_from_slice(&Sha256::digest(&self.signature));
        request.extend_from_slice(&[0x02, 0x08]);
        // Sets the two highest bits so that the DER integer is positive and has no leading zero
        // byte.
        let nonce = (nonce & 0x3fff_ffff_ffff_ffff) | 0x4000_0000_0000_0000;
        request.extend_from_slice(&nonce.to_be_bytes());
        // `certReq`: the response must contain the certificate of the timestamp authority.
        request.extend_from_slice(&[0x01, 0x01, 0xff]);
        request
    }

    /// Returns a Sigstore bundle v0.3 with all evidence.
    pub fn bundle(&self, evidence: &Evidence) -> Result<Vec<u8>, Finding> {
        let timestamps: Vec<Value> = evidence
            .timestamps
            .iter()
            .map(|bytes| json!({ "signedTimestamp": dsse::encode(bytes) }))
            .collect();
        let entries: Vec<Value> = evidence
            .entries
            .iter()
            .map(Entry::in_bundle)
            .collect::<Result<_, _>>()?;
        let mut bundle = json!({
            "mediaType": dsse::BUNDLE,
            "verificationMaterial": {
                "certificate": { "rawBytes": dsse::encode(&self.certificates.0[0]) },
                "tlogEntries": entries,
                "timestampVerificationData": { "rfc3161Timestamps": timestamps },
            },
        });
        match &self.what {
            SigningInput::Statement(payload) => bundle["dsseEnvelope"] = self.envelope(payload),
            SigningInput::Bytes(_) | SigningInput::Digest(_) => {
                bundle["messageSignature"] = json!({
                    "messageDigest": { "algorithm": "SHA2_256", "digest": dsse::encode(&self.digest()) },
                    "signature": dsse::encode(&self.signature),
                });
            }
        }
        Ok(bundle.to_string().into_bytes())
    }

    /// Returns the evidence as annotations of a layer, like cosign 2: one entry of Rekor v1, and
    /// one timestamp.
    pub fn annotations(&self, evidence: &Evidence) -> Result<Annotations, Finding> {
        let log = evidence
            .entries
            .iter()
            .find_map(Entry::in_annotation)
            .ok_or_else(|| {
                unusable(
                    "the transparency log",
                    "the format of cosign 2 supports only entries of Rekor v1",
                )
            })?;
        let chain: String = self.certificates.0[1..]
            .iter()
            .map(|one| pem_of(one))
            .collect();
        let mut annotations = Annotations::from([
            (legacy::SIGNATURE.to_owned(), dsse::encode(&self.signature)),
            (
                legacy::CERTIFICATE.to_owned(),
                pem_of(&self.certificates.0[0]),
            ),
            (legacy::CHAIN.to_owned(), chain),
            (legacy::LOG.to_owned(), log.to_string()),
        ]);
        if let Some(timestamp) = evidence.timestamps.first() {
            let text = json!({ "SignedRFC3161Timestamp": dsse::encode(timestamp) }).to_string();
            annotations.insert(legacy::TIMESTAMP.to_owned(), text);
        }
        Ok(annotations)
    }
}

/// Checks the status of a timestamp response (RFC 3161). Status 0 and 1 mean that the request is
/// granted.
pub fn check_timestamp(answer: &[u8]) -> Result<(), Finding> {
    let content = match answer {
        [0x30, length, rest @ ..] if *length < 0x80 => Some(rest),
        [0x30, 0x81, _, rest @ ..] | [0x30, 0x82, _, _, rest @ ..] => Some(rest),
        _ => None,
    };
    match content {
        Some([0x30, _, 0x02, 0x01, 0 | 1, ..]) => Ok(()),
        _ => Err(unusable("the timestamp authority", "it has no timestamp")),
    }
}

fn unusable(who: &str, why: &str) -> Finding {
    Finding::error(
        codes::trust::SERVICE_REFUSED,
        format!("invalid response of {who}: {why}"),
    )
    .hint("nothing was stored; check the URL of the service")
}

fn pem_of(certificate: &[u8]) -> String {
    crate::keys::pem_text("CERTIFICATE", certificate)
}

#[cfg(test)]
mod tests;
