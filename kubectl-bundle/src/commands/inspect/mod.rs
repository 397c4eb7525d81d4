//! `inspect`: what a bundle is, wherever it lies.

mod beside;
mod read;
mod report;
mod text;

use bundle_core::version::ServerVersion;

use crate::failure::Outcome;
use crate::place::Place;
use crate::registry::RegistrySettings;
use crate::ui::Ui;
use crate::ui::format::Format;

use report::Report;

/// What `inspect` needs to know.
pub(crate) struct Inspect {
    /// Where the bundle is.
    pub(crate) place: Place,
    /// `true` if every object is listed.
    pub(crate) objects: bool,
    /// The version of Kubernetes that is asked about.
    pub(crate) kubernetes: Option<ServerVersion>,
    /// `true` if the layers are left alone.
    pub(crate) manifest_only: bool,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// How to talk to registries.
    pub(crate) registry: RegistrySettings,
}

impl Inspect {
    /// Looks and prints.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let looking = read::see(ui, &self.place, &self.registry, self.manifest_only);
        let seen = Box::pin(looking).await?;
        let report = Report::new(&seen, self.kubernetes.as_ref())?;
        ui.warnings(&seen.warnings);
        if ui.structured(self.format, &report)? {
            return Ok(());
        }
        ui.text(&text::describe(&report, self.objects))
    }
}
