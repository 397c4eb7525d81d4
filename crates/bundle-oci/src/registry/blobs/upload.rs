//! Upload of a blob. If the repository has the blob, the upload is skipped. If another repository
//! of the same registry has the blob, the client requests a mount of the blob. Otherwise the blob
//! is sent in one request. The blob is sent in chunks if the registry requires chunks, or after a
//! connection broke.

use bytes::Bytes;
use reqwest::header::{HeaderMap, LOCATION, RANGE};
use reqwest::{Method, Response, StatusCode};

use crate::blob::Blob;
use crate::registry::http::body::BlobPart;
use crate::registry::manifests::read::declared_digest;
use crate::registry::retry::TRANSFER_RETRIES;
use crate::registry::transport::{ReceivedUrl, RegistryRequest, RequestTarget};
use crate::registry::{Client, RegistryError, RegistryErrorReason, Repository};

/// Chunk size in bytes. Smaller chunks are used if the registry or a proxy rejects this size.
const CHUNK_BYTES: u64 = 32 << 20;
const SMALL_CHUNK_BYTES: u64 = 1 << 20;
/// Maximum chunk size that a registry can request. Large chunks only increase the bytes to send
/// again after a failure.
const MAX_CHUNK_BYTES: u64 = 1 << 30;

const OCTET_STREAM: &str = "application/octet-stream";

/// Result of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadResult {
    /// The repository has the blob, so the blob was not sent.
    Present,
    /// The registry mounted the blob from another repository, so the blob was not sent.
    Mounted,
    /// The blob was sent.
    Sent,
}

/// An open upload session.
#[derive(Debug, Clone)]
struct UploadSession {
    /// URL for the bytes of the upload.
    location: ReceivedUrl,
    /// Minimum chunk size, except for the last chunk.
    min_chunk: u64,
}

impl Client {
    /// Uploads the blob if the repository does not have it. `from` is another repository that may
    /// have the blob. If it is in the same registry, the client requests a mount instead of sending
    /// the bytes.
    pub async fn upload(
        &self,
        repository: &Repository,
        blob: &Blob,
        from: Option<&Repository>,
    ) -> Result<UploadResult, RegistryError> {
        let subject = format!("{repository}@{}", blob.descriptor.digest);
        let origin = self.origin();
        let work = origin.put_blob(repository, blob, from);
        let allowance = self.allowance(blob.descriptor.size);
        self.run("upload", &subject, allowance, work).await
    }

    /// Does the same as [`Self::upload`]. The caller sets the deadline for its whole operation.
    pub(in crate::registry) async fn put_blob(
        &self,
        repository: &Repository,
        blob: &Blob,
        from: Option<&Repository>,
    ) -> Result<UploadResult, RegistryErrorReason> {
        let descriptor = &blob.descriptor;
        if self.has_blob(repository, &descriptor.digest, true).await? {
            self.progress.skipped(descriptor.size);
            return Ok(UploadResult::Present);
        }
        let neighbour = from
            .filter(|from| from.registry == repository.registry && from.path != repository.path);
        let session = match neighbour {
            Some(neighbour) => match self.mount(repository, blob, neighbour).await {
                MountResult::Mounted => {
                    self.progress.skipped(descriptor.size);
                    return Ok(UploadResult::Mounted);
                }
                MountResult::UploadSession(session) => Some(session),
                MountResult::Refused => None,
            },
            None => None,
        };
        let session = match session {
            Some(session) => Some(session),
            None => self.start_session(repository).await?,
        };
        match session {
            Some(session) => self.send_blob(repository, blob, session).await?,
            None => self.post_monolithic(repository, blob).await?,
        }
        Ok(UploadResult::Sent)
    }

