//! `diff`: prints the changes of an upgrade, or the drift of the installed objects.

mod arguments;

use bundle_api::BundleDeployment;

use super::preview::source::PreviewSource;
use super::preview::{self, PreviewOutput};
use super::revisions;
use crate::artifact::location::ArtifactLocation;
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::registry::RegistrySettings;
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// Settings of `diff`.
pub(crate) struct Diff {
    /// Name of the BundleDeployment.
    pub(crate) name: String,
    /// Location of the content; `None` means the content of the current template.
    pub(crate) location: Option<ArtifactLocation>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
    /// Output settings.
    pub(crate) output: PreviewOutput,
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
}

impl Diff {
    /// Prints the preview. The exit codes are the same as for `kubectl diff`.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        match Box::pin(self.print(ui)).await {
            Ok(false) => Ok(()),
            Ok(true) => Err(Failure::Reported(Exit::Different)),
            // Exit code 1 means that there are differences, so a failure with exit code 1 gets exit
            // code 2.
            Err(failure) if failure.exit() == Exit::Failed => {
                ui.failure(&failure);
                Err(Failure::Reported(Exit::Usage))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Prints the preview. Returns `true` if there are differences.
    async fn print(&self, ui: &mut Ui) -> Outcome<bool> {
        let cluster = Cluster::connect(&self.cluster).await?;
        let Some(object) = cluster.read::<BundleDeployment>(&self.name).await? else {
            return Err(revisions::not_found(&self.name));
        };
        let item: BundleDeployment = serde_json::from_value(object.clone()).unwrap_or_default();
        let location = self.location.as_ref();
        let source = PreviewSource::find(ui, &cluster, &item, location, &self.registry).await?;
        let preview = preview::preview(ui, &cluster, &object, &source.content()).await?;
        for warning in cluster.take_warnings() {
            ui.server_warning(&warning);
        }
        preview.print(ui, &self.output)?;
        Ok(!preview.is_empty())
    }
}
