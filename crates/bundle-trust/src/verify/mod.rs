//! Verification of signatures: key or certificate, digest, and meaning of the payload.
//! A valid signature alone admits nothing: `bundle_core::policy` decides.

mod attested;
mod blob;
mod budget;

use std::collections::BTreeSet;
use std::sync::Arc;

use bundle_core::{
    diagnostic::{Finding, Findings, codes},
    policy::{
        Accepted, Fault, KeyId, Meaning, RawSignature, Rejection, SignatureFound, SignedAt, Signer,
        Unread, Who, summary,
    },
    reference::{Digest, PinnedReference},
};
use jiff::Timestamp;
use sigstore_verify::types::{Artifact, Bundle as FullBundle, Sha256Hash, SignatureContent};

use budget::Budget;

use crate::{
    bundle::{Bundle, Version},
    certified::{self, Held},
    dsse::{self, Envelope},
    json,
    keys::PublicKey,
    legacy,
    root::Root,
    statement,
};

/// Most bytes of one signature that are read.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Most signatures of one digest that are examined. Further ones are reported and not accepted.
pub const MAX_SIGNATURES: usize = 256;

pub(crate) use attested::all_attested;
pub use attested::{Attestation, attested, blob_attested};
pub(crate) use blob::examine_one;
pub use blob::{Content, blob, blob_of_any_kind};
pub use budget::SHARE;

/// Name of the signature form "Sigstore bundle" in output.
pub const BUNDLE: &str = "sigstore bundle";
/// Name of the signature form of cosign 2 (`sha256-….sig` tag) in output.
pub const LEGACY: &str = "cosign 2";

/// Keys, trust roots and time for an examination.
#[derive(Debug, Clone)]
pub struct Against {
    /// Accepted keys.
    pub keys: Vec<PublicKey>,
    /// Trust roots for certificates. For signatures by keys they only confirm the time.
    pub roots: Vec<Arc<Root>>,
    /// The time.
    pub now: Timestamp,
}

/// Examines each signature, in order: does it hold for `digest`, by one of the keys or under one of
/// the roots?
pub fn examine(
    signatures: &[RawSignature],
    digest: &Digest,
    against: &Against,
) -> Vec<SignatureFound> {
    each(signatures, digest, against)
        .map(|found| SignatureFound(found.map(|opened| opened.accepted)))
        .collect()
}

/// Like [`examine`], but stops when `go_on` returns `false`; it is called before each signature.
/// `None` if it stopped before all were examined.
pub(crate) fn examine_while(
    signatures: &[RawSignature],
    digest: &Digest,
    against: &Against,
    go_on: &dyn Fn() -> bool,
) -> Option<Vec<SignatureFound>> {
    let mut each = each(signatures, digest, against);
    let mut all = Vec::with_capacity(signatures.len());
    loop {
        if !go_on() {
            return None;
        }
        match each.next() {
            Some(found) => all.push(SignatureFound(found.map(|opened| opened.accepted))),
            None => return Some(all),
        }
    }
}

fn each<'a>(
    signatures: &'a [RawSignature],
    digest: &'a Digest,
    against: &'a Against,
) -> impl Iterator<Item = Result<Opened, Rejection>> + 'a {
    let examined = signatures.iter().take(MAX_SIGNATURES);
    let waiting = examined.filter(|raw| raw.unread.is_none()).count();
    let mut budget = Budget::new(waiting, against);
    let each = signatures.iter().enumerate();
    each.map(move |(index, raw)| match raw.unread {
        Some(Unread::TooLarge { bytes, limit }) => Err(Rejection::TooLarge { bytes, limit }),
        Some(Unread::Crowded { limit }) => Err(Rejection::Crowded { limit }),
        Some(Unread::Beyond { limit }) => Err(Rejection::NotExamined { limit }),
        None if index >= MAX_SIGNATURES => Err(Rejection::NotExamined {
            limit: MAX_SIGNATURES,
        }),
        None => budget
            .charge(raw, against)
            .and_then(|()| against.examine(raw, &Content::named(digest)))
            .map_err(Rejection::shortened),
    })
}

/// A signature that holds, with the statement that it is over; empty where there is none.
struct Opened {
    accepted: Accepted,
    payload: Vec<u8>,
}

