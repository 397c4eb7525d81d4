//! `save`: artifacts with all that belongs to them become one file.

use std::path::PathBuf;

use bundle_core::reference::Reference;
use bundle_oci::store::{Located, Pick, Selection, Shipment, Sources};

use crate::failure::Outcome;
use crate::place::Place;
use crate::registry::{self, RegistrySettings};
use crate::shipping::{self, Report};
use crate::ui::Ui;
use crate::ui::format::Format;
use crate::{files, images};

/// What `save` needs to know.
pub(crate) struct Save {
    /// What.
    pub(crate) references: Vec<Reference>,
    /// The file.
    pub(crate) output: PathBuf,
    /// What goes along.
    pub(crate) selection: Selection,
    /// `true` if the images of the packages go along.
    pub(crate) images: bool,
    /// `true` if only digests are written.
    pub(crate) sources_only: bool,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// How to talk to registries.
    pub(crate) registry: RegistrySettings,
}

impl Save {
    /// Saves, and prints what is in the file.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let client = registry::client(&self.registry)?;
        let mut wanted: Vec<Located> = Vec::new();
        for reference in &self.references {
            let package = Located::reference(&client, reference).await?;
            if self.images {
                wanted.extend(images::of(ui, &client, &package).await?);
            }
            wanted.push(package);
        }
        let mut shipments: Vec<Shipment> = Vec::new();
        for mut image in wanted {
            // The whole reference is the name: what is loaded goes by it.
            image.name = image.origin.as_ref().map(ToString::to_string);
            let known = |one: &Shipment| {
                one.image.name == image.name && one.image.root.digest == image.root.digest
            };
            if !shipments.iter().any(known) {
                shipments.push(shipping::gather(ui, image, &self.selection).await?);
            }
        }
        let report = if self.sources_only {
            self.list(&shipments)?
        } else {
            let target = Place::Archive(self.output.clone(), Pick::Only);
            let tags = shipping::policy(true);
            shipping::deliver(ui, &shipments, &target, tags).await?
        };
        let target = self.output.display();
        ui.note(format!(
            "{target}: {} artifact{}, {}",
            report.artifacts.len(),
            if report.artifacts.len() == 1 { "" } else { "s" },
            if self.sources_only {
                "only their digests".to_owned()
            } else {
                shipping::human(report.bytes_sent)
            }
        ));
        if ui.structured(self.format, &report)? {
            return Ok(());
        }
        for shipment in &shipments {
            let pinned = shipment.origin()?.pin(shipment.digest().clone());
            ui.data(pinned.without_tag())?;
        }
        Ok(())
    }

    fn list(&self, shipments: &[Shipment]) -> Outcome<Report> {
        let platforms: Vec<_> = self
            .selection
            .platforms
            .iter()
            .map(ToString::to_string)
            .collect();
        let sources = Sources::of(shipments, &platforms)?;
        files::replace(
            &self.output,
            sources.to_yaml().as_bytes(),
            Sources::is_meant,
        )?;
        Ok(Report {
            artifacts: shipments
                .iter()
                .map(|one| shipping::item(one, self.output.display().to_string()))
                .collect(),
            new: true,
            ..Report::empty()
        })
    }
}
