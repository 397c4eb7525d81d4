//! `pull`: copies an artifact from a registry to disk.

mod arguments;

use bundle_core::reference::Reference;
use bundle_oci::store::{CopyOptions, LocatedImage};

use super::copying;
use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;
use crate::ui::format::Format;

pub(crate) use arguments::Arguments;

/// Settings of `pull`.
pub(crate) struct Pull {
    /// Reference.
    pub(crate) reference: Reference,
    /// Layout or archive.
    pub(crate) target: ArtifactLocation,
    /// Selection of platforms and referrers.
    pub(crate) selection: CopyOptions,
    /// `true` if a name in the layout may be moved to other content.
    pub(crate) overwrite_tag: bool,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

impl Pull {
    /// Copies the artifact and prints the pinned reference.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let client = registry::client(&self.registry)?;
        let mut image = LocatedImage::reference(&client, &self.reference).await?;
        if let Some(name) = self.target.name() {
            image.name = Some(name.to_owned());
        }
        let pinned = self.reference.pin(image.root.digest.clone());
        let plans = [copying::plan_copy(ui, image, &self.selection).await?];
        let tags = copying::tag_policy(self.overwrite_tag);
        let report = copying::write_to_disk(ui, &plans, &self.target, tags).await?;
        copying::print_summary(ui, &report, &self.target.to_string());
        if !ui.structured(self.format, &report)? {
            ui.data(pinned.without_tag())?;
        }
        Ok(())
    }
}
