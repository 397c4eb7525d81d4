//! OCI manifests, indexes and descriptors: strict parsing of untrusted documents, and deterministic
//! serialization.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use bundle_core::json;
use bundle_core::reference::Digest;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::media;

/// Maximum number of JSON values in a manifest or an index. An index has about ten per entry.
const MAX_VALUES: usize = 65_536;

/// OCI content descriptor: media type, digest and size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Media type.
    pub media_type: String,
    /// Digest.
    pub digest: Digest,
    /// Size in bytes.
    pub size: u64,
    /// Type of the artifact; set in the entries of a list of referrers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Annotations.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// Platform; set in the entries of an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
}

impl Descriptor {
    /// Bytes that are counted for each annotation in addition to its texts, as the map of many
    /// short ones takes more memory than the texts.
    const ANNOTATION_OVERHEAD: usize = 128;

    /// Returns an upper estimate of the memory that the descriptor's texts use, in bytes. The
    /// content it describes is not counted.
    pub(crate) fn memory_size(&self) -> u64 {
        let annotations = self.annotations.iter();
        let annotations: usize = annotations
            .map(|(name, text)| name.len() + text.len() + Self::ANNOTATION_OVERHEAD)
            .sum();
        let platform = self.platform.as_ref().map_or(0, |platform| {
            let variant = platform.variant.as_ref().map_or(0, String::len);
            platform.architecture.len() + platform.os.len() + variant
        });
        let kind = self.artifact_type.as_ref().map_or(0, String::len);
        (self.media_type.len() + kind + platform + annotations + Self::ANNOTATION_OVERHEAD) as u64
    }
}

/// Reads `null` as an empty list or map, as some programs write it.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Platform of an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// CPU architecture: `amd64`, `arm64`.
    pub architecture: String,
    /// Operating system: `linux`, `windows`.
    pub os: String,
    /// CPU variant: `v7` of `arm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Version of the operating system; for Windows.
    #[serde(
        default,
        rename = "os.version",
        skip_serializing_if = "Option::is_none"
    )]
    pub os_version: Option<String>,
}

impl Platform {
    /// Returns `true` if it matches `wanted`, in which variant and version may be unset.
    pub fn is(&self, wanted: &Self) -> bool {
        let fits =
            |own: &Option<String>, wanted: &Option<String>| wanted.is_none() || own == wanted;
        self.os == wanted.os
            && self.architecture == wanted.architecture
            && fits(&self.variant, &wanted.variant)
            && fits(&self.os_version, &wanted.os_version)
    }
}

impl fmt::Display for Platform {
    /// Writes the usual form: `linux/arm/v7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Platform {
    type Err = String;

    /// Reads `OS/ARCHITECTURE[/VARIANT]`; the error is one sentence.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('/').map(str::to_owned);
        let whole = text.split('/').all(|part| !part.is_empty());
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(os), Some(architecture), variant, None) if whole => Ok(Self {
                architecture,
                os,
                variant,
                os_version: None,
            }),
            _ => Err(format!(
                "`{text}` is not a platform: write OS/ARCHITECTURE, such as linux/amd64"
            )),
        }
    }
}

impl Descriptor {
    /// Returns the descriptor of `bytes`.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: Digest::of(bytes),
            size: bytes.len() as u64,
            artifact_type: None,
            annotations: BTreeMap::new(),
            platform: None,
        }
    }
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
    /// Never written. A document that is both a manifest and an index is ambiguous
    /// (CVE-2021-41190).
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
    /// The document as it was received.
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
    /// Parses a manifest. Returns an error, one sentence, if the media type in the document differs
    /// from `content_type`.
    pub fn parse(bytes: Bytes, content_type: Option<&str>) -> Result<Self, String> {
        let document: ManifestDocument = json::read_bounded(&bytes, MAX_VALUES)
            .map_err(|error| format!("it is not an image manifest: {error}"))?;
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

    /// Returns the manifest of a document that this crate wrote.
    pub(crate) fn written(document: &ManifestDocument) -> Self {
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

    /// Returns its descriptor, for a `subject`.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor::of(&self.media_type, &self.bytes)
    }
}

/// A manifest or an index as raw bytes, so that fields which this crate does not know are kept and
/// the digest stays the same.
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

