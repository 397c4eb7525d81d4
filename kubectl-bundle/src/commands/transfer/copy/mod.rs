//! `copy`: copies an artifact with its referrers and attachments.

mod arguments;

use bundle_core::reference::Reference;
use bundle_oci::store::{CopyOptions, CopyPlan, LocatedImage, MountSources, Relocation};

use super::copying::{self, CopyReport};
use super::images;
use crate::artifact::folder;
use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;
use crate::ui::format::Format;

pub(crate) use arguments::Arguments;

/// Settings of `copy`.
pub(crate) struct Copy {
    /// Source.
    pub(crate) source: ArtifactLocation,
    /// Target.
    pub(crate) target: ArtifactLocation,
    /// Selection of platforms and referrers.
    pub(crate) selection: CopyOptions,
    /// `true` if the images of the package are copied too.
    pub(crate) images: bool,
    /// Prefix for the images, if the target is a registry.
    pub(crate) images_to: Option<Relocation>,
    /// `true` if tags may be moved.
    pub(crate) overwrite_tag: bool,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

impl Copy {
    /// Copies the artifact and prints the target.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let client = registry::client(&self.registry)?;
        let mut image = match self.source.open(&client).await? {
            Some(image) => image,
            None => LocatedImage::packed(folder::packed(ui, &self.source)?),
        };
        if let Some(name) = self.target.name() {
            image.name = Some(name.to_owned());
        }
        let images = if self.images {
            images::of(ui, &client, &image).await?
        } else {
            Vec::new()
        };
        let mut plans = vec![copying::plan_copy(ui, image, &self.selection).await?];
        for image in images {
            plans.push(copying::plan_copy(ui, image, &self.selection).await?);
        }
        let tags = copying::tag_policy(self.overwrite_tag);
        let report = match &self.target {
            ArtifactLocation::Registry(to) => {
                let mounts = MountSources::default();
                let mut report = CopyReport::empty();
                // Copies the images first, because a bundle in the target must be installable.
                for (plan, to) in self.targets(&plans, to)?.into_iter().rev() {
                    copying::copy_to_registry(ui, &client, plan, &to, tags, &mounts, &mut report)
                        .await?;
                }
                report.artifacts.reverse();
                report
            }
            target => copying::write_to_disk(ui, &plans, target, tags).await?,
        };
        copying::print_summary(ui, &report, &self.target.to_string());
        copying::print(ui, self.format, &report)
    }

    /// Returns the target of each image in a registry. The package is first.
    fn targets<'a>(
        &self,
        plans: &'a [CopyPlan],
        to: &Reference,
    ) -> Outcome<Vec<(&'a CopyPlan, Reference)>> {
        let mut targets = Vec::new();
        for (index, plan) in plans.iter().enumerate() {
            let target = match &self.images_to {
                Some(below) if index > 0 => below.of(plan.origin()?, plan.digest())?,
                _ => to.clone(),
            };
            targets.push((plan, target));
        }
        Ok(targets)
    }
}
