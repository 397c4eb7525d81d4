//! Creates signatures: payloads, signers, and two formats. The formats are a Sigstore bundle
//! (cosign 3), and a payload with annotations (cosign 2).

mod maker;
mod type_confusion;

use std::collections::BTreeMap;

use bundle_core::{
    diagnostic::{Finding, codes},
    reference::PinnedReference,
};
use serde_json::{Value, json};

use crate::{
    bundle::{Bundle, Material},
    dsse,
    keys::{PrivateKey, PublicKey},
    legacy, statement,
    verify::Content,
};

pub use maker::SignerIdentity;
pub use type_confusion::{check_attested_not_image, check_not_image};

/// Media type of a Sigstore bundle. The layer has this media type, and the manifest has it as
/// artifact type.
pub const BUNDLE_MEDIA_TYPE: &str = dsse::BUNDLE;
/// Predicate type of a signature, for the annotation `dev.sigstore.bundle.predicateType` of its
/// manifest.
pub const PREDICATE_TYPE: &str = dsse::SIGNED;

const MOST_ANNOTATIONS: usize = 32;
const LONGEST_ANNOTATIONS: usize = 4 * 1024;

/// Annotations that are signed together with the digest.
pub type Annotations = BTreeMap<String, String>;

/// Signer: a key in a file, a plugin for a KMS or hardware token, or an ephemeral key.
pub trait Signer {
    /// Returns the public key.
    fn public(&self) -> &PublicKey;
    /// Signs `message`. The signer hashes `message` if the algorithm requires a hash. The caller
    /// verifies the result.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Finding>;
    /// Returns `true` if the signer supports [`Signer::sign_digest`]. Ed25519 signs the content
    /// itself and returns `false`.
    fn signs_digests(&self) -> bool {
        false
    }
    /// Signs content of which only the sha256 digest is known.
    fn sign_digest(&self, _sha256: &[u8]) -> Result<Vec<u8>, Finding> {
        Err(failed())
    }
}