/// For `verify --key` and `--certificate-identity`: returns the valid signatures of `reference` by
/// any of `wanted`, or an error that lists the signatures that were found.
pub fn by(
    signatures: &[RawSignature],
    reference: &PinnedReference,
    wanted: &[Who],
    against: &Against,
) -> Result<Vec<Accepted>, Findings> {
    let found = examine(signatures, reference.digest(), against);
    let is_wanted = |accepted: &Accepted| wanted.iter().any(|who| who.is(accepted));
    let accepted: Vec<Accepted> = found
        .iter()
        .filter_map(SignatureFound::accepted)
        .filter(|accepted| is_wanted(accepted))
        .cloned()
        .collect();
    if !accepted.is_empty() {
        return Ok(accepted);
    }
    let names: Vec<String> = wanted.iter().map(described).collect();
    let code = if found.is_empty() {
        codes::trust::UNSIGNED
    } else {
        codes::trust::NOT_ACCEPTED
    };
    let only_keys = wanted.iter().all(|who| matches!(who, Who::Key(_)));
    let hint = if only_keys {
        format!(
            "give the public key of its signer, or sign it: kubectl bundle sign --key KEY {reference}"
        )
    } else {
        "give the identity and the issuer exactly as the certificate has them".to_owned()
    };
    Err(Finding::error(
        code,
        format!(
            "it is not signed by the given {}: {}",
            names.join(", "),
            summary(&found, is_wanted)
        ),
    )
    .about(reference.to_string())
    .hint(hint)
    .into())
}

fn described(who: &Who) -> String {
    match who {
        Who::Key(key) => format!("key (hint {key})"),
        Who::Identities { identities, .. } => {
            let names: Vec<String> = identities.iter().map(ToString::to_string).collect();
            format!("identity ({})", names.join(", "))
        }
    }
}

