//! Examining signatures: does it hold, by which key, over our digest, and does it mean "signed"?
//! Not here: whether that is enough (bundle-core::policy::decide).

use std::collections::BTreeMap;

use bundle_core::{
    diagnostic::{Finding, Findings, codes},
    policy::{Accepted, KeyId, RawSignature, Rejection, SignatureFound, summary},
    reference::{Digest, PinnedReference},
};
use serde::Deserialize;

use crate::{
    dsse::{self, Bundle},
    keys::PublicKey,
};

/// Most bytes of one signature that are read.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Most signatures of one digest that are examined; what is beyond is told, and counts as not accepted.
pub const MAX_SIGNATURES: usize = 256;

/// Examines each signature, in order: does it hold for `digest` with one of `keys`?
pub fn examine(
    signatures: &[RawSignature],
    digest: &Digest,
    keys: &[PublicKey],
) -> Vec<SignatureFound> {
    signatures
        .iter()
        .enumerate()
        .map(|(index, raw)| {
            SignatureFound(if index < MAX_SIGNATURES {
                examine_one(&raw.bytes, digest, keys)
            } else {
                Err(Rejection::NotExamined {
                    limit: MAX_SIGNATURES,
                })
            })
        })
        .collect()
}

/// For `verify --key`: the signatures of `reference` that hold, by any of `keys`; a refusal that says what is there if none does.
pub fn with_keys(
    signatures: &[RawSignature],
    reference: &PinnedReference,
    keys: &[PublicKey],
) -> Result<Vec<Accepted>, Findings> {
    let found = examine(signatures, reference.digest(), keys);
    let accepted: Vec<Accepted> = found
        .iter()
        .filter_map(SignatureFound::accepted)
        .cloned()
        .collect();
    if !accepted.is_empty() {
        return Ok(accepted);
    }
    let ids: Vec<&KeyId> = keys.iter().map(PublicKey::id).collect();
    let code = if found.is_empty() {
        codes::trust::UNSIGNED
    } else {
        codes::trust::NOT_ACCEPTED
    };
    Err(Finding::error(
        code,
        format!(
            "it is not signed by the given key (hint {}): {}",
            ids.iter()
                .map(|id| id.as_str())
                .collect::<Vec<_>>()
                .join(", "),
            summary(&found, &ids)
        ),
    )
    .about(reference.to_string())
    .hint(format!(
        "give the public key of its signer, or sign it: kubectl bundle sign --key KEY {reference}"
    ))
    .into())
}

/// The statement inside, as far as it is read here.
#[derive(Deserialize)]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
}

#[derive(Deserialize)]
struct Subject {
    digest: BTreeMap<String, String>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, serde_json::Value>>,
}

/// Nothing of the payload is looked at before its signature holds.
fn examine_one(bytes: &[u8], digest: &Digest, keys: &[PublicKey]) -> Result<Accepted, Rejection> {
    if bytes.len() > MAX_BYTES {
        return Err(Rejection::TooLarge {
            bytes: bytes.len(),
            limit: MAX_BYTES,
        });
    }
    let (key, payload) = open_envelope(bytes, keys)?;
    let annotations = read_statement(&payload, digest)?;
    Ok(Accepted { key, annotations })
}

fn open_envelope(bytes: &[u8], keys: &[PublicKey]) -> Result<(KeyId, Vec<u8>), Rejection> {
    let unreadable = |why: &str| Rejection::Unreadable(why.to_owned());
    let bundle: Bundle =
        serde_json::from_slice(bytes).map_err(|_| unreadable("not the JSON of a bundle"))?;
    if bundle.media_type != dsse::BUNDLE && bundle.media_type != dsse::BUNDLE_OLD_SPELLING {
        return Err(Rejection::OtherForm(bundle.media_type));
    }
    let material = bundle.verification_material;
    let certified = material.certificate.is_some() || material.x509_certificate_chain.is_some();
    let hint = match (material.public_key, certified) {
        (Some(key), false) => KeyId::new(key.hint),
        (None, true) => return Err(Rejection::Keyless),
        (Some(_), true) => return Err(unreadable("it names both a key and a certificate")),
        (None, false) => return Err(unreadable("it names neither a key nor a certificate")),
    };
    let envelope = bundle
        .dsse_envelope
        .ok_or_else(|| unreadable("it has no DSSE envelope"))?;
    if envelope.payload_type != dsse::PAYLOAD {
        return Err(Rejection::PayloadType(envelope.payload_type));
    }
    let [signature] = envelope.signatures.as_slice() else {
        return Err(Rejection::SignatureCount(envelope.signatures.len()));
    };
    let payload =
        dsse::decode(&envelope.payload).ok_or_else(|| unreadable("its payload is not base64"))?;
    let signature =
        dsse::decode(&signature.sig).ok_or_else(|| unreadable("its signature is not base64"))?;
    let Some(key) = keys.iter().find(|key| *key.id() == hint) else {
        return Err(Rejection::OtherKey(hint));
    };
    if !key.verifies(&dsse::pre_authentication(&payload), &signature) {
        return Err(Rejection::Forged(hint));
    }
    Ok((hint, payload))
}

fn read_statement(payload: &[u8], digest: &Digest) -> Result<BTreeMap<String, String>, Rejection> {
    let statement: Statement = serde_json::from_slice(payload)
        .map_err(|_| Rejection::Unreadable("no in-toto statement inside".to_owned()))?;
    if statement.predicate_type != dsse::SIGNED {
        return Err(Rejection::Attestation(statement.predicate_type));
    }
    if statement.kind != dsse::STATEMENT {
        return Err(Rejection::StatementType(statement.kind));
    }
    let count = statement.subject.len();
    let mut subjects = statement.subject.into_iter();
    let (Some(subject), None) = (subjects.next(), subjects.next()) else {
        return Err(Rejection::SubjectCount(count));
    };
    match subject.digest.get("sha256") {
        Some(hex) if hex == digest.hex() => {}
        Some(hex) => return Err(Rejection::OtherDigest(format!("sha256:{hex}"))),
        None => return Err(Rejection::OtherDigest("not a sha256 one".to_owned())),
    }
    Ok(subject
        .annotations
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(name, value)| match value {
            serde_json::Value::String(text) => Some((name, text)),
            _ => None,
        })
        .collect())
}

#[cfg(test)]
mod tests;
