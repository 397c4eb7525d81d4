//! Sending a blob: not at all if it is there, by a mount if it is next door, and in one stream otherwise.
//! Not here: manifests, which come last (manifests).

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::LOCATION;

use super::transport::{Ask, Target};
use super::{Client, Reason, RegistryError, Repository};
use crate::blob::Blob;

/// What became of a blob that was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upload {
    /// The repository has it: nothing was sent.
    Present,
    /// The registry has it in another repository, and shows it in this one as well: nothing was sent.
    Mounted,
    /// It was sent.
    Sent,
}

impl Client {
    /// Sees to it that the repository has the blob. `from` is another repository that may have it: in the same registry it need not be sent then.
    pub async fn upload(
        &self,
        repository: &Repository,
        blob: &Blob,
        from: Option<&Repository>,
    ) -> Result<Upload, RegistryError> {
        let subject = format!("{repository}@{}", blob.descriptor.digest);
        let work = self.put_blob(repository, blob, from);
        self.run(
            "upload",
            &subject,
            self.allowance(blob.descriptor.size),
            work,
        )
        .await
    }

    /// The same, as a part of something larger.
    pub(super) async fn put_blob(
        &self,
        repository: &Repository,
        blob: &Blob,
        _from: Option<&Repository>,
    ) -> Result<Upload, Reason> {
        let digest = &blob.descriptor.digest;
        if self.has_blob(repository, digest, true).await? {
            self.progress.spared(blob.descriptor.size);
            return Ok(Upload::Present);
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
        let bytes = blob.bytes(u64::MAX).await.map_err(Reason::Source)?;
        let upload = Ask {
            method: Method::PUT,
            target: Target::Url(place),
            content: Some(("application/octet-stream", bytes)),
            ..begin
        };
        self.send(&upload).await?;
        Ok(Upload::Sent)
    }
}
