//! OCI manifests, indexes and descriptors: strict parsing of untrusted documents, and deterministic
//! serialization.

use std::collections::BTreeMap;
use std::fmt;

use bundle_core::json;
use bundle_core::reference::Digest;
use bytes::Bytes;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::limits;
use crate::media;

mod descriptor;
mod index;

pub use descriptor::{Descriptor, Platform};
pub use index::ImageIndex;
pub(crate) use index::RawIndex;

/// Reads `null` as an empty list or map, because some programs write `null` instead of an empty
/// list or map.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Image manifest as it is serialized. The order of the fields determines the digest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ManifestDocument {
    pub(crate) schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    pub(crate) config: Descriptor,
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<Descriptor>,
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub(crate) annotations: BTreeMap<String, String>,
    /// This field is never written. A document that has this field is rejected, because it is a
    /// manifest and an index at the same time (CVE-2021-41190).
    #[serde(default, skip_serializing)]
    manifests: Option<serde::de::IgnoredAny>,
}

impl ManifestDocument {
    pub(crate) fn new(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: Some(media::MANIFEST.to_owned()),
            artifact_type: None,
            config,
            layers,
            subject: None,
            annotations: BTreeMap::new(),
            manifests: None,
        }
    }
}

/// A parsed image manifest, with its original bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Digest of `bytes`.
    pub digest: Digest,
    /// Bytes of the document, exactly as received.
    pub bytes: Bytes,
    /// Media type.
    pub media_type: String,
    /// Type of the artifact, if set.
    pub artifact_type: Option<String>,
    /// Configuration.
    pub config: Descriptor,
    /// Layers, lowest first.
    pub layers: Vec<Descriptor>,
    /// Subject, if the manifest is a referrer.
    pub subject: Option<Descriptor>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

impl Manifest {
    /// Parses a manifest. Returns an error of one sentence if the document is invalid, or if its
    /// media type differs from `content_type`.
    pub fn parse(bytes: Bytes, content_type: Option<&str>) -> Result<Self, String> {
        let document: ManifestDocument =
            json::read(&bytes).map_err(|error| format!("it is not an image manifest: {error}"))?;
        if document.manifests.is_some() {
            return Err("it is both a manifest and an index".to_owned());
        }
        let media_type =
            agreed_media_type(document.schema_version, document.media_type, content_type)?
                .unwrap_or_else(|| media::MANIFEST.to_owned());
        if !media::is_manifest(&media_type) {
            return Err(format!("it is a {media_type}, not an image manifest"));
        }
        Ok(Self {
            digest: Digest::of(&bytes),
            bytes,
            media_type,
            artifact_type: document.artifact_type,
            config: document.config,
            layers: document.layers,
            subject: document.subject,
            annotations: document.annotations,
        })
    }

    /// Serializes a document and returns it as a parsed manifest.
    pub(crate) fn from_document(document: &ManifestDocument) -> Self {
        let bytes = Bytes::from(write(document));
        Self {
            digest: Digest::of(&bytes),
            bytes,
            media_type: media::MANIFEST.to_owned(),
            artifact_type: document.artifact_type.clone(),
            config: document.config.clone(),
            layers: document.layers.clone(),
            subject: document.subject.clone(),
            annotations: document.annotations.clone(),
        }
    }

    /// Returns the descriptor of the manifest, for the field `subject` of a referrer.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor::of(&self.media_type, &self.bytes)
    }
}

/// A manifest or an index as raw bytes. Unknown fields are kept, so the digest does not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawManifest {
    /// Digest of `bytes`.
    pub digest: Digest,
    /// Media type that the registry or layout declares.
    pub media_type: String,
    /// The document.
    pub bytes: Bytes,
}

/// A parsed [`RawManifest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedManifest {
    /// An image, or another artifact with an image manifest.
    Image(Box<Manifest>),
    /// An index of several manifests.
    Index(Box<ImageIndex>),
}

