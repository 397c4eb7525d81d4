//! Gets at what is inspected: the manifest, and of the layers only those that hold content of a bundle.

use std::path::Path;

use bundle_core::diagnostic::{Code, Finding, Findings, Severity, codes};
use bundle_core::format::{self, Content};
use bundle_core::images::Allowed;
use bundle_core::package::keys;
use bundle_oci::manifest::{Manifest, ParsedManifest, RawManifest};
use bundle_oci::store::LocatedImage;
use bundle_oci::{Files, Limits, media};

use super::beside::{self, Beside};
use crate::content::{self, Terms};
use crate::failure::Outcome;
use crate::place::Place;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;

/// Layers of an image that does not say that it is a bundle are read up to this size in all: a bundle is small, and other images need not come.
const UNCALLED: u64 = 16 << 20;

/// What is said of layers that are no bundle's.
const OTHERS: [Code; 4] = [
    codes::registry::UNSAFE_ENTRY,
    codes::registry::MALFORMED,
    codes::registry::TOO_LARGE,
    codes::registry::WRONG_MEDIA_TYPE,
];

/// Everything that was read.
pub(super) struct Seen {
    /// The pinned reference, of what lies in a registry.
    pub(super) reference: Option<String>,
    /// The path, of what lies on this disk.
    pub(super) path: Option<String>,
    /// The document as it is.
    pub(super) raw: RawManifest,
    /// What it says.
    pub(super) parsed: ParsedManifest,
    /// What is in its layers, if they were read and make a bundle.
    pub(super) content: Option<Content>,
    /// What refers to it, where there is somebody to ask who answered.
    pub(super) beside: Option<Beside>,
    /// What is worth saying and stops nothing.
    pub(super) warnings: Findings,
}

/// Reads it, wherever it lies. The manifest comes first; the content, and what lies beside it, are asked for at the same time.
pub(super) async fn see(
    ui: &mut Ui,
    place: &Place,
    settings: &RegistrySettings,
    manifest_only: bool,
) -> Outcome<Seen> {
    let client = registry::client(settings)?;
    let progress = ui.progress(&format!("reading {place}"));
    let located = match place.open(&client).await? {
        Some(located) => located,
        None => folder(ui, place)?,
    };
    let mut seen = Seen::of(located.root.clone())?;
    match place {
        Place::Registry(reference) => {
            let pinned = reference.pin(seen.raw.digest.clone());
            seen.reference = Some(pinned.without_tag());
        }
        _ => seen.path = Some(place.to_string()),
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
    let beside = async {
        // What was packed just now has nothing beside it that could be asked for.
        match place {
            Place::Folder(_) => None,
            _ => Some(Box::pin(beside::of(&located.source, &seen.raw.digest)).await),
        }
    };
    let (files, beside) = futures::join!(files, beside);
    drop(progress);
    if let Place::Registry(reference) = place
        && reference.digest().is_none()
    {
        ui.note(format!("{reference} is {}", seen.raw.digest));
    }
    if let (Some(files), Some(manifest)) = (files, image.as_ref()) {
        let called = is_called_bundle(manifest);
        match files {
            Ok(files) => seen.take(&files, called)?,
            Err(finding) => {
                // Of another image that nobody can unpack there is still something to show; a registry that fails is another matter.
                let others = OTHERS.contains(&finding.code);
                seen.not_a_bundle(finding.into(), called || !others)?;
            }
        }
    }
    match beside {
        Some(Ok(beside)) => seen.beside = Some(beside),
        // The rest is worth showing; that this is not known is said, and shown.
        Some(Err(finding)) => seen.warn(finding),
        None => {}
    }
    Ok(seen)
}

/// What a folder of manifests would be built to.
fn folder(ui: &mut Ui, place: &Place) -> Outcome<LocatedImage> {
    let terms = Terms {
        // Names of images are build's to refuse.
        allowed: Allowed {
            patterns: vec!["**".to_owned()],
        },
        ..Terms::default()
    };
    let opened = content::open(ui, Path::new(&place.to_string()), terms)?;
    Ok(LocatedImage::packed(opened.pack(ui)?.packed))
}

/// Returns `true` if the manifest says that it is a bundle of ours.
fn is_called_bundle(manifest: &Manifest) -> bool {
    manifest.annotations.contains_key(keys::FORMAT)
}

/// Returns `true` if its layers are worth reading: it says so, or it is a small image, as bundles were before they said so.
fn may_be_bundle(manifest: &Manifest) -> bool {
    let total = manifest
        .layers
        .iter()
        .fold(0_u64, |sum, layer| sum.saturating_add(layer.size));
    is_called_bundle(manifest)
        || media::is_config(&manifest.config.media_type)
            && manifest.artifact_type.is_none()
            && !manifest.layers.is_empty()
            && total <= UNCALLED
}

impl Seen {
    fn of(raw: RawManifest) -> Outcome<Self> {
        let parsed = raw.parse().map_err(|why| {
            Finding::error(
                codes::registry::MALFORMED,
                format!("the manifest cannot be used: {why}"),
            )
            .about(raw.digest.to_string())
        })?;
        Ok(Self {
            reference: None,
            path: None,
            raw,
            parsed,
            content: None,
            beside: None,
            warnings: Findings::default(),
        })
    }

    fn take(&mut self, files: &Files, called: bool) -> Outcome {
        match format::read(files) {
            Ok(mut content) => {
                self.warnings.0.append(&mut content.warnings.0);
                self.content = Some(content);
                Ok(())
            }
            Err(findings) => self.not_a_bundle(findings, called),
        }
    }

    /// What cannot be read as a bundle is an error where it says that it is one; otherwise it is another image, and that is said.
    fn not_a_bundle(&mut self, findings: Findings, called: bool) -> Outcome {
        // A chart is a bundle whose objects nobody knows yet.
        let unrendered = |finding: &Finding| finding.code == codes::format::NOT_RENDERED;
        if called && findings.0.iter().all(unrendered) {
            for finding in findings.0 {
                self.warn(finding);
            }
            return Ok(());
        }
        if called {
            return Err(findings.into());
        }
        if let Some(first) = findings.0.into_iter().next() {
            let finding = Finding {
                message: format!("its layers hold no bundle: {}", first.message),
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
