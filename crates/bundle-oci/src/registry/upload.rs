//! Upload of a blob: skipped if the repository has it, mounted if a repository of the same registry
//! has it, in one request otherwise, and in chunks if the registry requires them or the connection
//! broke.

use bytes::Bytes;
use reqwest::header::{HeaderMap, LOCATION, RANGE};
use reqwest::{Method, Response, StatusCode};
use url::Url;

use super::feed::Part;
use super::reach::Reach;
use super::read::said_digest;
use super::transport::{Ask, Target};
use super::{Client, Reason, RegistryError, Repository};
use crate::blob::Blob;

/// Maximum number of attempts to resume or restart an upload.
const TRIES: u32 = 5;
/// Chunk size in bytes. Smaller chunks are used if the registry or a proxy rejects this size.
const PART: u64 = 32 << 20;
const SMALL_PART: u64 = 1 << 20;
/// Maximum chunk size that a registry can request. Large chunks only increase the bytes to send
/// again after a failure.
const LARGEST_PART: u64 = 1 << 30;

const OCTETS: &str = "application/octet-stream";

/// Result of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upload {
    /// The repository has the blob: nothing was sent.
    Present,
    /// The registry mounted the blob from another repository: nothing was sent.
    Mounted,
    /// The blob was sent.
    Sent,
}

/// An open upload session.
#[derive(Debug, Clone)]
struct Begun {
    /// URL for its bytes.
    place: Url,
    /// Minimum chunk size, except for the last chunk.
    least: u64,
    /// Network zone of the registry that named the URL.
    reach: Reach,
}

impl Client {
    /// Ensures that the repository has the blob. `from` is another repository that may have it: the
    /// blob is mounted from it if it is in the same registry.
    pub async fn upload(
        &self,
        repository: &Repository,
        blob: &Blob,
        from: Option<&Repository>,
    ) -> Result<Upload, RegistryError> {
        let subject = format!("{repository}@{}", blob.descriptor.digest);
        let origin = self.origin();
        let work = origin.put_blob(repository, blob, from);
        let allowance = self.allowance(blob.descriptor.size);
        self.run("upload", &subject, allowance, work).await
    }

    /// Uploads a blob as part of a larger operation.
    pub(super) async fn put_blob(
        &self,
        repository: &Repository,
        blob: &Blob,
        from: Option<&Repository>,
    ) -> Result<Upload, Reason> {
        let descriptor = &blob.descriptor;
        if self.has_blob(repository, &descriptor.digest, true).await? {
            self.progress.spared(descriptor.size);
            return Ok(Upload::Present);
        }
        let neighbour = from
            .filter(|from| from.registry == repository.registry && from.path != repository.path);
        let begun = match neighbour {
            Some(neighbour) => match self.mount(repository, blob, neighbour).await {
                Mount::Mounted => {
                    self.progress.spared(descriptor.size);
                    return Ok(Upload::Mounted);
                }
                Mount::Begun(begun) => Some(begun),
                Mount::Refused => None,
            },
            None => None,
        };
        let begun = match begun {
            Some(begun) => Some(begun),
            None => self.begin(repository).await?,
        };
        match begun {
            Some(begun) => self.deliver(repository, blob, begun).await?,
            None => self.post_whole(repository, blob).await?,
        }
        Ok(Upload::Sent)
    }

    /// Requests a mount of the blob from another repository. Without success, the blob is sent.
    async fn mount(&self, repository: &Repository, blob: &Blob, neighbour: &Repository) -> Mount {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query
            .append_pair("mount", blob.descriptor.digest.as_str())
            .append_pair("from", &neighbour.path);
        let path = format!("blobs/uploads/?{}", query.finish());
        let ask = Ask {
            mount: Some(&neighbour.path),
            ..posting(repository, path)
        };
        match self.send(&ask).await {
            Ok(answer) if answer.status() == StatusCode::CREATED => Mount::Mounted,
            Ok(answer) => match begun(&answer, repository) {
                Ok(Some(begun)) => Mount::Begun(begun),
                _ => Mount::Refused,
            },
            Err(_) => Mount::Refused,
        }
    }

    /// Starts an upload; `None` if the response has no location.
    async fn begin(&self, repository: &Repository) -> Result<Option<Begun>, Reason> {
        let ask = posting(repository, "blobs/uploads/".to_owned());
        begun(&self.send(&ask).await?, repository)
    }

