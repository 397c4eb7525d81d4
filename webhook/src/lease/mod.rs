//! Who reconciles: a Lease of coordination.k8s.io, taken, renewed and given back; the reconciler runs only while it is held.
//! Not here: the rules of taking (rules) and what the reconciler does.

mod rules;

use std::future::Future;
use std::time::Duration;

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
        let Some(mut lease) = self.leases.get_opt(NAME).await? else {
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
                won(self
                    .leases
                    .replace(NAME, &PostParams::default(), &lease)
                    .await)
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
        match self
            .leases
            .replace(NAME, &PostParams::default(), &lease)
            .await
        {
            Ok(lease) => Ok(Some(lease)),
            // Somebody wrote to it; perhaps only a label.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let found = self.leases.get(NAME).await?;
                if !self.candidate.holds(&found) {
                    return Ok(None);
                }
                let mut lease = found;
                rules::touch(&mut lease, now());
                won(self
                    .leases
                    .replace(NAME, &PostParams::default(), &lease)
                    .await)
            }
            Err(error) => Err(error),
        }
    }

    /// So that another replica need not wait. If it fails, the lease runs out.
    async fn give_back(&self) {
        let outcome = async {
            let Some(mut lease) = self.leases.get_opt(NAME).await? else {
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
            self.leases
                .replace(NAME, &PostParams::default(), &lease)
                .await
                .map(drop)
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
