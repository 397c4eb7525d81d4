//! Writes the lock of images. Every image is resolved once. The file is written next to
//! `bundle.yaml`.

use std::collections::BTreeMap;

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::images::{FoundImage, ImageLocation, ImageReference, Lock, LockedImage};
use bundle_oci::manifest::{ParsedManifest, RawManifest};
use bundle_oci::registry::{Client, RegistryError, RegistryErrorReason, Repository};
use futures::{StreamExt as _, stream};

use crate::artifact::folder::CheckedFolder;
use crate::failure::Outcome;
use crate::ui::Ui;

/// Maximum number of concurrent requests.
const MAX_CONCURRENT: usize = 8;
/// Maximum number of platforms that are recorded per image. Published images have at most about
/// twenty.
const MAX_PLATFORMS: usize = 64;

/// Resolves the digest of every image. For different spellings of the same image, one request is
/// sent. A probable image is a value that looks like an image reference, but may be something else.
/// If the registry does not have a probable image, it is skipped with a warning.
pub(crate) async fn resolve(ui: &mut Ui, client: &Client, opened: &CheckedFolder) -> Outcome<Lock> {
    let found = &opened.content.images;
    let mut wanted = BTreeMap::<String, (ImageReference, Vec<&FoundImage>)>::new();
    for one in found {
        // The names of all other images were checked before. Therefore a name that cannot be parsed
        // here belongs to a probable image.
        if let Ok(image) = ImageReference::parse(&one.image) {
            wanted
                .entry(image.to_string())
                .or_insert_with(|| (image, Vec::new()))
                .1
                .push(one);
        }
    }
    let progress = ui.progress(&format!("resolving {} images", wanted.len()));
    let answers: Vec<_> = stream::iter(wanted.into_values())
        .map(|(image, found)| async {
            let answer = read_manifest(client, &image).await;
            (image, found, answer)
        })
        .buffered(MAX_CONCURRENT)
        .collect()
        .await;
    drop(progress);
    let mut locked = Vec::new();
    let mut findings = Findings::default();
    for (image, found, answer) in answers {
        match answer {
            Ok(answer) => {
                locked.extend(found.into_iter().map(|one| entry(one, &image, &answer)));
            }
            Err(error) => {
                for one in found {
                    findings.push(finding_of(one, &error));
                }
            }
        }
    }
    let findings = opened.located(findings);
    if findings.has_errors() {
        return Err(findings.into());
    }
    ui.warnings(&findings);
    Ok(Lock::new(locked))
}

async fn read_manifest(
    client: &Client,
    image: &ImageReference,
) -> Result<RawManifest, RegistryError> {
    let repository = Repository::from(image.reference());
    let name = match (image.digest(), image.effective_tag()) {
        (Some(digest), _) => digest.as_str(),
        (None, tag) => tag.unwrap_or_default(),
    };
    client.raw_manifest(&repository, name).await
}

fn entry(found: &FoundImage, image: &ImageReference, answer: &RawManifest) -> LockedImage {
    let digest = answer.digest.clone();
    let (platforms, size) = match answer.parse() {
        Ok(ParsedManifest::Index(index)) => {
            let mut platforms: Vec<String> = index
                .manifests
                .iter()
                .filter_map(|entry| entry.platform.as_ref())
                // Some image builders store attestations as entries with the platform `unknown`.
                .filter(|platform| platform.os != "unknown")
                .map(ToString::to_string)
                .collect();
            platforms.sort();
            platforms.dedup();
            platforms.truncate(MAX_PLATFORMS);
            (platforms, None)
        }
        Ok(ParsedManifest::Image(manifest)) => {
            let size = manifest
                .layers
                .iter()
                .fold(0_u64, |sum, layer| sum.saturating_add(layer.size));
            (Vec::new(), Some(size))
        }
        // The digest of the manifest is known. Platforms and size are optional, so a manifest in
        // another format is not an error.
        Err(_) => (Vec::new(), None),
    };
    LockedImage {
        image: found.image.clone(),
        resolved: image
            .reference()
            .pin(digest.clone())
            .reference()
            .to_string(),
        digest,
        media_type: answer.media_type.clone(),
        platforms,
        size,
        found_in: found
            .places
            .iter()
            .map(ImageLocation::stored_location)
            .collect(),
    }
}

fn finding_of(found: &FoundImage, error: &RegistryError) -> Finding {
    let absent = matches!(error.reason, RegistryErrorReason::NotFound)
        || error.finding().code == codes::registry::DENIED;
    if found.is_probable() && absent {
        let finding = Finding::warning(
            codes::images::NOT_AN_IMAGE,
            format!(
                "`{}` may be an image, but is not locked, because the lookup failed: {}",
                found.image, error.reason
            ),
        );
        return found
            .at(finding.hint("if it is an image, correct its name; otherwise ignore this warning"));
    }
    found.at(error.finding())
}
