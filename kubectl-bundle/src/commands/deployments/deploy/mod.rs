//! `deploy`: creates or updates a BundleDeployment with the Bundle in its template.

mod arguments;

use serde_json::Value;

use super::bundle_spec::{BundleContent, ResolvedImage};
use super::deployment::DeploymentWrite;
use super::preview::{self, Preview, PreviewOutput, PreviewedContent};
use super::write::WriteOutcome;
use crate::artifact::location::ArtifactLocation;
use crate::cluster::apply::DryRun;
use crate::failure::Outcome;
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// Settings of `deploy`.
pub(crate) struct Deploy {
    /// Content.
    pub(crate) content: BundleContent,
    /// Settings of the BundleDeployment.
    pub(crate) deployment: DeploymentWrite,
    /// Output settings of the preview, if one is requested.
    pub(crate) show: Option<PreviewOutput>,
}

impl Deploy {
    /// Pins the reference, applies the object, prints the result, and waits if requested.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let (content, deployment) = (&self.content, &self.deployment);
        let described = content.describe(ui).await?;
        let compose = async |before: Option<&Value>, spec: &mut Value| {
            content
                .set_template(&described, &deployment.name, before, spec)
                .await
        };
        let class = content.class.as_deref();
        let written = deployment.apply(ui, class, compose).await?;
        match (written, &self.show) {
            (Some(written), _) if deployment.write.dry_run == DryRun::None => {
                deployment.wait(ui, &written).await
            }
            (Some(written), Some(output)) => {
                Box::pin(self.preview(ui, &described, output, &written)).await
            }
            _ => Ok(()),
        }
    }

    /// Prints the changes of the objects that this write would install.
    async fn preview(
        &self,
        ui: &mut Ui,
        described: &ResolvedImage,
        output: &PreviewOutput,
        written: &WriteOutcome,
    ) -> Outcome {
        let preview = preview_content(ui, &self.content, described, written).await?;
        preview.print(ui, output)
    }
}

/// Returns the preview of the content for a BundleDeployment that was written as a dry run.
pub(super) async fn preview_content(
    ui: &mut Ui,
    content: &BundleContent,
    described: &ResolvedImage,
    written: &WriteOutcome,
) -> Outcome<Preview> {
    let location = ArtifactLocation::Registry(described.reference(&content.reference));
    let content = PreviewedContent {
        location: &location,
        registry: &content.registry,
        is_installed: false,
    };
    let (cluster, object) = (&written.cluster, &written.applied.after);
    let preview = preview::preview(ui, cluster, object, &content).await?;
    for warning in cluster.take_warnings() {
        ui.server_warning(&warning);
    }
    Ok(preview)
}
