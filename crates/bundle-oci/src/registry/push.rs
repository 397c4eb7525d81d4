//! Pushing a bundle: what is missing, and the manifest last, so that a name never points at half of it.
//! Not here: signatures (referrers).

use bundle_core::reference::{PinnedReference, Reference};

use super::{Client, Reason, RegistryError, Repository};
use crate::manifest::RawManifest;
use crate::pack::Packed;

/// What to do with a tag that names other content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagPolicy {
    /// Refuse: what a tag means does not change by accident.
    Keep,
    /// Let the tag name the new content.
    Move,
}

/// What a push did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// The content under its name.
    pub pinned: PinnedReference,
    /// Whether anything changed; `false` if the registry had this very content under this name.
    pub new: bool,
}

impl Client {
    /// Pushes `packed` to where `to` says: under its tag, and under its digest if it names one (which has to be that of `packed`).
    pub async fn push(
        &self,
        packed: &Packed,
        to: &Reference,
        tags: TagPolicy,
    ) -> Result<Pushed, RegistryError> {
        let origin = self.origin();
        self.run("push", to, self.deadlines.transfer, async {
            if let Some(named) = to.digest().filter(|named| **named != packed.digest) {
                return Err(Reason::DigestMismatch {
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
                Some(found) if tags == TagPolicy::Keep => return Err(Reason::TagTaken { found }),
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