    /// Requests a mount of the blob from another repository. If the registry does not mount the
    /// blob, the caller sends the blob.
    async fn mount(
        &self,
        repository: &Repository,
        blob: &Blob,
        neighbour: &Repository,
    ) -> MountResult {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query
            .append_pair("mount", blob.descriptor.digest.as_str())
            .append_pair("from", &neighbour.path);
        let path = format!("blobs/uploads/?{}", query.finish());
        let ask = RegistryRequest {
            mount: Some(&neighbour.path),
            ..post_request(repository, path)
        };
        match self.send(&ask).await {
            Ok(answer) if answer.status() == StatusCode::CREATED => MountResult::Mounted,
            Ok(answer) => match session_of(&answer, repository) {
                Ok(Some(session)) => MountResult::UploadSession(session),
                _ => MountResult::Refused,
            },
            Err(_) => MountResult::Refused,
        }
    }

    /// Starts an upload; `None` if the response has no location.
    async fn start_session(
        &self,
        repository: &Repository,
    ) -> Result<Option<UploadSession>, RegistryErrorReason> {
        let ask = post_request(repository, "blobs/uploads/".to_owned());
        session_of(&self.send(&ask).await?, repository)
    }

    /// Sends the blob in a single POST, for registries that do not return a location.
    async fn post_monolithic(
        &self,
        repository: &Repository,
        blob: &Blob,
    ) -> Result<(), RegistryErrorReason> {
        let path = format!("blobs/uploads/?digest={}", blob.descriptor.digest);
        let part = BlobPart::whole(blob);
        let ask = RegistryRequest {
            part: Some(part.clone()),
            content: None,
            ..post_request(repository, path)
        };
        let answer = self.send(&ask).await?;
        if answer.status() != StatusCode::CREATED {
            return Err(RegistryErrorReason::Malformed(
                "the registry returned no upload location, and rejects an upload in a single request"
                    .to_owned(),
            ));
        }
        self.verify_stored(repository, &part, &answer).await
    }

    /// Sends the bytes. The first attempt is a single request.
    async fn send_blob(
        &self,
        repository: &Repository,
        blob: &Blob,
        session: UploadSession,
    ) -> Result<(), RegistryErrorReason> {
        let mut upload = BlobUpload {
            client: self,
            repository,
            blob,
            session,
            method: UploadMethod::Monolithic,
            stored: 0,
            sent_end: 0,
        };
        let mut breaks = 0;
        loop {
            let reason = match upload.attempt().await {
                Ok(()) => return Ok(()),
                Err(reason) => reason,
            };
            if upload.switch_method(&reason) {
                upload.start_over().await?;
                continue;
            }
            breaks += 1;
            if !is_passing(&reason) || breaks > TRANSFER_RETRIES {
                return Err(reason);
            }
            tokio::time::sleep(self.deadlines.transfer_pause(breaks)).await;
            if !upload.resume().await {
                upload.start_over().await?;
            }
        }
    }

    /// Returns an error if the registry does not have the blob after the upload, or if the registry
    /// returned another digest.
    async fn verify_stored(
        &self,
        repository: &Repository,
        part: &BlobPart<'_>,
        answer: &Response,
    ) -> Result<(), RegistryErrorReason> {
        let digest = &part.blob.descriptor.digest;
        if let Some(found) = declared_digest(answer)?
            && found != *digest
        {
            return Err(RegistryErrorReason::DigestMismatch {
                expected: digest.clone(),
                found,
            });
        }
        let is_acknowledged =
            answer.status() == StatusCode::CREATED && part.watch.taken() == part.length;
        if is_acknowledged || self.has_blob(repository, digest, true).await? {
            return Ok(());
        }
        Err(RegistryErrorReason::Malformed(format!(
            "the registry accepted {digest}, but does not have it"
        )))
    }
}

enum MountResult {
    Mounted,
    UploadSession(UploadSession),
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UploadMethod {
    /// One PUT request with the whole blob.
    Monolithic,
    /// PATCH requests with this number of bytes each, and then an empty PUT.
    Chunked(u64),
}

/// Upload of one blob into one repository.
struct BlobUpload<'a> {
    client: &'a Client,
    repository: &'a Repository,
    blob: &'a Blob,
    session: UploadSession,
    method: UploadMethod,
    /// Number of bytes that the registry has confirmed.
    stored: u64,
    /// Offset after the last byte that was sent.
    sent_end: u64,
}

