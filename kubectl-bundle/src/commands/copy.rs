//! `copy`: an artifact goes from one place to another with all that belongs to it.

use bundle_core::reference::Reference;
use bundle_oci::store::{Located, Mounts, Relocation, Selection, Shipment};

use crate::failure::Outcome;
use crate::place::Place;
use crate::registry::{self, RegistrySettings};
use crate::shipping::{self, Report};
use crate::ui::Ui;
use crate::ui::format::Format;
use crate::{content, images};

/// What `copy` needs to know.
pub(crate) struct Copy {
    /// From where.
    pub(crate) source: Place,
    /// To where.
    pub(crate) target: Place,
    /// What goes along.
    pub(crate) selection: Selection,
    /// `true` if the images of the package go along.
    pub(crate) images: bool,
    /// Below what they go, where the target is a registry.
    pub(crate) images_to: Option<Relocation>,
    /// `true` if a tag may be moved.
    pub(crate) overwrite_tag: bool,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// How to talk to registries.
    pub(crate) registry: RegistrySettings,
}

impl Copy {
    /// Copies, and prints where it is now.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let client = registry::client(&self.registry)?;
        let mut image = match self.source.open(&client).await? {
            Some(image) => image,
            None => Located::packed(content::packed(ui, &self.source)?),
        };
        if let Some(name) = self.target.name() {
            image.name = Some(name.to_owned());
        }
        let images = if self.images {
            images::of(ui, &client, &image).await?
        } else {
            Vec::new()
        };
        let mut shipments = vec![shipping::gather(ui, image, &self.selection).await?];
        for image in images {
            shipments.push(shipping::gather(ui, image, &self.selection).await?);
        }
        let tags = shipping::policy(self.overwrite_tag);
        let report = match &self.target {
            Place::Registry(to) => {
                let mounts = Mounts::default();
                let mut report = Report::empty();
                // The images first: a package that is there can be installed.
                for (shipment, to) in self.places(&shipments, to)?.into_iter().rev() {
                    shipping::dispatch(ui, &client, shipment, &to, tags, &mounts, &mut report)
                        .await?;
                }
                report.artifacts.reverse();
                report
            }
            target => shipping::deliver(ui, &shipments, target, tags).await?,
        };
        shipping::tell(ui, &report, &self.target.to_string());
        shipping::print(ui, self.format, &report)
    }

    /// Where each shipment goes in a registry, the package first.
    fn places<'a>(
        &self,
        shipments: &'a [Shipment],
        to: &Reference,
    ) -> Outcome<Vec<(&'a Shipment, Reference)>> {
        let mut places = Vec::new();
        for (index, shipment) in shipments.iter().enumerate() {
            let place = match &self.images_to {
                Some(below) if index > 0 => below.of(shipment.origin()?, shipment.digest())?,
                _ => to.clone(),
            };
            places.push((shipment, place));
        }
        Ok(places)
    }
}
