//! Leader election with a Lease of coordination.k8s.io. The reconciler runs only on the leader. The
//! module `rules` contains the rules. The module `fence` rejects writes of a replica that is not
//! the leader any more.

mod fence;
mod rules;

use std::future::Future;
use std::time::Duration;

use bundle_cluster::ByName;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::PostParams;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use self::fence::of_leader;
pub use self::fence::{Fence, FencedService, NotLeader};
use self::rules::{Candidate, INSTANCE, LeaseDecision, ObservedLease};
use crate::BoxError;
use crate::telemetry::metrics::Metrics;

/// Name of the Lease in the system namespace.
const LEASE_NAME: &str = "bundle-webhook";
/// Time limit for the reconciler to stop after the lease was lost. After this time, the future of
/// the reconciler is dropped.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// The leader election of this replica.
pub struct Election {
    leases: Api<Lease>,
    candidate: Candidate,
    duration: Duration,
    fence: Fence,
    metrics: Metrics,
    on_access: Box<dyn Fn() + Send + Sync>,
}

/// A lease that this replica has acquired or renewed.
struct HeldLease {
    lease: Lease,
    /// Time at which the request that acquired or renewed the lease was started. No other replica
    /// can have observed this version of the lease before this time.
    since: Instant,
}

impl Election {
    /// Creates a candidate. The identity must differ between replicas. `fence` is open while this
    /// replica is the leader. `on_access` is called each time this replica has read an existing
    /// lease, or has created the lease.
    pub fn new(
        leases: Api<Lease>,
        identity: String,
        duration: Duration,
        fence: Fence,
        metrics: Metrics,
        on_access: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let instance = format!("{:016x}", rand::random::<u64>());
        Self {
            leases,
            candidate: Candidate::new(identity, instance, duration),
            duration,
            fence,
            metrics,
            on_access: Box::new(on_access),
        }
    }

    /// Runs `work` while this replica is the leader. The token of `work` is cancelled when the
    /// lease is lost. When `work` ends or after `shutdown`, releases the lease and returns.
    pub async fn lead<W, F>(mut self, shutdown: CancellationToken, work: W) -> Result<(), BoxError>
    where
        W: Fn(CancellationToken) -> F,
        F: Future<Output = Result<(), BoxError>>,
    {
        loop {
            let held = tokio::select! {
                held = self.acquire() => held,
                () = shutdown.cancelled() => return Ok(()),
            };
            self.fence.open_until(self.end_of_term(&held));
            tracing::info!(
                identity = self.candidate.identity(),
                "acquired the lease: this replica is the leader"
            );
            self.metrics.leading(true);
            let stop = shutdown.child_token();
            let mut running = Box::pin(work(stop.clone()));
            let ended = tokio::select! {
                ended = &mut running => Some(ended),
                () = self.keep(held) => None,
            };
            self.fence.close();
            self.metrics.leading(false);
            if let Some(ended) = ended {
                self.release().await;
                return ended;
            }
            tracing::warn!("lost the lease; this replica stops reconciling");
            stop.cancel();
            // If `work` does not end within the time limit, its future is dropped here.
            if let Ok(ended) = timeout(STOP_TIMEOUT, running).await {
                ended?;
            }
        }
    }

    /// Waits until this replica holds the lease.
    async fn acquire(&mut self) -> HeldLease {
        let mut seen: Option<ObservedLease> = None;
        loop {
            match self.try_acquire(&mut seen).await {
                Ok(Some(held)) => return held,
                Ok(None) => sleep(rules::poll_interval(self.duration)).await,
                Err(error) => {
                    tracing::warn!(
                        error = crate::chain(&error),
                        "cannot read or acquire the lease; the request is retried"
                    );
                    sleep(rules::retry_interval(self.duration)).await;
                }
            }
        }
    }

    async fn try_acquire(
        &mut self,
        seen: &mut Option<ObservedLease>,
    ) -> Result<Option<HeldLease>, kube::Error> {
        let found = ByName(&self.leases).get_opt(LEASE_NAME).await?;
        let exists = found.is_some();
        let held = match self.candidate.decide(found.as_ref(), seen, Instant::now()) {
            LeaseDecision::Wait => None,
            LeaseDecision::Take => self.take(found).await?,
        };
        // A read that finds no lease does not prove access: the permission to create the lease can
        // be missing.
        if exists || held.is_some() {
            (self.on_access)();
        }
        Ok(held)
    }

