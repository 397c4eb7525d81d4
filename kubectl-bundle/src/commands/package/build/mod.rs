//! `build`: packs a folder of manifests into an OCI layout.

mod arguments;
pub(crate) mod lock;

use std::fmt::Write as _;
use std::path::PathBuf;

use bundle_core::format::RenderTarget;
use bundle_core::images::{FoundImage, Lock, MutableTagAllowlist};
use bundle_core::reference::Digest;
use bundle_oci::layout;
use bundle_oci::manifest::Platform;
use bundle_oci::pack::Resource;
use serde::Serialize;

use crate::artifact::folder::{self, BuildOptions, LockFileUse};
use crate::artifact::input::FallbackMetadata;
use crate::artifact::location::ArtifactLocation;
use crate::artifact::packing::{self, Packing};
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::ui::format::Format;
use crate::ui::{Ui, safe};

pub(crate) use arguments::Arguments;

/// Maximum number of images that are listed on stderr. `-o json`, `-o yaml` and `inspect` list all
/// images.
const MAX_LISTED_IMAGES: usize = 50;

/// Settings of `build`.
pub(crate) struct Build {
    /// Folder of manifests.
    pub(crate) folder: PathBuf,
    /// Name and version for content without `bundle.yaml`.
    pub(crate) known: FallbackMetadata,
    /// Images that may have a moving tag or no tag.
    pub(crate) allowed: MutableTagAllowlist,
    /// `true` if the lock file is written.
    pub(crate) lock: bool,
    /// Base image, and the platform to select if the base image is an index.
    pub(crate) base: Option<(ArtifactLocation, Option<Platform>)>,
    /// Resources in addition to the resources in `bundle.yaml`.
    pub(crate) resources: Vec<Resource>,
    /// `true` if the git origin is not recorded.
    pub(crate) no_provenance: bool,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
    /// Folder of the layout; defaults to `NAME-VERSION.oci`.
    pub(crate) output: Option<PathBuf>,
    /// Name of the image in the layout; defaults to the version.
    pub(crate) tag: Option<String>,
    /// `true` if nothing is written.
    pub(crate) dry_run: bool,
    /// Output format.
    pub(crate) format: Option<Format>,
}

#[derive(Serialize)]
struct BuildReport {
    digest: Digest,
    name: String,
    version: String,
    format: &'static str,
    objects: usize,
    bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<BuildImage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<String>,
}

#[derive(Serialize)]
struct BuildImage {
    #[serde(flatten)]
    found: FoundImage,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    probable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
}

impl Build {
    /// Reads, checks and packs the folder, writes the layout, and prints the digest.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let base = match &self.base {
            Some((place, platform)) => {
                let client = registry::client(&self.registry)?;
                Some(packing::base(ui, &client, place, platform.as_ref()).await?)
            }
            None => None,
        };
        let packing = Packing {
            resources: self.resources,
            base,
            no_provenance: self.no_provenance,
        };
        let old = if self.lock {
            LockFileUse::Ignore
        } else {
            LockFileUse::Use
        };
        let options = BuildOptions {
            fallback_metadata: self.known,
            allowed: self.allowed,
            lock: old,
            packing,
            target: RenderTarget::default(),
        };
        let mut opened = folder::open(ui, &self.folder, options)?;
        if self.lock {
            let client = registry::client(&self.registry)?;
            let lock = lock::resolve(ui, &client, &opened).await?;
            opened.lock(&lock, !self.dry_run)?;
        }
        let built = opened.pack(ui)?;
        let package = &built.package;
        let target = self
            .output
            .unwrap_or_else(|| format!("{}-{}.oci", package.name, package.version).into());
        let tag = self.tag.unwrap_or_else(|| package.version.to_string());
        if !self.dry_run {
            layout::write(&target, &built.packed, Some(&tag))?;
        }
        let lock = built.content.lock.unwrap_or_default();
        let report = BuildReport {
            digest: built.packed.digest.clone(),
            name: package.name.clone(),
            version: package.version.to_string(),
            format: built.content.format.as_str(),
            objects: built.content.objects.len(),
            bytes: built.packed.size(),
            images: images(built.content.images, &lock),
            layout: (!self.dry_run).then(|| target.display().to_string()),
        };
        let place = report
            .layout
            .as_ref()
            .map_or_else(|| "nothing written".to_owned(), |path| format!("in {path}"));
        ui.note(format!(
            "{} {}: {} object{}, {} bytes, {place}",
            report.name,
            report.version,
            report.objects,
            if report.objects == 1 { "" } else { "s" },
            report.bytes
        ));
        for image in report.images.iter().take(MAX_LISTED_IMAGES) {
            ui.note(line(image));
        }
        if report.images.len() > MAX_LISTED_IMAGES {
            ui.note(format!(
                "and {} more images",
                report.images.len() - MAX_LISTED_IMAGES
            ));
        }
        if !ui.structured(self.format, &report)? {
            ui.data(report.digest)?;
        }
        Ok(())
    }
}

fn images(found: Vec<FoundImage>, lock: &Lock) -> Vec<BuildImage> {
    found
        .into_iter()
        .map(|found| BuildImage {
            probable: found.is_probable(),
            digest: lock.get(&found.image).map(|locked| locked.digest.clone()),
            found,
        })
        .collect()
}

/// Returns a line such as `image nginx:1.25 is sha256:… (Deployment.apps/web: spec.…, and 2 more
/// places)`.
fn line(image: &BuildImage) -> String {
    // Writing to a String cannot fail.
    let mut line = format!("image {}", safe(&image.found.image));
    if let Some(digest) = &image.digest {
        let _ = write!(line, " is {digest}");
    }
    if image.probable {
        line += ", probably";
    }
    let places = &image.found.places;
    if let Some(place) = places.first() {
        let object = place.object.as_deref().unwrap_or(&place.file);
        let field = place.field.to_string();
        let _ = write!(line, " ({}: {}", safe(object), safe(&field));
        match places.len() - 1 {
            0 => {}
            1 => line += ", and 1 more place",
            more => {
                let _ = write!(line, ", and {more} more places");
            }
        }
        line.push(')');
    }
    line
}
