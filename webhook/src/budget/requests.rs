//! Memory of large requests to the API server. The reconciler applies up to sixteen objects
//! concurrently, and each object is in memory as a request and as a response. Each impersonated
//! user can reserve at most half of this memory.
//!
//! A layer of the client reserves the memory of a request before the request is sent. A caller that
//! builds the body from an object of content calls `reserve` first.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Extensions, Request, Response};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use http_body_util::combinators::MapFrame;
use kube::client::Body;
use tokio::time::timeout;
use tower::{BoxError, Layer, Service};

use super::Budget;
use super::pool::{Pool, Share};
use bundle_cluster::connection::IMPERSONATE_USER;

/// Memory of all large requests, in bytes: enough for [`FORMS`] copies of one object of the maximum
/// size (3 MiB).
pub(crate) const CAPACITY: u64 = 10 << 20;
/// Minimum size of a request for which memory is reserved, in bytes.
const SMALL_REQUEST: u64 = 64 << 10;
/// Number of copies of one object in memory: in the request, in the response, and parsed from the
/// response.
const FORMS: u64 = 3;
/// Time for which the memory of a request stays reserved without a response. The request has been
/// sent by then. When the response arrives, memory is reserved again. Therefore requests that wait
/// for a slow webhook of the cluster do not block requests of other users.
const UNANSWERED: Duration = Duration::from_secs(2);

/// Tower layer that reserves memory for each large request before it is sent.
#[derive(Debug, Clone)]
pub struct RequestMemory {
    pool: Pool,
}

impl Default for RequestMemory {
    fn default() -> Self {
        Self {
            pool: Pool::new(CAPACITY),
        }
    }
}

/// Extension of a request: memory that was reserved before the body existed. The layer removes the
/// share, so a copy of the request has no share.
#[derive(Debug, Clone)]
struct ReservedMemory(Arc<Mutex<Option<Share>>>);

impl ReservedMemory {
    fn take(&self) -> Option<Share> {
        // A panic cannot leave the share in an invalid state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl RequestMemory {
    /// Waits for the memory of a request with a body of `bytes` bytes that impersonates `user`.
    /// Returns the extensions of this request. The memory is released when the response is read, or
    /// when the request or the extensions are dropped.
    ///
    /// A caller must not wait for other memory before it sends the request.
    pub(crate) async fn reserve(&self, bytes: u64, user: &str) -> Extensions {
        let mut extensions = Extensions::new();
        if bytes >= SMALL_REQUEST {
            let caps = Budget::half_of_user(&self.pool, user);
            // `take` fails only above the capacity, and the weight never exceeds the capacity.
            let share = self.pool.take(weight(bytes), caps).await.ok();
            extensions.insert(ReservedMemory(Arc::new(Mutex::new(share))));
        }
        extensions
    }
}

/// Returns the memory of a request with a body of `bytes` bytes, in bytes. The API server rejects
/// objects above the maximum size. Until the rejection, such a request uses all of the memory.
fn weight(bytes: u64) -> u64 {
    bytes.saturating_mul(FORMS).min(CAPACITY)
}

impl<S> Layer<S> for RequestMemory {
    type Service = LimitedService<S>;

    fn layer(&self, inner: S) -> LimitedService<S> {
        LimitedService {
            inner,
            pool: self.pool.clone(),
        }
    }
}

/// A service that reserves memory for each large request.
#[derive(Debug, Clone)]
pub struct LimitedService<S> {
    inner: S,
    pool: Pool,
}

type Frame<B> = http_body::Frame<<B as HttpBody>::Data>;
/// A response body that owns its reserved memory, until the body is read or dropped.
type ResponseBodyWithShare<B> = MapFrame<B, Box<dyn FnMut(Frame<B>) -> Frame<B> + Send>>;

impl<S, B> Service<Request<Body>> for LimitedService<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>>,
    S::Future: Send + 'static,
    B: HttpBody + Send + 'static,
{
    type Response = Response<ResponseBodyWithShare<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let bytes = request.body().size_hint().lower();
        let user = request.headers().get(IMPERSONATE_USER);
        // `to_str` accepts only ASCII. Otherwise all users with other characters would share one
        // limit with the pod.
        let user = user.and_then(|user| std::str::from_utf8(user.as_bytes()).ok());
        let user = user.unwrap_or_default();
        let caps = Budget::half_of_user(&self.pool, user);
        let reserved = request.extensions_mut().remove::<ReservedMemory>();
        let reserved = reserved.and_then(|reserved| reserved.take());
        // The request is sent when the returned future is first polled.
        let answer = self.inner.call(request);
        let pool = self.pool.clone();
        async move {
            if bytes < SMALL_REQUEST {
                let response = answer.await.map_err(Into::into)?;
                return Ok(response.map(|body| body.map_frame(holding::<B>(None))));
            }
            let weight = weight(bytes);
            let mut share = match reserved {
                Some(share) => share,
                None => pool.take(weight, caps.clone()).await?,
            };
            let mut answer = std::pin::pin!(answer);
            let response = if let Ok(response) = timeout(UNANSWERED, &mut answer).await {
                response.map_err(Into::into)?
            } else {
                drop(share);
                let response = answer.await.map_err(Into::into)?;
                share = pool.take(weight, caps).await?;
                response
            };
            let share = Some(Arc::new(share));
            Ok(response.map(|body| body.map_frame(holding::<B>(share))))
        }
        .boxed()
    }
}

