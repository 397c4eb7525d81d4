//! Proof annotation of an object. It contains the manifest and its signatures, so that an admission
//! review needs no registry. The annotation is untrusted. Its signatures are verified like
//! signatures from a registry.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bundle_core::{
    diagnostic::{Finding, Severity, codes},
    footprint,
    policy::RawSignature,
    reference::{Digest, PinnedReference, Reference},
};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde::{Deserialize, Serialize};

use crate::json;

/// Maximum length of the annotation, in bytes. All annotations of an object together may have 256
/// KiB.
pub const LIMIT: usize = 64 << 10;
/// Maximum size of the decompressed annotation, in bytes. Signatures are at most about ten times as
/// large as their gzip form.
const UNPACKED: u64 = 1 << 20;
/// Maximum memory of the parsed annotation, in bytes: its texts, and a few short texts for each
/// signature.
const MEMORY: u64 = UNPACKED + (256 << 10);
/// Maximum memory of the parsed manifest, in bytes.
const MANIFEST_MEMORY: u64 = 2 << 20;
/// Maximum number of signatures in one annotation.
const SIGNATURES: usize = 32;

/// Content of a proof annotation. Only the digest of the manifest is verified. The signatures are
/// not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnotatedProof {
    /// Manifest. The digest of the manifest is verified.
    pub manifest: Vec<u8>,
    /// Signatures from the annotation, not verified.
    pub signatures: Vec<RawSignature>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    manifest: String,
    signatures: Vec<Signature>,
}

/// A layer of a signature's manifest, with the same bytes as in the registry.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Signature {
    media_type: String,
    content: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

/// Returns the annotation for a manifest and its signatures. Returns an error if the result is too
/// large or an input is not text.
pub fn encode(manifest: &[u8], signatures: &[RawSignature]) -> Result<String, Finding> {
    let text = |bytes: &[u8], what: &str| {
        String::from_utf8(bytes.to_vec())
            .map_err(|_| unusable(format!("{what} is not UTF-8")).hint("deploy without the proof"))
    };
    let signatures = signatures
        .iter()
        .filter(|signature| signature.unread.is_none())
        .map(|signature| {
            Ok(Signature {
                media_type: signature.artifact_type.clone(),
                content: text(&signature.bytes, "a signature")?,
                annotations: signature.annotations.clone(),
            })
        })
        .collect::<Result<Vec<_>, Finding>>()?;
    if signatures.len() > SIGNATURES {
        return Err(too_large(&format!(
            "there are {} signatures, more than the limit of {SIGNATURES}",
            signatures.len()
        )));
    }
    let document = Document {
        manifest: text(manifest, "the manifest")?,
        signatures,
    };
    let packed = pack(&document).map_err(|error| unusable(error.to_string()))?;
    if packed.len() > LIMIT {
        return Err(too_large(&format!(
            "manifest and signatures have {} bytes, more than the limit of {LIMIT}",
            packed.len()
        )));
    }
    Ok(packed)
}

fn pack(document: &Document) -> std::io::Result<String> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::best());
    serde_json::to_writer(&mut writer, document)?;
    writer.flush()?;
    Ok(STANDARD.encode(writer.finish()?))
}

/// Decodes the proof annotation of an object that refers to `reference`. Returns an error if
/// `reference` has no digest, or if the annotation is for another digest.
pub fn open(
    text: &str,
    reference: &Reference,
) -> Result<(PinnedReference, AnnotatedProof), Finding> {
    let Some(pinned) = reference.pinned() else {
        return Err(Finding::error(
            codes::trust::PROOF_REFUSED,
            "the proof is rejected: the reference has a tag, which can be moved",
        )
        .hint("use the digest, as `kubectl bundle deploy` does"));
    };
    let carried = decode(text, pinned.digest())?;
    Ok((pinned, carried))
}

/// Converts the error of an unusable proof to a warning. The caller then reads the signatures from
/// the registry.
pub fn as_ignored(mut why: Finding) -> Finding {
    why.severity = Severity::Warning;
    why.message
        .push_str("; the webhook ignores the proof, and reads the signatures from the registry");
    why
}

