//! Lock file: the digest of each image at the time of locking. The lock file is committed and
//! packed into the bundle.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Evidence, FoundImage, ImageReference, StoredLocation, hygiene::placed};
use crate::{
    diagnostic::{Finding, Findings, codes},
    files::Files,
    package::API_VERSION,
    reference::Digest,
    yaml,
};

/// Name of the lock file, in the same folder as `bundle.yaml`.
pub const FILE: &str = "images.lock.yaml";
/// `kind` of the lock file.
const KIND: &str = "ImageLock";
/// Comment at the top of the file.
const HEAD: &str = "# Written by `kubectl bundle build --lock`. Commit it: each build uses these digests until the file is written again.\n";
/// Hint for errors that a new lock file resolves.
const AGAIN: &str = "run `kubectl bundle build --lock`, and review the changes";

/// Digests of the images of a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lock {
    /// Images, sorted by the text in the manifests.
    pub images: Vec<LockedImage>,
}

/// Image with its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LockedImage {
    /// Image as written in the manifests.
    pub image: String,
    /// Full reference with digest: `docker.io/library/nginx:1.25@sha256:…`.
    pub resolved: String,
    /// Digest of the image. For an image with several platforms this is the digest of the index.
    pub digest: Digest,
    /// Media type of the digest's target: an index or an image manifest.
    pub media_type: String,
    /// Platforms of an index, such as `linux/amd64`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub platforms: Vec<String>,
    /// Size of the layers in bytes; `None` for an image with several platforms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Locations of the image, sorted. A location that only probably contains an image is changed
    /// only if it is in this list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found_in: Vec<StoredLocation>,
}

impl LockedImage {
    /// Parses `resolved` as a reference. Never fails for an image from [`Lock::parse`], which
    /// validates the images.
    pub fn reference(&self) -> Result<ImageReference, Finding> {
        ImageReference::parse(&self.resolved)
    }

    /// Returns `true` if the lock lists this location of the image. The locations are sorted
    /// ([`Lock::new`]).
    pub(super) fn is_found_in(&self, object: Option<&str>, field: &str) -> bool {
        let wanted = (object, field);
        self.found_in
            .binary_search_by(|stored_location| {
                (
                    stored_location.object.as_deref(),
                    stored_location.field.as_str(),
                )
                    .cmp(&wanted)
            })
            .is_ok()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    #[serde(default)]
    images: Vec<LockedImage>,
}

impl Lock {
    /// Creates a lock. Sorts the images by name, and removes images with a duplicate name.
    pub fn new(mut images: Vec<LockedImage>) -> Self {
        for image in &mut images {
            image.found_in.sort();
            image.found_in.dedup();
        }
        images.sort_by(|a, b| a.image.cmp(&b.image));
        images.dedup_by(|a, b| a.image == b.image);
        Self { images }
    }

    /// Parses the lock file and returns all errors.
    pub fn parse(text: &[u8]) -> Result<Self, Findings> {
        let bad = |why: String| {
            Finding::error(codes::images::BAD_LOCK, why)
                .in_file(FILE)
                .hint(AGAIN)
        };
        let documents = yaml::documents(text, FILE)?;
        // The values are moved into the result, and not cloned: memory is reserved for one copy.
        let Ok([only]) = <[yaml::Document; 1]>::try_from(documents) else {
            return Err(bad("the file has more than one document".to_owned()).into());
        };
        let document: Document = serde_json::from_value(only.value)
            .map_err(|error| bad(format!("invalid lock file: {error}")))?;
        let mut findings = Findings::default();
        if document.api_version != API_VERSION || document.kind != KIND {
            findings.push(bad(format!(
                "kind and apiVersion are {} and {}, but must be {KIND} and {API_VERSION}",
                document.kind, document.api_version
            )));
        }
        let mut seen = BTreeSet::new();
        for (index, locked) in document.images.iter().enumerate() {
            let mut say = |why: String| {
                findings.push(bad(why).at_field(format!("images[{index}]")));
            };
            if !seen.insert(&locked.image) {
                say(format!("`{}` appears twice", locked.image));
            }
            match ImageReference::parse(&locked.image) {
                Err(finding) => say(finding.message),
                Ok(image) => {
                    let resolved = image.reference().pin(locked.digest.clone());
                    if image
                        .digest()
                        .is_some_and(|digest| *digest != locked.digest)
                    {
                        say(format!(
                            "the digest in `{}` differs from the locked digest {}",
                            locked.image, locked.digest
                        ));
                    } else if resolved.reference().to_string() != locked.resolved {
                        say(format!(
                            "`{}` has resolved `{}`, but must have `{}`",
                            locked.image,
                            locked.resolved,
                            resolved.reference()
                        ));
                    }
                }
            }
        }
        if findings.has_errors() {
            return Err(findings);
        }
        Ok(Self::new(document.images))
    }

