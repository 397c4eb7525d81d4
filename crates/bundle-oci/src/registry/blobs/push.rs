//! Push of a bundle. Missing blobs are sent first, and the manifest is sent last. Therefore a tag
//! never refers to an incomplete image.

use bundle_core::reference::{PinnedReference, Reference};

use crate::manifest::RawManifest;
use crate::pack::PackedImage;
use crate::registry::{Client, RegistryError, RegistryErrorReason, Repository};

/// Behavior for a tag that already refers to other content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagPolicy {
    /// Return an error.
    Keep,
    /// Move the tag to the new content.
    Move,
}

/// Result of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// Pushed content with its digest.
    pub pinned: PinnedReference,
    /// `true` if the push changed the registry; `false` if the registry already had this content
    /// under this tag.
    pub new: bool,
}

impl Client {
    /// Pushes `packed` to `to`. Without a tag in `to`, the manifest is pushed only by its digest.
    /// Fails if `to` has a digest that differs from the digest of `packed`.
    pub async fn push(
        &self,
        packed: &PackedImage,
        to: &Reference,
        tags: TagPolicy,
    ) -> Result<Pushed, RegistryError> {
        let origin = self.origin();
        self.run("push", to, self.deadlines.transfer, async {
            if let Some(named) = to.digest().filter(|named| **named != packed.digest) {
                return Err(RegistryErrorReason::DigestMismatch {
                    expected: named.clone(),
                    found: packed.digest.clone(),
                });
            }
            let repository = &Repository::from(to);
            let pinned = to.pin(packed.digest.clone());
            let name = to.tag().unwrap_or(packed.digest.as_str());
            let there = origin.head_manifest(repository, name).await?;
            match there {
                Some(found) if found == packed.digest => {
                    return Ok(Pushed { pinned, new: false });
                }
                Some(found) if tags == TagPolicy::Keep => {
                    return Err(RegistryErrorReason::TagTaken { found });
                }
                _ => {}
            }
            for blob in packed.blobs() {
                origin.put_blob(repository, blob, None).await?;
            }
            origin
                .put_manifest(repository, name, &RawManifest::from(&packed.manifest))
                .await?;
            Ok(Pushed { pinned, new: true })
        })
        .await
    }
}
