//! `pull`: an artifact comes from a registry to this disk.

use bundle_core::reference::Reference;
use bundle_oci::store::{CopyOptions, LocatedImage};

use crate::failure::Outcome;
use crate::place::Place;
use crate::registry::{self, RegistrySettings};
use crate::shipping;
use crate::ui::Ui;
use crate::ui::format::Format;

/// What `pull` needs to know.
pub(crate) struct Pull {
    /// What.
    pub(crate) reference: Reference,
    /// A layout or an archive.
    pub(crate) target: Place,
    /// What goes along.
    pub(crate) selection: CopyOptions,
    /// `true` if a name may be moved.
    pub(crate) overwrite_tag: bool,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// How to talk to registries.
    pub(crate) registry: RegistrySettings,
}

impl Pull {
    /// Pulls, and prints the pinned reference.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let client = registry::client(&self.registry)?;
        let mut image = LocatedImage::reference(&client, &self.reference).await?;
        if let Some(name) = self.target.name() {
            image.name = Some(name.to_owned());
        }
        let pinned = self.reference.pin(image.root.digest.clone());
        let plans = [shipping::build(ui, image, &self.selection).await?];
        let tags = shipping::policy(self.overwrite_tag);
        let report = shipping::deliver(ui, &plans, &self.target, tags).await?;
        shipping::tell(ui, &report, &self.target.to_string());
        if !ui.structured(self.format, &report)? {
            ui.data(pinned.without_tag())?;
        }
        Ok(())
    }
}
