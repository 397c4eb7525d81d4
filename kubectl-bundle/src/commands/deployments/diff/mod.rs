//! `diff`: prints the changes of an upgrade, or the drift of the installed objects.

mod arguments;

use bundle_api::{BundleDeployment, names};
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Reference;

use super::preview::{self, PreviewOutput, PreviewedContent};
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
        let location = match &self.location {
            Some(location) => location.clone(),
            None => ArtifactLocation::Registry(current(ui, &cluster, &item).await?),
        };
        let registry = self.registry.clone();
        let content = PreviewedContent {
            registry: &match &location {
                ArtifactLocation::Registry(reference) => registry.of(reference),
                _ => registry,
            },
            is_installed: is_installed(&location, &item),
            location: &location,
        };
        let preview = preview::preview(ui, &cluster, &object, &content).await?;
        for warning in cluster.take_warnings() {
            ui.server_warning(&warning);
        }
        preview.print(ui, &self.output)?;
        Ok(!preview.is_empty())
    }
}

/// Returns `true` if the content at `location` is known to be installed.
fn is_installed(location: &ArtifactLocation, item: &BundleDeployment) -> bool {
    let ArtifactLocation::Registry(reference) = location else {
        return false;
    };
    let installed = item
        .status
        .as_ref()
        .and_then(|status| status.installed.as_ref());
    reference
        .digest()
        .zip(installed)
        .is_some_and(|(digest, installed)| digest.as_str() == installed.digest)
}

/// Returns the image of the current template. A tag is pinned to the digest that the webhook
/// unpacked.
async fn current(ui: &mut Ui, cluster: &Cluster, item: &BundleDeployment) -> Outcome<Reference> {
    let source = &item.spec.template.spec.source;
    let Some(image) = &source.image else {
        return Err(Finding::error(
            codes::cluster::CONTENT_NOT_READABLE,
            format!(
                "the template has a source of type {}, whose content only the webhook reads",
                source.kind
            ),
        )
        .hint("name the content as an argument: a reference, or a folder with the same files")
        .into());
    };
    let reference: Reference = image.reference.parse()?;
    if reference.digest().is_some() {
        return Ok(reference);
    }
    let bundles = revisions::bundles(cluster, item).await?;
    let unpacked = bundles.iter().find_map(|bundle| {
        let content = bundle.status.as_ref()?.content.as_ref()?;
        (bundle.spec == item.spec.template.spec).then(|| content.digest.clone())
    });
    if let Some(Ok(digest)) = unpacked.map(|digest| digest.parse()) {
        return Ok(reference.pin(digest).reference().clone());
    }
    ui.note(format!(
        "{reference} is not unpacked yet: the tag may move before the content is unpacked ({} \
        shows the state)",
        names::condition::UNPACKED
    ));
    Ok(reference)
}