/// The fields that determine the kind of a document, and its subject.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DocumentKind {
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    manifests: Option<serde::de::IgnoredAny>,
}

impl RawManifest {
    /// Returns the document with its digest. `media_type` defaults to the media type in the
    /// document.
    pub fn new(media_type: Option<&str>, bytes: impl Into<Bytes>) -> Result<Self, String> {
        let bytes = bytes.into();
        let media_type = match media_type {
            Some(media_type) => media_type.to_owned(),
            None => Self::own_type(&bytes)?,
        };
        Ok(Self {
            digest: Digest::of(&bytes),
            media_type,
            bytes,
        })
    }

    fn own_type(bytes: &Bytes) -> Result<String, String> {
        let kind: DocumentKind = json::read(bytes)
            .map_err(|error| format!("it is neither a manifest nor an index: {error}"))?;
        Ok(match (kind.media_type, kind.manifests) {
            (Some(media_type), _) => media_type,
            (None, Some(_)) => media::INDEX.to_owned(),
            (None, None) => media::MANIFEST.to_owned(),
        })
    }

    /// Returns the descriptor of the document.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor::of(&self.media_type, &self.bytes)
    }

    /// Parses the manifest. The error is one sentence.
    pub fn parse(&self) -> Result<ParsedManifest, String> {
        if media::is_index(&self.media_type) {
            ImageIndex::parse(&self.bytes, Some(&self.media_type))
                .map(|index| ParsedManifest::Index(Box::new(index)))
        } else {
            Manifest::parse(self.bytes.clone(), Some(&self.media_type))
                .map(|manifest| ParsedManifest::Image(Box::new(manifest)))
        }
    }
}

impl From<&Manifest> for RawManifest {
    fn from(manifest: &Manifest) -> Self {
        Self {
            digest: manifest.digest.clone(),
            media_type: manifest.media_type.clone(),
            bytes: manifest.bytes.clone(),
        }
    }
}

impl ParsedManifest {
    /// Returns the subject, if the document is a referrer.
    pub fn subject(&self) -> Option<&Descriptor> {
        match self {
            Self::Image(manifest) => manifest.subject.as_ref(),
            Self::Index(index) => index.subject.as_ref(),
        }
    }

    /// Returns the artifact type. Without an artifact type, returns the media type of the
    /// configuration.
    pub fn artifact_type(&self) -> Option<&str> {
        match self {
            Self::Image(manifest) => manifest
                .artifact_type
                .as_deref()
                .or(Some(&manifest.config.media_type)),
            Self::Index(index) => index.artifact_type.as_deref(),
        }
    }

    /// Returns the annotations of the document.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        match self {
            Self::Image(manifest) => &manifest.annotations,
            Self::Index(index) => &index.annotations,
        }
    }
}

/// Returns the media type of a document. `inside` is the media type in the document. `outside` is
/// the media type that the registry or layout declares. Returns an error if both are set and
/// differ, and `None` if neither is set.
fn agreed_media_type(
    schema_version: u32,
    inside: Option<String>,
    outside: Option<&str>,
) -> Result<Option<String>, String> {
    if schema_version != 2 {
        return Err(format!("its schemaVersion is {schema_version}, not 2"));
    }
    match (inside, outside) {
        (Some(inside), Some(outside)) if inside != outside => Err(format!(
            "its content type is {outside}, but its media type is {inside}"
        )),
        (Some(inside), _) => Ok(Some(inside)),
        (None, outside) => Ok(outside.map(str::to_owned)),
    }
}

/// Serializes a document.
pub(crate) fn write<T: Serialize>(document: &T) -> Vec<u8> {
    #[expect(
        clippy::expect_used,
        reason = "maps with text keys, written to memory: serialization cannot fail"
    )]
    serde_json::to_vec(document).expect("documents are plain data")
}

