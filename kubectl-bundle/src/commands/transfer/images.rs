//! Container images of a package, from its lock file.

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format;
use bundle_core::images;
use bundle_core::reference::Reference;
use bundle_oci::Limits;
use bundle_oci::registry::Client;
use bundle_oci::store::LocatedImage;

use crate::failure::Outcome;
use crate::ui::Ui;

/// Returns every image of the package, without duplicates. Each image is read from its registry by
/// the digest in the lock.
pub(crate) async fn of(
    ui: &mut Ui,
    client: &Client,
    package: &LocatedImage,
) -> Outcome<Vec<LocatedImage>> {
    let references = references(ui, package).await?;
    let mut images: Vec<LocatedImage> = Vec::new();
    for reference in references {
        let _progress = ui.progress(&format!("reading {reference}"));
        images.push(LocatedImage::reference(client, &reference).await?);
    }
    Ok(images)
}

async fn references(ui: &mut Ui, package: &LocatedImage) -> Outcome<Vec<Reference>> {
    let called = package
        .origin
        .as_ref()
        .map_or_else(|| package.root.digest.to_string(), ToString::to_string);
    let files = {
        let _progress = ui.progress(&format!("reading {called}"));
        package.files(&Limits::default()).await?
    };
    if !files.contains_key(images::LOCK_FILE) {
        // A chart that is not rendered may reference any image.
        if format::read(&files).is_ok_and(|content| content.images.is_empty()) {
            ui.note(format!("{called} has no images"));
            return Ok(Vec::new());
        }
        return Err(Finding::error(
            codes::registry::NO_LOCK,
            format!(
                "the package has no {}, so its images are unknown",
                images::LOCK_FILE
            ),
        )
        .about(called)
        .hint("build the package with `kubectl bundle build --lock`, or pass its images separately")
        .into());
    }
    let mut references: Vec<Reference> = Vec::new();
    for image in images::locked(&files)? {
        let reference = image.reference()?.reference().clone();
        let pinned = reference.pin(image.digest).reference().clone();
        if !references.contains(&pinned) {
            references.push(pinned);
        }
    }
    Ok(references)
}
