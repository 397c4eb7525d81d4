//! Who reconciles: a Lease of coordination.k8s.io, taken, renewed and given back; the reconciler runs only while it is held.
//! Not here: the rules of taking (rules) and what the reconciler does.

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

use self::rules::{Candidate, INSTANCE, Sighting, Step};
use crate::BoxError;
use crate::metrics::Metrics;

/// The Lease's name, in the system namespace.
const NAME: &str = "bundle-webhook";
/// How long a reconciler that has lost the lease may take to stop, before it is dropped where it stands.
const STOP: Duration = Duration::from_secs(3);

/// This replica's part in the election.
pub struct Election {
    leases: Api<Lease>,
    candidate: Candidate,
    duration: Duration,
    metrics: Metrics,
}

impl Election {
    /// A candidate of that identity, which has to differ between replicas.
    pub fn new(leases: Api<Lease>, identity: String, duration: Duration, metrics: Metrics) -> Self {
        Self {
            leases,
            candidate: Candidate::new(identity, format!("{:016x}", rand::random::<u64>())),
            duration,
            metrics,
        }
    }

    /// Runs `work` whenever the lease is held, with a token that ends when it is lost; returns when `work` ends by
    /// itself or after `shutdown`, and then gives the lease back.
    pub async fn lead<W, F>(mut self, shutdown: CancellationToken, work: W) -> Result<(), BoxError>
    where
        W: Fn(CancellationToken) -> F,
        F: Future<Output = Result<(), BoxError>>,
    {
        loop {
            let lease = tokio::select! {
                lease = self.acquire() => lease,
                () = shutdown.cancelled() => return Ok(()),
            };
            tracing::info!(identity = self.candidate.identity(), "leading");
            self.metrics.leading(true);
            let stop = shutdown.child_token();
            let mut running = Box::pin(work(stop.clone()));
            let ended = tokio::select! {
                ended = &mut running => Some(ended),
                () = self.keep(lease) => None,
            };
            self.metrics.leading(false);
            if let Some(ended) = ended {
                self.give_back().await;
                return ended;
            }
            tracing::warn!("the lease is lost; this replica stops reconciling");
            stop.cancel();
            // Dropping it ends it in any case.
            if let Ok(ended) = timeout(STOP, running).await {
                ended?;
            }
        }
    }

    /// Until the lease is ours.
    async fn acquire(&mut self) -> Lease {
        let mut seen: Option<Sighting> = None;
        loop {
            match self.try_acquire(&mut seen).await {
                Ok(Some(lease)) => return lease,
                Ok(None) => {}
                Err(error) => tracing::warn!(
                    error = crate::chain(&error),
                    "cannot look at the lease; trying again"
                ),
            }
            sleep(rules::retry(self.duration)).await;
        }
    }

    async fn try_acquire(
        &mut self,
        seen: &mut Option<Sighting>,
    ) -> Result<Option<Lease>, kube::Error> {
        let Some(mut lease) = ByName(&self.leases).get_opt(NAME).await? else {
            let mut lease = Lease {
                metadata: ObjectMeta {
                    name: Some(NAME.to_owned()),
                    ..ObjectMeta::default()
                },
                ..Lease::default()
            };
            self.candidate.take(&mut lease, self.duration, now());
            return won(self.leases.create(&PostParams::default(), &lease).await);
        };
        match self.candidate.look(&lease, seen, Instant::now()) {
            Step::Wait => Ok(None),
            Step::Take => {
                self.candidate.take(&mut lease, self.duration, now());
                won(ByName(&self.leases).replace(NAME, &lease).await)
            }
        }
    }

    /// Renews until the lease is lost: somebody else has it, or nobody was reached for so long that somebody may.
    async fn keep(&self, mut lease: Lease) {
        let mut renewed = Instant::now();
        loop {
            let until = renewed + rules::give_up(self.duration);
            sleep(rules::renew(self.duration)).await;
            loop {
                let began = Instant::now();
                let attempt = tokio::select! {
                    attempt = self.renew(&lease) => attempt,
                    () = sleep_until(until) => return,
                };
                match attempt {
                    Ok(Some(fresh)) => {
                        lease = fresh;
                        renewed = began;
                        break;
                    }
                    Ok(None) => return,
                    Err(error) => tracing::warn!(
                        error = crate::chain(&error),
                        "cannot renew the lease; trying again"
                    ),
                }
                tokio::select! {
                    () = sleep(rules::retry(self.duration)) => {}
                    () = sleep_until(until) => return,
                }
            }
        }
    }

    /// One renewal; `None` if the lease is somebody else's.
    async fn renew(&self, lease: &Lease) -> Result<Option<Lease>, kube::Error> {
        let mut lease = lease.clone();
        rules::touch(&mut lease, now());
        match ByName(&self.leases).replace(NAME, &lease).await {
            Ok(lease) => Ok(Some(lease)),
            // Somebody wrote to it; perhaps only a label.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let found = ByName(&self.leases).get(NAME).await?;
                if !self.candidate.holds(&found) {
                    return Ok(None);
                }
                let mut lease = found;
                rules::touch(&mut lease, now());
                won(ByName(&self.leases).replace(NAME, &lease).await)
            }
            Err(error) => Err(error),
        }
    }

    /// So that another replica need not wait. If it fails, the lease runs out.
    async fn give_back(&self) {
        let outcome = async {
            let Some(mut lease) = ByName(&self.leases).get_opt(NAME).await? else {
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
            ByName(&self.leases).replace(NAME, &lease).await.map(drop)
        };
        match timeout(STOP, outcome).await {
            Ok(Ok(())) => tracing::info!("the lease is given back"),
            Ok(Err(error)) => {
                let error: kube::Error = error;
                tracing::warn!(error = crate::chain(&error), "cannot give the lease back");
            }
            Err(_) => tracing::warn!("cannot give the lease back in time"),
        }
    }
}

/// Who writes second has lost the race, which is no error.
fn won(outcome: Result<Lease, kube::Error>) -> Result<Option<Lease>, kube::Error> {
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
        let (service, server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let leases = Api::namespaced(Client::new(service, "sys"), "sys");
        let election = Election::new(leases, "me".into(), DURATION, Metrics::default());
        (election, server)
    }

    /// Expects a request, gives the answer, and returns what was sent.
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

    /// Takes a lease that is not there yet.
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
    async fn work_begins_with_the_lease_and_the_lease_is_given_back_with_its_end() {
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
    async fn work_stops_when_somebody_else_has_the_lease() {
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
        // From here it is a candidate like any other.
        exchange(&mut server, Method::GET, StatusCode::OK, others).await;
        assert_eq!(running.load(Ordering::SeqCst), 0);
        shutdown.cancel();
        leading.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn work_stops_before_others_may_begin_when_nobody_is_reached() {
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
        // Requests hang from here on.
        let ended = told.recv().await.unwrap();
        assert!(ended.duration_since(began) < DURATION);
        shutdown.cancel();
        leading.await.unwrap().unwrap();
    }
}
