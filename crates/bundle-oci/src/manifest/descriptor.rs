//! Descriptors of content, and platforms of images.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use bundle_core::reference::Digest;
use serde::{Deserialize, Serialize};

use super::null_as_default;

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
    /// Type of the artifact. Set in the entries of a list of referrers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Annotations.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// Platform. Set in the entries of an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
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

    /// Bytes that are counted for each annotation in addition to its texts, because a map of many
    /// short texts needs more memory than the texts.
    const ANNOTATION_OVERHEAD: usize = 128;

    /// Returns an upper estimate of the memory that the descriptor's texts use, in bytes. The
    /// content that the descriptor describes is not counted.
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
    /// Version of the operating system. Set for Windows images.
    #[serde(
        default,
        rename = "os.version",
        skip_serializing_if = "Option::is_none"
    )]
    pub os_version: Option<String>,
}

impl Platform {
    /// Returns `true` if this platform matches `wanted`. If `wanted` has no variant or no version
    /// of the operating system, every value matches.
    pub fn matches(&self, wanted: &Self) -> bool {
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

    /// Parses `OS/ARCHITECTURE[/VARIANT]`. The error is one sentence.
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
