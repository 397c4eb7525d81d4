//! Detects files for which a signature or attestation would also be valid for an image. The signer
//! of such a file would unintentionally sign the image, because a verifier cannot distinguish the
//! file from the manifest or payload of the image.

mod list;
#[cfg(test)]
mod readers;
#[cfg(test)]
mod readers_tests;

use std::collections::BTreeSet;
use std::fmt;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::json::folded;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};

/// Prefix of the signed bytes of every DSSE envelope.
const ENVELOPE: &[u8] = b"DSSEv1 ";
/// Byte order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";
/// Field names, normalized by [`Name`], that make a JSON object an image manifest or a payload.
const NAMES: [&str; 8] = [
    "blobs",
    "config",
    "critical",
    "fslayers",
    "layers",
    "manifests",
    "mediatype",
    "schemaversion",
];

/// Returns an error if a signature over this content would also be valid for an image.
///
/// The content has no size limit. Registries accept manifests of up to 4 MiB, but payloads are
/// layers, and cosign reads layers of up to 128 MiB. For larger content, the caller passes only the
/// beginning. The beginning is sufficient, because the detection also accepts truncated JSON.
pub fn check_not_image(content: &[u8]) -> Result<(), Finding> {
    let top = TopLevelFields::of(content);
    let what = if content.starts_with(ENVELOPE) {
        "the signed bytes of an envelope"
    } else if top.is_manifest() {
        "the manifest of an image"
    } else if top.is_payload() {
        "the payload that cosign 2 signs for an image"
    } else if top.is_list {
        "a list that some parsers accept as the manifest or the payload of an image"
    } else {
        return Ok(());
    };
    Err(Finding::error(
        codes::trust::MISTAKEN,
        format!(
            "a signature of this file would also be valid for an image: the file is {what}, or a parser could accept it as such"
        ),
    )
    .hint(
        "sign the image (kubectl bundle sign REFERENCE), or an archive that contains the file; check the origin of the file",
    ))
}

/// Returns an error if the content is an image manifest or index, because an attestation of this
/// content would also be valid for the image.
pub fn check_attested_not_image(content: &[u8]) -> Result<(), Finding> {
    let top = TopLevelFields::of(content);
    if !top.is_manifest() && !top.is_list {
        return Ok(());
    }
    Err(Finding::error(
        codes::trust::MISTAKEN,
        "an attestation of this file would also be valid for an image: the file is an image manifest, or a parser could accept it as such",
    )
    .hint(
        "attest the image (kubectl bundle attest REFERENCE), or an archive that contains the file; check the origin of the file",
    ))
}

/// Field names of a top-level JSON object. The parsing is more lenient than in any parser of
/// manifests: it ignores case, values and text after the object, and allows duplicate names.
/// Therefore it detects all content that another parser accepts as a manifest.
#[derive(Default)]
struct TopLevelFields {
    names: BTreeSet<&'static str>,
    /// `true` if the media type belongs to an image, or if the media type is invalid.
    is_image: bool,
    /// `true` if the content is a list whose elements could be read as fields.
    is_list: bool,
}

impl TopLevelFields {
    fn of(content: &[u8]) -> Self {
        let content = content.trim_ascii_start();
        let content = content.strip_prefix(MARK).unwrap_or(content);
        let content = content.trim_ascii_start();
        let mut top = Self {
            is_list: content.starts_with(b"[") && list::is_read_by_position(content),
            ..Self::default()
        };
        // After a syntax error, the fields before the error are used, because other parsers may
        // accept them.
        #[expect(
            clippy::disallowed_methods,
            reason = "the name is read as leniently as by any other reader, and is not trusted"
        )]
        let mut reader = serde_json::Deserializer::from_slice(content);
        let _ = reader.deserialize_map(&mut top);
        top
    }

    fn is_manifest(&self) -> bool {
        let has = |name: &str| self.names.contains(name);
        self.is_image
            || ["layers", "manifests", "fslayers"].into_iter().any(has)
            || has("schemaversion") && (has("config") || has("blobs"))
            || has("mediatype") && has("blobs")
    }

    fn is_payload(&self) -> bool {
        self.names.contains("critical")
    }
}

