//! The lock of images, as the person who builds: every image is looked up once, and the file is written beside `bundle.yaml`.

use std::collections::BTreeMap;

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::images::{FoundImage, ImageReference, Lock, Locked, Place};
use bundle_oci::manifest::{ParsedManifest, RawManifest};
use bundle_oci::registry::{Client, Reason, RegistryError, Repository};
use futures::{StreamExt as _, stream};

use crate::content::Opened;
use crate::failure::Outcome;
use crate::ui::Ui;

/// Registries are asked for this many images at once.
const AT_ONCE: usize = 8;
/// Platforms that are written down of one image. Real ones have up to twenty.
const PLATFORMS: usize = 64;

/// Asks for the digest of every image; each is asked for once, however it is written. What is only probable, and not there, is left out with a word.
pub(crate) async fn resolve(ui: &mut Ui, client: &Client, opened: &Opened) -> Outcome<Lock> {
    let found = &opened.content.images;
    let mut wanted = BTreeMap::<String, (ImageReference, Vec<&FoundImage>)>::new();
    for one in found {
        // The names have been looked at: what cannot be read here is what only looked like an image.
        if let Ok(image) = ImageReference::parse(&one.image) {
            wanted
                .entry(image.to_string())
                .or_insert_with(|| (image, Vec::new()))
                .1
                .push(one);
        }
    }
    let progress = ui.progress(&format!("looking up {} images", wanted.len()));
    let answers: Vec<_> = stream::iter(wanted.into_values())
        .map(|(image, found)| async {
            let answer = ask(client, &image).await;
            (image, found, answer)
        })
        .buffered(AT_ONCE)
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
                    findings.push(told(one, &error));
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

async fn ask(client: &Client, image: &ImageReference) -> Result<RawManifest, RegistryError> {
    let repository = Repository::from(image.reference());
    let name = match (image.digest(), image.effective_tag()) {
        (Some(digest), _) => digest.as_str(),
        (None, tag) => tag.unwrap_or_default(),
    };
    client.raw_manifest(&repository, name).await
}

fn entry(found: &FoundImage, image: &ImageReference, answer: &RawManifest) -> Locked {
    let digest = answer.digest.clone();
    let (platforms, size) = match answer.parse() {
        Ok(ParsedManifest::Index(index)) => {
            let mut platforms: Vec<String> = index
                .manifests
                .iter()
                .filter_map(|entry| entry.platform.as_ref())
                // How attestations are put among images by some builders.
                .filter(|platform| platform.os != "unknown")
                .map(ToString::to_string)
                .collect();
            platforms.sort();
            platforms.dedup();
            platforms.truncate(PLATFORMS);
            (platforms, None)
        }
        Ok(ParsedManifest::Image(manifest)) => {
            let size = manifest
                .layers
                .iter()
                .fold(0_u64, |sum, layer| sum.saturating_add(layer.size));
            (Vec::new(), Some(size))
        }
        // Its digest is right; that some runtime reads what we do not is none of the lock's business.
        Err(_) => (Vec::new(), None),
    };
    Locked {
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
        found_in: found.places.iter().map(Place::spot).collect(),
    }
}

fn told(found: &FoundImage, error: &RegistryError) -> Finding {
    let absent =
        matches!(error.reason, Reason::NotFound) || error.finding().code == codes::registry::DENIED;
    if found.is_probable() && absent {
        let finding = Finding::warning(
            codes::images::NOT_AN_IMAGE,
            format!(
                "`{}` looks like an image, and is not locked: {}",
                found.image, error.reason
            ),
        );
        return found
            .at(finding
                .hint("if it is one, correct its name; if it is none, nothing is to be done"));
    }
    found.at(error.finding())
}