impl Against {
    /// Verifies one signature. The payload is parsed only after the signature was verified.
    fn examine(&self, raw: &RawSignature, content: &Content<'_>) -> Result<Opened, Rejection> {
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
            return Ok(Opened { accepted, payload });
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
            (Some(_), true) => Err(unreadable("it names both a key and a certificate")),
            (None, false) => Err(unreadable("it names neither a key nor a certificate")),
        }
    }

    /// Verifies with the key that made the signature. The hint in the bundle only selects the key
    /// to try first; a wrong hint is not an error.
    fn by_key(
        &self,
        (bundle, version): (&Bundle, Version),
        hint: &KeyId,
        content: &Content<'_>,
    ) -> Result<Opened, Rejection> {
        let digest = content.digest;
        let (key, meaning, annotations, payload) =
            match (&bundle.dsse_envelope, &bundle.message_signature) {
                (Some(envelope), None) => {
                    let (payload, signature) = open(envelope)?;
                    let message = dsse::pre_authentication(&payload);
                    let key = self.fitting(hint, |key| {
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
                    let key = self.fitting(hint, |key| blob::check(message, key, content))?;
                    let annotations = statement::Annotations::new();
                    (key, Meaning::Signed, annotations, Vec::new())
                }
                // Both at once were refused before.
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
        let accepted = Accepted {
            signer: Signer::Key(key.id().clone()),
            meaning,
            annotations,
            signed_at,
            form: BUNDLE,
            checked,
        };
        Ok(Opened { accepted, payload })
    }

    /// Returns the first key for which `check` succeeds, beginning with the one that `hint` names,
    /// or the most informative error.
    fn fitting(
        &self,
        hint: &KeyId,
        check: impl Fn(&PublicKey) -> Result<(), Rejection>,
    ) -> Result<&PublicKey, Rejection> {
        let is_named = |key: &&PublicKey| key.id() == hint;
        let named = self.keys.iter().find(is_named);
        let mut told = match named.map(|key| (key, check(key))) {
            Some((key, Ok(()))) => return Ok(key),
            Some((_, Err(rejection))) => rejection,
            None if hint.as_str().is_empty() => Rejection::NoSuchKey,
            None => Rejection::OtherKey(hint.clone()),
        };
        for key in self.keys.iter().filter(|key| !is_named(key)) {
            match check(key) {
                Ok(()) => return Ok(key),
                // The signature is by this key, or says itself that it is over something else.
                Err(rejection @ Rejection::OtherDigest(_)) => told = rejection,
                Err(_) => {}
            }
        }
        Err(told)
    }

    fn time_of_key(
        &self,
        bundle: &FullBundle,
        key: &PublicKey,
        digest: &Digest,
    ) -> Option<SignedAt> {
        let mut roots = self.roots.iter();
        roots.find_map(|root| certified::time_of_key(bundle, ours(digest)?, key, root, self.now))
    }

    fn by_certificate(&self, bundle: &Bundle, digest: &Digest) -> Result<Opened, Rejection> {
        let bundle = certified::read(bundle)?;
        let claimed = match &bundle.content {
            SignatureContent::DsseEnvelope(envelope) => {
                if envelope.payload_type != dsse::PAYLOAD {
                    return Err(Rejection::PayloadType(envelope.payload_type.clone()));
                }
                // So that a signature of something else is told as one; what it is about is judged below, by us.
                statement::claimed_digest(envelope.payload.as_bytes())
            }
            _ => None,
        };
        let artifact = match claimed {
            Some(claimed) => Artifact::from_digest(Sha256Hash::new(claimed)),
            None => ours(digest).ok_or(Rejection::OtherDigest("unreadable".to_owned()))?,
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
            _ => return Err(Rejection::Unreadable("it signs nothing".to_owned())),
        };
        let accepted = certified_by(held, roots, meaning, annotations, BUNDLE);
        Ok(Opened { accepted, payload })
    }

    fn legacy(&self, raw: &RawSignature, digest: &Digest) -> Result<Accepted, Rejection> {
        let signature = legacy::signature(raw)?;
        let by = |key: &&PublicKey| key.verifies(&raw.bytes, &signature);
        if let Some(key) = self.keys.iter().find(by) {
            return Ok(Accepted {
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

    /// Verifies an attestation of cosign 2. Attestations have their own tag; none of them counts as
    /// a signature.
    fn legacy_attestation(&self, raw: &RawSignature, digest: &Digest) -> Result<Opened, Rejection> {
        legacy::check_annotations(raw)?;
        let envelope: Envelope = json::read(&raw.bytes, "not the JSON of an envelope")?;
        let (payload, signature) = open(&envelope)?;
        let message = dsse::pre_authentication(&payload);
        let by = |key: &&PublicKey| key.verifies(&message, &signature);
        let accepted = if let Some(key) = self.keys.iter().find(by) {
            let (meaning, annotations) = statement::read(&payload, digest)?;
            Accepted {
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
                None => ours(digest).ok_or(Rejection::OtherDigest("unreadable".to_owned()))?,
            };
            let (held, roots) = self.under_roots(&bundle, &artifact)?;
            let (meaning, annotations) = statement::read(&payload, digest)?;
            certified_by(held, roots, meaning, annotations, LEGACY)
        };
        if accepted.meaning == Meaning::Signed {
            return Err(Rejection::Unreadable(
                "a signature where cosign 2 keeps attestations".to_owned(),
            ));
        }
        Ok(Opened { accepted, payload })
    }

    /// The roots under which it holds; what is wrong with it where there is none.
    fn under_roots(
        &self,
        bundle: &FullBundle,
        artifact: &Artifact<'_>,
    ) -> Result<(Held, BTreeSet<bundle_core::policy::RootId>), Rejection> {
        let mut first: Option<Held> = None;
        let mut roots = BTreeSet::new();
        let mut nearest: Option<Rejection> = None;
        for root in &self.roots {
            match certified::verify(bundle, artifact.clone(), root, self.now) {
                Ok(held) => {
                    roots.insert(root.id().clone());
                    first.get_or_insert(held);
                }
                // What fails under the right root says more than that another is the wrong one.
                Err(rejection) => {
                    if nearest.as_ref().is_none_or(is_foreign) {
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
fn is_foreign(rejection: &Rejection) -> bool {
    matches!(
        rejection,
        Rejection::Certificate {
            fault: Fault::UnknownLog | Fault::Chain,
            ..
        }
    )
}

fn certified_by(
    held: Held,
    roots: BTreeSet<bundle_core::policy::RootId>,
    meaning: Meaning,
    annotations: statement::Annotations,
    form: &'static str,
) -> Accepted {
    let mut checked = held.checked;
    checked.push("digest");
    Accepted {
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

/// Our digest as the verifier wants it.
fn ours(digest: &Digest) -> Option<Artifact<'static>> {
    let hash = Sha256Hash::from_hex(digest.hex()).ok()?;
    Some(Artifact::from_digest(hash))
}

/// Payload and signature of an envelope.
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

#[cfg(test)]
mod flood_tests;
#[cfg(test)]
mod forge;
#[cfg(test)]
mod forged_tests;
#[cfg(test)]
mod keyless_tests;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod reading_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tiled_tests;
#[cfg(test)]
mod version_tests;
