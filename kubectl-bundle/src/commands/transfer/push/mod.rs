//! `push`: copies a bundle from disk to a registry.

mod arguments;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Reference;
use bundle_oci::store::{CopyOptions, LocatedImage, MountSources};
use serde::Serialize;

use super::copying;
use crate::artifact::folder;
use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;
use crate::ui::format::Format;

pub(crate) use arguments::Arguments;

/// Settings of `push`.
pub(crate) struct Push {
    /// Layout, archive or folder.
    pub(crate) source: ArtifactLocation,
    /// Target reference.
    pub(crate) reference: Reference,
    /// `true` if referrers and attachments are not copied.
    pub(crate) no_referrers: bool,
    /// `true` if a tag may be moved.
    pub(crate) overwrite_tag: bool,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

#[derive(Serialize)]
struct PushReport {
    reference: String,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    new: bool,
}

impl Push {
    /// Copies the bundle and prints the pinned reference.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let Some(tag) = self.reference.tag() else {
            return Err(
                Finding::error(codes::usage::BAD_ARGUMENT, "the target has no tag")
                    .about(self.reference.to_string())
                    .hint("write REGISTRY/REPOSITORY:TAG; the digest is computed from the content")
                    .into(),
            );
        };
        let client = registry::client(&self.registry)?;
        let image = match self.source.open(&client).await? {
            Some(image) => image,
            None => LocatedImage::packed(folder::packed(ui, &self.source)?),
        };
        let selection = CopyOptions {
            without_referrers: self.no_referrers,
            ..CopyOptions::default()
        };
        let plan = copying::plan_copy(ui, image, &selection).await?;
        let digest = plan.digest();
        if self
            .reference
            .digest()
            .is_some_and(|wanted| wanted != digest)
        {
            return Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                format!("the content of {} has digest {digest} instead", self.source),
            )
            .about(self.reference.to_string())
            .hint("omit the digest, or build the content with that digest")
            .into());
        }
        let mut sent = copying::CopyReport::empty();
        let tags = copying::tag_policy(self.overwrite_tag);
        let mounts = MountSources::default();
        copying::copy_to_registry(
            ui,
            &client,
            &plan,
            &self.reference,
            tags,
            &mounts,
            &mut sent,
        )
        .await?;
        if sent.new {
            let size = plan.graph.size();
            ui.note(format!("pushed {} ({size} bytes)", self.reference));
        } else {
            ui.note(format!("nothing to do: {tag} already refers to {digest}"));
        }
        let report = PushReport {
            reference: self.reference.pin(digest.clone()).without_tag(),
            digest: digest.to_string(),
            tag: Some(tag.to_owned()),
            new: sent.new,
        };
        if !ui.structured(self.format, &report)? {
            ui.data(report.reference)?;
        }
        Ok(())
    }
}
