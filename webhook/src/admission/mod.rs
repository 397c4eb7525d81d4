//! Admission: one router with `/validate` and `/mutate`, over one judgement. It writes nothing and waits for nothing without a bound.
//! Not here: the rules (bundle_core::review), the listener with its limits (server), who else is asked and how (lookups, live).

mod configuration;
mod live;
mod lookups;
mod memory;
mod permits;
mod review;
mod stamping;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::review::text::{self, Refusal};
use bundle_core::review::{Kind, Requester, Stamping, Standing, Subject, Verdict, judge, needs};
use kube::core::admission::AdmissionResponse;
use serde_json::Value;
use tokio::time::Instant;

pub use live::Live;
pub use lookups::{Lookups, Policies, Right};
pub use review::UserInfo;

use crate::metrics::{Metrics, ReviewOutcome};
use crate::shared::Shared;
use memory::{ImageKey, Memory};
use review::Request;
use stamping::MadeFor;

/// A review of an update carries two objects of up to 3 MiB each, with their managed fields.
const BODY_LIMIT: usize = 8 * 1024 * 1024;

/// What the handlers share.
pub struct Admission<L> {
    lookups: L,
    metrics: Metrics,
    /// How long one review may take.
    deadline: Duration,
    memory: Memory,
}

impl<L> Admission<L> {
    /// Puts it together. `deadline` has to be shorter than what the API server waits.
    pub fn new(lookups: L, metrics: Metrics, deadline: Duration) -> Self {
        Self {
            lookups,
            metrics,
            deadline,
            memory: Memory::default(),
        }
    }
}

/// The router of the pod.
pub fn router(shared: &Arc<Shared>) -> Router {
    let settings = &shared.settings;
    let live = Live::new(shared.clone(), settings.review_deadline);
    let metrics = shared.metrics.clone();
    routes(Arc::new(Admission::new(
        live,
        metrics,
        settings.review_deadline,
    )))
}

/// The router over any lookups: tests have their own.
pub fn routes<L: Lookups>(admission: Arc<Admission<L>>) -> Router {
    Router::new()
        .route("/validate", post(validate::<L>))
        .route("/mutate", post(mutate::<L>))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(admission)
}

type Posted = Result<Bytes, BytesRejection>;

async fn validate<L: Lookups>(
    State(admission): State<Arc<Admission<L>>>,
    body: Posted,
) -> Response {
    let started = Instant::now();
    let request = match read(&admission.metrics, body, started) {
        Ok(request) => request,
        Err(response) => return response,
    };
    let verdict = admission.validated(&request).await;
    admission.told(&request, &verdict, started);
    let warnings = text::warnings(&verdict);
    Json(match text::refusal(&verdict) {
        None => review::allowed(&request.uid, &warnings, &[]),
        Some(refusal) => review::denied(&request.uid, &refusal, &warnings),
    })
    .into_response()
}

async fn mutate<L: Lookups>(State(admission): State<Arc<Admission<L>>>, body: Posted) -> Response {
    let started = Instant::now();
    let request = match read(&admission.metrics, body, started) {
        Ok(request) => request,
        Err(response) => return response,
    };
    let answer = match admission.mutated(&request).await {
        // Refusals and warnings are the validating call's, under its name.
        Ok(patch) => review::allowed(&request.uid, &[], &patch),
        Err(refusal) => review::denied(&request.uid, &refusal, &[]),
    };
    Json(answer).into_response()
}

/// The request, or what to answer instead.
fn read(metrics: &Metrics, body: Posted, started: Instant) -> Result<Request, Response> {
    let invalid = |message: String| {
        metrics.review(
            "other",
            "other",
            ReviewOutcome::Invalid,
            Some(codes::review::MALFORMED),
            started.elapsed(),
        );
        tracing::warn!(code = codes::review::MALFORMED.id, "{message}");
        message
    };
    let body = body.map_err(|rejection| {
        let status = rejection.status();
        let message = if status == StatusCode::PAYLOAD_TOO_LARGE {
            format!("the review is larger than {BODY_LIMIT} bytes, and nothing larger is read")
        } else {
            format!("the review could not be received: {rejection}")
        };
        (status, invalid(message) + "\n").into_response()
    })?;
    review::read(&body).map_err(|why| {
        let message = format!("{}: {}", codes::review::MALFORMED, invalid(why));
        Json(AdmissionResponse::invalid(message).into_review()).into_response()
    })
}

/// A request of one of the three kinds that are judged, with what its stamps say.
struct Standings<'a> {
    subject: Subject<'a>,
    requester: Requester,
    /// Whose stamp a Bundle inherits.
    inherited: Option<Requester>,
}

