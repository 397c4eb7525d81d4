//! `inspect`: what a bundle is, wherever it lies.
//! Not here: reading formats (bundle-core) or archives (bundle-oci).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use bundle_core::diagnostic::Findings;
use bundle_core::format::{self, Files};
use bundle_core::package::Facts;
use bundle_core::reference::Reference;
use bundle_oci::Limits;
use bundle_oci::manifest::Manifest;
use serde::Serialize;

use crate::content;
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;
use crate::ui::format::Format;

/// Where the bundle is.
pub(crate) enum Place {
    /// A layout or a folder on this disk.
    Disk(PathBuf),
    /// In a registry.
    Registry(Reference),
}

/// What `inspect` needs to know.
pub(crate) struct Inspect {
    /// Where the bundle is.
    pub(crate) place: Place,
    /// Whether the layers are left alone.
    pub(crate) manifest_only: bool,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// How to talk to registries.
    pub(crate) registry: RegistrySettings,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    digest: String,
    #[serde(flatten)]
    facts: Facts,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    layers: Vec<Layer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<Objects>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signatures: Option<usize>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
    bytes: u64,
}

#[derive(Serialize)]
struct Objects {
    total: usize,
    kinds: BTreeMap<String, usize>,
}

impl Inspect {
    /// Looks and prints.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let report = match &self.place {
            Place::Disk(path) => {
                let packed = content::load(ui, path)?;
                let files = if self.manifest_only {
                    None
                } else {
                    Some(
                        packed
                            .files(Limits::default())
                            .map_err(|error| error.finding())?,
                    )
                };
                let mut report = report(&packed.manifest, files.as_ref())?;
                report.path = Some(path.display().to_string());
                report
            }
            Place::Registry(reference) => self.remote(ui, reference).await?,
        };
        if ui.structured(self.format, &report)? {
            return Ok(());
        }
        ui.text(&describe(&report))
    }

    async fn remote(&self, ui: &mut Ui, reference: &Reference) -> Outcome<Report> {
        let client = registry::client(&self.registry)?;
        let pinned = registry::pin(ui, &client, reference).await?;
        let _progress = ui.progress(&format!("reading {pinned}"));
        let explain = |error: bundle_oci::registry::RegistryError| error.finding();
        let manifest = client.manifest(&pinned).await.map_err(explain)?;
        let files = if self.manifest_only {
            None
        } else {
            Some(
                client
                    .pull_content(&pinned, &manifest, &Limits::default())
                    .await
                    .map_err(explain)?,
            )
        };
        let signatures = client.signatures(&pinned).await.map_err(explain)?;
        let mut report = report(&manifest, files.as_ref())?;
        report.reference = Some(pinned.without_tag());
        report.signatures = Some(signatures.len());
        Ok(report)
    }
}

fn report(manifest: &Manifest, files: Option<&Files>) -> Result<Report, Findings> {
    let facts = Facts::from_annotations(&manifest.annotations)?;
    let objects = match files {
        None => None,
        Some(files) => {
            let content = format::read(files)?;
            let mut kinds = BTreeMap::new();
            for object in &content.objects {
                let kind = if object.id.group.is_empty() {
                    object.id.kind.clone()
                } else {
                    format!("{}.{}", object.id.kind, object.id.group)
                };
                *kinds.entry(kind).or_default() += 1;
            }
            Some(Objects {
                total: content.objects.len(),
                kinds,
            })
        }
    };
    Ok(Report {
        reference: None,
        path: None,
        digest: manifest.digest.to_string(),
        facts,
        description: manifest
            .annotations
            .get(bundle_core::package::keys::DESCRIPTION)
            .cloned(),
        layers: manifest
            .layers
            .iter()
            .map(|layer| Layer {
                media_type: layer.media_type.clone(),
                digest: layer.digest.to_string(),
                bytes: layer.size,
            })
            .collect(),
        objects,
        signatures: None,
    })
}

fn describe(report: &Report) -> String {
    let mut text = String::new();
    let facts = &report.facts;
    let kubernetes = facts
        .kubernetes
        .as_ref()
        .map(|kubernetes| format!("{kubernetes} (others: {:?})", kubernetes.unsupported));
    let lines = [
        ("Reference", report.reference.clone()),
        ("Path", report.path.clone()),
        ("Digest", Some(report.digest.clone())),
        ("Name", facts.name.clone()),
        ("Version", facts.version.as_ref().map(ToString::to_string)),
        ("Format", facts.format.map(|one| one.as_str().to_owned())),
        ("Description", report.description.clone()),
        ("Kubernetes", kubernetes),
        (
            "Signatures",
            report.signatures.map(|count| match count {
                0 => "none".to_owned(),
                count => format!("{count} (not verified: see `kubectl bundle verify`)"),
            }),
        ),
    ];
    for (label, value) in lines {
        if let Some(value) = value {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{:<13}{value}", format!("{label}:"));
        }
    }
    for layer in &report.layers {
        let _ = writeln!(
            text,
            "{:<13}{} {} bytes",
            "Layer:", layer.digest, layer.bytes
        );
    }
    if let Some(objects) = &report.objects {
        let _ = writeln!(text, "{:<13}{}", "Objects:", objects.total);
        for (kind, count) in &objects.kinds {
            let _ = writeln!(text, "  {count:>5}  {kind}");
        }
    }
    text
}
