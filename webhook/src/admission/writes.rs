//! One write: what its stamps are worth, what the judge says, and the stamp that it gets.
//! Not here: how it arrives and is answered (mod), and who else is asked (lookups).

use bundle_cluster::review;
use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::review::text::{self, Refusal};
use bundle_core::review::{
    Kind, Requester, SealMoment, Stamping, Standing, Subject, Verdict, VouchState, Vouched,
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::images::ReviewImages;
use super::memory;
use super::review::Request;
use super::stamping::{self, Inherited, MadeFor, StampInput, WantedStamp};
use super::{Admission, Lookups, configuration, deletions, write_time};

/// A request of one of the three kinds that are judged, with what its stamps say.
struct Standings<'a> {
    subject: Subject<'a>,
    requester: Requester,
    /// What vouches for the object as it was.
    vouched: Option<Vouched>,
    /// Whether that is its seal.
    is_sealed: bool,
    /// What a Bundle inherits.
    inherited: Option<Inherited>,
    /// When the review began.
    began: Timestamp,
}

impl<L: Lookups> Admission<L> {
    /// What the validating call answers.
    pub(super) async fn validated(&self, request: &Request) -> Verdict {
        if let Some(kind) = deletions::kind(request) {
            return self.deletion(request, kind).await;
        }
        if let Some(refused) = self.too_large(request).await {
            return refused;
        }
        let Some(kind) = kind(request) else {
            return unjudged(request);
        };
        if let Some(refused) = self.guarded_update(request, kind).await {
            return refused;
        }
        let until = Instant::now() + self.deadline;
        let standings = self.standings(request, kind, &request.name, until).await;
        let key = memory::key(&standings.subject, &request.requester);
        let verdict = match self.memory.take(&key).await {
            Some(verdict) => verdict,
            None => {
                self.judged(&standings.subject, &request.requester, until)
                    .await
            }
        };
        self.stamp_unchanged(verdict, &standings)
    }

    /// The patch. Refused is only what would never come to the validating call.
    pub(super) async fn mutated(&self, request: &Request) -> Result<Vec<Value>, Refusal> {
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
            .judged(&standings.subject, &request.requester, until)
            .await;
        // The schema says this too, before the validating call, and in other words on every version of the API server.
        let too_long = |finding: &Finding| finding.code == codes::review::NAME_TOO_LONG;
        if verdict.findings().errors().any(too_long) {
            return text::refusal(&verdict).map_or(Ok(Vec::new()), Err);
        }
        let stamping = match &verdict {
            Verdict::Admit { stamp, .. } => stamp,
            // The validating call refuses it.
            Verdict::Refuse(_) | Verdict::CannotTell(_) => &Stamping::None,
        };
        let wanted = Self::wanted(stamping, &standings);
        if let WantedStamp::Stamp(stamp) = &wanted {
            patch.extend(write_time::patch(&request.object, stamp));
        }
        let wanted = self
            .lookups
            .with_stamp_key(|key| wanted.into_annotation(key));
        patch.extend(stamping::patch(&request.object, wanted.as_deref()));
        let key = memory::key(&standings.subject, &request.requester);
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
        let began = self.lookups.now();
        let old = Some(&request.old_object).filter(|old| !old.is_null());
        let own_user = tokio::time::timeout_at(until, self.lookups.own_user()).await;
        let own_user = own_user.ok().flatten();
        let own = own_user.as_deref() == Some(request.requester.user.as_str());
        let moment = self.seal_moment(began);
        let state = old.map(|old| {
            self.lookups
                .with_stamp_key(|key| stamping::state(key, kind, name, old, &moment))
        });
        let is_sealed = matches!(state, Some(VouchState::Sealed(_)));
        let vouched = state.and_then(|state| state.vouched().ok());
        let admits = old.is_some_and(|old| {
            self.lookups
                .with_stamp_key(|key| stamping::admits(key, kind, name, old, &request.object))
        });
        let inherited = match kind {
            Kind::Bundle if own && old.is_none() => {
                tokio::time::timeout_at(until, self.inherited(&request.object, &moment))
                    .await
                    .ok()
                    .flatten()
            }
            _ => None,
        };
        let standing = match (&inherited, &vouched) {
            (Some(_), _) => Standing::Inherited,
            (None, Some(_)) => Standing::Stamped,
            (None, None) => Standing::Unstamped,
        };
        Standings {
            subject: Subject {
                kind,
                name,
                old,
                new: &request.object,
                standing,
                admits,
                // Run by a person, with that person's rights, it is that person who asks.
                own: own && request.requester.user.starts_with("system:serviceaccount:"),
            },
            requester: request.requester.clone(),
            vouched,
            is_sealed,
            inherited,
            began,
        }
    }