impl BlobUpload<'_> {
    async fn attempt(&mut self) -> Result<(), RegistryErrorReason> {
        match self.method {
            UploadMethod::Monolithic => {
                let part = BlobPart::whole(self.blob);
                let answer = self.put(Some(part.clone())).await;
                self.sent_end = part.watch.taken();
                self.client
                    .verify_stored(self.repository, &part, &answer?)
                    .await
            }
            UploadMethod::Chunked(size) => self.chunks(size.max(self.session.min_chunk)).await,
        }
    }

    async fn put(&self, part: Option<BlobPart<'_>>) -> Result<Response, RegistryErrorReason> {
        let mut location = self.session.location.clone();
        location.add_parameter("digest", self.blob.descriptor.digest.as_str());
        let ask = RegistryRequest {
            method: Method::PUT,
            target: RequestTarget::Url(location),
            content: part.is_none().then(|| (OCTET_STREAM, Bytes::new())),
            part,
            ..RegistryRequest::get(self.repository, String::new()).writing()
        };
        self.client.send(&ask).await
    }

    async fn chunks(&mut self, size: u64) -> Result<(), RegistryErrorReason> {
        let whole = self.blob.descriptor.size;
        while self.stored < whole {
            let part = BlobPart::new(self.blob, self.stored, size.min(whole - self.stored));
            let ask = RegistryRequest {
                method: Method::PATCH,
                target: RequestTarget::Url(self.session.location.clone()),
                part: Some(part.clone()),
                ..RegistryRequest::get(self.repository, String::new()).writing()
            };
            let answer = self.client.send(&ask).await;
            let end = part.from + part.length;
            self.sent_end = part.from + part.watch.taken();
            let answer = answer?;
            self.update_location(&answer)?;
            let stored = stored_bytes(answer.headers()).unwrap_or(end);
            if stored <= part.from || stored > end {
                return Err(RegistryErrorReason::Malformed(format!(
                    "the registry reports that it has stored {stored} bytes of an upload; it had stored {} bytes before, and {end} bytes were sent",
                    part.from
                )));
            }
            self.client.progress.resent(end - stored);
            self.stored = stored;
        }
        let answer = self.put(None).await?;
        let sent = BlobPart::new(self.blob, whole, 0);
        self.client
            .verify_stored(self.repository, &sent, &answer)
            .await
    }

    /// Switches to another upload method if the registry rejects the current method. Returns
    /// `false` if `reason` is another error, or if no other method exists.
    fn switch_method(&mut self, reason: &RegistryErrorReason) -> bool {
        let next = match (self.method, reason) {
            (
                UploadMethod::Monolithic,
                RegistryErrorReason::Refused {
                    status: 400..=418, ..
                }
                | RegistryErrorReason::Busy { status: 501, .. },
            ) => UploadMethod::Chunked(CHUNK_BYTES),
            (
                UploadMethod::Chunked(CHUNK_BYTES),
                RegistryErrorReason::Refused { status: 413, .. },
            ) => UploadMethod::Chunked(SMALL_CHUNK_BYTES),
            _ => return false,
        };
        self.method = next;
        true
    }

    async fn start_over(&mut self) -> Result<(), RegistryErrorReason> {
        self.client.progress.resent(self.sent_end);
        (self.stored, self.sent_end) = (0, 0);
        self.session = self
            .client
            .start_session(self.repository)
            .await?
            .ok_or_else(|| {
                RegistryErrorReason::Malformed(
                    "the registry returned no upload location".to_owned(),
                )
            })?;
        Ok(())
    }

    /// Requests the number of received bytes from the registry, and prepares the upload to continue
    /// after them. Returns `false` if the registry reports no usable number.
    async fn resume(&mut self) -> bool {
        let ask = RegistryRequest {
            target: RequestTarget::Url(self.session.location.clone()),
            ..RegistryRequest::get(self.repository, String::new()).writing()
        };
        let Ok(answer) = self.client.send(&ask).await else {
            return false;
        };
        // The registry cannot have more bytes than were sent. If it has no bytes, the upload
        // restarts.
        let Some(stored) =
            stored_bytes(answer.headers()).filter(|stored| (1..=self.sent_end).contains(stored))
        else {
            return false;
        };
        if self.update_location(&answer).is_err() {
            return false;
        }
        self.client.progress.resent(self.sent_end - stored);
        (self.stored, self.sent_end) = (stored, stored);
        if self.method == UploadMethod::Monolithic {
            self.method = UploadMethod::Chunked(CHUNK_BYTES);
        }
        true
    }

    fn update_location(&mut self, answer: &Response) -> Result<(), RegistryErrorReason> {
        if let Some(location) = location(answer)? {
            self.session.location = location;
        }
        Ok(())
    }
}

