//! Receives uploads: `PUT /uploads/NAME.tgz`. Statuses and texts are the same as in RukPak
//! (`internal/uploadmgr/handler.go`). Further statuses are for limits that RukPak does not have.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bundle_core::names::KubeName;
use bundle_core::plan::bundle::upload::{self, UploadResult, UploadState};
use bundle_core::review::Requester;
use bundle_oci::Limits;
use bundle_oci::transfer::archive_file::{self, StoreError};
use bundle_oci::transfer::rate::{MinimumRate, RateWindow};
use futures::{Stream, StreamExt as _, stream};
use tokio::time::{Instant, timeout};

use super::callers::{CallerError, PathPermission};
use super::{ContentService, retried, text};
use crate::archives::LeaderContent;
use crate::uploads::UploadError;
use crate::uploads::target::TargetError;

/// Time after which an upload without new bytes is rejected.
const STALL: Duration = Duration::from_secs(15);
/// Minimum rate of an upload. A slower upload is rejected.
const MIN_RATE: MinimumRate = MinimumRate {
    min_rate: 32 << 10,
    window: Duration::from_secs(10),
};

/// The reason why an upload is not stored.
#[derive(Debug, thiserror::Error)]
enum ReceiveError {
    #[error(transparent)]
    Caller(#[from] CallerError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Space(#[from] UploadError),
    #[error("the archive is larger than the limit of {} MiB", .0 >> 20)]
    TooLarge(u64),
    #[error("the archive is longer than its Content-Length")]
    LongerThanAnnounced,
    #[error("the upload is too slow: send at least {} KiB a second", MIN_RATE.min_rate >> 10)]
    TooSlow,
    #[error("the upload was interrupted")]
    Interrupted,
    #[error("the body is not a gzipped tar archive")]
    NotGzip,
    #[error("this replica is not the leader, which receives uploads; try again")]
    NotLeader,
}

/// An upload whose caller has permission for the path of the upload.
pub(super) struct PermittedUpload<'a> {
    pub(super) bundle: &'a KubeName,
    /// Address of the client.
    pub(super) from: IpAddr,
    pub(super) path: &'a str,
    pub(super) permission: PathPermission<'a>,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: Body,
}

/// Stores the body of a request as the content of its Bundle.
pub(super) async fn receive(
    service: &ContentService,
    requester: &Requester,
    upload: PermittedUpload<'_>,
) -> Response {
    match try_receive(service, requester, upload).await {
        Ok(UploadResult::Stored) => StatusCode::CREATED.into_response(),
        Ok(UploadResult::Identical) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => error.response(),
    }
}

async fn try_receive(
    service: &ContentService,
    requester: &Requester,
    PermittedUpload {
        bundle,
        from,
        path,
        permission,
        headers,
        body,
    }: PermittedUpload<'_>,
) -> Result<UploadResult, ReceiveError> {
    let leader = leader(service)?;
    leader.find(bundle, requester).await?;
    let most = Limits::default().layer;
    let announced = headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|bytes: u64| bytes > most) {
        return Err(ReceiveError::TooLarge(most));
    }
    let limit = BodyLimit {
        bytes: announced.unwrap_or(most),
        is_announced: announced.is_some(),
    };
    let uploads = &service.uploads;
    let arriving = uploads.begin(&requester.user).map_err(UploadError::from)?;
    let writer = arriving.writer().map_err(UploadError::from)?;
    let space = arriving.space();
    let pieces = pieces(body, limit, |received| uploads.reserve(&space, received));
    let (_, bytes) = archive_file::store(pieces, writer).await?;
    if !bytes.is_gzip {
        return Err(ReceiveError::NotGzip);
    }
    drop(leader);
    // Receiving a body can last an hour. Token, permission, Bundle and leader may have
    // changed, so they are checked again.
    let permitted = service
        .callers
        .authenticate_and_authorize((headers, from), &permission, path);
    // The future is boxed because it is large.
    let requester = &*Box::pin(permitted).await?;
    let leader = self::leader(service)?;
    let target = leader.find(bundle, requester).await?;
    let uploaded = bytes.descriptor;
    let stored = uploads.digest(&target.uid);
    let state = UploadState {
        unpacked: target.unpacked.as_ref(),
        is_cached: target.is_cached,
        stored: stored.as_ref(),
    };
    let result = upload::decide(state, &uploaded.digest).map_err(TargetError::from)?;
    if result == UploadResult::Stored {
        let (uploads, uid) = (uploads.clone(), target.uid.clone());
        let keep = move || uploads.keep(arriving, &uid, &uploaded.digest, uploaded.size);
        let kept = tokio::task::spawn_blocking(keep).await;
        kept.unwrap_or_else(|panic| Err(std::io::Error::other(panic).into()))?;
        leader.uploaded(bundle, &target);
    }
    Ok(result)
}

