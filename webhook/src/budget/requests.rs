//! Large requests to the API server take a share of the memory: sixteen objects of a content are applied at a time, and each is there as text on its way and
//! once more in its answer. The user that a request acts as has at most half of it.
//! Not here: which requests are made (reconcile, cluster).

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use http_body_util::combinators::MapFrame;
use kube::client::Body;
use tokio::time::timeout;
use tower::{BoxError, Layer, Service};

use super::Budget;
use super::pool::{Pool, Share};
use bundle_cluster::connection::IMPERSONATE_USER;

/// What all large requests may take together, in bytes: one object of the largest size (3 MiB) in its three forms.
const CAPACITY: u64 = 10 << 20;
/// Requests below this are not counted, in bytes.
const SMALL: u64 = 64 << 10;
/// How often the bytes of a request are there: as sent, as answered, and as read from the answer.
const FORMS: u64 = 3;
/// How long a request holds its share without an answer. By then it is sent, and its bytes are gone: an API server that waits for somebody's webhook
/// answers only after that, and must not hold up the requests of others meanwhile.
const UNANSWERED: Duration = Duration::from_secs(2);

/// Makes clients whose large requests wait for each other.
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

impl<S> Layer<S> for RequestMemory {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            pool: self.pool.clone(),
        }
    }
}

/// The client's service with that.
#[derive(Debug, Clone)]
pub struct Counted<S> {
    inner: S,
    pool: Pool,
}

type Frame<B> = http_body::Frame<<B as HttpBody>::Data>;
/// An answer that holds the share until it is read or dropped.
type Holding<B> = MapFrame<B, Box<dyn FnMut(Frame<B>) -> Frame<B> + Send>>;

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>>,
    S::Future: Send + 'static,
    B: HttpBody + Send + 'static,
{
    type Response = Response<Holding<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let bytes = request.body().size_hint().lower();
        let user = request.headers().get(IMPERSONATE_USER);
        let caps = Budget::half(
            &self.pool,
            user.map_or("", |user| user.to_str().unwrap_or_default()),
        );
        // It begins when it is first polled.
        let answer = self.inner.call(request);
        let pool = self.pool.clone();
        async move {
            if bytes < SMALL {
                let response = answer.await.map_err(Into::into)?;
                return Ok(response.map(|body| body.map_frame(holding::<B>(None))));
            }
            // Beyond any object that an API server takes: it says so itself, and gets all of it for the time.
            let weight = bytes.saturating_mul(FORMS).min(CAPACITY);
            let mut share = pool.take(weight, caps.clone()).await?;
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
        // Held by this closure, which goes with the body.
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
    async fn a_large_request_holds_memory_until_its_answer_is_read() {
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

    #[tokio::test(start_paused = true)]
    async fn unanswered_requests_of_one_user_hold_up_nobody() {
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
        // Conversion webhooks that do not answer.
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