    /// Sends the blob in a single POST, for registries that do not return a location.
    async fn post_whole(&self, repository: &Repository, blob: &Blob) -> Result<(), Reason> {
        let path = format!("blobs/uploads/?digest={}", blob.descriptor.digest);
        let part = Part::whole(blob);
        let ask = Ask {
            part: Some(part.clone()),
            content: None,
            ..posting(repository, path)
        };
        let answer = self.send(&ask).await?;
        if answer.status() != StatusCode::CREATED {
            return Err(Reason::Malformed(
                "the registry names no place for an upload, and does not take one without"
                    .to_owned(),
            ));
        }
        self.confirm(repository, &part, &answer).await
    }

    /// Sends the bytes, first in a single request.
    async fn deliver(
        &self,
        repository: &Repository,
        blob: &Blob,
        begun: Begun,
    ) -> Result<(), Reason> {
        let mut delivery = Delivery {
            client: self,
            repository,
            blob,
            begun,
            way: Way::Whole,
            stored: 0,
            reached: 0,
        };
        let mut breaks = 0;
        loop {
            let reason = match delivery.attempt().await {
                Ok(()) => return Ok(()),
                Err(reason) => reason,
            };
            if delivery.other_way(&reason) {
                delivery.start_over().await?;
                continue;
            }
            breaks += 1;
            if !is_passing(&reason) || breaks > TRIES {
                return Err(reason);
            }
            tokio::time::sleep(self.deadlines.pause * breaks).await;
            if !delivery.take_up().await {
                delivery.start_over().await?;
            }
        }
    }

    /// Returns `true` if the registry has the blob it acknowledged.
    async fn confirm(
        &self,
        repository: &Repository,
        part: &Part<'_>,
        answer: &Response,
    ) -> Result<(), Reason> {
        let digest = &part.blob.descriptor.digest;
        if let Some(found) = said_digest(answer)?
            && found != *digest
        {
            return Err(Reason::DigestMismatch {
                expected: digest.clone(),
                found,
            });
        }
        let taken_at_its_word =
            answer.status() == StatusCode::CREATED && part.watch.taken() == part.length;
        if taken_at_its_word || self.has_blob(repository, digest, true).await? {
            return Ok(());
        }
        Err(Reason::Malformed(format!(
            "the registry says that it took {digest}, and does not have it"
        )))
    }
}

enum Mount {
    Mounted,
    Begun(Begun),
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One PUT.
    Whole,
    /// PATCH requests with this number of bytes, and an empty PUT.
    Parts(u64),
}

/// Upload of one blob into one repository.
struct Delivery<'a> {
    client: &'a Client,
    repository: &'a Repository,
    blob: &'a Blob,
    begun: Begun,
    way: Way,
    /// Bytes that the registry has confirmed.
    stored: u64,
    /// Bytes that the last attempt has sent.
    reached: u64,
}