fn holding<B: HttpBody>(share: Option<Arc<Share>>) -> Box<dyn FnMut(Frame<B>) -> Frame<B> + Send> {
    Box::new(move |frame| {
        // The closure owns the share. The share is released when the body drops the closure.
        let _held = &share;
        frame
    })
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tower::{ServiceBuilder, ServiceExt as _, service_fn};

    use super::*;

    #[tokio::test]
    async fn large_request_holds_memory_until_its_response_is_read() {
        let memory = RequestMemory::default();
        let pool = memory.pool.clone();
        let mut service = ServiceBuilder::new().layer(memory).service(service_fn(
            |request: Request<Body>| async move {
                Ok::<_, BoxError>(Response::new(request.into_body()))
            },
        ));
        for (size, held) in [(100, 0), (1 << 20, 3 << 20), (20 << 20, CAPACITY)] {
            let request = Request::new(Body::from(vec![b'x'; size]));
            let answer = service.ready().await.unwrap().call(request).await.unwrap();
            assert_eq!(pool.used(), held);
            let body = answer.into_body().collect().await.unwrap();
            assert_eq!(body.to_bytes().len(), size);
            assert_eq!(pool.used(), 0);
        }
    }

    #[tokio::test]
    async fn memory_that_is_reserved_before_the_body_exists_is_reserved_once() {
        let memory = RequestMemory::default();
        let pool = memory.pool.clone();
        let mut service = ServiceBuilder::new().layer(&memory).service(service_fn(
            |request: Request<Body>| async move {
                Ok::<_, BoxError>(Response::new(request.into_body()))
            },
        ));
        for (size, held) in [(100, 0), (1 << 20, 3 << 20), (20 << 20, CAPACITY)] {
            let extensions = memory.reserve(size as u64, "ana").await;
            assert_eq!(pool.used(), held);
            // A client keeps a copy of the request for a retry.
            let copy = extensions.clone();
            let mut request = Request::new(Body::from(vec![b'x'; size]));
            *request.extensions_mut() = extensions;
            let answer = service.ready().await.unwrap().call(request).await.unwrap();
            assert_eq!(pool.used(), held);
            drop(answer);
            assert_eq!(pool.used(), 0);
            drop(copy);
            // A request that is never sent releases its memory too.
            drop(memory.reserve(size as u64, "ana").await);
            assert_eq!(pool.used(), 0);
        }
    }

    #[tokio::test]
    async fn user_whose_name_is_not_ascii_has_a_separate_limit() {
        let memory = RequestMemory::default();
        let pool = memory.pool.clone();
        let mut service = ServiceBuilder::new().layer(memory).service(service_fn(
            |request: Request<Body>| async move {
                Ok::<_, BoxError>(Response::new(request.into_body()))
            },
        ));
        let mut request = Request::new(Body::from(vec![b'x'; 1 << 20]));
        let headers = request.headers_mut();
        headers.insert(IMPERSONATE_USER, "j\u{fc}rgen".try_into().unwrap());
        let _answer = service.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(pool.held("user j\u{fc}rgen"), 3 << 20);
    }

    #[tokio::test(start_paused = true)]
    async fn unanswered_requests_of_one_user_block_no_other_user() {
        let memory = RequestMemory::default();
        let service = ServiceBuilder::new().layer(memory).service(service_fn(
            |request: Request<Body>| async move {
                if request.uri() == "/hangs" {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                }
                Ok::<_, BoxError>(Response::new(request.into_body()))
            },
        ));
        let ask = |user: &str, path: &str| {
            let mut request = Request::new(Body::from(vec![b'x'; 1 << 20]));
            let user = format!("system:serviceaccount:team:{user}");
            let headers = request.headers_mut();
            headers.insert(IMPERSONATE_USER, user.try_into().unwrap());
            *request.uri_mut() = path.parse().unwrap();
            let mut service = service.clone();
            async move {
                let answer = service.ready().await.unwrap().call(request).await.unwrap();
                answer.into_body().collect().await.unwrap().to_bytes().len()
            }
        };
        // These requests get no response, for example because a conversion webhook does not
        // respond.
        let hanging: Vec<_> = (0..6).map(|_| tokio::spawn(ask("ana", "/hangs"))).collect();
        let more: Vec<_> = (0..6).map(|_| tokio::spawn(ask("eve", "/hangs"))).collect();
        tokio::time::sleep(Duration::from_millis(100)).await;
        for user in ["bob", "ana"] {
            let asked = tokio::time::timeout(Duration::from_secs(15), ask(user, "/"));
            assert_eq!(asked.await.unwrap(), 1 << 20, "{user}");
        }
        for one in hanging.into_iter().chain(more) {
            assert_eq!(one.await.unwrap(), 1 << 20);
        }
    }
}
