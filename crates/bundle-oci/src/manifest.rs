//! OCI manifests, indexes and descriptors as documents: reading with suspicion, writing the same bytes every time.
//! Not here: where they come from (registry, layout).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use bundle_core::json;
use bundle_core::reference::Digest;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::media;

/// Most values in a manifest or an index: an index has about ten an entry.
const MOST_VALUES: usize = 65_536;

/// Names a piece of content by what it is, its digest and its size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the content is.
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// What an artifact is for; in the entries of a referrers list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Free annotations.
    #[serde(
        default,
        deserialize_with = "or_nothing",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// What machines it is for; in the entries of an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
}

impl Descriptor {
    /// What is counted for each annotation beside its texts: a map of many short ones takes more memory than they have bytes.
    const EACH: usize = 128;

    /// Bytes of memory that its texts take, estimated from above. What it describes is not among them.
    pub(crate) fn weight(&self) -> u64 {
        let annotations = self.annotations.iter();
        let annotations: usize = annotations
            .map(|(name, text)| name.len() + text.len() + Self::EACH)
            .sum();
        let platform = self.platform.as_ref().map_or(0, |platform| {
            let variant = platform.variant.as_ref().map_or(0, String::len);
            platform.architecture.len() + platform.os.len() + variant
        });
        let kind = self.artifact_type.as_ref().map_or(0, String::len);
        (self.media_type.len() + kind + platform + annotations + Self::EACH) as u64
    }
}

/// `null` for an empty list or map: programs write it that have not thought of the difference.
fn or_nothing<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A kind of machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// `amd64`, `arm64`.
    pub architecture: String,
    /// `linux`, `windows`.
    pub os: String,
    /// `v7` of `arm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Of Windows: the build that it is for.
    #[serde(
        default,
        rename = "os.version",
        skip_serializing_if = "Option::is_none"
    )]
    pub os_version: Option<String>,
}

impl Platform {
    /// Whether it is what a person means by `wanted`, who may have left out the variant and the version.
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
    /// As it is written everywhere: `linux/arm/v7`.
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
    /// The descriptor of `bytes`.
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

/// An image manifest as it is written; the order of fields is part of the digest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document {
    pub(crate) schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    pub(crate) config: Descriptor,
    #[serde(deserialize_with = "or_nothing")]
    pub(crate) layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<Descriptor>,
    #[serde(
        default,
        deserialize_with = "or_nothing",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub(crate) annotations: BTreeMap<String, String>,
    /// Never written. A document that is a manifest and an index at once would mean different things to different readers (CVE-2021-41190).
    #[serde(default, skip_serializing)]
    manifests: Option<serde::de::IgnoredAny>,
}

impl Document {
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

/// An image manifest that was read, with the bytes that its digest is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The digest of `bytes`.
    pub digest: Digest,
    /// The document as it was received.
    pub bytes: Bytes,
    /// Its media type.
    pub media_type: String,
    /// What it is for, if it says so.
    pub artifact_type: Option<String>,
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers, lowest first.
    pub layers: Vec<Descriptor>,
    /// What it refers to, if it is a referrer.
    pub subject: Option<Descriptor>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

impl Manifest {
    /// Reads a manifest. `content_type` is what its carrier said it is; the document must not say otherwise. The error is one sentence.
    pub fn parse(bytes: Bytes, content_type: Option<&str>) -> Result<Self, String> {
        let document: Document = json::read_bounded(&bytes, MOST_VALUES)
            .map_err(|error| format!("it is not an image manifest: {error}"))?;
        if document.manifests.is_some() {
            return Err("it is a manifest and an index at once".to_owned());
        }
        let media_type = agreed(document.schema_version, document.media_type, content_type)?
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

    /// The manifest that a document of ours is.
    pub(crate) fn written(document: &Document) -> Self {
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

    /// The descriptor that names it, for a `subject`.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor::of(&self.media_type, &self.bytes)
    }
}

/// A manifest or an index as it is carried: its digest is about exactly these bytes, and nothing of them is lost by not understanding it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawManifest {
    /// The digest of `bytes`.
    pub digest: Digest,
    /// What its carrier says it is.
    pub media_type: String,
    /// The document.
    pub bytes: Bytes,
}

/// What a [`RawManifest`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// One image, or another artifact in the form of one.
    Image(Box<Manifest>),
    /// Several of them under one name.
    Index(Box<ImageIndex>),
}

/// An index that was read, with what copying and choosing need of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageIndex {
    /// Its media type.
    pub media_type: String,
    /// What it is for, if it says so.
    pub artifact_type: Option<String>,
    /// What it names, in its order.
    pub manifests: Vec<Descriptor>,
    /// What it refers to, if it is a referrer.
    pub subject: Option<Descriptor>,
    /// Its annotations.
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
    #[serde(deserialize_with = "or_nothing")]
    manifests: Vec<Descriptor>,
    #[serde(default)]
    subject: Option<Descriptor>,
    #[serde(default, deserialize_with = "or_nothing")]
    annotations: BTreeMap<String, String>,
    /// A document that is an index and a manifest at once is neither.
    #[serde(default)]
    config: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    layers: Option<serde::de::IgnoredAny>,
}

/// The fields that say what kind of document it is, and what it refers to.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    manifests: Option<serde::de::IgnoredAny>,
}

