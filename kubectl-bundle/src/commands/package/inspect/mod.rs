//! `inspect`: describes a bundle in a registry, layout, archive or folder.

mod arguments;
mod read;
mod referrers;
mod report;
mod text;

use bundle_core::version::ServerVersion;

use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::registry::RegistrySettings;
use crate::ui::Ui;
use crate::ui::format::Format;

use report::InspectReport;

pub(crate) use arguments::Arguments;

/// Settings of `inspect`.
pub(crate) struct Inspect {
    /// Location of the bundle.
    pub(crate) location: ArtifactLocation,
    /// `true` if every object is listed.
    pub(crate) objects: bool,
    /// Kubernetes version to check.
    pub(crate) kubernetes: Option<ServerVersion>,
    /// `true` if layers are not read.
    pub(crate) manifest_only: bool,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

impl Inspect {
    /// Reads the artifact and prints the description.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let looking = read::read_artifact(ui, &self.location, &self.registry, self.manifest_only);
        let seen = Box::pin(looking).await?;
        let report = InspectReport::new(&seen, self.kubernetes.as_ref())?;
        ui.warnings(&seen.warnings);
        if ui.structured(self.format, &report)? {
            return Ok(());
        }
        ui.text(&text::describe(&report, self.objects))
    }
}