impl<'de> Visitor<'de> for &mut TopLevelFields {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = map.next_key()? {
            if let Some(known) = NAMES.into_iter().find(|known| *known == name) {
                self.names.insert(known);
            }
            if name == "mediatype" {
                let before = std::mem::replace(&mut self.is_image, true);
                let Name(kind) = map.next_value()?;
                self.is_image = before || is_of_image(&kind);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

fn is_of_image(media_type: &str) -> bool {
    ["application/vnd.oci.", "application/vnd.docker."]
        .iter()
        .any(|prefix| media_type.starts_with(prefix))
}

/// Field name in lower case. Go compares field names without regard to case, and treats one
/// non-ASCII letter as `s` and another one as `k`. Invalid Unicode is accepted.
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Fold)
    }
}

struct Fold;

impl Visitor<'_> for Fold {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Name, E> {
        Ok(Name(folded(&String::from_utf8_lossy(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use bundle_core::policy::{Meaning, RawSignature};
    use bundle_core::reference::{Digest, Reference};
    use serde_json::json;

    use super::super::{Annotations, BUNDLE_MEDIA_TYPE, simple};
    use super::*;
    use crate::keys::{KeyKind, PrivateKey};
    use crate::verify::{self, TrustMaterial};
    use crate::{dsse, legacy};

    #[test]
    fn rejects_files_whose_signature_would_be_valid_for_an_image() {
        let image: Reference = "registry.example.com/team/web:1".parse().unwrap();
        let image = image.pin(Digest::of(b"content"));
        let payload = super::super::signed(&image, &Annotations::new()).unwrap();
        let file = dsse::pre_authentication(&payload);
        let older = simple(&image, &Annotations::new()).unwrap();
        let manifest = json!({ "schemaVersion": 2, "layers": [] }).to_string();
        for (content, told) in [
            (file.as_slice(), "bytes of an envelope"),
            (older.as_slice(), "cosign 2"),
            (manifest.as_bytes(), "manifest"),
        ] {
            let finding = check_not_image(content).unwrap_err();
            assert_eq!(finding.code, codes::trust::MISTAKEN);
            assert!(finding.message.contains(told), "{finding}");
        }
        check_attested_not_image(manifest.as_bytes()).unwrap_err();
        // The digest in these statements is not the digest of an image.
        check_attested_not_image(&file).unwrap();
        check_attested_not_image(&older).unwrap();
    }

    #[test]
    fn detects_manifests_that_any_reader_accepts() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let long = " ".repeat(5 << 20);
        let fields = r#""schemaVersion":2,"config":{},"layers":[]"#;
        let mut found = vec![
            r#"{"schemaVersion":2,"manifests":[]}"#.to_owned(),
            r#"{"schemaVersion":1,"fsLayers":[]}"#.to_owned(),
            r#"{"schemaVersion":2,"config":{}}"#.to_owned(),
            r#"{"layers":[]}"#.to_owned(),
            r#"{"layers":null}"#.to_owned(),
            r#"{"SCHEMAVERSION":2,"Layers":[]}"#.to_owned(),
            r#"{"Manifests":[]}"#.to_owned(),
            "{\"manife\u{17f}ts\":[]}".to_owned(),
            r#"{"l\u0061yers":[]}"#.to_owned(),
            r#"{"mediaType":"application/vnd.oci.image.index.v1+json"}"#.to_owned(),
            r#"{"mediaType":"application/vnd.docker.distribution.manifest.v2+json"}"#.to_owned(),
            r#"{"MediaType":1,"schemaVersion":2,"layers":[]}"#.to_owned(),
            r#"{"mediaType":"application/vnd.example.artifact+json","blobs":[]}"#.to_owned(),
            format!("{{{fields},\"x\":{long}1}}"),
            format!("{long}{{{fields}}}"),
            format!("\u{feff} {{{fields}}}"),
            format!("\n\t {{{fields}}} and more"),
            // The JSON is truncated, or invalid at the end.
            format!("{{{fields}"),
            format!("{{{fields},\"x\":'1'}}"),
        ];
        for odd in ["1e999", r#""\ud800""#, "1, \"\\ud800\": 2", &deep] {
            found.push(format!("{{\"x\":{odd},{fields}}}"));
            found.push(format!("{{{fields},\"x\":{odd}}}"));
            found.push(format!("{{\"SchemaVersion\":{odd},{fields}}}"));
        }
        for text in &found {
            let start: String = text.chars().take(80).collect();
            assert!(check_not_image(text.as_bytes()).is_err(), "{start}");
            assert!(
                check_attested_not_image(text.as_bytes()).is_err(),
                "{start}"
            );
        }
        let no_text = [b"{\"\xff\":\"\xff\",", fields.as_bytes(), b"}"].concat();
        assert!(check_not_image(&no_text).is_err());
        for text in [
            r#"{"critical":{"image":{}},"critical":{}}"#,
            r#"{"Critical":{"image":{}}}"#,
            r#"{"critical":{},"optional":1e999}"#,
        ] {
            assert!(check_not_image(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn detects_lists_read_by_position_as_payload_or_manifest() {
        let digest = Digest::of(b"content");
        let kind = crate::statement::SIMPLE;
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for text in [
            format!(r#"[[["{digest}"],"{kind}"],null]"#),
            format!(r#"[[["registry.example.com/web"],["{digest}"],"{kind}"]]"#),
            format!(
                r#"[{{"image":{{"docker-manifest-digest":"{digest}"}},"type":"{kind}"}},null]"#
            ),
            format!(r#"[null,{{"Image":["{digest}"],"Type":"{kind}"}}]"#),
            format!("\u{feff} [ [[\"{digest}\"],\"{kind}\"], null]"),
            r#"[2,null,{"mediaType":"x"},[]]"#.to_owned(),
            r#"[2,"application/vnd.oci.image.manifest.v1+json",null,{"digest":"x"},[]]"#.to_owned(),
            r#"[2,null,[{"digest":"x"}]]"#.to_owned(),
            r#"[2,null,{"mediaType":"x"}"#.to_owned(),
            format!(r#"["a",{deep}]"#),
        ] {
            assert!(check_not_image(text.as_bytes()).is_err(), "{text}");
        }
        for text in [
            r#"[{"Config":"x.json","RepoTags":[],"Layers":[]}]"#,
            r#"["a","b"]"#,
            "[1,2,3]",
            "[]",
            r#"[{"image":"registry.example.com/web:1"},{"image":"registry.example.com/db:1"}]"#,
            r#"[{"name":"web","version":"1.0.0"}]"#,
            "[package]\nname = \"web\"\n",
            "[[test]]\nname = \"web\"\n",
            "[[ -f x ]] || exit 1",
            "[text](https://example.com)",
        ] {
            assert!(check_not_image(text.as_bytes()).is_ok(), "{text}");
        }
    }

    #[test]
    fn ordinary_files_are_signed() {
        for content in [
            b"a file".as_slice(),
            b"",
            b"{",
            b"DSSE",
            b"\x1f\x8b\x08\0\0\0\0\0\0\xff{\"layers\":[]}",
            b"bundle.yaml\0\0\0\0\0\0\x00 644\0{\"layers\":[]}",
            b"schemaVersion: 2\nlayers: []\n",
            b"apiVersion: v1\nkind: ConfigMap\ndata: {critical: \"{}\"}\n",
            br#"[{"Config":"x.json","RepoTags":[],"Layers":[]}]"#,
            br#"{"bomFormat":"CycloneDX","specVersion":"1.6","components":[{"layers":[]}]}"#,
            br#"{"spdxVersion":"SPDX-2.3","packages":[]}"#,
            br#"{"name":"web","version":"1.0.0","config":{"port":"8080"},"dependencies":{}}"#,
            br#"{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json"}"#,
            br#"{"architecture":"amd64","config":{},"rootfs":{"diff_ids":[]}}"#,
            br#"{"schemaVersion":2}"#,
        ] {
            let text = String::from_utf8_lossy(content);
            assert!(check_not_image(content).is_ok(), "{text}");
            assert!(check_attested_not_image(content).is_ok(), "{text}");
        }
    }

    /// Shows why [`check_not_image`] is required: verification accepts a signature over the file as
    /// a signature over the image.
    #[test]
    fn signature_over_such_a_file_is_valid_for_the_image() {
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
            let material = TrustMaterial {
                keys: vec![key.public().clone()],
                roots: Vec::new(),
                now: jiff::Timestamp::UNIX_EPOCH,
            };
            for found in verify::examine(&forged, image.digest(), &material) {
                assert_eq!(found.accepted().unwrap().meaning, Meaning::Signed);
            }
        }
    }
}