/// Decodes the annotation of an object that refers to `expected`. Returns an error if the
/// annotation is invalid or is for another digest.
pub fn decode(text: &str, expected: &Digest) -> Result<AnnotatedProof, Finding> {
    let mut unpacked = Vec::new();
    unpack(text, &mut unpacked)?;
    let document: Document = bundle_core::json::read_bounded(&unpacked, MEMORY)
        .map_err(|error| unusable(json::printable(error)))?;
    if document.signatures.len() > SIGNATURES {
        return Err(too_large(&format!(
            "it has {} signatures, more than the limit of {SIGNATURES}",
            document.signatures.len()
        )));
    }
    // Only a manifest in a proof annotation has this limit. For a manifest from a registry, memory
    // is reserved while it is read.
    let parsed = footprint::of_json(document.manifest.as_bytes());
    if parsed.is_ok_and(|parsed| parsed.0 > MANIFEST_MEMORY) {
        return Err(too_large(&format!(
            "its manifest needs more than {MANIFEST_MEMORY} bytes when parsed"
        )));
    }
    let found = Digest::of(document.manifest.as_bytes());
    if found != *expected {
        return Err(Finding::error(
            codes::trust::PROOF_REFUSED,
            format!("the proof is for {found}, but the object names {expected}"),
        )
        .hint("create the proof again with `kubectl bundle deploy --with-proof`, or remove the annotation core.rukpak.io/proof"));
    }
    Ok(AnnotatedProof {
        manifest: document.manifest.into_bytes(),
        signatures: document
            .signatures
            .into_iter()
            .map(|signature| RawSignature {
                bytes: signature.content.into_bytes(),
                artifact_type: signature.media_type,
                annotations: signature.annotations,
                unread: None,
            })
            .collect(),
    })
}

/// Returns an upper bound of the memory for the proof annotation and its parsed signatures. The
/// content is decompressed to count its bytes, but not stored. Returns an error if the annotation
/// is too large or damaged.
pub fn memory(text: &str) -> Result<u64, Finding> {
    /// Number of copies in memory: the unpacked bytes, the parsed document, the parsed manifest,
    /// and one parsed signature.
    const FORMS: u64 = 4;
    let length = unpack(text, &mut std::io::sink())?;
    Ok(length.saturating_mul(FORMS))
}

/// Decompresses the annotation into `target`. Returns the number of decompressed bytes.
fn unpack(text: &str, target: &mut impl std::io::Write) -> Result<u64, Finding> {
    if text.len() > LIMIT {
        return Err(too_large(&format!(
            "it has {} bytes, more than the limit of {LIMIT}",
            text.len()
        )));
    }
    let packed = STANDARD
        .decode(text)
        .map_err(|_| unusable("it is not base64"))?;
    let mut reader = GzDecoder::new(packed.as_slice()).take(UNPACKED + 1);
    let length =
        std::io::copy(&mut reader, target).map_err(|_| unusable("it is truncated or not gzip"))?;
    if length > UNPACKED {
        return Err(too_large(&format!(
            "it has more than {UNPACKED} bytes after decompression"
        )));
    }
    Ok(length)
}

/// Returns the error for an unusable proof.
pub fn unusable(why: impl std::fmt::Display) -> Finding {
    Finding::error(codes::trust::PROOF_REFUSED, format!("invalid proof: {why}")).hint(
        "create the proof again with `kubectl bundle deploy --with-proof`, or remove the annotation core.rukpak.io/proof",
    )
}