    /// Acquires the lease: replaces the existing lease, or creates the lease. Returns `None` if
    /// another replica acquired the lease first.
    async fn take(&self, found: Option<Lease>) -> Result<Option<HeldLease>, kube::Error> {
        let since = Instant::now();
        let exists = found.is_some();
        let mut lease = found.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(LEASE_NAME.to_owned()),
                ..ObjectMeta::default()
            },
            ..Lease::default()
        });
        self.candidate.set_holder(&mut lease, now());
        let outcome = if exists {
            ByName(&self.leases).replace(LEASE_NAME, &lease).await
        } else {
            self.leases.create(&PostParams::default(), &lease).await
        };
        Ok(none_on_conflict(outcome)?.map(|lease| HeldLease { lease, since }))
    }

    /// Returns the time at which this replica must stop if the lease is not renewed.
    fn end_of_term(&self, held: &HeldLease) -> Instant {
        held.since + rules::stop_after(self.duration)
    }

    /// Renews the lease until the lease is lost. The lease is lost if another replica holds the
    /// lease. The lease is also lost if the API server was unreachable for so long that another
    /// replica can acquire it.
    async fn keep(&self, mut held: HeldLease) {
        loop {
            let until = self.end_of_term(&held);
            sleep(rules::renew_interval(self.duration)).await;
            loop {
                let attempt = tokio::select! {
                    attempt = self.renew(&held.lease) => attempt,
                    () = sleep_until(until) => return,
                };
                match attempt {
                    Ok(Some(fresh)) => {
                        held = fresh;
                        self.fence.open_until(self.end_of_term(&held));
                        break;
                    }
                    Ok(None) => return,
                    Err(error) => tracing::warn!(
                        error = crate::chain(&error),
                        "cannot renew the lease; the request is retried"
                    ),
                }
                tokio::select! {
                    () = sleep(rules::retry_interval(self.duration)) => {}
                    () = sleep_until(until) => return,
                }
            }
        }
    }

    /// Renews the lease once. Returns `None` if another replica holds the lease. A deleted lease is
    /// created again: other replicas do not acquire a deleted lease earlier than an unchanged
    /// lease.
    async fn renew(&self, lease: &Lease) -> Result<Option<HeldLease>, kube::Error> {
        let since = Instant::now();
        let mut lease = lease.clone();
        rules::renew_time(&mut lease, now());
        let found = match ByName(&self.leases).replace(LEASE_NAME, &lease).await {
            Ok(lease) => return Ok(Some(HeldLease { lease, since })),
            // Another client deleted the lease or changed it, for example only a label.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                ByName(&self.leases).get_opt(LEASE_NAME).await?
            }
            Err(error) => return Err(error),
        };
        let Some(mut lease) = found else {
            tracing::warn!("the lease was deleted; this replica creates it again");
            return self.take(None).await;
        };
        if !self.candidate.holds(&lease) {
            return Ok(None);
        }
        rules::renew_time(&mut lease, now());
        let renewed = none_on_conflict(ByName(&self.leases).replace(LEASE_NAME, &lease).await)?;
        Ok(renewed.map(|lease| HeldLease { lease, since }))
    }

    /// Releases the lease, so that another replica can acquire it immediately. If the release
    /// fails, the lease expires later.
    async fn release(&self) {
        let outcome = async {
            let Some(mut lease) = ByName(&self.leases).get_opt(LEASE_NAME).await? else {
                return Ok(());
            };
            if !self.candidate.holds(&lease) {
                return Ok(());
            }
            if let Some(spec) = &mut lease.spec {
                spec.holder_identity = None;
                spec.renew_time = Some(now());
            }
            if let Some(annotations) = &mut lease.metadata.annotations {
                annotations.remove(INSTANCE);
            }
            ByName(&self.leases)
                .replace(LEASE_NAME, &lease)
                .await
                .map(drop)
        };
        match timeout(STOP_TIMEOUT, outcome).await {
            Ok(Ok(())) => tracing::info!("released the lease"),
            Ok(Err(error)) => {
                let error: kube::Error = error;
                tracing::warn!(error = crate::chain(&error), "cannot release the lease");
            }
            Err(_) => tracing::warn!("cannot release the lease in time"),
        }
    }
}

