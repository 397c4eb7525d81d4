//! A bundle on disk: a folder of manifests that is checked and packed, or an OCI layout.

use std::path::{Path, PathBuf};

use bundle_core::check::{self, Installation};
use bundle_core::diagnostic::{Finding, Findings, Severity, codes};
use bundle_core::format::{Content, Files, RenderTarget};
use bundle_core::images::{self, Lock, MutableTagAllowlist};
use bundle_core::object::Manifest;
use bundle_core::package::{self, Package};
use bundle_oci::Limits;
use bundle_oci::folder::default_resources;
use bundle_oci::pack::PackedImage;
use bundle_schemas::BuiltinSchemas;

use super::input::{self, FallbackMetadata, Input, located};
use super::location::ArtifactLocation;
use super::packing::Packing;
use crate::failure::Outcome;
use crate::system::files;
use crate::ui::Ui;

/// A checked folder of manifests.
pub(crate) struct CheckedFolder {
    folder: PathBuf,
    packing: Packing,
    input: Input,
    /// Bytes of the existing lock file that the search for images ignored
    /// ([`LockFileUse::Ignore`]). `None` if the search used the lock file, or if the file does not
    /// exist.
    forgotten: Option<Vec<u8>>,
    /// Parsed content.
    pub(crate) content: Content,
    /// Package from `bundle.yaml`.
    pub(crate) package: Package,
}

/// A bundle in memory.
pub(crate) struct BuiltBundle {
    /// Packed image.
    pub(crate) packed: PackedImage,
    /// Parsed content.
    pub(crate) content: Content,
    /// Package from `bundle.yaml`.
    pub(crate) package: Package,
}

/// Use of the existing lock file `images.lock.yaml`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LockFileUse {
    /// The search for images includes this file.
    #[default]
    Use,
    /// The search for images ignores this file. The command replaces the file afterwards.
    Ignore,
}

/// Options for reading, checking and packing a folder. `push DIR` uses the default options.
#[derive(Debug, Default)]
pub(crate) struct BuildOptions {
    /// Name and version for content without `bundle.yaml`.
    pub(crate) fallback_metadata: FallbackMetadata,
    /// Images that may have a moving tag or no tag.
    pub(crate) allowed: MutableTagAllowlist,
    /// Use of the existing lock file `images.lock.yaml`.
    pub(crate) lock: LockFileUse,
    /// Additional resources, base image and git origin.
    pub(crate) packing: Packing,
    /// Installation for which the content is rendered.
    pub(crate) target: RenderTarget,
}

/// Reads and checks a folder of manifests, and prints warnings.
pub(crate) fn open(ui: &mut Ui, path: &Path, options: BuildOptions) -> Outcome<CheckedFolder> {
    let BuildOptions {
        fallback_metadata: known,
        allowed,
        lock,
        packing,
        target,
    } = options;
    let located = |findings| located(findings, path);
    let mut input = input::read(path, &known, &target)?;
    let forgotten = match lock {
        LockFileUse::Use => None,
        LockFileUse::Ignore => input.files.remove(images::LOCK_FILE),
    };
    let mut all = packing.content(&input.files)?;
    let content = input.content(&all, &target).map_err(located)?;
    let warnings = content.warnings.iter().cloned().map(|mut finding| {
        // In a folder, warnings about the lock file become errors, because the author can write the
        // lock file again. For a built bundle they stay warnings, because it cannot be changed.
        if [codes::images::NOT_LOCKED, codes::images::UNKNOWN_LOCKED].contains(&finding.code) {
            finding.severity = Severity::Error;
        }
        finding
    });
    let mut found: Findings = warnings.collect();
    // A packed chart is a file. The other files of the package, such as the lock file, are in the
    // folder that contains the chart.
    let folder = match path.parent() {
        Some(parent) if path.is_file() => parent,
        _ => path,
    };
    if let Some(package) = &content.package {
        let defaults = default_resources(folder, package, &Limits::default())
            .map_err(|findings| self::located(findings, folder))?;
        if !defaults.is_empty() {
            all.to_mut().extend(defaults);
        }
    }
    found.extend(check::all(&content, &all, &BuiltinSchemas));
    found.extend(images::check_references(&content.images, &allowed));
    let found = located(found);
    if found.has_errors() {
        return Err(found.into());
    }
    ui.warnings(&found);
    let Some(package) = content.package.clone() else {
        return Err(Finding::error(
            codes::format::BAD_PACKAGE,
            "bundle.yaml is missing, so the bundle has neither name nor version",
        )
        .in_file(path.join(package::FILE).display().to_string())
        .hint("create bundle.yaml with `kubectl bundle init`")
        .into());
    };
    Ok(CheckedFolder {
        folder: folder.to_owned(),
        packing,
        input,
        forgotten,
        content,
        package,
    })
}

