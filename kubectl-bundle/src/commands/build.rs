//! `build`: a folder of manifests becomes an OCI layout on this disk.
//! Not here: the checks (bundle-core) and the packing (bundle-oci).

use std::path::PathBuf;

use bundle_core::reference::Digest;
use bundle_oci::layout;
use serde::Serialize;

use crate::content;
use crate::failure::Outcome;
use crate::ui::Ui;
use crate::ui::format::Format;

/// What `build` needs to know.
pub(crate) struct Build {
    /// The folder of manifests.
    pub(crate) folder: PathBuf,
    /// The layout; named after the package if absent.
    pub(crate) output: Option<PathBuf>,
    /// Name of the image in the layout; the version if absent.
    pub(crate) tag: Option<String>,
    /// Whether nothing is written.
    pub(crate) dry_run: bool,
    /// How to print.
    pub(crate) format: Option<Format>,
}

#[derive(Serialize)]
struct Report {
    digest: Digest,
    name: String,
    version: String,
    format: &'static str,
    objects: usize,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<String>,
}

impl Build {
    /// Reads, checks, packs, writes, and prints the digest.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        let built = content::build(ui, &self.folder)?;
        let package = &built.package;
        let target = self
            .output
            .unwrap_or_else(|| format!("{}-{}.oci", package.name, package.version).into());
        let tag = self.tag.unwrap_or_else(|| package.version.to_string());
        if !self.dry_run {
            layout::write(&target, &built.packed, Some(&tag))?;
        }
        let report = Report {
            digest: built.packed.digest.clone(),
            name: package.name.clone(),
            version: package.version.to_string(),
            format: built.content.format.as_str(),
            objects: built.content.objects.len(),
            bytes: built.packed.size(),
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
        if !ui.structured(self.format, &report)? {
            ui.data(report.digest)?;
        }
        Ok(())
    }
}