/// Returns the written lease. Returns `None` after a conflict: another client, usually another
/// replica, changed the lease.
fn none_on_conflict(outcome: Result<Lease, kube::Error>) -> Result<Option<Lease>, kube::Error> {
    match outcome {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Method, Request, Response, StatusCode};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower_test::mock::Handle;

    use super::*;

    const DURATION: Duration = Duration::from_secs(15);
    type Server = Handle<Request<Body>, Response<Body>>;

    fn election() -> (Election, Server) {
        election_with(|| {})
    }

    fn election_with(on_access: impl Fn() + Send + Sync + 'static) -> (Election, Server) {
        let (service, server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let leases = Api::namespaced(Client::new(service, "sys"), "sys");
        let election = Election::new(
            leases,
            "me".into(),
            DURATION,
            Fence::default(),
            Metrics::default(),
            on_access,
        );
        (election, server)
    }

    /// Expects a request, sends the response, and returns the body of the request.
    async fn exchange(
        server: &mut Server,
        method: Method,
        status: StatusCode,
        body: Value,
    ) -> Value {
        let (request, reply) = server.next_request().await.unwrap();
        assert_eq!(request.method(), method);
        let sent = request.into_body().collect_bytes().await.unwrap();
        let body = Body::from(serde_json::to_vec(&body).unwrap());
        reply.send_response(Response::builder().status(status).body(body).unwrap());
        serde_json::from_slice(&sent).unwrap_or_default()
    }

    fn failure(status: StatusCode) -> Value {
        let reason = status.canonical_reason().unwrap_or_default();
        json!({
            "kind": "Status",
            "status": "Failure",
            "code": status.as_u16(),
            "message": reason,
            "reason": reason.replace(' ', ""),
        })
    }

    fn stored(mut lease: Value, version: &str) -> Value {
        lease["metadata"]["resourceVersion"] = version.into();
        lease
    }

    /// Acquires a lease that does not exist yet.
    async fn take(server: &mut Server) -> Value {
        let missing = failure(StatusCode::NOT_FOUND);
        exchange(server, Method::GET, StatusCode::NOT_FOUND, missing).await;
        let (request, reply) = server.next_request().await.unwrap();
        assert_eq!(request.method(), Method::POST);
        let sent = request.into_body().collect_bytes().await.unwrap();
        let lease = stored(serde_json::from_slice(&sent).unwrap(), "1");
        let body = Body::from(serde_json::to_vec(&lease).unwrap());
        reply.send_response(Response::new(body));
        lease
    }

    #[tokio::test(start_paused = true)]
    async fn work_starts_with_the_lease_which_is_released_at_its_end() {
        let (election, mut server) = election();
        let shutdown = CancellationToken::new();
        let leading = tokio::spawn(election.lead(shutdown.clone(), |stop| async move {
            stop.cancelled().await;
            Ok(())
        }));
        let lease = take(&mut server).await;
        assert_eq!(lease["spec"]["holderIdentity"], "me");
        let renewed = stored(lease.clone(), "2");
        exchange(&mut server, Method::PUT, StatusCode::OK, renewed.clone()).await;
        shutdown.cancel();
        exchange(&mut server, Method::GET, StatusCode::OK, renewed.clone()).await;
        let given = exchange(&mut server, Method::PUT, StatusCode::OK, renewed).await;
        assert_eq!(given["spec"].get("holderIdentity"), None);
        leading.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn work_stops_when_another_replica_holds_the_lease() {
        let (election, mut server) = election();
        let running = Arc::new(AtomicUsize::new(0));
        let shutdown = CancellationToken::new();
        let counted = running.clone();
        let leading = tokio::spawn(election.lead(shutdown.clone(), move |stop| {
            let running = counted.clone();
            async move {
                running.fetch_add(1, Ordering::SeqCst);
                stop.cancelled().await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        }));
        let mut lease = take(&mut server).await;
        let conflict = failure(StatusCode::CONFLICT);
        exchange(&mut server, Method::PUT, StatusCode::CONFLICT, conflict).await;
        assert_eq!(running.load(Ordering::SeqCst), 1);
        lease["spec"]["holderIdentity"] = "other".into();
        let others = stored(lease, "7");
        exchange(&mut server, Method::GET, StatusCode::OK, others.clone()).await;
        // After its first check, this replica is not new any more.
        exchange(&mut server, Method::GET, StatusCode::OK, others).await;
        assert_eq!(running.load(Ordering::SeqCst), 0);
        shutdown.cancel();
        leading.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn leader_creates_a_deleted_lease_again_and_keeps_working() {
        let (election, mut server) = election();
        let fence = election.fence.clone();
        let shutdown = CancellationToken::new();
        let leading = tokio::spawn(election.lead(shutdown.clone(), |stop| async move {
            stop.cancelled().await;
            Ok(())
        }));
        let first = take(&mut server).await;
        let missing = || failure(StatusCode::NOT_FOUND);
        exchange(&mut server, Method::PUT, StatusCode::NOT_FOUND, missing()).await;
        exchange(&mut server, Method::GET, StatusCode::NOT_FOUND, missing()).await;
        let created = stored(first.clone(), "9");
        let sent = exchange(&mut server, Method::POST, StatusCode::CREATED, created).await;
        assert_eq!(sent["spec"]["holderIdentity"], "me");
        assert_eq!(
            sent["metadata"]["annotations"],
            first["metadata"]["annotations"]
        );
        // The next request is a renewal of this leader.
        let renewed = stored(first, "10");
        exchange(&mut server, Method::PUT, StatusCode::OK, renewed).await;
        assert!(fence.is_open());
        leading.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn replica_without_permission_on_the_lease_retries_and_has_no_access() {
        let accesses = Arc::new(AtomicUsize::new(0));
        let counted = accesses.clone();
        let (mut election, mut server) = election_with(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let acquiring = tokio::spawn(async move { election.acquire().await });
        let denied = || failure(StatusCode::FORBIDDEN);
        let missing = || failure(StatusCode::NOT_FOUND);
        exchange(&mut server, Method::GET, StatusCode::FORBIDDEN, denied()).await;
        exchange(&mut server, Method::GET, StatusCode::NOT_FOUND, missing()).await;
        exchange(&mut server, Method::POST, StatusCode::FORBIDDEN, denied()).await;
        exchange(&mut server, Method::GET, StatusCode::NOT_FOUND, missing()).await;
        let held = json!({
            "metadata": {"name": LEASE_NAME, "resourceVersion": "1"},
            "spec": {"holderIdentity": "other"},
        });
        // Each request shows that the election has handled the previous response.
        exchange(&mut server, Method::GET, StatusCode::OK, held.clone()).await;
        assert_eq!(accesses.load(Ordering::SeqCst), 0);
        exchange(&mut server, Method::GET, StatusCode::OK, held).await;
        assert_eq!(accesses.load(Ordering::SeqCst), 1);
        acquiring.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn writes_of_a_leader_that_was_paused_are_rejected_before_any_task_runs() {
        let (mut election, mut server) = election();
        let fence = election.fence.clone();
        let held = tokio::join!(election.acquire(), take(&mut server)).0;
        fence.open_until(election.end_of_term(&held));
        tokio::time::advance(rules::renew_interval(DURATION)).await;
        assert!(fence.is_open());
        tokio::time::advance(rules::stop_after(DURATION)).await;
        assert!(!fence.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn work_stops_before_the_lease_expires_if_the_api_server_is_unreachable() {
        let (election, mut server) = election();
        let (stopped, mut told) = tokio::sync::mpsc::channel(1);
        let shutdown = CancellationToken::new();
        let leading = tokio::spawn(election.lead(shutdown.clone(), move |stop| {
            let stopped = stopped.clone();
            async move {
                stop.cancelled().await;
                stopped.send(Instant::now()).await?;
                Ok(())
            }
        }));
        take(&mut server).await;
        let began = Instant::now();
        // The server does not respond to later requests.
        let ended = told.recv().await.unwrap();
        assert!(ended.duration_since(began) < DURATION);
        shutdown.cancel();
        leading.await.unwrap().unwrap();
    }
}