    /// When a stamp is looked at, and since when the registrations prove that every write was reviewed.
    pub(super) fn seal_moment(&self, now: Timestamp) -> SealMoment {
        SealMoment {
            now: now.as_millisecond(),
            intact_since: self.lookups.intact_since().map(Timestamp::as_millisecond),
        }
    }

    /// What a Bundle that the pod creates inherits.
    async fn inherited(&self, bundle: &Value, moment: &SealMoment) -> Option<Inherited> {
        let made_for = MadeFor::read(bundle)?;
        // The reference is whatever the requester wrote.
        let name = made_for.name.parse().ok()?;
        let deployment = match self.lookups.deployment(&name).await {
            Ok(found) => found?,
            Err(error) => {
                tracing::warn!(%error, deployment = made_for.name, "cannot read the BundleDeployment that a Bundle is made for");
                return None;
            }
        };
        self.lookups
            .with_stamp_key(|key| made_for.asked_for(key, bundle, &deployment, moment))
    }

    /// Gathers what is needed, and judges, within the time that there is.
    async fn judged(
        &self,
        subject: &Subject<'_>,
        requester: &Requester,
        until: Instant,
    ) -> Verdict {
        let images = ReviewImages::new(self, requester, until);
        let judging = Box::pin(review::verdict(&self.lookups, &images, subject, requester));
        tokio::time::timeout_at(until, judging)
            .await
            .unwrap_or_else(|_| {
                Verdict::CannotTell(
                    Finding::error(
                        codes::review::DEADLINE,
                        format!("the review did not finish within {:?}", self.deadline),
                    )
                    .hint("retry; the result is not cached")
                    .into(),
                )
            })
    }

    fn wanted(stamping: &Stamping, standings: &Standings<'_>) -> WantedStamp {
        StampInput {
            subject: &standings.subject,
            requester: &standings.requester,
            vouched: standings.vouched.as_ref(),
            is_sealed: standings.is_sealed,
            inherited: standings.inherited.as_ref(),
            began: standings.began,
        }
        .wanted(stamping)
    }

    /// An admitted object carries the stamp that a mutating call made for this write, or none where it gets none. Another one, though valid once, was
    /// brought along; and without one nothing would ever be done with the object.
    fn stamp_unchanged(&self, verdict: Verdict, standings: &Standings<'_>) -> Verdict {
        let Verdict::Admit { stamp, .. } = &verdict else {
            return verdict;
        };
        let found = stamping::annotation(standings.subject.new);
        let wanted = Self::wanted(stamp, standings);
        let is_wanted = self.lookups.with_stamp_key(|key| wanted.is(key, found));
        if standings.subject.is_leaving() || is_wanted {
            return verdict;
        }
        let field = format!(
            "metadata.annotations[{}]",
            bundle_api::names::ANNOTATION_STAMP
        );
        let finding = if found.is_some() {
            Finding::error(
                codes::review::NOT_ADMITTED,
                "the admission stamp is not the one that this write was given",
            )
            .hint("remove the annotation; the webhook sets it")
        } else {
            Finding::error(
                codes::review::NOT_ADMITTED,
                "this write came without an admission stamp, and nothing would be done with the object",
            )
            .hint("try again; if that does not help, the mutating webhook is not registered")
        };
        Verdict::Refuse(finding.at_field(field).into())
    }
}

/// The kind of a request that is judged: not one about a subresource, of which the spec is no part.
pub(super) fn kind(request: &Request) -> Option<Kind> {
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
    let writes = request.sub_resource.is_empty() && request.operation != "DELETE";
    if ours && configuration::is_known(&request.kind.kind) && writes {
        let old = Some(&request.old_object).filter(|old| !old.is_null());
        let now = jiff::Timestamp::now();
        return configuration::judge(&request.kind.kind, &request.name, old, &request.object, now);
    }
    Verdict::Admit {
        warnings: Findings::default(),
        stamp: Stamping::None,
    }
}
