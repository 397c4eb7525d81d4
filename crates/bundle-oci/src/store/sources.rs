//! List of images with their digests, but without their content. It is a small alternative to an
//! archive: `load` reads the content from the registries.

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::reference::{Digest, Reference};
use bundle_core::yaml;
use serde::{Deserialize, Serialize};

use super::{CopyOptions, CopyPlan, ManifestRole};
use crate::attached::is_attachment_tag;
use crate::manifest::Descriptor;

const API_VERSION: &str = "bundle.core.rukpak.io/v1alpha1";
const KIND: &str = "Sources";

/// A saved set of images, by digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sources {
    api_version: String,
    kind: String,
    /// Bundles and images.
    pub artifacts: Vec<ListedImage>,
}

/// An image of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListedImage {
    /// Original reference, with its tag if the original reference has a tag.
    pub reference: String,
    /// Digest.
    pub digest: Digest,
    /// Media type of the document.
    pub media_type: String,
    /// Size of the document in bytes.
    pub size: u64,
    /// Selected platforms. An empty list means all platforms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub platforms: Vec<String>,
    /// Referrers and attachments, such as signatures and attestations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<ListedAttachment>,
}

/// A referrer or attachment of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListedAttachment {
    /// Digest.
    pub digest: Digest,
    /// Media type of the document.
    pub media_type: String,
    /// Size of the document in bytes.
    pub size: u64,
    /// Type of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Digest of the subject of a referrer; `None` for an attachment that is found by its tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Digest>,
    /// Tag by which the attachment is found, such as `sha256-….sig`; `None` for a referrer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

impl Sources {
    /// Returns a list of the images in `plans`. Returns an error if an image has no original
    /// reference.
    pub fn of(plans: &[CopyPlan], platforms: &[String]) -> Result<Self, Finding> {
        let artifacts = plans
            .iter()
            .map(|plan| ListedImage::of(plan, platforms))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            artifacts,
        })
    }

    /// Returns `true` if a text contains the kind and API version of a list of images.
    /// [`parse`](Self::parse) checks the rest of the list.
    pub fn is_list(text: &[u8]) -> bool {
        std::str::from_utf8(text)
            .is_ok_and(|text| text.contains(KIND) && text.contains(API_VERSION))
    }

    /// Parses a list.
    pub fn parse(text: &[u8], file: &str) -> Result<Self, Findings> {
        let bad = |why: &str| {
            Finding::error(
                codes::usage::FILE_UNREADABLE,
                format!("the list of sources cannot be read: {why}"),
            )
            .in_file(file)
            .hint("create a list with `kubectl bundle save --sources-only`")
        };
        let documents = yaml::documents(text, file)?;
        let [document] = documents.as_slice() else {
            return Err(bad("it has more than one document").into());
        };
        let read = Self::deserialize(&document.value).map_err(|error| bad(&error.to_string()))?;
        if read.api_version != API_VERSION || read.kind != KIND {
            return Err(bad(&format!("it is not a {KIND} of {API_VERSION}")).into());
        }
        for one in &read.artifacts {
            one.origin()?;
            let tags = one.attached.iter().filter_map(|one| one.tag.as_deref());
            // The tag of an attachment must have a form such as `sha256-….sig`. A list with any
            // other tag is rejected.
            if let Some(tag) = tags.into_iter().find(|tag| !is_attachment_tag(tag)) {
                return Err(
                    bad(&format!("`{tag}` is not a tag of the form sha256-HEX.KIND")).into(),
                );
            }
        }
        Ok(read)
    }

    /// Returns the list as YAML.
    pub fn to_yaml(&self) -> String {
        yaml::to_string(&serde_json::to_value(self).unwrap_or_default())
    }
}

impl ListedImage {
    fn of(plan: &CopyPlan, platforms: &[String]) -> Result<Self, Finding> {
        let root = &plan.image.root;
        let origin = plan.origin()?;
        let attached = plan.graph.nodes.iter().filter_map(|node| {
            let (subject, tag) = match &node.role {
                ManifestRole::Content => return None,
                ManifestRole::Referrer(subject) => (Some(subject.clone()), None),
                ManifestRole::Tagged(tag) => (None, Some(tag.clone())),
            };
            Some(ListedAttachment {
                digest: node.raw.digest.clone(),
                media_type: node.raw.media_type.clone(),
                size: node.raw.bytes.len() as u64,
                artifact_type: node.list_descriptor.artifact_type.clone(),
                subject,
                tag,
            })
        });
        Ok(Self {
            reference: origin.to_string(),
            digest: root.digest.clone(),
            media_type: root.media_type.clone(),
            size: root.bytes.len() as u64,
            platforms: platforms.to_vec(),
            attached: attached.collect(),
        })
    }

    /// Returns the original reference.
    pub fn origin(&self) -> Result<Reference, Finding> {
        self.reference.parse()
    }

    /// Returns the descriptor of the manifest or index of the image.
    pub fn descriptor(&self) -> Descriptor {
        named(&self.media_type, &self.digest, self.size)
    }

    /// Returns copy options with the platforms and referrers in this list, and all other options
    /// from `base`. Other referrers in the source are not copied.
    pub fn selection(&self, base: &CopyOptions) -> Result<CopyOptions, Finding> {
        let platforms = self.platforms.iter().map(|text| {
            text.parse().map_err(|why: String| {
                Finding::error(codes::usage::FILE_UNREADABLE, why).about(self.reference.clone())
            })
        });
        Ok(CopyOptions {
            platforms: platforms.collect::<Result<_, _>>()?,
            attached: Some(self.attached()),
            ..base.clone()
        })
    }

    fn attached(&self) -> Vec<(ManifestRole, Descriptor)> {
        let listed = self.attached.iter().map(|one| {
            let role = match (&one.tag, &one.subject) {
                (Some(tag), _) => ManifestRole::Tagged(tag.clone()),
                (None, Some(subject)) => ManifestRole::Referrer(subject.clone()),
                (None, None) => ManifestRole::Referrer(self.digest.clone()),
            };
            (role, named(&one.media_type, &one.digest, one.size))
        });
        listed.collect()
    }
}

fn named(media_type: &str, digest: &Digest, size: u64) -> Descriptor {
    Descriptor {
        media_type: media_type.to_owned(),
        digest: digest.clone(),
        size,
        artifact_type: None,
        annotations: std::collections::BTreeMap::new(),
        platform: None,
    }
}

/// Returns the finding for an image without a reference.
pub(super) fn no_origin(name: &str) -> Finding {
    Finding::error(
        codes::registry::NO_ORIGIN,
        format!("the original reference of `{name}` is unknown"),
    )
    .hint("push the image separately: kubectl bundle push FILE:NAME REGISTRY/REPOSITORY:TAG")
}
