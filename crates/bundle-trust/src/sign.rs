//! Signing a digest with a key, in the form that cosign 3 writes and reads.
//! Not here: putting the signature beside the content in a registry (bundle-oci).

use std::collections::BTreeMap;

use bundle_core::{
    diagnostic::{Finding, codes},
    reference::PinnedReference,
};
use serde_json::json;

use crate::{dsse, keys::PrivateKey};

/// The media type of a signature: of its layer, and the artifact type of the manifest that carries it.
pub const BUNDLE_MEDIA_TYPE: &str = dsse::BUNDLE;
/// The predicate type of a signature, for the annotation `dev.sigstore.bundle.predicateType` of the manifest that carries it.
pub const PREDICATE_TYPE: &str = dsse::SIGNED;

const MOST_ANNOTATIONS: usize = 32;
const LONGEST_ANNOTATIONS: usize = 4 * 1024;

/// Signs the digest of `reference`, and `annotations` (such as name and version of the package) with it. Gives a Sigstore bundle v0.3.
///
/// The signature is over the digest alone: it stays good in every registry that the content is copied to.
pub fn sign_digest(
    key: &PrivateKey,
    reference: &PinnedReference,
    annotations: &BTreeMap<String, String>,
) -> Result<Vec<u8>, Finding> {
    let length: usize = annotations.iter().map(|(k, v)| k.len() + v.len()).sum();
    if annotations.len() > MOST_ANNOTATIONS || length > LONGEST_ANNOTATIONS {
        return Err(Finding::error(
            codes::trust::ANNOTATION_REFUSED,
            format!(
                "{} annotations with {length} bytes are too many to sign: at most {MOST_ANNOTATIONS} with {LONGEST_ANNOTATIONS} bytes",
                annotations.len()
            ),
        )
        .about(reference.to_string())
        .hint("sign fewer or shorter annotations"));
    }
    let failed = || {
        Finding::error(
            codes::trust::SIGNING_FAILED,
            "the signature could not be made",
        )
        .about(reference.to_string())
    };
    let mut subject = json!({"digest": {"sha256": reference.digest().hex()}});
    if !annotations.is_empty() {
        subject["annotations"] = json!(annotations);
    }
    let statement = json!({
        "_type": dsse::STATEMENT,
        "subject": [subject],
        "predicateType": dsse::SIGNED,
        "predicate": {},
    });
    let payload = serde_json::to_vec(&statement).map_err(|_| failed())?;
    bundle(key, &payload).ok_or_else(failed)
}

/// A bundle around any payload.
pub(crate) fn bundle(key: &PrivateKey, payload: &[u8]) -> Option<Vec<u8>> {
    let signature = key.sign(&dsse::pre_authentication(payload))?;
    serde_json::to_vec(&dsse::Bundle {
        media_type: dsse::BUNDLE.to_owned(),
        verification_material: dsse::Material {
            public_key: Some(dsse::KeyHint {
                hint: key.public().id().to_string(),
            }),
            ..dsse::Material::default()
        },
        dsse_envelope: Some(dsse::Envelope {
            payload: dsse::encode(payload),
            payload_type: dsse::PAYLOAD.to_owned(),
            signatures: vec![dsse::EnvelopeSignature {
                sig: dsse::encode(&signature),
            }],
        }),
        message_signature: None,
    })
    .ok()
}
