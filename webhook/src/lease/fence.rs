//! Fence of the leader: a layer below all clients that sends writes of the reconciler only while
//! this replica holds the lease. A process can be paused for longer than the lease, and requests
//! can be delayed. In these cases another replica can already be the leader, so the write must
//! fail.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service, service_fn};

/// A write was not sent, because another replica may be the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request was not sent: this replica does not hold the lease any more")]
pub struct NotLeader;

/// Extension of a request that must be sent only while this replica is the leader.
#[derive(Debug, Clone, Copy)]
struct LeaderRequest;

/// The time for which this replica is the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Term {
    /// This replica is not the leader.
    Ended,
    /// This replica is the leader until the lease must be renewed.
    Until(Instant),
    /// Leader election is off.
    Unlimited,
}

/// The term of this replica as the leader. Clones share the state.
#[derive(Debug, Clone)]
pub struct Fence(Arc<ArcSwap<Term>>);

impl Default for Fence {
    /// Returns a closed fence, because this replica is not the leader yet.
    fn default() -> Self {
        Self(Arc::new(ArcSwap::from_pointee(Term::Ended)))
    }
}

impl Fence {
    /// Permits writes of the reconciler until `end`.
    pub(super) fn open_until(&self, end: Instant) {
        self.0.store(Arc::new(Term::Until(end)));
    }

    /// Permits all writes of the reconciler, because there is no other replica.
    pub(crate) fn open(&self) {
        self.0.store(Arc::new(Term::Unlimited));
    }

    /// Blocks all writes of the reconciler.
    pub(super) fn close(&self) {
        self.0.store(Arc::new(Term::Ended));
    }

    /// Returns true if this replica is the leader now.
    pub(super) fn is_open(&self) -> bool {
        match **self.0.load() {
            Term::Ended => false,
            Term::Until(end) => Instant::now() < end,
            Term::Unlimited => true,
        }
    }
}

/// Returns a client that sends its requests through `base` as requests of the leader.
pub(crate) fn of_leader(base: Client) -> Client {
    let namespace = base.default_namespace().to_owned();
    let service = service_fn(move |mut request: Request<Body>| {
        request.extensions_mut().insert(LeaderRequest);
        let base = base.clone();
        async move { base.send(request).await }
    });
    Client::new(service, namespace)
}

impl<S> Layer<S> for Fence {
    type Service = FencedService<S>;

    fn layer(&self, inner: S) -> FencedService<S> {
        FencedService {
            inner,
            fence: self.clone(),
        }
    }
}

/// A service that checks the fence before each write of the leader.
#[derive(Debug, Clone)]
pub struct FencedService<S> {
    inner: S,
    fence: Fence,
}

impl<S, B> Service<Request<Body>> for FencedService<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_of_leader = request.extensions().get::<LeaderRequest>().is_some();
        // The request is sent when the returned future is first polled.
        let answer = self.inner.call(request);
        if is_read || !is_of_leader {
            return answer.map(|answer| answer.map_err(Into::into)).boxed();
        }
        let fence = self.fence.clone();
        async move {
            let mut answer = pin!(answer);
            // Connections and retries need time, so the fence is checked at each poll.
            poll_fn(|cx| {
                if fence.is_open() {
                    answer.as_mut().poll(cx).map_err(Into::into)
                } else {
                    Poll::Ready(Err(NotLeader.into()))
                }
            })
            .await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    use tower::ServiceBuilder;

    use super::*;

    const TERM: Duration = Duration::from_secs(10);
    /// Time that the server needs for a request to `/slow`.
    const DELAY: Duration = Duration::from_secs(3);

    type ReceivedRequests = Arc<Mutex<Vec<Method>>>;

    /// Returns a client behind the fence, and the methods of the requests that were received.
    fn client(fence: &Fence) -> (Client, ReceivedRequests) {
        let received = ReceivedRequests::default();
        let log = received.clone();
        let service = ServiceBuilder::new().layer(fence).service(service_fn(
            move |request: Request<Body>| {
                let log = log.clone();
                async move {
                    if request.uri().path().ends_with("/slow") {
                        tokio::time::sleep(DELAY).await;
                    }
                    log.lock().unwrap().push(request.method().clone());
                    let body = br#"{"metadata":{"name":"a"}}"#.to_vec();
                    Ok::<_, BoxError>(Response::new(Body::from(body)))
                }
            },
        ));
        (Client::new(service, "default"), received)
    }

    async fn patch(client: &Client, name: &str) -> Result<(), kube::Error> {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "a");
        let patch = Patch::Merge(serde_json::json!({}));
        bundle_cluster::ByName(&api)
            .patch(name, &PatchParams::default(), &patch)
            .await
            .map(drop)
    }

    fn is_fenced(outcome: &Result<(), kube::Error>) -> bool {
        outcome
            .as_ref()
            .is_err_and(|error| crate::chain(error).contains(&NotLeader.to_string()))
    }

    #[tokio::test(start_paused = true)]
    async fn leader_writes_only_until_the_end_of_its_term() {
        let fence = Fence::default();
        let (replica, received) = client(&fence);
        let leader = of_leader(replica.clone());
        assert!(is_fenced(&patch(&leader, "a").await));
        fence.open_until(Instant::now() + TERM);
        patch(&leader, "a").await.unwrap();
        // The process was paused, so no task could close the fence.
        tokio::time::advance(TERM).await;
        assert!(is_fenced(&patch(&leader, "a").await));
        fence.open();
        patch(&leader, "a").await.unwrap();
        fence.close();
        assert!(is_fenced(&patch(&leader, "a").await));
        assert_eq!(*received.lock().unwrap(), [Method::PATCH, Method::PATCH]);
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_write_is_not_sent_after_the_term() {
        let fence = Fence::default();
        let (replica, received) = client(&fence);
        fence.open_until(Instant::now() + DELAY);
        assert!(is_fenced(&patch(&of_leader(replica), "slow").await));
        assert_eq!(*received.lock().unwrap(), [] as [Method; 0]);
    }

    #[tokio::test]
    async fn reads_and_requests_of_every_replica_pass() {
        let fence = Fence::default();
        let (replica, received) = client(&fence);
        let api: Api<ConfigMap> = Api::namespaced(of_leader(replica.clone()), "a");
        bundle_cluster::ByName(&api).get("a").await.unwrap();
        patch(&replica, "a").await.unwrap();
        assert_eq!(*received.lock().unwrap(), [Method::GET, Method::PATCH]);
    }
}
