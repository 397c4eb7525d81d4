//! `save`: writes artifacts with their referrers and images to one file.

mod arguments;

use std::path::PathBuf;

use bundle_core::reference::Reference;
use bundle_oci::store::{CopyOptions, CopyPlan, ImageSelector, LocatedImage, Sources};

use super::copying::{self, CopyReport};
use super::images;
use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::system::files;
use crate::ui::format::Format;
use crate::ui::{Ui, format_size};

pub(crate) use arguments::Arguments;

/// Settings of `save`.
pub(crate) struct Save {
    /// References.
    pub(crate) references: Vec<Reference>,
    /// File.
    pub(crate) output: PathBuf,
    /// Selection of platforms and referrers.
    pub(crate) selection: CopyOptions,
    /// `true` if the images of the packages are saved too.
    pub(crate) images: bool,
    /// `true` if only a list of digests is written.
    pub(crate) sources_only: bool,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

impl Save {
    /// Saves the artifacts and prints the content of the file.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let client = registry::client(&self.registry)?;
        let mut wanted: Vec<LocatedImage> = Vec::new();
        for reference in &self.references {
            let package = LocatedImage::reference(&client, reference).await?;
            if self.images {
                wanted.extend(images::of(ui, &client, &package).await?);
            }
            wanted.push(package);
        }
        let mut plans: Vec<CopyPlan> = Vec::new();
        for mut image in wanted {
            // The name of the image in the file is the whole reference, because `load` reads the
            // reference from the name.
            image.name = image.origin.as_ref().map(ToString::to_string);
            let known = |one: &CopyPlan| {
                one.image.name == image.name && one.image.root.digest == image.root.digest
            };
            if !plans.iter().any(known) {
                plans.push(copying::plan_copy(ui, image, &self.selection).await?);
            }
        }
        let report = if self.sources_only {
            self.list(&plans)?
        } else {
            let target = ArtifactLocation::Archive(self.output.clone(), ImageSelector::Only);
            let tags = copying::tag_policy(true);
            copying::write_to_disk(ui, &plans, &target, tags).await?
        };
        let target = self.output.display();
        ui.note(format!(
            "{target}: {} artifact{}, {}",
            report.artifacts.len(),
            if report.artifacts.len() == 1 { "" } else { "s" },
            if self.sources_only {
                "digests only".to_owned()
            } else {
                format_size(report.bytes_sent)
            }
        ));
        if ui.structured(self.format, &report)? {
            return Ok(());
        }
        for plan in &plans {
            let pinned = plan.origin()?.pin(plan.digest().clone());
            ui.data(pinned.without_tag())?;
        }
        Ok(())
    }

    fn list(&self, plans: &[CopyPlan]) -> Outcome<CopyReport> {
        let platforms: Vec<_> = self
            .selection
            .platforms
            .iter()
            .map(ToString::to_string)
            .collect();
        let sources = Sources::of(plans, &platforms)?;
        files::replace(&self.output, sources.to_yaml().as_bytes(), Sources::is_list)?;
        Ok(CopyReport {
            artifacts: plans
                .iter()
                .map(|one| copying::report_item(one, self.output.display().to_string()))
                .collect(),
            new: true,
            ..CopyReport::empty()
        })
    }
}
