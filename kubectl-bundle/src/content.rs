//! A bundle on this disk: a folder of manifests that is checked and packed, or an OCI layout.
//! Not here: registries (registry), and the rules that it is checked by (bundle-core).

use std::path::Path;

use bundle_core::check;
use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::format::{self, Content};
use bundle_core::package::{self, Package};
use bundle_oci::pack::{self, Packed};
use bundle_oci::{Limits, folder, layout};

use crate::failure::Outcome;
use crate::place::Place;
use crate::ui::Ui;

/// A bundle in memory, with the name that it would have in a layout.
pub(crate) struct Built {
    /// The image.
    pub(crate) packed: Packed,
    /// What its files mean.
    pub(crate) content: Content,
    /// What `bundle.yaml` says.
    pub(crate) package: Package,
}

/// Reads and checks a folder of manifests, says warnings, and packs it.
pub(crate) fn build(ui: &mut Ui, path: &Path) -> Outcome<Built> {
    let located = |mut findings: Findings| {
        for finding in &mut findings.0 {
            locate(finding, path);
        }
        findings
    };
    is_folder(path)?;
    let files = folder::read(path, &Limits::default()).map_err(located)?;
    let content = format::read(&files).map_err(located)?;
    let mut found = content.warnings.clone();
    found.0.extend(check::all(&content, &files).0);
    let found = located(found);
    if found.has_errors() {
        return Err(found.into());
    }
    for warning in &found.0 {
        ui.finding(warning);
    }
    let Some(package) = content.package.clone() else {
        return Err(Finding::error(
            codes::format::BAD_PACKAGE,
            "there is no bundle.yaml, so the bundle has neither name nor version",
        )
        .in_file(path.join(package::FILE).display().to_string())
        .hint("write one with apiVersion: bundle.core.rukpak.io/v1alpha1, kind: Package, name, version and format: plain+v0")
        .into());
    };
    let packed = pack::pack(&files, &package)?;
    Ok(Built {
        packed,
        content,
        package,
    })
}

fn is_folder(path: &Path) -> Outcome {
    let why = if path.is_dir() {
        return Ok(());
    } else if path.exists() {
        "it is not a folder"
    } else {
        "there is no such folder"
    };
    Err(Finding::error(codes::usage::FILE_UNREADABLE, why)
        .in_file(path.display().to_string())
        .hint("name a folder with bundle.yaml and manifests/ in it, or an OCI layout")
        .into())
}

/// Makes the path within the bundle one that a person can open.
fn locate(finding: &mut Finding, folder: &Path) {
    if let Some(file) = &mut finding.place.file {
        *file = folder.join(&*file).display().to_string();
    }
}

/// The folder of manifests at that place, built.
pub(crate) fn packed(ui: &mut Ui, place: &Place) -> Outcome<Packed> {
    let path = match place {
        Place::Folder(path) | Place::Layout(path, _) | Place::Archive(path, _) => path.clone(),
        Place::Registry(reference) => reference.to_string().into(),
    };
    build(ui, &path).map(|built| built.packed)
}

/// An OCI layout, or a folder of manifests that is built first.
pub(crate) fn load(ui: &mut Ui, path: &Path) -> Outcome<Packed> {
    if layout::is_layout(path) {
        Ok(layout::read(path, &Limits::default())?.packed)
    } else {
        build(ui, path).map(|built| built.packed)
    }
}
