//! Signed payloads: an in-toto statement in a Sigstore bundle, or cosign 2's simple signing.
//! Payloads are parsed only after the signature was verified.

use std::collections::BTreeMap;

use bundle_core::policy::{Meaning, Rejection};
use bundle_core::reference::Digest;
use serde::Deserialize;
use serde_json::Value;

use crate::{dsse, json};

/// Value of `critical.type` in signatures by cosign 2.
pub(crate) const SIMPLE: &str = "cosign container image signature";

/// Annotations that were signed together with the digest.
pub(crate) type Annotations = BTreeMap<String, String>;

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
    annotations: Option<BTreeMap<String, Value>>,
}

/// Maximum length of a predicate type, in bytes. A predicate type is a URI.
pub(crate) const LONGEST_TYPE: usize = 512;

/// Reads a statement. The only subject of the statement must be the digest.
pub(crate) fn read(payload: &[u8], digest: &Digest) -> Result<(Meaning, Annotations), Rejection> {
    let statement: Statement = json::read(payload, "not an in-toto statement")?;
    let signed = statement.predicate_type == dsse::SIGNED;
    if statement.kind != dsse::STATEMENT && (signed || statement.kind != dsse::STATEMENT_OLD) {
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
        None => return Err(Rejection::OtherDigest("not a sha256 digest".to_owned())),
    }
    let meaning = if signed {
        Meaning::Signed
    } else if statement.predicate_type.len() > LONGEST_TYPE {
        return Err(Rejection::StatementType(statement.predicate_type));
    } else {
        Meaning::Attested(statement.predicate_type)
    };
    Ok((meaning, texts(subject.annotations.unwrap_or_default())))
}

/// Returns the predicate of a statement that [`read`] accepted as an attestation.
pub(crate) fn predicate(payload: &[u8]) -> Option<Value> {
    #[derive(Deserialize)]
    struct PredicateField {
        predicate: Value,
    }
    let statement: PredicateField = json::read(payload, "not an in-toto statement").ok()?;
    Some(statement.predicate)
}

/// Returns the sha256 of the first subject in a statement. The value is not verified; [`read`]
/// checks it later.
pub(crate) fn claimed_digest(payload: &[u8]) -> Option<[u8; 32]> {
    let statement: Statement = json::read(payload, "not an in-toto statement").ok()?;
    let hex = statement.subject.first()?.digest.get("sha256")?;
    let mut bytes = [0; 32];
    let digits = hex.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let text = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(text, 16).ok()?;
    }
    Some(bytes)
}

/// Payload of cosign 2. The format has only two top-level fields, and requires verifiers to reject
/// unknown fields of `critical`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Simple {
    critical: Critical,
    #[serde(default)]
    optional: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Critical {
    #[serde(default, rename = "identity")]
    _identity: Option<SimpleIdentity>,
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

/// Name of the image, chosen by the signer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SimpleIdentity {
    #[serde(default, rename = "docker-reference")]
    _reference: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// Parses the payload of cosign 2, which must contain the digest. The image name in the payload
/// (`critical.identity`) is ignored, because a signature is valid for the content in every
/// repository.
pub(crate) fn read_simple(payload: &[u8], digest: &Digest) -> Result<Annotations, Rejection> {
    let simple: Simple = json::read(payload, "not a simple signing payload")?;
    if simple.critical.kind != SIMPLE {
        return Err(Rejection::PayloadKind(simple.critical.kind));
    }
    if simple.critical.image.digest != digest.as_str() {
        return Err(Rejection::OtherDigest(simple.critical.image.digest));
    }
    Ok(texts(simple.optional.unwrap_or_default()))
}

fn texts(values: BTreeMap<String, Value>) -> Annotations {
    let text = |(name, value)| match value {
        Value::String(text) => Some((name, text)),
        _ => None,
    };
    values.into_iter().filter_map(text).collect()
}
