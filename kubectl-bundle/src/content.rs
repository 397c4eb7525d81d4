//! A bundle on this disk: a folder of manifests that is checked and packed, or an OCI layout.

use std::path::{Path, PathBuf};

use bundle_core::check;
use bundle_core::diagnostic::{Finding, Findings, Severity, codes};
use bundle_core::format::Content;
use bundle_core::images::{self, Allowed, Lock};
use bundle_core::package::{self, Package};
use bundle_oci::pack::PackedImage;
use bundle_schemas::BuiltinSchemas;

use crate::failure::Outcome;
use crate::files;
use crate::input::{self, Input, Known, located};
use crate::packing::Packing;
use crate::place::Place;
use crate::ui::Ui;

/// A folder of manifests that has been read and checked.
pub(crate) struct Opened {
    folder: PathBuf,
    packing: Packing,
    input: Input,
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
    pub(crate) packed: PackedImage,
    /// What its files mean.
    pub(crate) content: Content,
    /// What `bundle.yaml` says.
    pub(crate) package: Package,
}

/// What is done with the lock of images that is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum OldLock {
    /// It counts.
    #[default]
    Use,
    /// It is about to be written anew, whatever is in it.
    Forget,
}

/// How a folder is read, checked and packed. The default is how `push DIR` and `inspect DIR` do it.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// What is known of content without `bundle.yaml`.
    pub(crate) known: Known,
    /// Which images may have tags that move.
    pub(crate) allowed: Allowed,
    /// What is done with the lock that is there.
    pub(crate) lock: OldLock,
    /// What stands beside the content of the folder.
    pub(crate) packing: Packing,
    /// Namespace that the content is installed into, if one was chosen.
    pub(crate) target: Option<String>,
}

/// Reads and checks a folder of manifests, and says warnings.
pub(crate) fn open(ui: &mut Ui, path: &Path, terms: Terms) -> Outcome<Opened> {
    let Terms {
        known,
        allowed,
        lock,
        packing,
        target,
    } = terms;
    let located = |findings| located(findings, path);
    let mut input = input::read(path, &known)?;
    let forgotten = match lock {
        OldLock::Use => None,
        OldLock::Forget => input.files.remove(images::LOCK_FILE),
    };
    let all = packing.content(&input.files)?;
    let content = input.content(&all, target.as_deref()).map_err(located)?;
    let mut found = content.warnings.clone();
    for finding in &mut found.0 {
        // What is built already keeps what it has; here it can be mended.
        if [codes::images::NOT_LOCKED, codes::images::UNKNOWN_LOCKED].contains(&finding.code) {
            finding.severity = Severity::Error;
        }
    }
    found
        .0
        .extend(check::all(&content, &all, &BuiltinSchemas).0);
    found.0.extend(images::hygiene(&content.images, &allowed).0);
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
        .hint("let `kubectl bundle init` write one")
        .into());
    };
    // A chart may be one file: what lies beside it, such as its repository, is about its folder.
    let folder = match path.parent() {
        Some(parent) if path.is_file() => parent,
        _ => path,
    };
    Ok(Opened {
        folder: folder.to_owned(),
        packing,
        input,
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
        self.input.files.insert(images::LOCK_FILE.to_owned(), text);
        let all = self.packing.content(&self.input.files)?;
        self.content = self
            .input
            .content(&all, None)
            .map_err(|findings| self.located(findings))?;
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
        let (files, package) = (&self.input.files, &self.package);
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
    open(ui, path, Terms::default())?.pack(ui)
}

/// The folder of manifests at that place, built.
pub(crate) fn packed(ui: &mut Ui, place: &Place) -> Outcome<PackedImage> {
    let path = match place {
        Place::Folder(path) | Place::Layout(path, _) | Place::Archive(path, _) => path.clone(),
        Place::Registry(reference) => reference.to_string().into(),
    };
    build(ui, &path).map(|built| built.packed)
}
