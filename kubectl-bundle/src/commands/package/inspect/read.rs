//! Reads the manifest of a bundle, and the layers that contain its content.

use std::path::Path;

use bundle_core::diagnostic::{Code, Finding, Findings, Severity, codes};
use bundle_core::format::{self, Content};
use bundle_core::images::MutableTagAllowlist;
use bundle_core::package::keys;
use bundle_oci::manifest::{Manifest, ParsedManifest, RawManifest};
use bundle_oci::store::LocatedImage;
use bundle_oci::{Files, Limits, media};

use super::referrers::{self, ReferrerSummary};
use crate::artifact::folder::{self, BuildOptions};
use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;

/// Maximum total size in bytes of the layers that are downloaded if the image is not marked as a
/// bundle. Bundles are small.
const MAX_UNMARKED_BYTES: u64 = 16 << 20;

/// Codes of findings which mean that the layers of an image are not those of a bundle.
const NOT_A_BUNDLE_CODES: [Code; 4] = [
    codes::registry::UNSAFE_ENTRY,
    codes::registry::MALFORMED,
    codes::registry::TOO_LARGE,
    codes::registry::WRONG_MEDIA_TYPE,
];

/// Result of reading an artifact.
pub(super) struct ReadArtifact {
    /// Pinned reference, for an artifact in a registry.
    pub(super) reference: Option<String>,
    /// Path, for an artifact on disk.
    pub(super) path: Option<String>,
    /// Manifest or index as raw bytes.
    pub(super) raw: RawManifest,
    /// Parsed manifest or index.
    pub(super) parsed: ParsedManifest,
    /// Content of the layers, if the layers were read and form a bundle.
    pub(super) content: Option<Content>,
    /// Referrers, if the referrers could be read.
    pub(super) referrers: Option<ReferrerSummary>,
    /// Warnings.
    pub(super) warnings: Findings,
}

/// Reads an artifact. The manifest is read first. Then content and referrers are read concurrently.
pub(super) async fn read_artifact(
    ui: &mut Ui,
    location: &ArtifactLocation,
    settings: &RegistrySettings,
    manifest_only: bool,
) -> Outcome<ReadArtifact> {
    let client = registry::client(settings)?;
    let progress = ui.progress(&format!("reading {location}"));
    let located = match location.open(&client).await? {
        Some(located) => located,
        None => folder(ui, location)?,
    };
    let mut seen = ReadArtifact::of(located.root.clone())?;
    match location {
        ArtifactLocation::Registry(reference) => {
            let pinned = reference.pin(seen.raw.digest.clone());
            seen.reference = Some(pinned.without_tag());
        }
        _ => seen.path = Some(location.to_string()),
    }
    let image = match &seen.parsed {
        ParsedManifest::Image(manifest) if !manifest_only && may_be_bundle(manifest) => {
            Some((**manifest).clone())
        }
        _ => None,
    };
    let files = async {
        match image {
            Some(_) => Some(located.files(&Limits::default()).await),
            None => None,
        }
    };
    let referrers = async {
        // A packed folder has no referrers.
        match location {
            ArtifactLocation::Folder(_) => None,
            _ => Some(Box::pin(referrers::of(&located.source, &seen.raw.digest)).await),
        }
    };
    let (files, referrers) = futures::join!(files, referrers);
    drop(progress);
    if let ArtifactLocation::Registry(reference) = location
        && reference.digest().is_none()
    {
        ui.note(format!("{reference} is {}", seen.raw.digest));
    }
    if let (Some(files), Some(manifest)) = (files, image.as_ref()) {
        let is_marked = is_marked_as_bundle(manifest);
        match files {
            Ok(files) => seen.add_content(&files, is_marked)?,
            Err(finding) => {
                // If an image cannot be unpacked, its manifest is still printed. Errors of the
                // registry are returned.
                let others = NOT_A_BUNDLE_CODES.contains(&finding.code);
                seen.not_a_bundle(finding.into(), is_marked || !others)?;
            }
        }
    }
    match referrers {
        Some(Ok(found)) => seen.referrers = Some(found),
        // If the list of referrers cannot be read, all other fields are still printed, with a
        // warning.
        Some(Err(finding)) => seen.warn(finding),
        None => {}
    }
    Ok(seen)
}

/// Returns the image that `build` would create from a folder.
fn folder(ui: &mut Ui, location: &ArtifactLocation) -> Outcome<LocatedImage> {
    let options = BuildOptions {
        // Images with a moving tag or without a tag are allowed here, because the content is only
        // read. Verbs that build the folder, such as `build` and `push`, reject these images.
        allowed: MutableTagAllowlist {
            patterns: vec!["**".to_owned()],
        },
        ..BuildOptions::default()
    };
    let opened = folder::open(ui, Path::new(&location.to_string()), options)?;
    Ok(LocatedImage::packed(opened.pack(ui)?.packed))
}

/// Returns `true` if the manifest has the annotation of a bundle.
fn is_marked_as_bundle(manifest: &Manifest) -> bool {
    manifest.annotations.contains_key(keys::FORMAT)
}

/// Returns `true` if the layers should be read. This is the case if the image has the annotations
/// of a bundle, or is small. Old bundles have no such annotations and are small.
fn may_be_bundle(manifest: &Manifest) -> bool {
    let total = manifest
        .layers
        .iter()
        .fold(0_u64, |sum, layer| sum.saturating_add(layer.size));
    is_marked_as_bundle(manifest)
        || media::is_config(&manifest.config.media_type)
            && manifest.artifact_type.is_none()
            && !manifest.layers.is_empty()
            && total <= MAX_UNMARKED_BYTES
}

impl ReadArtifact {
    fn of(raw: RawManifest) -> Outcome<Self> {
        let parsed = raw.parse().map_err(|why| {
            Finding::error(
                codes::registry::MALFORMED,
                format!("the manifest is invalid: {why}"),
            )
            .about(raw.digest.to_string())
        })?;
        Ok(Self {
            reference: None,
            path: None,
            raw,
            parsed,
            content: None,
            referrers: None,
            warnings: Findings::default(),
        })
    }

    fn add_content(&mut self, files: &Files, is_marked: bool) -> Outcome {
        match format::read(files) {
            Ok(mut content) => {
                self.warnings.extend(std::mem::take(&mut content.warnings));
                self.content = Some(content);
                Ok(())
            }
            Err(findings) => self.not_a_bundle(findings, is_marked),
        }
    }

    /// Handles content that is not a bundle. For an image without the annotations of a bundle, adds
    /// a warning. For an image with these annotations, returns an error. A chart that is not
    /// rendered causes only a warning.
    fn not_a_bundle(&mut self, findings: Findings, is_marked: bool) -> Outcome {
        // The objects of a chart are unknown before it is rendered.
        let unrendered = |finding: &Finding| finding.code == codes::format::NOT_RENDERED;
        if is_marked && findings.iter().all(unrendered) {
            for finding in findings {
                self.warn(finding);
            }
            return Ok(());
        }
        if is_marked {
            return Err(findings.into());
        }
        if let Some(first) = findings.into_iter().next() {
            let finding = Finding {
                message: format!(
                    "the layers of the image contain no bundle: {}",
                    first.message
                ),
                hint: None,
                ..first
            };
            self.warn(finding);
        }
        Ok(())
    }

    fn warn(&mut self, finding: Finding) {
        self.warnings.push(Finding {
            severity: Severity::Warning,
            ..finding
        });
    }
}