impl<L: Lookups> Admission<L> {
    async fn validated(&self, request: &Request) -> Verdict {
        let Some(kind) = kind(request) else {
            return unjudged(request);
        };
        let until = Instant::now() + self.deadline;
        let standings = self.standings(request, kind, &request.name, until).await;
        let key = memory::key(&standings.subject, &request.user_info);
        let verdict = match self.memory.take(&key).await {
            Some(verdict) => verdict,
            None => {
                self.judged(&standings.subject, &request.user_info, until)
                    .await
            }
        };
        self.stamp_unchanged(verdict, &standings)
    }

    /// The patch. Refused is only what would never come to the validating call.
    async fn mutated(&self, request: &Request) -> Result<Vec<Value>, Refusal> {
        let Some(kind) = kind(request) else {
            return Ok(Vec::new());
        };
        let mut patch = Vec::new();
        let generated = if request.name.is_empty() {
            stamping::generated(
                &request.object,
                kind,
                std::iter::repeat_with(rand::random::<u8>),
            )
        } else {
            None
        };
        if let Some(name) = &generated {
            patch.push(serde_json::json!({"op": "add", "path": "/metadata/name", "value": name}));
        }
        let name = generated.as_deref().unwrap_or(&request.name);
        let until = Instant::now() + self.deadline;
        let standings = self.standings(request, kind, name, until).await;
        let verdict = self
            .judged(&standings.subject, &request.user_info, until)
            .await;
        // The schema says this too, before the validating call, and in other words on every version of the API server.
        let too_long = |finding: &Finding| finding.code == codes::review::NAME_TOO_LONG;
        if verdict.findings().errors().any(too_long) {
            return text::refusal(&verdict).map_or(Ok(Vec::new()), Err);
        }
        let stamping = match &verdict {
            Verdict::Admit { stamp, .. } => *stamp,
            // The validating call refuses it.
            Verdict::Refuse(_) | Verdict::CannotTell(_) => Stamping::None,
        };
        let wanted = self.wanted(stamping, &standings);
        patch.extend(stamping::patch(&request.object, wanted.as_deref()));
        let key = memory::key(&standings.subject, &request.user_info);
        self.memory.leave(key, verdict).await;
        Ok(patch)
    }

