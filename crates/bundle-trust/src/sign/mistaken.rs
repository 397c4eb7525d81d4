//! Files whose plain signature would pass for the signature of an image: whoever hands in such a file to be signed would have more signed than a file.
//! Not here: signing them (maker), and what is verified (verify), which cannot tell one from the other.

use bundle_core::diagnostic::{Finding, codes};
use serde_json::Value;

use crate::verify::MAX_BYTES;

/// How everything begins that is signed in an envelope.
const ENVELOPE: &[u8] = b"DSSEv1 ";
/// Longest manifest that a registry takes, in bytes; a payload is shorter than [`MAX_BYTES`] to be read at all.
const LONGEST: usize = 4 << 20;

/// An error if a signature over exactly this content says something about an image as well.
pub fn mistaken(content: &[u8]) -> Result<(), Finding> {
    let Some(what) = passes_for(content) else {
        return Ok(());
    };
    Err(Finding::error(
        codes::trust::MISTAKEN,
        format!(
            "a signature over this file could be passed off as one of an image: the file is {what}"
        ),
    )
    .hint("sign the image itself: kubectl bundle sign REFERENCE; where did the file come from?"))
}

fn passes_for(content: &[u8]) -> Option<&'static str> {
    if content.starts_with(ENVELOPE) {
        return Some("what is signed inside of an envelope");
    }
    if content.len() > LONGEST.max(MAX_BYTES) {
        return None;
    }
    let document: Value = serde_json::from_slice(content).ok()?;
    if document["critical"]["image"].is_object() {
        return Some("what cosign 2 signs for an image");
    }
    let version = &document["schemaVersion"];
    let parts = ["layers", "manifests", "fsLayers", "blobs"];
    let lists = parts.iter().any(|part| document[part].is_array());
    (!version.is_null() && lists).then_some("the manifest of an image")
}

#[cfg(test)]
mod tests {
    use bundle_core::policy::{Meaning, RawSignature};
    use bundle_core::reference::{Digest, Reference};
    use serde_json::json;

    use super::super::{Annotations, BUNDLE_MEDIA_TYPE, simple};
    use super::*;
    use crate::keys::{KeyKind, PrivateKey};
    use crate::verify::{self, Against};
    use crate::{dsse, legacy};

    #[test]
    fn what_would_pass_for_a_signature_of_an_image_is_not_signed_as_a_file() {
        let image: Reference = "registry.example.com/team/web:1".parse().unwrap();
        let image = image.pin(Digest::of(b"content"));
        let payload = super::super::signed(&image, &Annotations::new()).unwrap();
        let file = dsse::pre_authentication(&payload);
        let older = simple(&image, &Annotations::new()).unwrap();
        let manifest = json!({ "schemaVersion": 2, "layers": [] }).to_string();
        for (content, told) in [
            (file.as_slice(), "inside of an envelope"),
            (older.as_slice(), "cosign 2"),
            (manifest.as_bytes(), "manifest"),
            (br#" {"schemaVersion":2,"manifests":[]}"#, "manifest"),
        ] {
            let finding = mistaken(content).unwrap_err();
            assert_eq!(finding.code, codes::trust::MISTAKEN);
            assert!(finding.message.contains(told), "{finding}");
        }
        for content in [
            b"a file".as_slice(),
            b"",
            b"DSSE",
            br#"{"critical":true}"#,
            br#"{"schemaVersion":2}"#,
            br#"{"layers":[]}"#,
            &vec![b'['; 10_000],
        ] {
            mistaken(content).unwrap();
        }
    }

    /// Why: nobody who verifies could tell.
    #[test]
    fn a_signature_over_such_a_file_does_pass_for_one() {
        let image: Reference = "registry.example.com/team/web:1".parse().unwrap();
        let image = image.pin(Digest::of(b"content"));
        for kind in [KeyKind::EcdsaP256, KeyKind::Ed25519] {
            let key = PrivateKey::ephemeral(kind).unwrap();
            let payload = super::super::signed(&image, &Annotations::new()).unwrap();
            let signature = key.sign(&dsse::pre_authentication(&payload)).unwrap();
            let bundle = json!({
                "mediaType": dsse::BUNDLE,
                "verificationMaterial": { "publicKey": { "hint": key.public().id().as_str() } },
                "dsseEnvelope": {
                    "payload": dsse::encode(&payload),
                    "payloadType": dsse::PAYLOAD,
                    "signatures": [{ "sig": dsse::encode(&signature) }],
                },
            });
            let older = simple(&image, &Annotations::new()).unwrap();
            let signature = dsse::encode(&key.sign(&older).unwrap());
            let forged = [
                RawSignature {
                    bytes: bundle.to_string().into_bytes(),
                    artifact_type: BUNDLE_MEDIA_TYPE.to_owned(),
                    ..RawSignature::default()
                },
                RawSignature {
                    bytes: older,
                    artifact_type: legacy::SIMPLE_SIGNING.to_owned(),
                    annotations: [(legacy::SIGNATURE.to_owned(), signature)].into(),
                    unread: None,
                },
            ];
            let against = Against {
                keys: vec![key.public().clone()],
                roots: Vec::new(),
                now: jiff::Timestamp::UNIX_EPOCH,
            };
            for found in verify::examine(&forged, image.digest(), &against) {
                assert_eq!(found.accepted().unwrap().meaning, Meaning::Signed);
            }
        }
    }
}
