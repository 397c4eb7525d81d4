//! Sigstore instance for tests: issues certificates, SCTs, log entries and checkpoints, each with a
//! fault if requested. A test changes one part and keeps all other parts valid.

use bundle_core::policy::RawSignature;
use bundle_core::reference::Digest;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
    SerialNumber, SigningKey, date_time_ymd,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::super::TrustMaterial;
use crate::{dsse, root::Root, sign};

/// Signing time of all fixtures: 2026-11-21T19:14:00Z.
pub(super) const AT: i64 = 1_795_288_440;
pub(super) const SUBJECT: &str = "ana@example.com";
pub(super) const ISSUER: &str = "https://accounts.example.com";
const ISSUER_OID: &[u64] = &[1, 3, 6, 1, 4, 1, 57264, 1, 8];
const PROMISES_OID: &[u64] = &[1, 3, 6, 1, 4, 1, 11129, 2, 4, 2];

/// Keys of a certificate authority, a certificate log and a transparency log.
pub(super) struct Sigstore {
    authority: KeyPair,
    params: CertificateParams,
    certificate: Vec<u8>,
    /// Intermediate certificate. Empty if the root issues the certificates.
    intermediate: Vec<u8>,
    promises: KeyPair,
    log: KeyPair,
}

/// Fields of the certificate to issue. The default is a valid certificate. Tests change single
/// fields.
pub(super) struct CertificateRequest {
    pub(super) names: Vec<SanType>,
    pub(super) issuer: Option<String>,
    pub(super) years: (i32, i32),
    pub(super) usage: ExtendedKeyUsagePurpose,
    pub(super) promise: SctKind,
}

/// Kind of SCT in the certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SctKind {
    Good,
    None,
    Altered,
    Twice,
    /// SCT of a certificate with another name.
    Borrowed,
    /// SCT that is signed with another key, but has the log ID of this log.
    Forged,
    /// SCT by an unknown log.
    Unknown,
}

impl Default for CertificateRequest {
    fn default() -> Self {
        Self {
            names: vec![email(SUBJECT)],
            issuer: Some(ISSUER.to_owned()),
            years: (2026, 2027),
            usage: ExtendedKeyUsagePurpose::CodeSigning,
            promise: SctKind::Good,
        }
    }
}

pub(super) fn email(text: &str) -> SanType {
    SanType::Rfc822Name(text.try_into().unwrap())
}

pub(super) fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

pub(super) fn subject() -> Digest {
    include_str!("../../../testdata/keyless/subject.txt")
        .trim()
        .parse()
        .unwrap()
}

