//! OCI indexes in two forms: parsed, with the fields that copies need, and with raw entries, for
//! changes of the index.

use std::collections::BTreeMap;

use bundle_core::json;
use bundle_core::reference::Digest;
use serde::{Deserialize, Serialize};

use super::{Descriptor, agreed_media_type, null_as_default};
use crate::media;

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
    /// The value is never used. A document that has `config` or `layers` is rejected, because it is
    /// an index and a manifest at the same time.
    #[serde(default)]
    config: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    layers: Option<serde::de::IgnoredAny>,
}

impl ImageIndex {
    /// Parses an index. Returns an error of one sentence if the document is invalid, or if its
    /// media type differs from `content_type`.
    pub fn parse(bytes: &[u8], content_type: Option<&str>) -> Result<Self, String> {
        let document: IndexDocument =
            json::read(bytes).map_err(|error| format!("it is not an index: {error}"))?;
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

/// An index: `index.json` of a layout, or a list of referrers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RawIndex {
    pub(crate) schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    /// Raw entries. If the index is written again, unknown fields of other tools are kept.
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
