//! Container images of a package, from its lock file.

use std::collections::BTreeSet;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format;
use bundle_core::images;
use bundle_core::reference::{Reference, canonical_registry};
use bundle_oci::Limits;
use bundle_oci::registry::Client;
use bundle_oci::store::LocatedImage;

use crate::failure::Outcome;
use crate::ui::Ui;

/// Returns every image of the package, without duplicates. Each image is read from its registry by
/// the digest in the lock, with the credentials of the user. The author of the package chooses the
/// images. Therefore a note names each registry that is not the registry of the package.
pub(crate) async fn of(
    ui: &mut Ui,
    client: &Client,
    package: &LocatedImage,
) -> Outcome<Vec<LocatedImage>> {
    let references = references(ui, package).await?;
    for registry in other_registries(package.origin.as_ref(), &references) {
        ui.note(format!(
            "the lock file lists images of {registry}: they are read with your credentials for this registry, if any"
        ));
    }
    let mut images: Vec<LocatedImage> = Vec::new();
    for reference in references {
        let _progress = ui.progress(&format!("reading {reference}"));
        images.push(LocatedImage::reference(client, &reference).await?);
    }
    Ok(images)
}

/// Returns the registries of `images`, without the registry of the package.
fn other_registries<'a>(package: Option<&Reference>, images: &'a [Reference]) -> BTreeSet<&'a str> {
    let own = package.map(|package| canonical_registry(package.registry()));
    let registries = images.iter().map(Reference::registry);
    registries
        .filter(|registry| own != Some(canonical_registry(registry)))
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_of_images_are_named_once_without_the_registry_of_the_package() {
        let images = [
            "registry.example.com/base/app:1",
            "Registry.example.com:443/base/app:2",
            "private.example.com/team/secret:1",
            "private.example.com/team/other:1",
            "localhost:5000/app:1",
        ];
        let images = images.map(|image| image.parse::<Reference>().unwrap());
        let package: Reference = "registry.example.com/team/web:1.4.0".parse().unwrap();
        let found = other_registries(Some(&package), &images);
        assert_eq!(found, ["localhost:5000", "private.example.com"].into());
        assert_eq!(other_registries(None, &images).len(), 4);
    }
}