/// A parsed index, with the fields that copying and the choice of a platform need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageIndex {
    /// Media type.
    pub media_type: String,
    /// Type of the artifact, if set.
    pub artifact_type: Option<String>,
    /// Entries, in the order of the document.
    pub manifests: Vec<Descriptor>,
    /// Subject, if the index is a referrer.
    pub subject: Option<Descriptor>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IndexDocument {
    schema_version: u32,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    artifact_type: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    manifests: Vec<Descriptor>,
    #[serde(default)]
    subject: Option<Descriptor>,
    #[serde(default, deserialize_with = "null_as_default")]
    annotations: BTreeMap<String, String>,
    /// A document that is both an index and a manifest is rejected.
    #[serde(default)]
    config: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    layers: Option<serde::de::IgnoredAny>,
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
    /// Returns the document with its digest. The media type defaults to the one in the document.
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
        let kind: DocumentKind = json::read_bounded(bytes, MAX_VALUES)
            .map_err(|error| format!("it is neither a manifest nor an index: {error}"))?;
        Ok(match (kind.media_type, kind.manifests) {
            (Some(media_type), _) => media_type,
            (None, Some(_)) => media::INDEX.to_owned(),
            (None, None) => media::MANIFEST.to_owned(),
        })
    }

    /// Returns its descriptor.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor::of(&self.media_type, &self.bytes)
    }

    /// Parses it. The error is one sentence.
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
    /// Returns the subject, if it is a referrer.
    pub fn subject(&self) -> Option<&Descriptor> {
        match self {
            Self::Image(manifest) => manifest.subject.as_ref(),
            Self::Index(index) => index.subject.as_ref(),
        }
    }

    /// Returns the artifact type; it defaults to the media type of the configuration.
    pub fn artifact_type(&self) -> Option<&str> {
        match self {
            Self::Image(manifest) => manifest
                .artifact_type
                .as_deref()
                .or(Some(&manifest.config.media_type)),
            Self::Index(index) => index.artifact_type.as_deref(),
        }
    }

    /// Returns its annotations.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        match self {
            Self::Image(manifest) => &manifest.annotations,
            Self::Index(index) => &index.annotations,
        }
    }
}

impl ImageIndex {
    /// Parses an index. Returns an error, one sentence, if the media type in the document differs
    /// from `content_type`.
    pub fn parse(bytes: &[u8], content_type: Option<&str>) -> Result<Self, String> {
        let document: IndexDocument = json::read_bounded(bytes, MAX_VALUES)
            .map_err(|error| format!("it is not an index: {error}"))?;
        if document.config.is_some() || document.layers.is_some() {
            return Err("it is both a manifest and an index".to_owned());
        }
        let media_type =
            agreed_media_type(document.schema_version, document.media_type, content_type)?
                .unwrap_or_else(|| media::INDEX.to_owned());
        if !media::is_index(&media_type) {
            return Err(format!("it is a {media_type}, not an index"));
        }
        Ok(Self {
            media_type,
            artifact_type: document.artifact_type,
            manifests: document.manifests,
            subject: document.subject,
            annotations: document.annotations,
        })
    }
}

/// Returns the media type on which the document and its source agree, or the only one that is set.
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
        reason = "maps with text keys into memory: nothing in it can fail"
    )]
    serde_json::to_vec(document).expect("documents are plain data")
}

/// An index: `index.json` of a layout, or a list of referrers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RawIndex {
    pub(crate) schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    /// Raw entries, so that unknown fields of other tools survive a rewrite.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) manifests: Vec<serde_json::Value>,
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl RawIndex {
    pub(crate) fn empty() -> Self {
        Self {
            schema_version: 2,
            media_type: Some(media::INDEX.to_owned()),
            manifests: Vec::new(),
            annotations: BTreeMap::new(),
        }
    }

    /// Returns the entries that have a sha256 digest.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = Descriptor> {
        self.manifests
            .iter()
            .filter_map(|entry| json::typed(entry.clone()).ok())
    }

    pub(crate) fn names(&self, digest: &Digest) -> bool {
        self.manifests
            .iter()
            .any(|entry| entry["digest"] == digest.as_str())
    }
}

/// The fields of an image configuration that this crate reads.
#[derive(Debug, Deserialize)]
pub(crate) struct ImageConfig {
    pub(crate) rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RootFs {
    /// Digests of the uncompressed layers, lowest first.
    pub(crate) diff_ids: Vec<Digest>,
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
