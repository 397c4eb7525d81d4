//! Pushing a bundle: what is missing, and the manifest last, so that a name never points at half of it.
//! Not here: signatures (referrers).

use bundle_core::reference::{PinnedReference, Reference};
use bytes::Bytes;
use reqwest::Method;
use reqwest::header::LOCATION;

use super::read::said_digest;
use super::transport::{Ask, Target};
use super::{Client, Reason, RegistryError, Repository};
use crate::manifest::Manifest;
use crate::pack::{Blob, Packed};

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
        self.run("push", to, self.deadlines.transfer, async {
            if let Some(named) = to.digest().filter(|named| **named != packed.digest) {
                return Err(Reason::DigestMismatch {
                    expected: named.clone(),
                    found: packed.digest.clone(),
                });
            }
            let repository = Repository::from(to);
            let pinned = to.pin(packed.digest.clone());
            let name = to.tag().unwrap_or(packed.digest.as_str());
            let there = self.head_manifest(repository, name).await?;
            match there {
                Some(found) if found == packed.digest => {
                    return Ok(Pushed { pinned, new: false });
                }
                Some(found) if tags == TagPolicy::Keep => return Err(Reason::TagTaken { found }),
                _ => {}
            }
            for blob in packed.blobs() {
                self.put_blob(repository, blob).await?;
            }
            self.put_manifest(repository, name, &packed.manifest)
                .await?;
            Ok(Pushed { pinned, new: true })
        })
        .await
    }

    /// Uploads a blob that is not there yet, in one piece.
    pub(super) async fn put_blob(
        &self,
        repository: Repository<'_>,
        blob: &Blob,
    ) -> Result<(), Reason> {
        let digest = &blob.descriptor.digest;
        let ask = Ask::head(repository, format!("blobs/{digest}")).writing();
        match self.send(&ask).await {
            Ok(_) => return Ok(()),
            Err(Reason::NotFound) => {}
            Err(reason) => return Err(reason),
        }
        let begin = Ask {
            method: Method::POST,
            content: Some(("application/octet-stream", Bytes::new())),
            ..Ask::get(repository, "blobs/uploads/".to_owned()).writing()
        };
        let answer = self.send(&begin).await?;
        let mut place = answer
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| answer.url().join(text).ok())
            .ok_or_else(|| {
                Reason::Malformed("the registry names no place for an upload".to_owned())
            })?;
        if answer.url().scheme() == "https" && place.scheme() != "https" {
            return Err(Reason::Redirect {
                to: super::http::authority(&place),
                why: "away from TLS, for an upload",
            });
        }
        place
            .query_pairs_mut()
            .append_pair("digest", digest.as_str());
        let upload = Ask {
            method: Method::PUT,
            target: Target::Url(place),
            content: Some(("application/octet-stream", blob.bytes.clone())),
            ..begin
        };
        self.send(&upload).await?;
        Ok(())
    }

    /// Writes a manifest under a tag or its digest, and looks at what the registry makes of it.
    pub(super) async fn put_manifest(
        &self,
        repository: Repository<'_>,
        name: &str,
        manifest: &Manifest,
    ) -> Result<reqwest::Response, Reason> {
        let ask = Ask {
            method: Method::PUT,
            content: Some((&manifest.media_type, manifest.bytes.clone())),
            ..Ask::get(repository, format!("manifests/{name}")).writing()
        };
        let response = self.send(&ask).await?;
        match said_digest(&response)? {
            Some(found) if found != manifest.digest => Err(Reason::DigestMismatch {
                expected: manifest.digest.clone(),
                found,
            }),
            _ => Ok(response),
        }
    }
}
