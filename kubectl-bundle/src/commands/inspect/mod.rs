//! `inspect`: what a bundle is, wherever it lies.
//! Not here: getting at it (read), what is reported (report), and how it looks (text).

mod beside;
mod read;
mod report;
mod text;

use std::path::PathBuf;

use bundle_core::reference::Reference;
use bundle_core::version::ServerVersion;

use crate::failure::Outcome;
use crate::registry::RegistrySettings;
use crate::ui::Ui;
use crate::ui::format::Format;

use report::Report;

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
    /// Whether every object is listed.
    pub(crate) objects: bool,
    /// The version of Kubernetes that is asked about.
    pub(crate) kubernetes: Option<ServerVersion>,
    /// Whether the layers are left alone.
    pub(crate) manifest_only: bool,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// How to talk to registries.
    pub(crate) registry: RegistrySettings,
}

impl Inspect {
    /// Looks and prints.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let seen = match &self.place {
            Place::Disk(path) => read::disk(ui, path, self.manifest_only)?,
            Place::Registry(reference) => {
                Box::pin(read::remote(
                    ui,
                    reference,
                    &self.registry,
                    self.manifest_only,
                ))
                .await?
            }
        };
        let report = Report::new(&seen, self.kubernetes.as_ref())?;
        ui.warnings(&seen.warnings);
        if ui.structured(self.format, &report)? {
            return Ok(());
        }
        ui.text(&text::describe(&report, self.objects))
    }
}