fn leader(service: &ContentService) -> Result<Arc<dyn LeaderContent>, ReceiveError> {
    service.archives.get().ok_or(ReceiveError::NotLeader)
}

/// Maximum size of the body of an upload.
#[derive(Debug, Clone, Copy)]
struct BodyLimit {
    bytes: u64,
    /// True if the client announced the size of the body in Content-Length.
    is_announced: bool,
}

impl BodyLimit {
    fn check(self, received: u64) -> Result<(), ReceiveError> {
        if received <= self.bytes {
            Ok(())
        } else if self.is_announced {
            Err(ReceiveError::LongerThanAnnounced)
        } else {
            Err(ReceiveError::TooLarge(self.bytes))
        }
    }
}

/// Returns the pieces of a body. Before each piece is returned, `reserve` reserves space for all
/// bytes that were received so far.
fn pieces(
    body: Body,
    limit: BodyLimit,
    reserve: impl Fn(u64) -> Result<(), UploadError>,
) -> impl Stream<Item = Result<Bytes, ReceiveError>> {
    let state = (body.into_data_stream(), 0, RateWindow::new(0));
    stream::try_unfold((state, reserve), move |(state, reserve)| async move {
        let (mut body, received, mut rate) = state;
        let before = Instant::now();
        let piece = timeout(STALL, body.next()).await;
        let Some(piece) = piece.map_err(|_| ReceiveError::TooSlow)? else {
            return Ok(None);
        };
        let piece = piece.map_err(|_| ReceiveError::Interrupted)?;
        let received = received + piece.len() as u64;
        limit.check(received)?;
        let rated = rate.add(before.elapsed(), received, MIN_RATE);
        rated.map_err(|_| ReceiveError::TooSlow)?;
        reserve(received)?;
        Ok(Some((piece, ((body, received, rate), reserve))))
    })
}

impl From<StoreError<Self>> for ReceiveError {
    fn from(error: StoreError<Self>) -> Self {
        match error {
            StoreError::Stream(error) => error,
            StoreError::Storage(error) => UploadError::from(error).into(),
            StoreError::Stopped => Self::Interrupted,
        }
    }
}

impl ReceiveError {
    fn response(self) -> Response {
        let status = match &self {
            Self::Caller(error) => return error.clone().into_response(),
            Self::Target(TargetError::NoBundle(_)) => StatusCode::NOT_FOUND,
            Self::Target(TargetError::Rejected(_) | TargetError::NotReconciled(..)) => {
                StatusCode::CONFLICT
            }
            Self::Target(TargetError::OtherRequester { .. } | TargetError::OtherGroups { .. }) => {
                StatusCode::FORBIDDEN
            }
            Self::Space(_) => StatusCode::INSUFFICIENT_STORAGE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::LongerThanAnnounced | Self::Interrupted | Self::NotGzip => {
                StatusCode::BAD_REQUEST
            }
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Target(TargetError::Api(..)) | Self::NotLeader => StatusCode::SERVICE_UNAVAILABLE,
        };
        if let Self::Target(TargetError::Api(..)) | Self::Space(UploadError::Storage(_)) = &self {
            tracing::warn!(error = crate::chain(&self), "an upload failed");
        }
        let message = format!("{self}\n");
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return retried(status, message);
        }
        text(status, message)
    }
}