impl Delivery<'_> {
    async fn attempt(&mut self) -> Result<(), Reason> {
        match self.way {
            Way::Whole => {
                let part = Part::whole(self.blob);
                let answer = self.put(Some(part.clone())).await;
                self.reached = part.watch.taken();
                self.client.confirm(self.repository, &part, &answer?).await
            }
            Way::Parts(size) => self.parts(size.max(self.begun.least)).await,
        }
    }

    async fn put(&self, part: Option<Part<'_>>) -> Result<Response, Reason> {
        let mut place = self.begun.place.clone();
        place
            .query_pairs_mut()
            .append_pair("digest", self.blob.descriptor.digest.as_str());
        let ask = Ask {
            method: Method::PUT,
            target: Target::Url(place),
            reach: self.begun.reach,
            content: part.is_none().then(|| (OCTETS, Bytes::new())),
            part,
            ..Ask::get(self.repository, String::new()).writing()
        };
        self.client.send(&ask).await
    }

    async fn parts(&mut self, size: u64) -> Result<(), Reason> {
        let whole = self.blob.descriptor.size;
        while self.stored < whole {
            let part = Part::new(self.blob, self.stored, size.min(whole - self.stored));
            let ask = Ask {
                method: Method::PATCH,
                target: Target::Url(self.begun.place.clone()),
                reach: self.begun.reach,
                part: Some(part.clone()),
                ..Ask::get(self.repository, String::new()).writing()
            };
            let answer = self.client.send(&ask).await;
            let end = part.from + part.length;
            self.reached = part.from + part.watch.taken();
            let answer = answer?;
            self.note_place(&answer)?;
            let stored = stored(answer.headers()).unwrap_or(end);
            if stored <= part.from || stored > end {
                return Err(Reason::Malformed(format!(
                    "the registry says that it has {stored} bytes of an upload, after {} were there and {end} had been sent",
                    part.from
                )));
            }
            self.client.progress.again(end - stored);
            self.stored = stored;
        }
        let answer = self.put(None).await?;
        let sent = Part::new(self.blob, whole, 0);
        self.client.confirm(self.repository, &sent, &answer).await
    }

    /// Returns `true` if the registry rejects this upload method and there is another one.
    fn other_way(&mut self, reason: &Reason) -> bool {
        let next = match (self.way, reason) {
            (
                Way::Whole,
                Reason::Refused {
                    status: 400..=418, ..
                }
                | Reason::Busy { status: 501, .. },
            ) => Way::Parts(PART),
            (Way::Parts(PART), Reason::Refused { status: 413, .. }) => Way::Parts(SMALL_PART),
            _ => return false,
        };
        self.way = next;
        true
    }

    async fn start_over(&mut self) -> Result<(), Reason> {
        self.client.progress.again(self.reached);
        (self.stored, self.reached) = (0, 0);
        self.begun = self.client.begin(self.repository).await?.ok_or_else(|| {
            Reason::Malformed("the registry names no place for an upload".to_owned())
        })?;
        Ok(())
    }

    /// Resumes after the bytes that the registry reports. Returns `false` if it does not report
    /// them.
    async fn take_up(&mut self) -> bool {
        let ask = Ask {
            target: Target::Url(self.begun.place.clone()),
            reach: self.begun.reach,
            ..Ask::get(self.repository, String::new()).writing()
        };
        let Ok(answer) = self.client.send(&ask).await else {
            return false;
        };
        // The registry cannot have more bytes than were sent. With none, a restart is as good.
        let Some(stored) =
            stored(answer.headers()).filter(|stored| (1..=self.reached).contains(stored))
        else {
            return false;
        };
        if self.note_place(&answer).is_err() {
            return false;
        }
        self.client.progress.again(self.reached - stored);
        (self.stored, self.reached) = (stored, stored);
        if self.way == Way::Whole {
            self.way = Way::Parts(PART);
        }
        true
    }

    fn note_place(&mut self, answer: &Response) -> Result<(), Reason> {
        if let Some(place) = place(answer)? {
            self.begun.place = place;
        }
        Ok(())
    }
}

fn posting(repository: &Repository, path: String) -> Ask<'_> {
    Ask {
        method: Method::POST,
        content: Some((OCTETS, Bytes::new())),
        ..Ask::get(repository, path).writing()
    }
}

/// Returns the upload session of a response.
fn begun(answer: &Response, repository: &Repository) -> Result<Option<Begun>, Reason> {
    let least = header(answer.headers(), "oci-chunk-min-length")
        .and_then(|text| text.parse().ok())
        .map_or(0, |least: u64| least.min(LARGEST_PART));
    let reach = Reach::of_answer(answer.url(), answer.remote_addr());
    if let Some(place) = place(answer)? {
        return Ok(Some(Begun {
            place,
            least,
            reach,
        }));
    }
    // Without `Location`, the URL is built from the upload's name.
    let named = header(answer.headers(), "docker-upload-uuid").filter(|name| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    });
    let place = named.and_then(|name| {
        let path = format!("/v2/{}/blobs/uploads/{name}", repository.path);
        answer.url().join(&path).ok()
    });
    Ok(place.map(|place| Begun {
        place,
        least,
        reach,
    }))
}

/// Returns the URL in `Location`, which may be relative.
fn place(answer: &Response) -> Result<Option<Url>, Reason> {
    let Some(text) = answer.headers().get(LOCATION) else {
        return Ok(None);
    };
    let place = text
        .to_str()
        .ok()
        .and_then(|text| answer.url().join(text).ok())
        .ok_or_else(|| {
            Reason::Malformed("the registry's place for an upload is no address".to_owned())
        })?;
    match (answer.url().scheme(), place.scheme()) {
        (_, "https") | ("http", "http") => Ok(Some(place)),
        _ => Err(Reason::Redirect {
            to: super::http::authority(&place),
            why: "away from TLS, for an upload",
        }),
    }
}

/// Returns the number of bytes that the registry has of an upload: `Range: 0-N`. `0-0` or a missing
/// header means none, as registries use `0-0` for both none and one.
fn stored(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(RANGE)?.to_str().ok()?.trim();
    let (first, last) = text
        .strip_prefix("bytes=")
        .unwrap_or(text)
        .split_once('-')?;
    let last: u64 = last.parse().ok()?;
    (first == "0" && last > 0).then(|| last.saturating_add(1))
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn is_passing(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Unreachable { .. }
            | Reason::Cut { .. }
            | Reason::Stalled { .. }
            | Reason::Busy { .. }
            | Reason::NotFound
    )
}
