//! Verification of one signature: its form, its signer, and the digest that it covers.

use std::collections::BTreeSet;

use bundle_core::{
    policy::{
        Fault, KeyId, Meaning, RawSignature, Rejection, RootId, SignedAt, Signer, ValidSignature,
    },
    reference::Digest,
};
use sigstore_verify::types::{Artifact, Bundle as FullBundle, Sha256Hash, SignatureContent};

use super::{BUNDLE, Content, LEGACY, MAX_BYTES, TrustMaterial, VerifiedSignature, blob};
use crate::{
    bundle::{Bundle, Version},
    certified::{self, CertificateResult},
    dsse::{self, Envelope},
    json,
    keys::PublicKey,
    legacy, statement,
};

impl TrustMaterial {
    /// Verifies one signature. The payload is parsed only after the signature was verified.
    pub(super) fn examine(
        &self,
        raw: &RawSignature,
        content: &Content<'_>,
    ) -> Result<VerifiedSignature, Rejection> {
        let digest = content.digest;
        if raw.bytes.len() > MAX_BYTES {
            return Err(Rejection::TooLarge {
                bytes: raw.bytes.len() as u64,
                limit: MAX_BYTES as u64,
            });
        }
        if raw.artifact_type == legacy::ENVELOPE {
            return self.legacy_attestation(raw, digest);
        }
        if raw.artifact_type == legacy::SIMPLE_SIGNING {
            let accepted = self.legacy(raw, digest)?;
            let payload = Vec::new();
            return Ok(VerifiedSignature { accepted, payload });
        }
        let unreadable = |why: &str| Rejection::Unreadable(why.to_owned());
        let (bundle, version) = Bundle::read(&raw.bytes)?;
        if bundle.dsse_envelope.is_some() && bundle.message_signature.is_some() {
            return Err(unreadable(
                "it has both a DSSE envelope and a message signature",
            ));
        }
        let material = &bundle.verification_material;
        let certified = material.certificate.is_some() || material.x509_certificate_chain.is_some();
        match (&material.public_key, certified) {
            (Some(key), false) => {
                let hint = KeyId::new(&key.hint);
                self.by_key((&bundle, version), &hint, content)
            }
            (None, true) if self.roots.is_empty() => Err(Rejection::Keyless),
            (None, true) => {
                bundle.check_certified(version)?;
                self.by_certificate(&bundle, digest)
            }
            (Some(_), true) => Err(unreadable("it has both a key and a certificate")),
            (None, false) => Err(unreadable("it has neither a key nor a certificate")),
        }
    }

    /// Verifies a Sigstore bundle that has a key hint instead of a certificate. Any of the accepted
    /// keys may have made the signature. The hint only selects the key to try first, so a wrong
    /// hint is not an error.
    fn by_key(
        &self,
        (bundle, version): (&Bundle, Version),
        hint: &KeyId,
        content: &Content<'_>,
    ) -> Result<VerifiedSignature, Rejection> {
        let digest = content.digest;
        let (key, meaning, annotations, payload) =
            match (&bundle.dsse_envelope, &bundle.message_signature) {
                (Some(envelope), None) => {
                    let (payload, signature) = open(envelope)?;
                    let message = dsse::pre_authentication(&payload);
                    let key = self.first_matching_key(hint, |key| {
                        if key.verifies(&message, &signature) {
                            Ok(())
                        } else {
                            Err(Rejection::Forged(key.id().clone()))
                        }
                    })?;
                    let (meaning, annotations) = statement::read(&payload, digest)?;
                    (key, meaning, annotations, payload)
                }
                (None, Some(message)) => {
                    let key =
                        self.first_matching_key(hint, |key| blob::check(message, key, content))?;
                    let annotations = statement::Annotations::new();
                    (key, Meaning::Signed, annotations, Vec::new())
                }
                // The caller has already rejected a bundle that has both an envelope and a message
                // signature.
                (Some(_), Some(_)) | (None, None) => {
                    return Err(Rejection::Unreadable("it has no DSSE envelope".to_owned()));
                }
            };
        let evidence = bundle
            .check_entries(version)
            .and_then(|()| certified::read(bundle));
        let signed_at = evidence
            .ok()
            .and_then(|evidence| self.time_of_key(&evidence, key, digest));
        let mut checked = vec!["key", "digest"];
        checked.extend(signed_at.is_some().then_some("log or timestamp"));
        let accepted = ValidSignature {
            signer: Signer::Key(key.id().clone()),
            meaning,
            annotations,
            signed_at,
            form: BUNDLE,
            checked,
        };
        Ok(VerifiedSignature { accepted, payload })
    }