impl RawManifest {
    /// The document with its digest. Where the carrier does not say what it is, the document does.
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
        let kind: Kind = json::read_bounded(bytes, MOST_VALUES)
            .map_err(|error| format!("it is neither a manifest nor an index: {error}"))?;
        Ok(match (kind.media_type, kind.manifests) {
            (Some(media_type), _) => media_type,
            (None, Some(_)) => media::INDEX.to_owned(),
            (None, None) => media::MANIFEST.to_owned(),
        })
    }

    /// The descriptor that names it.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor::of(&self.media_type, &self.bytes)
    }

    /// Reads it. The error is one sentence.
    pub fn parse(&self) -> Result<Parsed, String> {
        if media::is_index(&self.media_type) {
            ImageIndex::parse(&self.bytes, Some(&self.media_type))
                .map(|index| Parsed::Index(Box::new(index)))
        } else {
            Manifest::parse(self.bytes.clone(), Some(&self.media_type))
                .map(|manifest| Parsed::Image(Box::new(manifest)))
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

impl Parsed {
    /// What it refers to, if it is a referrer.
    pub fn subject(&self) -> Option<&Descriptor> {
        match self {
            Self::Image(manifest) => manifest.subject.as_ref(),
            Self::Index(index) => index.subject.as_ref(),
        }
    }

    /// What it is for: what it says, or what its configuration is.
    pub fn artifact_type(&self) -> Option<&str> {
        match self {
            Self::Image(manifest) => manifest
                .artifact_type
                .as_deref()
                .or(Some(&manifest.config.media_type)),
            Self::Index(index) => index.artifact_type.as_deref(),
        }
    }

    /// Its annotations.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        match self {
            Self::Image(manifest) => &manifest.annotations,
            Self::Index(index) => &index.annotations,
        }
    }
}

impl ImageIndex {
    /// Reads an index. `content_type` is what its carrier said it is; the document must not say otherwise. The error is one sentence.
    pub fn parse(bytes: &[u8], content_type: Option<&str>) -> Result<Self, String> {
        let document: IndexDocument = json::read_bounded(bytes, MOST_VALUES)
            .map_err(|error| format!("it is not an index: {error}"))?;
        if document.config.is_some() || document.layers.is_some() {
            return Err("it is a manifest and an index at once".to_owned());
        }
        let media_type = agreed(document.schema_version, document.media_type, content_type)?
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

/// What a document is, if it and its carrier say the same or only one of them says something.
fn agreed(
    schema_version: u32,
    inside: Option<String>,
    outside: Option<&str>,
) -> Result<Option<String>, String> {
    if schema_version != 2 {
        return Err(format!("its schemaVersion is {schema_version}, not 2"));
    }
    match (inside, outside) {
        (Some(inside), Some(outside)) if inside != outside => Err(format!(
            "it was sent as {outside} and calls itself {inside}"
        )),
        (Some(inside), _) => Ok(Some(inside)),
        (None, outside) => Ok(outside.map(str::to_owned)),
    }
}

/// The bytes of a document of ours.
pub(crate) fn write<T: Serialize>(document: &T) -> Vec<u8> {
    #[expect(
        clippy::expect_used,
        reason = "maps with text keys into memory: nothing in it can fail"
    )]
    serde_json::to_vec(document).expect("documents are plain data")
}

/// An index: a layout's `index.json`, or a list of referrers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub(crate) schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    /// Kept as they are: entries that we do not understand are others' and survive a rewrite.
    #[serde(default, deserialize_with = "or_nothing")]
    pub(crate) manifests: Vec<serde_json::Value>,
    #[serde(
        default,
        deserialize_with = "or_nothing",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Index {
    pub(crate) fn empty() -> Self {
        Self {
            schema_version: 2,
            media_type: Some(media::INDEX.to_owned()),
            manifests: Vec::new(),
            annotations: BTreeMap::new(),
        }
    }

    /// The entries that name sha256 content.
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

/// The part of an image configuration that we read.
#[derive(Debug, Deserialize)]
pub(crate) struct ImageConfig {
    pub(crate) rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RootFs {
    /// Digests of the layers' tars, lowest first.
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
    fn reads_what_it_says_it_is() {
        let text = manifest(r#","annotations":{"a":"b"}"#);
        let read = Manifest::parse(text.clone().into(), Some(media::MANIFEST)).unwrap();
        assert_eq!(read.digest, Digest::of(text.as_bytes()));
        assert_eq!(read.annotations["a"], "b");
    }

    #[test]
    fn refuses_documents_with_two_meanings() {
        for (text, sent_as, why) in [
            (
                manifest(r#","manifests":[]"#),
                media::MANIFEST,
                "index at once",
            ),
            (
                manifest(r#","mediaType":"application/vnd.oci.image.index.v1+json""#),
                media::MANIFEST,
                "calls itself",
            ),
            (manifest(""), "text/html", "not an image manifest"),
            (
                "<html>".to_owned(),
                media::MANIFEST,
                "not an image manifest",
            ),
            ("{}".to_owned(), media::MANIFEST, "not an image manifest"),
            (
                manifest(r#","Layers":[]"#),
                media::MANIFEST,
                "by case alone",
            ),
            (
                manifest(r#","annotations":{"a":"b","a":"c"}"#),
                media::MANIFEST,
                "a key stands twice",
            ),
            (
                manifest("").replace("\"layers\":[]", "\"layers\":[[\"x\",\"y\",1]]"),
                media::MANIFEST,
                "not an image manifest",
            ),
            (
                "[2,null,null,{},[],null,{},null]".to_owned(),
                media::MANIFEST,
                "not an object",
            ),
        ] {
            let error = Manifest::parse(text.into(), Some(sent_as)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