fn too_large(why: &str) -> Finding {
    Finding::error(
        codes::trust::PROOF_TOO_LARGE,
        format!("the proof is too large: {why}"),
    )
    .hint("deploy without --with-proof: the webhook then reads the signatures from the registry")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = r#"{"schemaVersion":2}"#;

    fn signature(text: &str) -> RawSignature {
        RawSignature {
            bytes: text.into(),
            artifact_type: "application/vnd.dev.sigstore.bundle.v0.3+json".into(),
            ..RawSignature::default()
        }
    }

    fn digest() -> Digest {
        Digest::of(MANIFEST.as_bytes())
    }

    fn packed(json: &str) -> String {
        let mut writer = GzEncoder::new(Vec::new(), Compression::best());
        writer.write_all(json.as_bytes()).unwrap();
        STANDARD.encode(writer.finish().unwrap())
    }

    /// Returns a proof with `count` signatures. Each signature is a map with 100 nested levels.
    fn nested_maps(count: usize) -> String {
        let nested = format!("{}0{}", r#"{"":"#.repeat(100), "}".repeat(100));
        let signatures = vec![nested; count].join(",");
        format!(r#"{{"manifest":"","signatures":[{signatures}]}}"#)
    }

    #[test]
    fn rejects_nested_maps_before_they_use_memory() {
        let text = packed(&nested_maps(1_700));
        assert!(text.len() < LIMIT);
        let finding = decode(&text, &digest()).unwrap_err();
        assert!(finding.message.contains("bytes when parsed"), "{finding}");
    }

    #[test]
    fn decodes_encoded_manifest_and_signatures() {
        let mut older = signature(r#"{"critical":{}}"#);
        older
            .annotations
            .insert("dev.cosignproject.cosign/signature".into(), "MEUC".into());
        let signatures = [signature("{}"), older];
        let text = encode(MANIFEST.as_bytes(), &signatures).unwrap();
        let carried = decode(&text, &digest()).unwrap();
        assert_eq!(carried.manifest, MANIFEST.as_bytes());
        assert_eq!(carried.signatures, signatures);
        assert!(memory(&text).unwrap() > 2 * carried.manifest.len() as u64);
        assert_eq!(text, encode(MANIFEST.as_bytes(), &signatures).unwrap());
    }

    #[test]
    fn rejects_proof_for_other_content() {
        let text = encode(MANIFEST.as_bytes(), &[]).unwrap();
        let finding = decode(&text, &Digest::of(b"other")).unwrap_err();
        assert_eq!(finding.code, codes::trust::PROOF_REFUSED);
        assert!(finding.message.contains("is for sha256:"), "{finding}");
    }

    #[test]
    fn rejects_damaged_and_foreign_annotations() {
        let whole = encode(MANIFEST.as_bytes(), &[signature("{}")]).unwrap();
        for text in [
            "",
            "%%%",
            "aGVsbG8=",
            &whole[..whole.len() - 8],
            &packed("not json"),
            &packed(r#"{"manifest":"{}"}"#),
            &packed(r#"{"manifest":"{}","signatures":[],"more":1}"#),
            &packed(r#"{"manifest":1,"signatures":[]}"#),
        ] {
            let finding = decode(text, &digest()).unwrap_err();
            assert_eq!(finding.code, codes::trust::PROOF_REFUSED, "{text}");
        }
    }

    #[test]
    fn rejects_proofs_above_the_size_limits() {
        let noise: String = (0..3_000_u32)
            .map(|i| Digest::of(&i.to_le_bytes()).hex().to_owned())
            .collect();
        let finding = encode(MANIFEST.as_bytes(), &[signature(&noise)]).unwrap_err();
        assert_eq!(finding.code, codes::trust::PROOF_TOO_LARGE);
        let many = vec![signature("{}"); SIGNATURES + 1];
        let finding = encode(MANIFEST.as_bytes(), &many).unwrap_err();
        assert_eq!(finding.code, codes::trust::PROOF_TOO_LARGE);

        let bomb = packed(&" ".repeat(4 << 20));
        assert!(bomb.len() < LIMIT);
        for text in [bomb, "A".repeat(LIMIT + 4)] {
            let finding = decode(&text, &digest()).unwrap_err();
            assert_eq!(finding.code, codes::trust::PROOF_TOO_LARGE);
            assert_eq!(memory(&text).unwrap_err().code, finding.code);
        }
    }
}