    /// Returns the first key for which `check` succeeds, or the error with the most information.
    /// The key that `hint` names is tried first.
    fn first_matching_key(
        &self,
        hint: &KeyId,
        check: impl Fn(&PublicKey) -> Result<(), Rejection>,
    ) -> Result<&PublicKey, Rejection> {
        let is_named = |key: &&PublicKey| key.id() == hint;
        let named = self.keys.iter().find(is_named);
        let mut reason = match named.map(|key| (key, check(key))) {
            Some((key, Ok(()))) => return Ok(key),
            Some((_, Err(rejection))) => rejection,
            None if hint.as_str().is_empty() => Rejection::NoSuchKey,
            None => Rejection::OtherKey(hint.clone()),
        };
        for key in self.keys.iter().filter(|key| !is_named(key)) {
            match check(key) {
                Ok(()) => return Ok(key),
                // "Other digest" is the most useful reason, because the signature may be valid for
                // other content.
                Err(rejection @ Rejection::OtherDigest(_)) => reason = rejection,
                Err(_) => {}
            }
        }
        Err(reason)
    }

    fn time_of_key(
        &self,
        bundle: &FullBundle,
        key: &PublicKey,
        digest: &Digest,
    ) -> Option<SignedAt> {
        let mut roots = self.roots.iter();
        roots.find_map(|root| {
            certified::time_of_key(bundle, artifact_of(digest)?, key, root, self.now)
        })
    }

    fn by_certificate(
        &self,
        bundle: &Bundle,
        digest: &Digest,
    ) -> Result<VerifiedSignature, Rejection> {
        let bundle = certified::read(bundle)?;
        let claimed = match &bundle.content {
            SignatureContent::DsseEnvelope(envelope) => {
                if envelope.payload_type != dsse::PAYLOAD {
                    return Err(Rejection::PayloadType(envelope.payload_type.clone()));
                }
                // `sigstore-verify` receives the digest in the statement as the expected digest, so
                // its comparison always succeeds. `statement::read` below compares this digest with
                // the digest of the content, and its error contains the other digest.
                statement::claimed_digest(envelope.payload.as_bytes())
            }
            _ => None,
        };
        let artifact = match claimed {
            Some(claimed) => Artifact::from_digest(Sha256Hash::new(claimed)),
            None => artifact_of(digest).ok_or(Rejection::OtherDigest("unreadable".to_owned()))?,
        };
        let (held, roots) = self.under_roots(&bundle, &artifact)?;
        let (meaning, annotations, payload) = match &bundle.content {
            SignatureContent::DsseEnvelope(envelope) => {
                let payload = envelope.payload.as_bytes();
                let (meaning, annotations) = statement::read(payload, digest)?;
                (meaning, annotations, payload.to_vec())
            }
            SignatureContent::MessageSignature(_) => {
                (Meaning::Signed, statement::Annotations::new(), Vec::new())
            }
            _ => return Err(Rejection::Unreadable("it has no signed content".to_owned())),
        };
        let accepted = certified_by(held, roots, meaning, annotations, BUNDLE);
        Ok(VerifiedSignature { accepted, payload })
    }

    fn legacy(&self, raw: &RawSignature, digest: &Digest) -> Result<ValidSignature, Rejection> {
        let signature = legacy::signature(raw)?;
        let by = |key: &&PublicKey| key.verifies(&raw.bytes, &signature);
        if let Some(key) = self.keys.iter().find(by) {
            return Ok(ValidSignature {
                signer: Signer::Key(key.id().clone()),
                meaning: Meaning::Signed,
                annotations: statement::read_simple(&raw.bytes, digest)?,
                signed_at: None,
                form: LEGACY,
                checked: vec!["key", "digest"],
            });
        }
        if !legacy::is_certified(raw) {
            return Err(Rejection::NoSuchKey);
        }
        if self.roots.is_empty() {
            return Err(Rejection::Keyless);
        }
        let bundle = legacy::bundle(raw, &signature)?;
        let (held, roots) = self.under_roots(&bundle, &Artifact::from_blob(&raw.bytes))?;
        let annotations = statement::read_simple(&raw.bytes, digest)?;
        Ok(certified_by(
            held,
            roots,
            Meaning::Signed,
            annotations,
            LEGACY,
        ))
    }

