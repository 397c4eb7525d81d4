//! `unpack`: writes the files of an image to disk.

mod arguments;

use std::path::PathBuf;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Digest;
use bundle_oci::blob::Blob;
use bundle_oci::manifest::Platform;
use bundle_oci::transfer::blocking::on_thread;
use bundle_oci::unpack::disk::{self, DiskUnpacker, UnpackResult};
use bundle_oci::{Limits, limits};
use serde::Serialize;

use crate::artifact::location::ArtifactLocation;
use crate::artifact::platform;
use crate::commands::interruptible;
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;
use crate::ui::format::Format;

pub(crate) use arguments::Arguments;

/// Settings of `unpack`.
pub(crate) struct Unpack {
    /// Location of the image.
    pub(crate) source: ArtifactLocation,
    /// Target folder.
    pub(crate) target: PathBuf,
    /// Platform, for an index.
    pub(crate) platform: Option<Platform>,
    /// `true` if a folder with content is replaced.
    pub(crate) force: bool,
    /// `true` if unsafe entries are skipped.
    pub(crate) skip_unsafe: bool,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UnpackReport {
    digest: Digest,
    folder: String,
    files: u64,
    bytes: u64,
    links: u64,
    /// Number of files whose setuid or setgid bit was removed.
    unmarked: u64,
    left_out: Vec<String>,
    left_out_count: u64,
}

impl Unpack {
    /// Unpacks the image and prints the folder.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        interruptible(self.unpack(ui)).await
    }

    async fn unpack(self, ui: &mut Ui) -> Outcome {
        let client = registry::client(&self.registry)?;
        let Some(located) = self.source.open(&client).await? else {
            return Err(Finding::error(
                codes::usage::FILE_UNREADABLE,
                "it is a folder of manifests, not a layout or an archive",
            )
            .in_file(self.source.to_string())
            .hint("pass an OCI layout or archive, or a reference, REGISTRY/REPOSITORY:TAG")
            .into());
        };
        let manifest = platform::select_manifest(&located, self.platform.as_ref()).await?;
        let target = disk::TargetFolder::prepare(&self.target, self.force)?;
        let config = located
            .source
            .blob(&manifest.config)?
            .bytes(limits::MANIFEST_BYTES)
            .await?;
        let mut unpacking = DiskUnpacker::new(
            &target.folder(),
            &manifest.config,
            &config,
            &manifest.layers,
            Limits::for_images(),
            self.skip_unsafe,
        )
        .map_err(|error| error.finding())?;
        let progress = ui.progress(&format!("unpacking {}", self.source));
        for (index, layer) in manifest.layers.iter().enumerate() {
            unpacking = write_layer(unpacking, index, &located.source.blob(layer)?).await?;
        }
        drop(progress);
        let written = unpacking.finish().map_err(|error| error.finding())?;
        target.keep()?;
        self.report(ui, manifest.digest, written)
    }

    fn report(&self, ui: &mut Ui, digest: Digest, written: UnpackResult) -> Outcome {
        for line in &written.skipped {
            ui.note(format!("skipped: {line}"));
        }
        let unnamed = written.skipped_count - written.skipped.len() as u64;
        if unnamed > 0 {
            ui.note(format!("skipped: {unnamed} more"));
        }
        if written.setuid_removed > 0 {
            ui.note(format!(
                "{} files were written without their setuid or setgid bit",
                written.setuid_removed
            ));
        }
        ui.note(format!(
            "{digest}: {} files, {} bytes, {} links",
            written.files, written.bytes, written.links
        ));
        let report = UnpackReport {
            digest,
            folder: self.target.display().to_string(),
            files: written.files,
            bytes: written.bytes,
            links: written.links,
            unmarked: written.setuid_removed,
            left_out: written.skipped,
            left_out_count: written.skipped_count,
        };
        if !ui.structured(self.format, &report)? {
            ui.data(report.folder)?;
        }
        Ok(())
    }
}

/// Unpacks one layer on a blocking thread while the layer is downloaded.
async fn write_layer(
    mut unpacking: DiskUnpacker,
    index: usize,
    blob: &Blob,
) -> Outcome<DiskUnpacker> {
    let work = move |pieces| {
        let done = unpacking.layer(index, pieces);
        (unpacking, done)
    };
    let Some(((unpacking, done), fed)) = on_thread(blob.open(0), work).await else {
        return Err(Finding::error(
            codes::usage::NO_RESOURCES,
            "the unpacker stopped unexpectedly",
        )
        .into());
    };
    // The connection error has priority, because it is the cause of truncated content.
    fed?;
    done.map_err(|error| error.finding())?;
    Ok(unpacking)
}
