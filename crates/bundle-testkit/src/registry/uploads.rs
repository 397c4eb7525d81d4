//! Upload protocol of blobs, and its faults.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bundle_core::reference::Digest;
use futures::StreamExt as _;

use super::call::{Query, error, status};
use super::fault::UploadFault;
use super::{Fault, Shared, lock};

/// Request below `blobs/uploads/`.
pub(super) struct Upload<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) method: &'a Method,
    pub(super) headers: &'a HeaderMap,
    pub(super) query: &'a Query,
    pub(super) repository: &'a str,
    pub(super) name: &'a str,
}

impl Upload<'_> {
    pub(super) async fn answer(&self, body: Body) -> Response {
        let peculiar = match &*lock(&self.shared.fault) {
            Some(Fault::Upload(uploads)) => Some(uploads.clone()),
            _ => None,
        };
        if *self.method == Method::POST {
            return self.begin(peculiar, body).await;
        }
        let id = self.name.parse().unwrap_or(0);
        let there = lock(&self.shared.store).received_bytes(id);
        let Some(there) = there else {
            drain(body).await;
            return error(StatusCode::NOT_FOUND, "blob upload unknown");
        };
        match *self.method {
            Method::GET => self.state(StatusCode::NO_CONTENT, id, there),
            Method::PATCH => self.patch(id, there, peculiar.as_ref(), body).await,
            Method::PUT => self.put(id, there, peculiar.as_ref(), body).await,
            _ => error(StatusCode::METHOD_NOT_ALLOWED, "no"),
        }
    }

    async fn begin(&self, peculiar: Option<UploadFault>, body: Body) -> Response {
        if let (Some(digest), Some(from)) = (self.query.get("mount"), self.query.get("from")) {
            if let Some(UploadFault::NoMounts(code)) = peculiar {
                return error(status(code), "no mounts");
            }
            let mut store = lock(&self.shared.store);
            if let Some(bytes) = store.blob(&from, &digest) {
                store.put_blob(self.repository, bytes);
                return StatusCode::CREATED.into_response();
            }
        }
        let id = lock(&self.shared.store).begin();
        match peculiar {
            Some(UploadFault::NoLocation) => {
                let name = HeaderName::from_static("docker-upload-uuid");
                (StatusCode::ACCEPTED, [(name, id.to_string())]).into_response()
            }
            Some(UploadFault::Nameless) => {
                if self.query.get("digest").is_some() {
                    return self.put(id, 0, None, body).await;
                }
                StatusCode::ACCEPTED.into_response()
            }
            Some(UploadFault::Elsewhere(place)) => {
                (StatusCode::ACCEPTED, [(header::LOCATION, place)]).into_response()
            }
            _ => self.state(StatusCode::ACCEPTED, id, 0),
        }
    }

    fn state(&self, code: StatusCode, id: u64, there: usize) -> Response {
        let place = format!("/v2/{}/blobs/uploads/{id}?state={there}", self.repository);
        let range = format!("0-{}", there.saturating_sub(1));
        (code, [(header::LOCATION, place), (header::RANGE, range)]).into_response()
    }

    async fn patch(
        &self,
        id: u64,
        there: usize,
        peculiar: Option<&UploadFault>,
        body: Body,
    ) -> Response {
        if peculiar == Some(&UploadFault::RejectsChunks) {
            drain(body).await;
            return error(StatusCode::METHOD_NOT_ALLOWED, "no parts");
        }
        let first = self
            .headers
            .get(header::CONTENT_RANGE)
            .and_then(|value| value.to_str().ok()?.split_once('-')?.0.parse().ok());
        if first.is_some_and(|first: usize| first != there) {
            return self.state(StatusCode::RANGE_NOT_SATISFIABLE, id, there);
        }
        if let Err(refusal) = self.take(id, peculiar, body).await {
            return refusal;
        }
        let mut store = lock(&self.shared.store);
        let mut now = store.received_bytes(id).unwrap_or(0);
        match peculiar {
            Some(UploadFault::Halved) => {
                now = there + (now - there).div_ceil(2);
                store.cut(id, now);
            }
            Some(UploadFault::Exaggerated) => now += 1000,
            _ => {}
        }
        self.state(StatusCode::ACCEPTED, id, now)
    }

    async fn put(
        &self,
        id: u64,
        there: usize,
        peculiar: Option<&UploadFault>,
        body: Body,
    ) -> Response {
        let length = self
            .headers
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        match peculiar {
            Some(UploadFault::OnlyParts | UploadFault::Halved | UploadFault::Exaggerated)
                if length != Some(0_usize) =>
            {
                drain(body).await;
                return error(StatusCode::BAD_REQUEST, "content comes in parts here");
            }
            Some(UploadFault::Redirected(to)) => {
                drain(body).await;
                return (
                    StatusCode::TEMPORARY_REDIRECT,
                    [(header::LOCATION, to.clone())],
                )
                    .into_response();
            }
            _ => {}
        }
        if let Err(refusal) = self.take(id, peculiar, body).await {
            return refusal;
        }
        let failing = match &mut *lock(&self.shared.fault) {
            Some(Fault::Upload(UploadFault::Failing { status, times })) if *times > 0 => {
                *times -= 1;
                Some(*status)
            }
            _ => None,
        };
        if let Some(code) = failing {
            lock(&self.shared.store).cut(id, there);
            return error(status(code), "storage is away");
        }
        let mut store = lock(&self.shared.store);
        let (Some(bytes), Some(wanted)) = (store.finish(id), self.query.get("digest")) else {
            return error(StatusCode::BAD_REQUEST, "no digest");
        };
        if Digest::of(&bytes).as_str() != wanted {
            return error(StatusCode::BAD_REQUEST, "the digest does not match");
        }
        let mut named = wanted;
        match peculiar {
            Some(UploadFault::BlobMissing) => return StatusCode::ACCEPTED.into_response(),
            Some(UploadFault::Misnamed) => named = Digest::of(b"something else").to_string(),
            _ => {}
        }
        store.put_blob(self.repository, bytes);
        let digest = HeaderName::from_static("docker-content-digest");
        (StatusCode::CREATED, [(digest, named)]).into_response()
    }

    /// Adds the request body to the upload. A fault can end the request before all of its bytes are
    /// read.
    async fn take(
        &self,
        id: u64,
        peculiar: Option<&UploadFault>,
        body: Body,
    ) -> Result<(), Response> {
        let mut body = body.into_data_stream();
        let mut count = 0;
        while let Some(piece) = body.next().await {
            let Ok(piece) = piece else {
                return Err(error(StatusCode::BAD_REQUEST, "the content ended early"));
            };
            let most = match peculiar {
                Some(
                    UploadFault::Broken { after, times }
                    | UploadFault::BrokenAndLost { after, times },
                ) if *times > 0 => *after,
                Some(UploadFault::Stalling(after) | UploadFault::Small(after)) => *after,
                _ => usize::MAX,
            };
            let taken = piece.len().min(most - count);
            count += taken;
            lock(&self.shared.store).append(id, &piece[..taken]);
            if taken == piece.len() {
                continue;
            }
            match peculiar {
                Some(UploadFault::Small(_)) => {
                    while body.next().await.is_some_and(|piece| piece.is_ok()) {}
                    return Err(error(StatusCode::PAYLOAD_TOO_LARGE, "too large"));
                }
                Some(UploadFault::Stalling(_)) => std::future::pending().await,
                _ => self.cut(id),
            }
        }
        Ok(())
    }

    fn cut(&self, id: u64) {
        if let Some(Fault::Upload(
            UploadFault::Broken { times, .. } | UploadFault::BrokenAndLost { times, .. },
        )) = &mut *lock(&self.shared.fault)
        {
            *times -= 1;
        }
        if matches!(
            &*lock(&self.shared.fault),
            Some(Fault::Upload(UploadFault::BrokenAndLost { .. }))
        ) {
            lock(&self.shared.store).finish(id);
        }
        // The panic ends the task that serves the connection. Therefore the connection closes
        // without a response.
        std::panic::resume_unwind(Box::new("cut"))
    }
}

/// Reads a body to its end, before the caller sends the error response. Proxies do the same,
/// because a client can lose a response that is sent before its body is read.
async fn drain(body: Body) {
    let mut body = body.into_data_stream();
    while body.next().await.is_some_and(|piece| piece.is_ok()) {}
}