    /// Verifies an attestation of cosign 2. Attestations have their own tag, and an attestation
    /// never counts as a signature.
    fn legacy_attestation(
        &self,
        raw: &RawSignature,
        digest: &Digest,
    ) -> Result<VerifiedSignature, Rejection> {
        legacy::check_annotations(raw)?;
        let envelope: Envelope = json::read(&raw.bytes, "not the JSON of a DSSE envelope")?;
        let (payload, signature) = open(&envelope)?;
        let message = dsse::pre_authentication(&payload);
        let by = |key: &&PublicKey| key.verifies(&message, &signature);
        let accepted = if let Some(key) = self.keys.iter().find(by) {
            let (meaning, annotations) = statement::read(&payload, digest)?;
            ValidSignature {
                signer: Signer::Key(key.id().clone()),
                meaning,
                annotations,
                signed_at: None,
                form: LEGACY,
                checked: vec!["key", "digest"],
            }
        } else if !legacy::is_certified(raw) {
            return Err(Rejection::NoSuchKey);
        } else if self.roots.is_empty() {
            return Err(Rejection::Keyless);
        } else {
            let bundle = legacy::bundle_of_envelope(raw, &envelope)?;
            let artifact = match statement::claimed_digest(&payload) {
                Some(claimed) => Artifact::from_digest(Sha256Hash::new(claimed)),
                None => {
                    artifact_of(digest).ok_or(Rejection::OtherDigest("unreadable".to_owned()))?
                }
            };
            let (held, roots) = self.under_roots(&bundle, &artifact)?;
            let (meaning, annotations) = statement::read(&payload, digest)?;
            certified_by(held, roots, meaning, annotations, LEGACY)
        };
        if accepted.meaning == Meaning::Signed {
            return Err(Rejection::Unreadable(
                "a signature in the place of attestations of cosign 2".to_owned(),
            ));
        }
        Ok(VerifiedSignature { accepted, payload })
    }

    /// Verifies under each trust root. Returns the roots under which the signature is valid, or the
    /// error with the most information.
    fn under_roots(
        &self,
        bundle: &FullBundle,
        artifact: &Artifact<'_>,
    ) -> Result<(CertificateResult, BTreeSet<RootId>), Rejection> {
        let mut first: Option<CertificateResult> = None;
        let mut roots = BTreeSet::new();
        let mut nearest: Option<Rejection> = None;
        for root in &self.roots {
            match certified::verify(bundle, artifact.clone(), root, self.now) {
                Ok(held) => {
                    roots.insert(root.id().clone());
                    first.get_or_insert(held);
                }
                // An error of the root that issued the certificate is more useful than the error of
                // another root.
                Err(rejection) => {
                    if nearest.as_ref().is_none_or(is_of_other_root) {
                        nearest = Some(rejection);
                    }
                }
            }
        }
        match (first, nearest) {
            (Some(held), _) => Ok((held, roots)),
            (None, Some(rejection)) => Err(rejection),
            (None, None) => Err(Rejection::Keyless),
        }
    }
}

/// Returns `true` if the rejection means only that the signature was made under another trust root.
fn is_of_other_root(rejection: &Rejection) -> bool {
    matches!(
        rejection,
        Rejection::Certificate {
            fault: Fault::UnknownLog | Fault::Chain,
            ..
        }
    )
}

fn certified_by(
    held: CertificateResult,
    roots: BTreeSet<RootId>,
    meaning: Meaning,
    annotations: statement::Annotations,
    form: &'static str,
) -> ValidSignature {
    let mut checked = held.checked;
    checked.push("digest");
    ValidSignature {
        signer: Signer::Identity {
            name: held.name,
            roots,
        },
        meaning,
        annotations,
        signed_at: held.signed_at,
        form,
        checked,
    }
}

/// Converts the digest to the type of sigstore-verify.
fn artifact_of(digest: &Digest) -> Option<Artifact<'static>> {
    let hash = Sha256Hash::from_hex(digest.hex()).ok()?;
    Some(Artifact::from_digest(hash))
}

/// Returns payload and signature of an envelope.
fn open(envelope: &dsse::Envelope) -> Result<(Vec<u8>, Vec<u8>), Rejection> {
    let unreadable = |why: &str| Rejection::Unreadable(why.to_owned());
    if envelope.payload_type != dsse::PAYLOAD {
        return Err(Rejection::PayloadType(envelope.payload_type.clone()));
    }
    let [signature] = envelope.signatures.as_slice() else {
        return Err(Rejection::SignatureCount(envelope.signatures.len()));
    };
    let payload =
        dsse::decode(&envelope.payload).ok_or_else(|| unreadable("its payload is not base64"))?;
    let signature =
        dsse::decode(&signature.sig).ok_or_else(|| unreadable("its signature is not base64"))?;
    Ok((payload, signature))
}
