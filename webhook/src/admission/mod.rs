//! Admission: a router with `/validate` and `/mutate`. Both paths run the same review. A review
//! writes nothing to the cluster, and each wait has a time limit. `bundle_core::review` contains
//! the rules, and the module `server` contains the listener.

mod arrivals;
mod body;
mod config_maps;
mod configuration;
mod definitions;
mod deletions;
mod lookups;
mod received;
pub(crate) mod rejections;
mod review;
mod size;
mod stamps;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use bundle_core::review::Verdict;
use bundle_core::review::text::{self, Refusal};
use tokio::time::Instant;
use tracing::Instrument as _;

pub(crate) use lookups::CACHES_BYTES;
pub use lookups::cluster::ClusterLookups;
pub use lookups::{Lookups, Policies};

use crate::budget::Budget;
use crate::shared::Shared;
use crate::telemetry::metrics::{Metrics, ReviewOutcome};
use crate::telemetry::spans;
use arrivals::ArrivalQueue;
use lookups::cache::ReviewCache;
use received::ReceivedReview;
use review::Request;

/// The state that the handlers of `/validate` and `/mutate` share.
pub struct Admission<L> {
    lookups: L,
    metrics: Metrics,
    /// Time limit of one review, if its request has no deadline.
    deadline: Duration,
    arrivals: ArrivalQueue,
    memory: ReviewCache,
    /// The memory limits for reviews.
    budget: Arc<Budget>,
}

impl<L> Admission<L> {
    /// Creates the state. `deadline` must be shorter than the timeout of the API server for webhook
    /// calls.
    pub fn new(lookups: L, metrics: Metrics, deadline: Duration, budget: Arc<Budget>) -> Self {
        Self {
            lookups,
            metrics,
            deadline,
            arrivals: ArrivalQueue::default(),
            memory: ReviewCache::default(),
            budget,
        }
    }
}

/// Returns the router of the pod.
pub fn router(shared: &Arc<Shared>) -> Router {
    let settings = &shared.settings;
    let live = ClusterLookups::new(shared.clone(), settings.review_deadline);
    let metrics = shared.metrics.clone();
    routes(Arc::new(Admission::new(
        live,
        metrics,
        settings.review_deadline,
        shared.budget.clone(),
    )))
}

/// Returns the router of `admission`. Tests pass lookups that read from memory.
pub fn routes<L: Lookups>(admission: Arc<Admission<L>>) -> Router {
    Router::new()
        .route("/validate", post(validate::<L>))
        .route("/mutate", post(mutate::<L>))
        .with_state(admission)
}

async fn validate<L: Lookups>(
    State(admission): State<Arc<Admission<L>>>,
    received: ReceivedReview,
) -> Response {
    let ReceivedReview {
        request, started, ..
    } = &received;
    let verdict = async {
        let verdict = admission.validating_verdict(request).await;
        admission.record_verdict(request, &verdict, *started);
        verdict
    }
    .instrument(request.span())
    .await;
    let warnings = text::warnings(&verdict);
    let review = match text::refusal(&verdict) {
        None => review::allowed(&request.uid, &warnings, &[]),
        Some(refusal) => review::denied(&request.uid, &refusal, &warnings),
    };
    admission.respond(received, &review)
}

async fn mutate<L: Lookups>(
    State(admission): State<Arc<Admission<L>>>,
    received: ReceivedReview,
) -> Response {
    let request = &received.request;
    let mutated = admission
        .mutating_patch(request)
        .instrument(request.span())
        .await;
    let review = match mutated {
        // Only the response to the validating call contains warnings.
        Ok(patch) => review::allowed(&request.uid, &[], &patch),
        Err(refusal) => review::denied(&request.uid, &refusal, &[]),
    };
    admission.respond(received, &review)
}

impl<L: Lookups> Admission<L> {
    /// Logs the decision of a review, and counts it in the metrics.
    fn record_verdict(&self, request: &Request, verdict: &Verdict, started: Instant) {
        let outcome = match verdict {
            Verdict::Admit { .. } => ReviewOutcome::Admitted,
            Verdict::Refuse(_) => ReviewOutcome::Refused,
            Verdict::Unknown(_) => ReviewOutcome::CannotTell,
        };
        let code = verdict.findings().first().map(|finding| finding.code);
        let kind = match request.kind.kind.as_str() {
            kind if writes::kind(request).is_some()
                || deletions::kind(request).is_some()
                || definitions::is_update(request)
                || configuration::is_known(kind) =>
            {
                kind
            }
            _ => "other",
        };
        let operation = match request.operation.as_str() {
            operation @ ("CREATE" | "UPDATE" | "DELETE") => operation,
            _ => "other",
        };
        let took = started.elapsed();
        self.metrics.review(kind, operation, outcome, code, took);
        if let Some(code) = code {
            spans::code(code.id);
        }
        if outcome == ReviewOutcome::Admitted {
            spans::outcome("admitted");
            tracing::debug!(?took, "admitted");
        } else {
            spans::outcome(if outcome == ReviewOutcome::Refused {
                "refused"
            } else {
                "unknown"
            });
            let refusal: Option<Refusal> = text::refusal(verdict);
            tracing::info!(
                ?took,
                "{}",
                refusal.map_or_else(String::new, |refusal| refusal.message)
            );
        }
    }
}

#[cfg(test)]
mod tests;
