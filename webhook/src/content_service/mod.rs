//! The content service. With its default paths, `GET /bundles/NAME.tgz` returns the content of an
//! unpacked Bundle, and requires permission `get` on this path (RukPak:
//! `internal/storage/localdir.go`). `PUT /uploads/NAME.tgz` receives content, and requires
//! permission `update` on this path. Only the leader has content.

pub(crate) mod callers;
mod download;
mod request;
mod upload;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bundle_core::names::KubeName;
use bundle_core::review::Requester;

use self::callers::Callers;
use self::request::{ByteSelection, RequestTarget};
use self::upload::PermittedUpload;
use crate::archives::{ArchiveError, LeaderArchives};
use crate::budget::{Budget, Pool, Share};
use crate::config::content::ContentPaths;
use crate::server::connections::Client;
use crate::uploads::UploadStore;

/// Maximum number of concurrent downloads. One requester can run half of these downloads. Two
/// requesters together can run three quarters.
const DOWNLOADS: u64 = 8;
/// Maximum number of concurrent uploads. The limits for requesters are the same as for downloads.
const CONCURRENT_UPLOADS: u64 = 4;

/// The state of the handler for all requests.
pub(crate) struct ContentService {
    callers: Callers,
    paths: ContentPaths,
    archives: Arc<LeaderArchives>,
    downloads: Pool,
    uploads: Arc<UploadStore>,
    upload_slots: Pool,
}

impl ContentService {
    pub(crate) fn new(
        callers: Callers,
        paths: ContentPaths,
        archives: Arc<LeaderArchives>,
        uploads: Arc<UploadStore>,
    ) -> Self {
        Self {
            callers,
            paths,
            archives,
            downloads: Pool::divided(DOWNLOADS),
            uploads,
            upload_slots: Pool::divided(CONCURRENT_UPLOADS),
        }
    }
}

/// Returns the router. Every request is authenticated before its path is read.
pub(crate) fn router(service: ContentService) -> Router {
    Router::new()
        .fallback(respond)
        .with_state(Arc::new(service))
}

/// Rejects a request without credentials before memory is reserved for the request. The error is
/// the response.
pub(crate) fn gate(request: &mut Request) -> Result<(), Response> {
    if callers::bearer_token(request.headers()).is_some() {
        return Ok(());
    }
    if let Some(client) = request.extensions().get::<Arc<Client>>() {
        client.reject();
    }
    Err(callers::CallerError::Unauthenticated.into_response())
}

async fn respond(
    State(service): State<Arc<ContentService>>,
    request: Request,
) -> Result<Response, Infallible> {
    let (parts, body) = request.into_parts();
    let Some(client) = parts.extensions.get::<Arc<Client>>().cloned() else {
        return Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response());
    };
    let (callers, from) = (&service.callers, client.address());
    let requester = match Box::pin(callers.authenticate(&parts.headers, from)).await {
        Ok(requester) => requester,
        Err(error) => {
            client.reject();
            return Ok(error.into_response());
        }
    };
    let path = parts.uri.path();
    let method = &parts.method;
    let target = match RequestTarget::of(path, &service.paths) {
        None => Err(text(StatusCode::NOT_FOUND, "no such path\n")),
        Some(target) if !target.methods().contains(method) => Err(other_method(&target)),
        Some(target) => {
            let permission = target.permission(&service.paths);
            let caller = (&*requester, from);
            let allowed = callers.authorize(caller, &permission, path);
            match allowed.await {
                Ok(()) => Ok((target, permission)),
                Err(error) => Err(error.into_response()),
            }
        }
    };
    // Every Pod has a valid ServiceAccount token. Therefore a request without permission also
    // counts towards the maximum number of rejected requests of the connection.
    let (target, permission) = match target {
        Ok(permitted) => permitted,
        Err(rejection) => {
            client.reject();
            return Ok(rejection);
        }
    };
    let accepted = client.accept();
    let response = match target {
        RequestTarget::Content(bundle) => {
            let is_head = *method == Method::HEAD;
            let wanted = (&bundle, &parts.headers, is_head);
            service.content(wanted, &requester, client).await
        }
        RequestTarget::Upload(bundle) => {
            let upload = PermittedUpload {
                bundle: &bundle,
                from,
                path,
                permission,
                headers: &parts.headers,
                body,
            };
            service.upload(&requester, upload).await
        }
    };
    drop(accepted);
    Ok(response)
}

fn other_method(target: &RequestTarget) -> Response {
    let names: Vec<_> = target.methods().iter().map(Method::as_str).collect();
    let message = format!("only {}\n", names.join(" and "));
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, message);
    // Names of HTTP methods are valid header values.
    if let Ok(allowed) = HeaderValue::from_str(&names.join(", ")) {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response
}

impl ContentService {
    async fn upload(&self, requester: &Requester, upload: PermittedUpload<'_>) -> Response {
        let Some(_slot) = slot(&self.upload_slots, requester) else {
            let message = "too many uploads at once; try again\n";
            return retried(StatusCode::TOO_MANY_REQUESTS, message);
        };
        // The future is boxed because it is large.
        Box::pin(upload::receive(self, requester, upload)).await
    }

    async fn content(
        &self,
        (bundle, headers, is_head): (&KubeName, &HeaderMap, bool),
        requester: &Requester,
        client: Arc<Client>,
    ) -> Response {
        let Some(slot) = slot(&self.downloads, requester) else {
            let message = "too many downloads at once; try again\n";
            return retried(StatusCode::TOO_MANY_REQUESTS, message);
        };
        let Some(archives) = self.archives.get() else {
            let message = "this replica is not the leader, which has the content; try again\n";
            return retried(StatusCode::SERVICE_UNAVAILABLE, message);
        };
        let archive = match archives.open(bundle, requester).await {
            Ok(archive) => archive,
            Err(error) => return failed(&error),
        };
        let selected = ByteSelection::of(headers, archive.size(), archive.digest());
        download::response(archive, selected, is_head, (slot, client))
    }
}

/// Returns a slot of a divided pool if the requester can get a further slot now.
fn slot(pool: &Pool, requester: &Requester) -> Option<Share> {
    pool.try_take(1, Budget::part(pool, &requester.user, 1))
}

fn failed(error: &ArchiveError) -> Response {
    let message = format!("{error}\n");
    match error {
        ArchiveError::NoBundle(_) | ArchiveError::NotUnpacked(_) => {
            text(StatusCode::NOT_FOUND, message)
        }
        ArchiveError::NotCached(_) | ArchiveError::Busy(_) => {
            retried(StatusCode::SERVICE_UNAVAILABLE, message)
        }
        ArchiveError::Api(..) | ArchiveError::Unstorable(..) => {
            tracing::warn!(error = crate::chain(error), "a download failed");
            retried(StatusCode::SERVICE_UNAVAILABLE, message)
        }
    }
}

fn text(status: StatusCode, message: impl Into<String>) -> Response {
    (status, message.into()).into_response()
}

/// Returns a response with the header `Retry-After`.
fn retried(status: StatusCode, message: impl Into<String>) -> Response {
    let mut response = text(status, message);
    let after = HeaderValue::from_static("5");
    response.headers_mut().insert(header::RETRY_AFTER, after);
    response
}

#[cfg(test)]
mod tests;