fn post_request(repository: &Repository, path: String) -> RegistryRequest<'_> {
    RegistryRequest {
        method: Method::POST,
        content: Some((OCTET_STREAM, Bytes::new())),
        ..RegistryRequest::get(repository, path).writing()
    }
}

/// Returns the upload session of a response.
fn session_of(
    answer: &Response,
    repository: &Repository,
) -> Result<Option<UploadSession>, RegistryErrorReason> {
    let min_chunk = header(answer.headers(), "oci-chunk-min-length")
        .and_then(|text| text.parse().ok())
        .map_or(0, |min_chunk: u64| min_chunk.min(MAX_CHUNK_BYTES));
    if let Some(location) = location(answer)? {
        return Ok(Some(UploadSession {
            location,
            min_chunk,
        }));
    }
    // Without `Location`, the URL is built from the UUID of the upload.
    let named = header(answer.headers(), "docker-upload-uuid").filter(|name| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    });
    let location = named.and_then(|name| {
        let path = format!("/v2/{}/blobs/uploads/{name}", repository.path);
        answer.url().join(&path).ok()
    });
    Ok(location.map(|location| UploadSession {
        location: ReceivedUrl::new(location, answer),
        min_chunk,
    }))
}

/// Returns the URL in `Location`, which may be relative. `None` if the header is missing.
fn location(answer: &Response) -> Result<Option<ReceivedUrl>, RegistryErrorReason> {
    let Some(text) = answer.headers().get(LOCATION) else {
        return Ok(None);
    };
    let location = text
        .to_str()
        .ok()
        .and_then(|text| answer.url().join(text).ok())
        .ok_or_else(|| {
            RegistryErrorReason::Malformed(
                "the upload location that the registry returned is not a URL".to_owned(),
            )
        })?;
    match (answer.url().scheme(), location.scheme()) {
        (_, "https") | ("http", "http") => Ok(Some(ReceivedUrl::new(location, answer))),
        _ => Err(RegistryErrorReason::Redirect {
            to: crate::registry::http::pools::authority(&location),
            why: "the target of the upload does not use TLS, but the registry does",
        }),
    }
}

/// Returns the number of bytes of an upload that the registry has, from the header `Range: 0-N`.
/// `None` if the header is missing or invalid, or is `0-0`: registries use `0-0` for no byte and
/// for one byte.
fn stored_bytes(headers: &HeaderMap) -> Option<u64> {
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

fn is_passing(reason: &RegistryErrorReason) -> bool {
    matches!(
        reason,
        RegistryErrorReason::Unreachable { .. }
            | RegistryErrorReason::Cut { .. }
            | RegistryErrorReason::Stalled { .. }
            | RegistryErrorReason::Busy { .. }
            | RegistryErrorReason::NotFound
    )
}