/// Returns a statement that signs [`subject`].
pub(super) fn statement() -> Vec<u8> {
    include_bytes!("../../../testdata/weak/statement.json").to_vec()
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

fn id(key: &impl PublicKeyData) -> Vec<u8> {
    Sha256::digest(key.subject_public_key_info()).to_vec()
}

fn public(key: &impl PublicKeyData) -> Value {
    json!({
        "baseUrl": "https://log.example.com",
        "hashAlgorithm": "SHA2_256",
        "publicKey": {
            "rawBytes": dsse::encode(&key.subject_public_key_info()),
            "keyDetails": "PKIX_ECDSA_P256_SHA_256",
            "validFor": { "start": "2020-01-01T00:00:00Z" },
        },
        "logId": { "keyId": dsse::encode(&id(key)) },
    })
}

/// Returns the signed part of a certificate: its first element.
fn to_be_signed(certificate: &[u8]) -> Vec<u8> {
    let length = |at: usize| match certificate[at + 1] {
        0x82 => (
            4,
            usize::from(certificate[at + 2]) << 8 | usize::from(certificate[at + 3]),
        ),
        0x81 => (3, usize::from(certificate[at + 2])),
        short => (2, usize::from(short)),
    };
    let (begin, _) = length(0);
    let (head, content) = length(begin);
    certificate[begin..begin + head + content].to_vec()
}

fn prefixed(bytes: &[u8], width: usize) -> Vec<u8> {
    let length = (bytes.len() as u64).to_be_bytes();
    [&length[8 - width..], bytes].concat()
}

impl Sigstore {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2040, 1, 1);
        let authority = key();
        let certificate = params.self_signed(&authority).unwrap().der().to_vec();
        Self {
            authority,
            params,
            certificate,
            intermediate: Vec::new(),
            promises: key(),
            log: key(),
        }
    }

    /// Creates an instance with a root CA and an intermediate CA below it. The trust root has only
    /// the root CA.
    pub(super) fn below_root() -> Self {
        let above = Self::new();
        let authority = key();
        let mut params = above.params.clone();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "intermediate");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        let issuer = Issuer::from_params(&above.params, &above.authority);
        let intermediate = params.signed_by(&authority, &issuer).unwrap();
        Self {
            intermediate: intermediate.der().to_vec(),
            authority,
            params,
            ..above
        }
    }

    /// Returns the intermediate certificate.
    pub(super) fn intermediate(&self) -> &[u8] {
        &self.intermediate
    }

    /// Returns the root certificate of the trust root.
    pub(super) fn root_certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// Returns the JSON of the trust root. `more` are certificates of further authorities.
    pub(super) fn root(&self, more: &[&[u8]]) -> String {
        let mut certificates = vec![self.certificate.as_slice()];
        certificates.extend(more);
        let authorities: Vec<Value> = certificates
            .iter()
            .map(|der| {
                json!({
                    "subject": { "organization": "example", "commonName": "example" },
                    "uri": "https://ca.example.com",
                    "certChain": { "certificates": [{ "rawBytes": dsse::encode(der) }] },
                    "validFor": { "start": "2020-01-01T00:00:00Z" },
                })
            })
            .collect();
        json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [public(&self.log)],
            "certificateAuthorities": authorities,
            "ctlogs": [public(&self.promises)],
            "timestampAuthorities": [],
        })
        .to_string()
    }

    /// Returns the verifier's input: only this root, and a time one day after the signature.
    pub(super) fn material(&self, more: &[&[u8]]) -> TrustMaterial {
        TrustMaterial {
            keys: Vec::new(),
            roots: vec![Root::from_text(&self.root(more)).unwrap()],
            now: Timestamp::from_second(AT + 86_400).unwrap(),
        }
    }

    fn issue(
        &self,
        to: &impl PublicKeyData,
        wanted: &CertificateRequest,
        promises: Option<&[u8]>,
    ) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.serial_number = Some(SerialNumber::from_slice(&[1, 2, 3]));
        params.subject_alt_names.clone_from(&wanted.names);
        params.not_before = date_time_ymd(wanted.years.0, 1, 1);
        params.not_after = date_time_ymd(wanted.years.1, 1, 1);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![wanted.usage.clone()];
        if let Some(issuer) = &wanted.issuer {
            let text = [&[0x0c], prefixed(issuer.as_bytes(), 1).as_slice()].concat();
            let named = CustomExtension::from_oid_content(ISSUER_OID, text);
            params.custom_extensions.push(named);
        }
        if let Some(list) = promises {
            let content = [&[0x04, 0x81], prefixed(list, 1).as_slice()].concat();
            let content = if list.len() > 255 {
                [&[0x04, 0x82], prefixed(list, 2).as_slice()].concat()
            } else if list.len() < 128 {
                [&[0x04], prefixed(list, 1).as_slice()].concat()
            } else {
                content
            };
            let promise = CustomExtension::from_oid_content(PROMISES_OID, content);
            params.custom_extensions.push(promise);
        }
        let issuer = Issuer::from_params(&self.params, &self.authority);
        params.signed_by(to, &issuer).unwrap().der().to_vec()
    }

    /// Returns an SCT for `certificate`.
    fn promise(&self, certificate: &[u8], by: &KeyPair, named: &[u8]) -> Vec<u8> {
        let time = (u64::try_from(AT).unwrap() * 1000).to_be_bytes();
        let issuer = Sha256::digest(self.authority.subject_public_key_info());
        let said = [
            &[0, 0],
            time.as_slice(),
            &[0, 1],
            &issuer,
            &prefixed(&to_be_signed(certificate), 3),
            &[0, 0],
        ]
        .concat();
        let signature = by.sign(&said).unwrap();
        [
            &[0],
            named,
            time.as_slice(),
            &[0, 0, 4, 3],
            &prefixed(&signature, 2),
        ]
        .concat()
    }

    /// Issues a certificate for this key.
    pub(super) fn certificate(
        &self,
        to: &impl PublicKeyData,
        wanted: &CertificateRequest,
    ) -> Vec<u8> {
        let bare = self.issue(to, wanted, None);
        let ours = id(&self.promises);
        let good = self.promise(&bare, &self.promises, &ours);
        let listed = |promises: &[&[u8]]| {
            let each: Vec<u8> = promises.iter().flat_map(|one| prefixed(one, 2)).collect();
            prefixed(&each, 2)
        };
        let list = match wanted.promise {
            SctKind::None => return bare,
            SctKind::Good => listed(&[&good]),
            SctKind::Twice => listed(&[&good, &good]),
            SctKind::Altered => {
                let mut altered = good;
                let last = altered.len() - 1;
                altered[last] ^= 1;
                listed(&[&altered])
            }
            SctKind::Borrowed => {
                let other = CertificateRequest {
                    names: vec![email("other@example.com")],
                    ..CertificateRequest::default()
                };
                let other = self.issue(to, &other, None);
                listed(&[&self.promise(&other, &self.promises, &ours)])
            }
            SctKind::Forged => listed(&[&self.promise(&bare, &key(), &ours)]),
            SctKind::Unknown => {
                let other = key();
                listed(&[&self.promise(&bare, &other, &id(&other))])
            }
        };
        self.issue(to, wanted, Some(&list))
    }

    /// Returns a Sigstore bundle with a statement. The log integrated its entry at [`AT`]. The
    /// inclusion proof is for a tree with one entry.
    pub(super) fn bundle(&self, certificate: &[u8], payload: &[u8], signature: &[u8]) -> Value {
        self.bundle_of(certificate, payload, signature, &|_| {})
    }

    /// Returns a Sigstore bundle in which `change` changed the body of the log entry.
    fn bundle_of(
        &self,
        certificate: &[u8],
        payload: &[u8],
        signature: &[u8],
        change: &dyn Fn(&mut Value),
    ) -> Value {
        let hexadecimal = |bytes: &[u8]| Digest::from_hash(bytes).hex().to_owned();
        let verifier = crate::keys::pem_text("CERTIFICATE", certificate);
        let envelope = json!({
            "payload": dsse::encode(payload),
            "payloadType": dsse::PAYLOAD,
            "signatures": [{ "sig": dsse::encode(signature) }],
        });
        let mut body = json!({
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": { "algorithm": "sha256", "value": hexadecimal(&Sha256::digest(envelope.to_string())) },
                "payloadHash": { "algorithm": "sha256", "value": hexadecimal(&Sha256::digest(payload)) },
                "signatures": [{
                    "signature": dsse::encode(signature),
                    "verifier": dsse::encode(verifier.as_bytes()),
                }],
            },
        });
        change(&mut body);
        let body = body.to_string();
        let mut leaf = vec![0];
        leaf.extend_from_slice(body.as_bytes());
        let root = dsse::encode(&Sha256::digest(&leaf));
        let note = format!("log.example.com - 1\n1\n{root}\n");
        let signed = [
            &id(&self.log)[..4],
            &self.log.sign(note.as_bytes()).unwrap(),
        ]
        .concat();
        let promised = json!({
            "body": dsse::encode(body.as_bytes()),
            "integratedTime": AT,
            "logID": hexadecimal(&id(&self.log)),
            "logIndex": 0,
        });
        // The log signs JSON with sorted keys, and serde_json sorts the keys of maps.
        let promise = self.log.sign(promised.to_string().as_bytes()).unwrap();
        json!({
            "mediaType": sign::BUNDLE_MEDIA_TYPE,
            "verificationMaterial": {
                "certificate": { "rawBytes": dsse::encode(certificate) },
                "tlogEntries": [{
                    "logIndex": "0",
                    "logId": { "keyId": dsse::encode(&id(&self.log)) },
                    "kindVersion": { "kind": "dsse", "version": "0.0.1" },
                    "integratedTime": AT.to_string(),
                    "inclusionPromise": { "signedEntryTimestamp": dsse::encode(&promise) },
                    "inclusionProof": {
                        "logIndex": "0",
                        "rootHash": root,
                        "treeSize": "1",
                        "hashes": [],
                        "checkpoint": {
                            "envelope": format!("{note}\n\u{2014} log.example.com {}\n", dsse::encode(&signed)),
                        },
                    },
                    "canonicalizedBody": dsse::encode(body.as_bytes()),
                }],
            },
            "dsseEnvelope": envelope,
        })
    }

    /// Signs with a new key and returns the complete bundle. `change` changes the body of the log
    /// entry.
    pub(super) fn entered(
        &self,
        wanted: &CertificateRequest,
        payload: &[u8],
        change: &dyn Fn(&mut Value),
    ) -> Value {
        let key = key();
        let certificate = self.certificate(&key, wanted);
        let signature = key.sign(&dsse::pre_authentication(payload)).unwrap();
        self.bundle_of(&certificate, payload, &signature, change)
    }

    /// Signs `payload` with a new key, issues the certificate `wanted` for this key, and returns
    /// the complete bundle.
    pub(super) fn signed(&self, wanted: &CertificateRequest, payload: &[u8]) -> Value {
        let key = key();
        let certificate = self.certificate(&key, wanted);
        let signature = key.sign(&dsse::pre_authentication(payload)).unwrap();
        self.bundle(&certificate, payload, &signature)
    }
}

pub(super) fn raw(bundle: &Value) -> RawSignature {
    RawSignature {
        bytes: bundle.to_string().into_bytes(),
        artifact_type: sign::BUNDLE_MEDIA_TYPE.to_owned(),
        ..RawSignature::default()
    }
}