    /// What the stamps on the objects say about this write.
    async fn standings<'a>(
        &self,
        request: &'a Request,
        kind: Kind,
        name: &'a str,
        until: Instant,
    ) -> Standings<'a> {
        let old = Some(&request.old_object).filter(|old| !old.is_null());
        let own_user = tokio::time::timeout_at(until, self.lookups.own_user()).await;
        let own_user = own_user.ok().flatten();
        let own = own_user.as_deref() == Some(request.user_info.username.as_str());
        let was_stamped = old.is_some_and(|old| {
            self.lookups
                .with_stamp_key(|key| stamping::stamped(key, kind, name, old).is_some())
        });
        let inherited = match kind {
            Kind::Bundle if own && old.is_none() => {
                tokio::time::timeout_at(until, self.inherited(&request.object))
                    .await
                    .ok()
                    .flatten()
            }
            _ => None,
        };
        let standing = match (&inherited, was_stamped) {
            (Some(_), _) => Standing::Inherited,
            (None, true) => Standing::Stamped,
            (None, false) => Standing::Unstamped,
        };
        Standings {
            subject: Subject {
                kind,
                name,
                old,
                new: &request.object,
                standing,
                // Run by a person, with that person's rights, it is that person who asks.
                own: own
                    && request
                        .user_info
                        .username
                        .starts_with("system:serviceaccount:"),
            },
            requester: (&request.user_info).into(),
            inherited,
        }
    }

    /// Whose stamp a Bundle that the pod creates inherits.
    async fn inherited(&self, bundle: &Value) -> Option<Requester> {
        let made_for = MadeFor::read(bundle)?;
        let deployment = match self.lookups.deployment(made_for.name).await {
            Ok(found) => found?,
            Err(error) => {
                tracing::warn!(%error, deployment = made_for.name, "cannot read the BundleDeployment that a Bundle is made for");
                return None;
            }
        };
        self.lookups
            .with_stamp_key(|key| made_for.asked_for(key, bundle, &deployment))
    }

    /// Gathers what is needed, and judges.
    async fn judged(&self, subject: &Subject<'_>, user: &UserInfo, until: Instant) -> Verdict {
        let needs = needs(subject);
        let image_key = match (&needs.image, self.lookups.policies()) {
            (Some(image), Some((_, generation))) => ImageKey::of(image, generation),
            _ => None,
        };
        let gathering = async {
            let remembered = match &image_key {
                Some(key) => self.memory.image(key).await,
                None => None,
            };
            lookups::gather(&self.lookups, user, subject, &needs, remembered).await
        };
        let Ok(gathered) = tokio::time::timeout_at(until, gathering).await else {
            return Verdict::CannotTell(
                Finding::error(
                    codes::review::DEADLINE,
                    format!("the review did not finish within {:?}", self.deadline),
                )
                .hint("try again; nothing was decided, and nothing is remembered")
                .into(),
            );
        };
        let verdict = judge(subject, &gathered.facts());
        if let (Verdict::Admit { .. }, Some(key), Some(Ok(looked))) =
            (&verdict, image_key, gathered.image)
            && looked.signatures.is_ok()
        {
            self.memory.remember(key, looked).await;
        }
        verdict
    }

    fn wanted(&self, stamping: Stamping, standings: &Standings<'_>) -> Option<String> {
        let Standings {
            subject,
            requester,
            inherited,
        } = standings;
        self.lookups.with_stamp_key(|key| {
            stamping::wanted(
                key,
                stamping,
                subject.kind,
                subject.name,
                (subject.old, subject.new),
                (requester, inherited.as_ref()),
            )
        })
    }

    /// An admitted object carries the stamp that it should, or none. Another one, though valid once, was brought along.
    fn stamp_unchanged(&self, verdict: Verdict, standings: &Standings<'_>) -> Verdict {
        let Verdict::Admit { stamp, .. } = &verdict else {
            return verdict;
        };
        let Some(found) = stamping::annotation(standings.subject.new) else {
            return verdict;
        };
        if standings.subject.is_leaving()
            || self.wanted(*stamp, standings).as_deref() == Some(found)
        {
            return verdict;
        }
        let finding = Finding::error(
            codes::review::NOT_ADMITTED,
            "the admission stamp is not the one that this write was given",
        )
        .at_field(format!(
            "metadata.annotations[{}]",
            bundle_api::names::ANNOTATION_STAMP
        ))
        .hint("remove the annotation; the webhook sets it");
        Verdict::Refuse(finding.into())
    }

    /// Counts and logs a verdict.
    fn told(&self, request: &Request, verdict: &Verdict, started: Instant) {
        let outcome = match verdict {
            Verdict::Admit { .. } => ReviewOutcome::Admitted,
            Verdict::Refuse(_) => ReviewOutcome::Refused,
            Verdict::CannotTell(_) => ReviewOutcome::CannotTell,
        };
        let code = verdict.findings().0.first().map(|finding| finding.code);
        let kind = match request.kind.kind.as_str() {
            kind if kind == Kind::Bundle.as_str() || configuration::is_known(kind) => kind,
            kind if self::kind(request).is_some() => kind,
            _ => "other",
        };
        let operation = match request.operation.as_str() {
            operation @ ("CREATE" | "UPDATE") => operation,
            _ => "other",
        };
        let took = started.elapsed();
        self.metrics.review(kind, operation, outcome, code, took);
        if outcome == ReviewOutcome::Admitted {
            tracing::debug!(
                kind,
                operation,
                name = request.name,
                user = request.user_info.username,
                ?took,
                "admitted"
            );
        } else {
            let refusal: Option<Refusal> = text::refusal(verdict);
            tracing::info!(
                kind,
                operation,
                name = request.name,
                user = request.user_info.username,
                code = code.map_or("", |code| code.id),
                ?took,
                "{}",
                refusal.map_or_else(String::new, |refusal| refusal.message)
            );
        }
    }
}

/// The kind of a request that is judged: not one about a subresource, of which the spec is no part.
fn kind(request: &Request) -> Option<Kind> {
    let known = request.kind.group == bundle_api::names::GROUP
        && request.kind.version == bundle_api::names::VERSION
        && request.sub_resource.is_empty()
        && matches!(request.operation.as_str(), "CREATE" | "UPDATE");
    Kind::ALL
        .into_iter()
        .find(|kind| known && kind.as_str() == request.kind.kind)
}

/// What is said about everything else.
fn unjudged(request: &Request) -> Verdict {
    let ours = request.kind.group == bundle_api::names::GROUP;
    if ours && configuration::is_known(&request.kind.kind) && request.sub_resource.is_empty() {
        let old = Some(&request.old_object).filter(|old| !old.is_null());
        return configuration::judge(&request.kind.kind, &request.name, old, &request.object);
    }
    Verdict::Admit {
        warnings: Findings::default(),
        stamp: Stamping::None,
    }
}

#[cfg(test)]
mod tests;
