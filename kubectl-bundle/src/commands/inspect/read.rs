//! Gets at what is inspected: the manifest, and of the layers only those that hold content of a bundle.
//! Not here: what is concluded from it (report).

use std::path::Path;

use bundle_core::diagnostic::{Finding, Findings, Severity, codes};
use bundle_core::format::{self, Content};
use bundle_core::images::Allowed;
use bundle_core::package::keys;
use bundle_core::reference::{PinnedReference, Reference};
use bundle_oci::manifest::{Manifest, Parsed, RawManifest};
use bundle_oci::registry::{Client, Reason, RegistryError, Repository};
use bundle_oci::{Files, Limits, layout, media};

use super::beside::{self, Beside};
use crate::content::{self, OldLock};
use crate::failure::{Failure, Outcome};
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;

/// Layers of an image that does not say that it is a bundle are read up to this size in all: a bundle is small, and other images need not come.
const UNCALLED: u64 = 16 << 20;

/// Everything that was read.
pub(super) struct Seen {
    /// The pinned reference, of what lies in a registry.
    pub(super) reference: Option<String>,
    /// The path, of what lies on this disk.
    pub(super) path: Option<String>,
    /// The document as it is.
    pub(super) raw: RawManifest,
    /// What it says.
    pub(super) parsed: Parsed,
    /// What is in its layers, if they were read and make a bundle.
    pub(super) content: Option<Content>,
    /// What refers to it, where there is somebody to ask who answered.
    pub(super) beside: Option<Beside>,
    /// What is worth saying and stops nothing.
    pub(super) warnings: Findings,
}

/// What lies in a layout, or what a folder would be built to.
pub(super) fn disk(ui: &mut Ui, path: &Path, manifest_only: bool) -> Outcome<Seen> {
    let packed = if layout::is_layout(path) {
        layout::read(path, &Limits::default())?.packed
    } else {
        // Names of images are build's to refuse.
        let allowed = Allowed {
            patterns: vec!["**".to_owned()],
        };
        content::open(ui, path, &allowed, OldLock::Use)?
            .pack(ui)?
            .packed
    };
    let manifest = &packed.manifest;
    let mut seen = Seen {
        path: Some(path.display().to_string()),
        ..Seen::of(manifest.into())?
    };
    if !manifest_only && may_be_bundle(manifest) {
        let files = packed.files(Limits::default());
        let called = is_called_bundle(manifest);
        match files.map_err(|error| error.finding().into()) {
            Ok(files) => seen.take(&files, called)?,
            Err(findings) => seen.not_a_bundle(findings, called)?,
        }
    }
    Ok(seen)
}

/// What lies in a registry. The manifest comes first; the content, and what lies beside it, are asked for at the same time.
pub(super) async fn remote(
    ui: &mut Ui,
    reference: &Reference,
    settings: &RegistrySettings,
    manifest_only: bool,
) -> Outcome<Seen> {
    let client = registry::client(settings)?;
    let progress = ui.progress(&format!("reading {reference}"));
    let repository = Repository::from(reference);
    let name = match (reference.digest(), reference.tag()) {
        (Some(digest), _) => digest.as_str(),
        (None, tag) => tag.unwrap_or_default(),
    };
    let explain = |error: RegistryError| Failure::from(error.finding());
    let raw = client
        .raw_manifest(&repository, name)
        .await
        .map_err(explain)?;
    let pinned = reference.pin(raw.digest.clone());
    let mut seen = Seen {
        reference: Some(pinned.without_tag()),
        ..Seen::of(raw)?
    };
    let image = match &seen.parsed {
        Parsed::Image(manifest) if !manifest_only && may_be_bundle(manifest) => {
            Some((**manifest).clone())
        }
        _ => None,
    };
    let (files, beside) = futures::join!(
        files(&client, &pinned, image.as_ref()),
        beside::of(&client, &repository, &seen.raw.digest)
    );
    drop(progress);
    if reference.digest().is_none() {
        ui.note(format!("{reference} is {}", pinned.digest()));
    }
    match (files, image) {
        (Some(Ok(files)), Some(manifest)) => seen.take(&files, is_called_bundle(&manifest))?,
        (Some(Err(error)), Some(manifest)) => {
            let called = is_called_bundle(&manifest) || !matches!(error.reason, Reason::Content(_));
            seen.not_a_bundle(error.finding().into(), called)?;
        }
        _ => {}
    }
    match beside {
        Ok(beside) => seen.beside = Some(beside),
        // The rest is worth showing; that this is not known is said, and shown.
        Err(error) => seen.warn(error.finding()),
    }
    Ok(seen)
}

async fn files(
    client: &Client,
    pinned: &PinnedReference,
    manifest: Option<&Manifest>,
) -> Option<Result<Files, RegistryError>> {
    let limits = Limits::default();
    Some(client.pull_content(pinned, manifest?, &limits).await)
}

/// Whether the manifest says that it is a bundle of ours.
fn is_called_bundle(manifest: &Manifest) -> bool {
    manifest.annotations.contains_key(keys::FORMAT)
}

/// Whether its layers are worth reading: it says so, or it is a small image, as bundles were before they said so.
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