/// The fields of an image configuration that this crate reads.
#[derive(Debug, Deserialize)]
pub(crate) struct ImageConfig {
    pub(crate) rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RootFs {
    /// Kind of the list. The specification defines only [`ROOTFS_TYPE`].
    #[serde(default, rename = "type")]
    pub(crate) kind: Option<String>,
    /// Digests of the uncompressed layers, lowest first, at most [`limits::LAYERS`].
    #[serde(deserialize_with = "bounded_digests")]
    pub(crate) diff_ids: Vec<Digest>,
}

/// The only defined value of `rootfs.type`.
pub(crate) const ROOTFS_TYPE: &str = "layers";

/// Reads at most [`limits::LAYERS`] digests. Returns an error for a longer list, because a
/// configuration of the maximum size can contain tens of thousands of digests.
fn bounded_digests<'de, D>(deserializer: D) -> Result<Vec<Digest>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    struct BoundedDigests;

    impl<'de> Visitor<'de> for BoundedDigests {
        type Value = Vec<Digest>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {} digests", limits::LAYERS)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut digests = Vec::new();
            while let Some(digest) = items.next_element()? {
                if digests.len() == limits::LAYERS {
                    let length = digests.len() + 1;
                    return Err(serde::de::Error::invalid_length(length, &self));
                }
                digests.push(digest);
            }
            Ok(digests)
        }
    }

    deserializer.deserialize_seq(BoundedDigests)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(extra: &str) -> String {
        let digest = Digest::of(b"x");
        format!(
            r#"{{"schemaVersion":2,"config":{{"mediaType":"{}","digest":"{digest}","size":1}},"layers":[]{extra}}}"#,
            media::CONFIG
        )
    }

    #[test]
    fn media_type_of_the_document_and_its_source_must_agree() {
        let text = manifest(r#","annotations":{"a":"b"}"#);
        let read = Manifest::parse(text.clone().into(), Some(media::MANIFEST)).unwrap();
        assert_eq!(read.digest, Digest::of(text.as_bytes()));
        assert_eq!(read.annotations["a"], "b");
    }

    #[test]
    fn configuration_with_too_many_digests_of_layers_is_rejected() {
        let config = |count: usize| {
            let digests = vec![Digest::of(b"x"); count];
            serde_json::json!({ "rootfs": { "type": ROOTFS_TYPE, "diff_ids": digests } })
        };
        let most: ImageConfig = serde_json::from_value(config(limits::LAYERS)).unwrap();
        assert_eq!(most.rootfs.diff_ids.len(), limits::LAYERS);
        let more = serde_json::from_value::<ImageConfig>(config(limits::LAYERS + 1));
        let error = more.unwrap_err().to_string();
        assert!(
            error.contains("invalid length 257, expected a list of at most 256 digests"),
            "{error}"
        );
    }

    #[test]
    fn rejects_documents_that_are_both_index_and_manifest() {
        for (text, sent_as, why) in [
            (
                manifest(r#","manifests":[]"#),
                media::MANIFEST,
                "both a manifest and an index",
            ),
            (
                manifest(r#","mediaType":"application/vnd.oci.image.index.v1+json""#),
                media::MANIFEST,
                "its media type is",
            ),
            (manifest(""), "text/html", "not an image manifest"),
            (
                "<html>".to_owned(),
                media::MANIFEST,
                "not an image manifest",
            ),
            ("{}".to_owned(), media::MANIFEST, "not an image manifest"),
            (manifest(r#","Layers":[]"#), media::MANIFEST, "only in case"),
            (
                manifest(r#","annotations":{"a":"b","a":"c"}"#),
                media::MANIFEST,
                "duplicate key",
            ),
            (
                manifest("").replace("\"layers\":[]", "\"layers\":[[\"x\",\"y\",1]]"),
                media::MANIFEST,
                "not an image manifest",
            ),
            (
                "[2,null,null,{},[],null,{},null]".to_owned(),
                media::MANIFEST,
                "not a JSON object",
            ),
        ] {
            let error = Manifest::parse(text.into(), Some(sent_as)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