impl Signer for PrivateKey {
    fn public(&self) -> &PublicKey {
        PrivateKey::public(self)
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Finding> {
        PrivateKey::sign(self, message).ok_or_else(failed)
    }

    fn signs_digests(&self) -> bool {
        !self.public().needs_content()
    }

    fn sign_digest(&self, sha256: &[u8]) -> Result<Vec<u8>, Finding> {
        PrivateKey::sign_digest(self, sha256).ok_or_else(failed)
    }
}

/// Returns the in-toto statement of a signature over the digest of `reference`.
pub fn signed(reference: &PinnedReference, annotations: &Annotations) -> Result<Vec<u8>, Finding> {
    check_annotation_count(reference, annotations)?;
    let mut subject = json!({"digest": {"sha256": reference.digest().hex()}});
    if !annotations.is_empty() {
        subject["annotations"] = json!(annotations);
    }
    write(&json!({
        "_type": dsse::STATEMENT,
        "subject": [subject],
        "predicateType": dsse::SIGNED,
        "predicate": {},
    }))
}

/// Returns the payload of a cosign 2 signature: the name of the image, its digest and
/// `annotations`.
pub fn simple(reference: &PinnedReference, annotations: &Annotations) -> Result<Vec<u8>, Finding> {
    check_annotation_count(reference, annotations)?;
    let optional = (!annotations.is_empty()).then_some(annotations);
    write(&json!({
        "critical": {
            "identity": {"docker-reference": reference.reference().name()},
            "image": {"docker-manifest-digest": reference.digest().as_str()},
            "type": statement::SIMPLE,
        },
        "optional": optional,
    }))
}

fn check_annotation_count(
    reference: &PinnedReference,
    annotations: &Annotations,
) -> Result<(), Finding> {
    let length: usize = annotations.iter().map(|(k, v)| k.len() + v.len()).sum();
    if annotations.len() <= MOST_ANNOTATIONS && length <= LONGEST_ANNOTATIONS {
        return Ok(());
    }
    Err(Finding::error(
        codes::trust::ANNOTATION_REFUSED,
        format!(
            "{} annotations with {length} bytes exceed the limit of {MOST_ANNOTATIONS} annotations with {LONGEST_ANNOTATIONS} bytes",
            annotations.len()
        ),
    )
    .about(reference.to_string())
    .hint("use fewer or shorter annotations"))
}

fn write(value: &Value) -> Result<Vec<u8>, Finding> {
    serde_json::to_vec(value).map_err(|_| failed())
}

pub(crate) fn failed() -> Finding {
    Finding::error(codes::trust::SIGNING_FAILED, "cannot create the signature")
}

/// Signs `message` and verifies the result, because a plugin may return an invalid signature.
pub(crate) fn sign_and_verify(signer: &dyn Signer, message: &[u8]) -> Result<Vec<u8>, Finding> {
    let signature = signer.sign(message)?;
    if signer.public().verifies(message, &signature) {
        Ok(signature)
    } else {
        Err(at_fault())
    }
}

/// Signs content of which only the sha256 digest is known, and verifies the signature.
pub(crate) fn sign_digest_and_verify(
    signer: &dyn Signer,
    sha256: &[u8],
) -> Result<Vec<u8>, Finding> {
    let signature = signer.sign_digest(sha256)?;
    if signer.public().verifies_digest(sha256, &signature) {
        Ok(signature)
    } else {
        Err(at_fault())
    }
}

fn at_fault() -> Finding {
    Finding::error(
        codes::trust::SIGNING_FAILED,
        "the new signature does not verify with the public key of the signer",
    )
    .hint(
        "nothing was stored; check the signing device or plugin, which returned a wrong signature",
    )
}

/// Returns a Sigstore bundle v0.3 with a signature over a file, in the format of `cosign
/// sign-blob`. If the signer cannot sign a digest, `content` must have the bytes of the file.
pub fn blob(signer: &dyn Signer, content: &Content<'_>) -> Result<Vec<u8>, Finding> {
    let sha256 = content.sha256();
    let signature = match (signer.signs_digests(), content.bytes) {
        (true, _) => sign_digest_and_verify(signer, &sha256)?,
        (false, Some(bytes)) => sign_and_verify(signer, bytes)?,
        (false, None) => {
            return Err(Finding::error(
                codes::trust::KEY_UNSUPPORTED,
                "this key signs the content itself, which is too large for the memory",
            )
            .hint("use an ECDSA P-256 key in a file, or keyless signing"));
        }
    };
    write(&json!({
        "mediaType": dsse::BUNDLE,
        "verificationMaterial": { "publicKey": { "hint": signer.public().id().as_str() } },
        "messageSignature": {
            "messageDigest": { "algorithm": "SHA2_256", "digest": dsse::encode(&sha256) },
            "signature": dsse::encode(&signature),
        },
    }))
}

/// Returns a Sigstore bundle v0.3 with a statement.
pub fn bundle(signer: &dyn Signer, payload: &[u8]) -> Result<Vec<u8>, Finding> {
    let signature = sign_and_verify(signer, &dsse::pre_authentication(payload))?;
    serde_json::to_vec(&Bundle {
        media_type: dsse::BUNDLE.to_owned(),
        verification_material: Material::by_key(signer.public().id().as_str()),
        dsse_envelope: Some(dsse::Envelope {
            payload: dsse::encode(payload),
            payload_type: dsse::PAYLOAD.to_owned(),
            signatures: vec![dsse::EnvelopeSignature::new(&signature)],
        }),
        message_signature: None,
    })
    .map_err(|_| failed())
}

/// Returns the annotations of a signature over the payload of [`simple`].
pub fn annotations(signer: &dyn Signer, payload: &[u8]) -> Result<Annotations, Finding> {
    let signature = sign_and_verify(signer, payload)?;
    Ok([(legacy::SIGNATURE.to_owned(), dsse::encode(&signature))].into())
}

/// Returns a Sigstore bundle that signs a digest, for tests.
#[cfg(test)]
pub(crate) fn sign_digest(
    key: &PrivateKey,
    reference: &PinnedReference,
    annotations: &Annotations,
) -> Result<Vec<u8>, Finding> {
    bundle(key, &signed(reference, annotations)?)
}
