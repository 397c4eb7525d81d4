//! Selection of a single image: the manifest itself, or the entry of an index for a platform.

use bundle_core::diagnostic::{Finding, codes};
use bundle_oci::manifest::{Manifest, ParsedManifest, Platform, RawManifest};
use bundle_oci::store::LocatedImage;

use crate::failure::Outcome;

/// Maximum depth of nested indexes.
const DEPTH: usize = 3;

/// Returns the manifest of a single image. From an index, selects the entry for `platform`.
pub(crate) async fn select_manifest(
    located: &LocatedImage,
    platform: Option<&Platform>,
) -> Outcome<Manifest> {
    let mut raw: RawManifest = located.root.clone();
    for _ in 0..=DEPTH {
        let parsed = raw.parse().map_err(|why| {
            Finding::error(
                codes::registry::MALFORMED,
                format!("{} is invalid: {why}", raw.digest),
            )
            .hint("push it again")
        })?;
        let index = match parsed {
            ParsedManifest::Image(manifest) => return Ok(*manifest),
            ParsedManifest::Index(index) => index,
        };
        let named: Vec<String> = index
            .manifests
            .iter()
            .filter_map(|entry| entry.platform.as_ref().map(ToString::to_string))
            .collect();
        let fits = |entry: &&bundle_oci::manifest::Descriptor| {
            platform.is_some_and(|wanted| {
                entry
                    .platform
                    .as_ref()
                    .is_some_and(|own| own.matches(wanted))
            })
        };
        let Some(entry) = index.manifests.iter().find(fits) else {
            let what = match platform {
                Some(platform) => format!("{} has no image for {platform}", raw.digest),
                None => format!("{} is an index of several images", raw.digest),
            };
            return Err(Finding::error(codes::registry::WRONG_MEDIA_TYPE, what)
                .hint(if named.is_empty() {
                    "select one of its images by digest".to_owned()
                } else {
                    format!("select one with --platform: {}", named.join(", "))
                })
                .into());
        };
        raw = located.source.manifest(entry).await?.ok_or_else(|| {
            Finding::error(
                codes::registry::NOT_FOUND,
                format!("{} is missing in the source", entry.digest),
            )
            .hint("the source is incomplete: copy it again from its origin")
        })?;
    }
    Err(Finding::error(
        codes::registry::TOO_LARGE,
        format!("indexes are nested more than {DEPTH} deep"),
    )
    .hint("select the image by its own digest")
    .into())
}