impl CheckedFolder {
    /// Replaces the lock file in the content. If `keep` is `true` and the lock file changes, this
    /// function also writes `images.lock.yaml` next to `bundle.yaml`.
    pub(crate) fn lock(&mut self, lock: &Lock, keep: bool) -> Outcome {
        let text = lock.to_yaml().into_bytes();
        if keep && self.forgotten.as_ref() != Some(&text) {
            // Every file with this name is a lock file. Therefore the file is replaced without a
            // check of its content.
            files::replace(&self.folder.join(images::LOCK_FILE), &text, |_| true)?;
        }
        self.input.files.insert(images::LOCK_FILE.to_owned(), text);
        let all = self.packing.content(&self.input.files)?;
        self.content = self
            .input
            .content(&all, &RenderTarget::default())
            .map_err(|findings| self.located(findings))?;
        Ok(())
    }

    /// Adds the path of the package folder before each path in the findings.
    pub(crate) fn located(&self, findings: Findings) -> Findings {
        located(findings, &self.folder)
    }

    /// Packs the folder and prints notes.
    pub(crate) fn pack(self, ui: &mut Ui) -> Outcome<BuiltBundle> {
        let mut annotations = package::annotations(&self.package);
        if let Some(lock) = &self.content.lock {
            annotations.extend(images::annotation(lock));
        }
        let (files, package) = (&self.input.files, &self.package);
        let packed = self
            .packing
            .pack(ui, &self.folder, files, package, annotations)?;
        Ok(BuiltBundle {
            packed,
            content: self.content,
            package: self.package,
        })
    }
}

/// Reads, checks and packs a folder of manifests, and prints warnings.
pub(crate) fn build(ui: &mut Ui, path: &Path) -> Outcome<BuiltBundle> {
    open(ui, path, BuildOptions::default())?.pack(ui)
}

/// Builds the folder at this location, and returns the packed image.
pub(crate) fn packed(ui: &mut Ui, location: &ArtifactLocation) -> Outcome<PackedImage> {
    let path = match location {
        ArtifactLocation::Folder(path)
        | ArtifactLocation::Layout(path, _)
        | ArtifactLocation::Archive(path, _) => path.clone(),
        ArtifactLocation::Registry(reference) => reference.to_string().into(),
    };
    build(ui, &path).map(|built| built.packed)
}

/// Runs the checks of `build` on the files of a built bundle, and returns the findings and the
/// objects. `installation` contains the settings of a BundleDeployment. With `None`, the checks are
/// for a Bundle. The content is rendered for `target`.
pub(crate) fn findings(
    files: &Files,
    installation: Option<&Installation<'_>>,
    target: &RenderTarget,
) -> Outcome<(Findings, Vec<Manifest>)> {
    let content = input::render(files, target)?;
    let checked = match installation {
        Some(installation) => check::installed(&content, files, &BuiltinSchemas, installation),
        None => check::all(&content, files, &BuiltinSchemas),
    };
    let mut findings = content.warnings;
    findings.extend(checked);
    Ok((findings, content.objects))
}
