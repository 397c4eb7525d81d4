//! `adopt`: installs a bundle over existing objects, after a preview and a confirmation.

mod arguments;
mod objects;

use serde_json::Value;

use super::bundle_spec::BundleContent;
use super::deploy::preview_content;
use super::deployment::DeploymentWrite;
use super::preview::PreviewOutput;
use crate::cluster::apply::DryRun;
use crate::failure::Outcome;
use crate::ui::Ui;
use crate::ui::confirm::Confirmation;

pub(crate) use arguments::Arguments;

/// Settings of `adopt`.
pub(crate) struct Adopt {
    /// Content.
    pub(crate) content: BundleContent,
    /// Settings of the BundleDeployment.
    pub(crate) deployment: DeploymentWrite,
    /// Output settings of the preview.
    pub(crate) preview: PreviewOutput,
    /// `true` if no confirmation is needed.
    pub(crate) is_confirmed: bool,
    /// `true` if a user is present for a prompt.
    pub(crate) is_attended: bool,
}

impl Adopt {
    /// Prints the preview, asks for confirmation, applies the BundleDeployment, and waits if
    /// requested.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let (content, deployment) = (&self.content, &self.deployment);
        let described = content.describe(ui).await?;
        let compose = async |before: Option<&Value>, spec: &mut Value| {
            content
                .set_template(&described, &deployment.name, before, spec)
                .await
        };
        let class = content.class.as_deref();
        if deployment.write.dry_run != DryRun::Client {
            let written = deployment.dry_run(ui, &compose).await?;
            let preview = Box::pin(preview_content(ui, content, &described, &written)).await?;
            if deployment.write.format.is_none() {
                preview.print(ui, &self.preview)?;
            } else {
                preview.check()?;
            }
            let adopted = objects::objects_to_adopt(&deployment.name, &preview)?;
            for line in adopted.lines() {
                ui.note(line);
            }
            if deployment.write.dry_run == DryRun::None {
                let question = format!(
                    "adopt {} into bundledeployment {}?",
                    adopted.count(),
                    deployment.name
                );
                Confirmation {
                    is_given: self.is_confirmed,
                    is_attended: self.is_attended,
                }
                .ask(ui, &question)?;
            }
            let written = deployment.apply(ui, class, &compose).await?;
            if let Some(written) = written
                && deployment.write.dry_run == DryRun::None
            {
                deployment.wait(ui, &written).await?;
                for line in adopted.next_steps() {
                    ui.note(line);
                }
            }
            return Ok(());
        }
        deployment.apply(ui, class, &compose).await.map(drop)
    }
}
