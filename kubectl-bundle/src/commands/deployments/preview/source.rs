//! Location of the content to preview for an existing BundleDeployment: an argument of the command,
//! or the image of the current template.

use bundle_api::{BundleDeployment, names};
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::{Digest, Reference};

use super::PreviewedContent;
use crate::artifact::location::ArtifactLocation;
use crate::cluster::Cluster;
use crate::commands::deployments::revisions;
use crate::failure::Outcome;
use crate::registry::RegistrySettings;
use crate::ui::Ui;

/// Location of content with the settings to read it.
pub(in super::super) struct PreviewSource {
    /// Location.
    pub(in super::super) location: ArtifactLocation,
    /// Registry settings.
    registry: RegistrySettings,
    /// `true` if this content is known to be installed.
    is_installed: bool,
}

impl PreviewSource {
    /// Returns the source for `location`. For `None`, returns the source of the current template.
    pub(in super::super) async fn find(
        ui: &mut Ui,
        cluster: &Cluster,
        item: &BundleDeployment,
        location: Option<&ArtifactLocation>,
        registry: &RegistrySettings,
    ) -> Outcome<Self> {
        let location = match location {
            Some(location) => location.clone(),
            None => ArtifactLocation::Registry(current(ui, cluster, item).await?),
        };
        let registry = registry.clone();
        Ok(Self {
            registry: match &location {
                ArtifactLocation::Registry(reference) => registry.of(reference),
                _ => registry,
            },
            is_installed: is_installed(&location, item),
            location,
        })
    }

    /// Returns the content for a preview.
    pub(in super::super) fn content(&self) -> PreviewedContent<'_> {
        PreviewedContent {
            location: &self.location,
            registry: &self.registry,
            is_installed: self.is_installed,
        }
    }

    /// Pins a tag to its current digest.
    pub(in super::super) async fn pin(&mut self, ui: &mut Ui) -> Outcome {
        if let ArtifactLocation::Registry(reference) = &self.location
            && reference.digest().is_none()
        {
            let client = crate::registry::client(&self.registry)?;
            let pinned = crate::registry::pin(ui, &client, reference).await?;
            self.location = ArtifactLocation::Registry(pinned.reference().clone());
        }
        Ok(())
    }

    /// Returns the digest of the content, if the location of the content contains a digest.
    pub(in super::super) fn digest(&self) -> Option<&str> {
        match &self.location {
            ArtifactLocation::Registry(reference) => reference.digest().map(Digest::as_str),
            _ => None,
        }
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

/// Returns the image of the current template. A tag is pinned to the digest that bundle-webhook
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
        "{reference} is not unpacked yet: the tag may move until it is unpacked (see condition {})",
        names::condition::UNPACKED
    ));
    Ok(reference)
}
