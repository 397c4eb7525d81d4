//! A bundle on this disk: a folder of manifests that is checked and packed, or an OCI layout.
//! Not here: registries (registry), and the rules that it is checked by (bundle-core).

use std::path::{Path, PathBuf};

use bundle_core::check;
use bundle_core::diagnostic::{Finding, Findings, Severity, codes};
use bundle_core::format::{self, Content};
use bundle_core::images::{self, Allowed, Lock};
use bundle_core::package::{self, Package};
use bundle_oci::pack::Packed;
use bundle_oci::{Files, Limits, folder};

use crate::failure::Outcome;
use crate::files;
use crate::packing::Packing;
use crate::place::Place;
use crate::ui::Ui;

/// A folder of manifests that has been read and checked.
pub(crate) struct Opened {
    folder: PathBuf,
    packing: Packing,
    files: Files,
    /// The lock that was there and did not count.
    forgotten: Option<Vec<u8>>,
    /// What its files mean.
    pub(crate) content: Content,
    /// What `bundle.yaml` says.
    pub(crate) package: Package,
}

/// A bundle in memory, with the name that it would have in a layout.
pub(crate) struct Built {
    /// The image.
    pub(crate) packed: Packed,
    /// What its files mean.
    pub(crate) content: Content,
    /// What `bundle.yaml` says.
    pub(crate) package: Package,
}

/// What is done with the lock of images that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OldLock {
    /// It counts.
    Use,
    /// It is about to be written anew, whatever is in it.
    Forget,
}

/// Reads and checks a folder of manifests, and says warnings.
pub(crate) fn open(ui: &mut Ui, path: &Path, allowed: &Allowed, lock: OldLock) -> Outcome<Opened> {
    open_with(ui, path, allowed, lock, Packing::default())
}

/// The same, with what stands beside the content of the folder.
pub(crate) fn open_with(
    ui: &mut Ui,
    path: &Path,
    allowed: &Allowed,
    lock: OldLock,
    packing: Packing,
) -> Outcome<Opened> {
    is_folder(path)?;
    let located = |findings| located(findings, path);
    let mut files = folder::read(path, &Limits::default()).map_err(located)?;
    let forgotten = match lock {
        OldLock::Use => None,
        OldLock::Forget => files.remove(images::LOCK_FILE),
    };
    let all = packing.content(&files)?;
    let content = format::read(&all).map_err(located)?;
    let mut found = content.warnings.clone();
    for finding in &mut found.0 {
        // What is built already keeps what it has; here it can be mended.
        if [codes::images::NOT_LOCKED, codes::images::UNKNOWN_LOCKED].contains(&finding.code) {
            finding.severity = Severity::Error;
        }
    }
    found.0.extend(check::all(&content, &all).0);
    found.0.extend(images::hygiene(&content.images, allowed).0);
    let found = located(found);
    if found.has_errors() {
        return Err(found.into());
    }
    ui.warnings(&found);
    let Some(package) = content.package.clone() else {
        return Err(Finding::error(
            codes::format::BAD_PACKAGE,
            "there is no bundle.yaml, so the bundle has neither name nor version",
        )
        .in_file(path.join(package::FILE).display().to_string())
        .hint("write one with apiVersion: bundle.core.rukpak.io/v1alpha1, kind: Package, name, version and format: plain+v0")
        .into());
    };
    Ok(Opened {
        folder: path.to_owned(),
        packing,
        files,
        forgotten,
        content,
        package,
    })
}

impl Opened {
    /// Puts a lock there. The file beside `bundle.yaml` changes if `keep`, and if there is anything to change.
    pub(crate) fn lock(&mut self, lock: &Lock, keep: bool) -> Outcome {
        let text = lock.to_yaml().into_bytes();
        if keep && self.forgotten.as_ref() != Some(&text) {
            // By its name the file is ours, whatever is in it.
            files::replace(&self.folder.join(images::LOCK_FILE), &text, |_| true)?;
        }
        self.files.insert(images::LOCK_FILE.to_owned(), text);
        let all = self.packing.content(&self.files)?;
        self.content = format::read(&all).map_err(|findings| self.located(findings))?;
        Ok(())
    }

    /// The same findings, with paths that a person can open.
    pub(crate) fn located(&self, findings: Findings) -> Findings {
        located(findings, &self.folder)
    }

    /// Packs it, and says what could not be recorded.
    pub(crate) fn pack(self, ui: &mut Ui) -> Outcome<Built> {
        let mut annotations = package::annotations(&self.package);
        if let Some(lock) = &self.content.lock {
            annotations.extend(images::annotation(lock));
        }
        let (files, package) = (&self.files, &self.package);
        let packed = self
            .packing
            .pack(ui, &self.folder, files, package, annotations)?;
        Ok(Built {
            packed,
            content: self.content,
            package: self.package,
        })
    }
}

/// Reads, checks and packs a folder of manifests, and says warnings.
pub(crate) fn build(ui: &mut Ui, path: &Path) -> Outcome<Built> {
    open(ui, path, &Allowed::default(), OldLock::Use)?.pack(ui)
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

/// Makes the paths within the bundle ones that a person can open.
fn located(mut findings: Findings, folder: &Path) -> Findings {
    for finding in &mut findings.0 {
        if let Some(file) = &mut finding.place.file {
            *file = folder.join(&*file).display().to_string();
        }
    }
    findings
}

/// The folder of manifests at that place, built.
pub(crate) fn packed(ui: &mut Ui, place: &Place) -> Outcome<Packed> {
    let path = match place {
        Place::Folder(path) | Place::Layout(path, _) | Place::Archive(path, _) => path.clone(),
        Place::Registry(reference) => reference.to_string().into(),
    };
    build(ui, &path).map(|built| built.packed)
}
