//! Description of an artifact as data, for `-o json`.

use std::collections::BTreeMap;

use bundle_core::diagnostic::{Finding, Severity};
use bundle_core::format::Content;
use bundle_core::images::{FoundImage, LockedImage};
use bundle_core::object::ObjectId;
use bundle_core::package::{Package, PackageDescription, keys};
use bundle_core::reference::Digest;
use bundle_core::rights::{self, Required};
use bundle_core::version::{ServerVersion, fits_named};
use bundle_oci::manifest::{Descriptor, ParsedManifest};
use bundle_oci::media;
use serde::Serialize;

use super::read::ReadArtifact;
use super::referrers::ReferrerSummary;
use crate::failure::Outcome;

/// Description of an artifact.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InspectReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<String>,
    pub(super) digest: Digest,
    pub(super) kind: ArtifactKind,
    pub(super) media_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) artifact_type: Option<String>,
    #[serde(flatten)]
    pub(super) facts: PackageDescription,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    /// Content of `bundle.yaml`, if the file was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) package: Option<Package>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compatibility: Option<Compatibility>,
    /// Annotations of the manifest whose values are in no other field, such as the source
    /// repository.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) platforms: Vec<IndexEntryReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) layers: Vec<LayerReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) images: Option<Vec<ImageReport>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) objects: Option<ObjectsReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) permissions: Option<Required>,
    #[serde(flatten)]
    pub(super) referrers: Option<ReferrerSummary>,
}

/// Kind of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ArtifactKind {
    /// A bundle.
    Bundle,
    /// A container image.
    Image,
    /// Another artifact with an image manifest.
    Artifact,
    /// An index of several manifests.
    Index,
}

/// Compatibility with a Kubernetes version.
#[derive(Serialize)]
pub(super) struct Compatibility {
    pub(super) kubernetes: String,
    /// `true` if the package can be installed on this version.
    pub(super) installable: bool,
    /// Warning or error about the version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finding: Option<Finding>,
}

/// An entry of an index.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IndexEntryReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) platform: Option<String>,
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) bytes: u64,
}

/// A layer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LayerReport {
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) bytes: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// An image that the objects reference.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImageReport {
    #[serde(flatten)]
    pub(super) found: FoundImage,
    /// `true` if the value looks like an image reference, but may be something else.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) probable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resolved: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<Digest>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) platforms: Vec<String>,
}

/// Objects of the bundle.
#[derive(Serialize)]
pub(super) struct ObjectsReport {
    pub(super) total: usize,
    pub(super) kinds: BTreeMap<String, usize>,
    pub(super) items: Vec<ObjectId>,
}

impl InspectReport {
    /// Derives the description from the artifact.
    pub(super) fn new(seen: &ReadArtifact, kubernetes: Option<&ServerVersion>) -> Outcome<Self> {
        let annotations = seen.parsed.annotations();
        let facts = PackageDescription::from_annotations(annotations)?;
        let content = seen.content.as_ref();
        let package = content.and_then(|content| content.package.clone());
        let range = facts.kubernetes.as_ref().or(package
            .as_ref()
            .and_then(|package| package.kubernetes.as_ref()));
        let title = package
            .as_ref()
            .map_or_else(|| facts.title(), Package::title);
        let compatibility = kubernetes.map(|version| {
            let finding = range.and_then(|range| fits_named(&title, range, version));
            Compatibility {
                kubernetes: version.as_reported().to_owned(),
                installable: finding
                    .as_ref()
                    .is_none_or(|finding| finding.severity != Severity::Error),
                finding,
            }
        });
        let (layers, platforms, kind) = match &seen.parsed {
            ParsedManifest::Image(manifest) => {
                let kind = if facts.format.is_some() || content.is_some() {
                    ArtifactKind::Bundle
                } else if media::is_config(&manifest.config.media_type)
                    && manifest.artifact_type.is_none()
                {
                    ArtifactKind::Image
                } else {
                    ArtifactKind::Artifact
                };
                let layers = manifest.layers.iter().map(layer).collect();
                (layers, Vec::new(), kind)
            }
            ParsedManifest::Index(index) => {
                let entries = index.manifests.iter().map(entry).collect();
                (Vec::new(), entries, ArtifactKind::Index)
            }
        };
        Ok(Self {
            reference: seen.reference.clone(),
            path: seen.path.clone(),
            digest: seen.raw.digest.clone(),
            kind,
            media_type: seen.raw.media_type.clone(),
            artifact_type: match kind {
                ArtifactKind::Artifact | ArtifactKind::Index => {
                    seen.parsed.artifact_type().map(str::to_owned)
                }
                ArtifactKind::Bundle | ArtifactKind::Image => None,
            },
            description: annotations.get(keys::DESCRIPTION).cloned(),
            annotations: other_annotations(annotations, facts.format.is_some()),
            facts,
            package,
            compatibility,
            platforms,
            layers,
            images: content.map(images),
            objects: content.map(objects),
            permissions: content.map(|content| rights::required(&content.objects)),
            referrers: seen.referrers.clone(),
        })
    }
}

/// Returns the annotations that no other field of the description contains.
fn other_annotations(all: &BTreeMap<String, String>, bundle: bool) -> BTreeMap<String, String> {
    let contained = [
        keys::TITLE,
        keys::VERSION,
        keys::FORMAT,
        keys::DESCRIPTION,
        keys::KUBERNETES,
        keys::REQUIRES,
        keys::UPGRADES,
        bundle_core::images::ANNOTATION,
    ];
    all.iter()
        .filter(|(key, _)| !(bundle && contained.contains(&key.as_str())))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn layer(layer: &Descriptor) -> LayerReport {
    LayerReport {
        media_type: layer.media_type.clone(),
        digest: layer.digest.clone(),
        bytes: layer.size,
        annotations: layer.annotations.clone(),
    }
}

fn entry(entry: &Descriptor) -> IndexEntryReport {
    IndexEntryReport {
        platform: entry.platform.as_ref().map(ToString::to_string),
        media_type: entry.media_type.clone(),
        digest: entry.digest.clone(),
        bytes: entry.size,
    }
}

fn images(content: &Content) -> Vec<ImageReport> {
    content
        .images
        .iter()
        .map(|found| {
            let locked: Option<&LockedImage> = content
                .lock
                .as_ref()
                .and_then(|lock| lock.get(&found.image));
            ImageReport {
                probable: found.is_probable(),
                resolved: locked.map(|locked| locked.resolved.clone()),
                digest: locked.map(|locked| locked.digest.clone()),
                platforms: locked.map_or_else(Vec::new, |locked| locked.platforms.clone()),
                found: found.clone(),
            }
        })
        .collect()
}

fn objects(content: &Content) -> ObjectsReport {
    let mut kinds = BTreeMap::new();
    for object in &content.objects {
        let kind = if object.id.group.is_empty() {
            object.id.kind.clone()
        } else {
            format!("{}.{}", object.id.kind, object.id.group)
        };
        *kinds.entry(kind).or_default() += 1;
    }
    ObjectsReport {
        total: content.objects.len(),
        kinds,
        items: content
            .objects
            .iter()
            .map(|object| object.id.clone())
            .collect(),
    }
}