    /// Returns the text of the file. Equal locks have equal texts.
    pub fn to_yaml(&self) -> String {
        let document = Document {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            images: self.images.clone(),
        };
        format!("{HEAD}{}", yaml::write(&document))
    }

    /// Returns the entry for `image`, a reference as written in the manifests. Returns `None` if
    /// the lock does not contain the image.
    pub fn get(&self, image: &str) -> Option<&LockedImage> {
        let found = self
            .images
            .binary_search_by(|locked| locked.image.as_str().cmp(image));
        self.images.get(found.ok()?)
    }

    /// Returns the differences between the lock and the images that were found: images without a
    /// digest, and digests without an image. `build` rejects a bundle with differences. An
    /// installation ignores differences, because another version of this program may find other
    /// images than the version that built the bundle.
    pub fn differences(&self, found: &[FoundImage]) -> Findings {
        let mut findings = Findings::default();
        let mut used = BTreeSet::new();
        for one in found {
            let Some(locked) = self.get(&one.image) else {
                if !one.is_probable() {
                    let finding = Finding::error(
                        codes::images::NOT_LOCKED,
                        format!("{FILE} has no digest for `{}`", one.image),
                    );
                    findings.push(one.at(finding.hint(AGAIN)));
                }
                continue;
            };
            used.insert(&locked.image);
            let unlisted: Vec<_> = one
                .places
                .iter()
                .filter(|place| {
                    place.evidence != Evidence::Field
                        && !locked.is_found_in(place.object.as_deref(), &place.field.to_string())
                })
                .cloned()
                .collect();
            if !unlisted.is_empty() {
                let finding = Finding::error(
                    codes::images::NOT_LOCKED,
                    format!(
                        "{FILE} has a digest for `{}`, but does not list this field, so the field \
                        would keep the tag",
                        one.image
                    ),
                );
                findings.push(placed(finding.hint(AGAIN), &unlisted));
            }
        }
        for locked in &self.images {
            if !used.contains(&locked.image) {
                findings.push(
                    Finding::error(
                        codes::images::UNKNOWN_LOCKED,
                        format!(
                            "no manifest uses `{}`, which has a digest in the lock file",
                            locked.image
                        ),
                    )
                    .in_file(FILE)
                    .hint(AGAIN),
                );
            }
        }
        findings
    }
}

/// Returns all images in the lock of a bundle, for copying and saving. `resolved` is the reference
/// to pull. Returns an empty list if there is no lock.
pub fn locked(files: &Files) -> Result<Vec<LockedImage>, Findings> {
    match files.get(FILE) {
        Some(text) => Ok(Lock::parse(text)?.images),
        None => Ok(Vec::new()),
    }
}

/// Returns the annotation of the OCI manifest with all `resolved` references as a compact JSON
/// list. Returns an empty map if the list is longer than 16 KiB.
pub fn annotation(lock: &Lock) -> BTreeMap<String, String> {
    let resolved: Vec<&str> = lock
        .images
        .iter()
        .map(|locked| locked.resolved.as_str())
        .collect();
    serde_json::to_string(&resolved)
        .ok()
        .filter(|text| text.len() <= MAX_ANNOTATION)
        .map(|text| (ANNOTATION.to_owned(), text))
        .into_iter()
        .collect()
}

/// Key of the annotation that lists the images.
pub const ANNOTATION: &str = "io.rukpak.core.bundle.images";
/// Maximum size of the annotation in bytes: about 80 images. Longer lists are only in the lock
/// file.
const MAX_ANNOTATION: usize = 16 << 10;
