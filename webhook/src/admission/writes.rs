//! The review of one write: its stamps, the verdict, and the new stamp.

use bundle_cluster::review;
use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::footprint::Footprint;
use bundle_core::names::KubeName;
use bundle_core::review::text::{self, Refusal};
use bundle_core::review::{
    ConfirmedFacts, Kind, Requester, SealCheckContext, SealState, StampChange, StampState, Subject,
    Verdict,
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::timeout_at;

use super::config_maps::ReviewedConfigMap;
use super::lookups::cache;
use super::lookups::images::ReviewImages;
use super::review::Request;
use super::stamps::stamping::{self, InheritedStamp, OwnerDeployment, StampInput, WantedStamp};
use super::stamps::write_time;
use super::{Admission, Lookups, configuration, definitions, deletions, rejections};
use crate::budget::{Budget, Cap, Share};
use crate::stored_object;

/// The write of an object of a reviewed kind, with the facts that the stamps of the object prove.
struct ReviewedWrite<'a> {
    subject: Subject<'a>,
    requester: Requester,
    /// The facts that the stamp or seal of the stored object proves.
    vouched: Option<ConfirmedFacts>,
    /// True if the stored object has a seal.
    is_sealed: bool,
    /// The part of the stamp that a Bundle inherits from its BundleDeployment.
    inherited: Option<InheritedStamp>,
    /// Time at which the review began.
    began: Timestamp,
    /// Reserved memory of `vouched` and `inherited`.
    _shares: Vec<Share>,
}

impl<L: Lookups> Admission<L> {
    /// Returns the verdict of the validating call.
    pub(super) async fn validating_verdict(&self, request: &Request) -> Verdict {
        if let Some(kind) = deletions::kind(request) {
            return self.deletion(request, kind).await;
        }
        let system = self.lookups.system_namespace();
        if let Some(reviewed) = ReviewedConfigMap::of(request, system) {
            return self.config_map(&reviewed, request).await;
        }
        if definitions::is_update(request) {
            return self.definition_update(request).await;
        }
        if let Some(refused) = self.too_large(request).await {
            return refused;
        }
        let Some(kind) = kind(request) else {
            return verdict_without_review(request);
        };
        if let Some(refused) = self.guarded_update(request, kind).await {
            return refused;
        }
        let write = self.reviewed_write(request, kind, &request.name);
        let write = match write.await {
            Ok(write) => write,
            Err(busy) => return Verdict::Unknown(busy.into()),
        };
        let key = cache::key(&write.subject, &request.requester, request.client);
        let verdict = match self.memory.take(&key).await {
            Some(verdict) => verdict,
            None => self.verdict_of_write(&write.subject, request).await,
        };
        self.stamp_unchanged(verdict, &write)
    }

    /// Returns the patch of the mutating call. Rejects only requests that would never reach the
    /// validating call, and requests for which the facts of a stamp or seal are unknown.
    pub(super) async fn mutating_patch(&self, request: &Request) -> Result<Vec<Value>, Refusal> {
        let Some(kind) = kind(request) else {
            return Ok(Vec::new());
        };
        // The validating call rejects an object that is too large, so lookups are not necessary. A
        // stalled lookup would only keep the large object in memory.
        if self.too_large(request).await.is_some() {
            return Ok(Vec::new());
        }
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
        let write = match self.reviewed_write(request, kind, name).await {
            Ok(write) => write,
            Err(busy) => {
                let verdict = Verdict::Unknown(busy.into());
                return text::refusal(&verdict).map_or(Ok(Vec::new()), Err);
            }
        };
        let verdict = self.verdict_of_write(&write.subject, request).await;
        // If the name is too long, the schema would reject the object before the validating call.
        // The message of the schema depends on the version of the API server, so the mutating call
        // rejects the object.
        let too_long = |finding: &Finding| finding.code == codes::review::NAME_TOO_LONG;
        if verdict.findings().errors().any(too_long) {
            return text::refusal(&verdict).map_or(Ok(Vec::new()), Err);
        }
        let stamping = match &verdict {
            Verdict::Admit { stamp, .. } => stamp,
            // The validating call rejects the write.
            Verdict::Refuse(_) | Verdict::Unknown(_) => &StampChange::None,
        };
        let wanted = Self::wanted(stamping, &write);
        if let WantedStamp::Stamp(stamp) = &wanted {
            patch.extend(write_time::patch(&request.object, stamp));
        }
        let wanted = self
            .lookups
            .with_stamp_key(|key| wanted.into_annotation(key));
        patch.extend(stamping::patch(&request.object, wanted.as_deref()));
        if patch.is_empty() && write.subject.old.is_some() {
            patch.push(patch_without_change(kind));
        }
        let key = cache::key(&write.subject, &request.requester, request.client);
        self.memory.insert(key, verdict).await;
        Ok(patch)
    }

    /// Collects the facts about this write that the stamps of the objects prove. The error is the
    /// finding if these facts are unknown, for example because no memory is free for them.
    async fn reviewed_write<'a>(
        &self,
        request: &'a Request,
        kind: Kind,
        name: &'a str,
    ) -> Result<ReviewedWrite<'a>, Finding> {
        let deadline = request.deadline;
        let began = self.lookups.now();
        let old = Some(&request.old_object).filter(|old| !old.is_null());
        let own_user = deadline.run(self.lookups.own_user()).await.flatten();
        let own = own_user.as_deref() == Some(request.requester.user.as_str());
        let moment = self.seal_moment(began);
        let share = match old {
            Some(old) => {
                let object = (kind, name, old);
                self.facts_share(request, object).await?
            }
            None => None,
        };
        let state = old.map(|old| {
            self.lookups
                .with_stamp_key(|key| stamping::state(key, kind, name, old, &moment))
        });
        let is_sealed = matches!(state, Some(SealState::Sealed(_)));
        let vouched = state.and_then(|state| state.confirmed_facts().ok());
        let share = share.filter(|_| vouched.is_some());
        let admits = old.is_some_and(|old| {
            self.lookups
                .with_stamp_key(|key| stamping::admits(key, kind, name, old, &request.object))
        });
        let inherited = match kind {
            Kind::Bundle if own && old.is_none() => {
                let inherited = self.inherited(request, &moment);
                let late = || Err(rejections::deadline_exceeded(deadline.limit()));
                deadline.run(inherited).await.unwrap_or_else(late)?
            }
            _ => None,
        };
        let (inherited, share_of_inherited) = inherited.unzip();
        let stamp_state = match (&inherited, &vouched) {
            (Some(_), _) => StampState::Inherited,
            (None, Some(_)) => StampState::Stamped,
            (None, None) => StampState::Unstamped,
        };
        Ok(ReviewedWrite {
            subject: Subject {
                kind,
                name,
                old,
                new: &request.object,
                stamp_state,
                admits,
                // A person can run this program outside of a pod with their own credentials. In
                // this case the requester is the person, not the pod.
                own: own && request.requester.user.starts_with("system:serviceaccount:"),
            },
            requester: request.requester.clone(),
            vouched,
            is_sealed,
            inherited,
            began,
            _shares: share
                .into_iter()
                .chain(share_of_inherited.flatten())
                .collect(),
        })
    }

    /// Reserves the memory of the facts that the stamp and the seal of an object prove, because a
    /// review can hold these facts during a lookup that stalls, and because the requester in the
    /// stamp can have a much larger identity than the requester of this review. The tuple `object`
    /// contains kind, name and JSON of the Kubernetes object. Returns `None` if the facts need no
    /// memory.
    ///
    /// The review waits for this memory while it holds the memory of its objects, so all memory can
    /// be in use by reviews that wait. Therefore the wait ends after half of the time limit, and at
    /// the latest at the deadline. If the memory is not free by then, the function returns an
    /// error.
    pub(super) async fn facts_share(
        &self,
        request: &Request,
        object: (Kind, &str, &Value),
    ) -> Result<Option<Share>, Finding> {
        match self.facts_memory(object) {
            Footprint(0) => Ok(None),
            memory => self.wait_for_facts_share(request, memory).await.map(Some),
        }
    }

    /// Returns the memory of the facts that the stamp and the seal of an object prove.
    fn facts_memory(&self, (kind, name, object): (Kind, &str, &Value)) -> Footprint {
        let now = self.lookups.now().as_millisecond();
        stored_object::from_review(kind, name, object, now).facts_memory()
    }

    /// Waits until memory for facts is reserved ([`Self::facts_share`]).
    async fn wait_for_facts_share(
        &self,
        request: &Request,
        memory: Footprint,
    ) -> Result<Share, Finding> {
        let pool = &self.budget.parsed_objects;
        let share = pool.take(memory.0, self.facts_caps(request));
        match timeout_at(request.deadline.end_of_wait(2), share).await {
            Ok(Ok(share)) => Ok(share),
            _ => Err(rejections::no_memory_for_facts()),
        }
    }

    /// Returns the limits for the memory of facts.
    fn facts_caps(&self, request: &Request) -> Vec<Cap> {
        let pool = &self.budget.parsed_objects;
        let (requester, client) = (&request.requester.user, request.client);
        Budget::of_running_review(pool, requester, client, request.reserved)
    }

    /// Returns the current time, and the start of the period in which the registrations have been
    /// intact, so that every write was reviewed.
    pub(super) fn seal_moment(&self, now: Timestamp) -> SealCheckContext {
        SealCheckContext {
            now: now.as_millisecond(),
            intact_since: self.lookups.intact_since().map(Timestamp::as_millisecond),
        }
    }

    /// Returns the part of the stamp that a Bundle inherits if the pod creates the Bundle, with its
    /// reserved memory. The error is the finding if the BundleDeployment cannot be read, or if no
    /// memory is free.
    ///
    /// If the memory is not free, the review drops the BundleDeployment while it waits, and then
    /// reads it again. Otherwise, other reviews of generated Bundles could read no BundleDeployment
    /// during the wait.
    async fn inherited(
        &self,
        request: &Request,
        moment: &SealCheckContext,
    ) -> Result<Option<(InheritedStamp, Option<Share>)>, Finding> {
        let bundle = &request.object;
        let Some(owner) = OwnerDeployment::read(bundle) else {
            return Ok(None);
        };
        // The requester controls the owner reference, so the name may be invalid.
        let Ok(name) = owner.name.parse::<KubeName>() else {
            return Ok(None);
        };
        let mut share: Option<Share> = None;
        loop {
            let deployment = self.lookups.deployment(&request.requester, &name);
            let deployment = match deployment.await {
                Ok(Some(deployment)) => deployment,
                Ok(None) => return Ok(None),
                Err(error) => {
                    tracing::warn!(%error, deployment = owner.name, "cannot read the BundleDeployment of a Bundle");
                    return Err(error);
                }
            };
            let memory = self.facts_memory((Kind::BundleDeployment, owner.name, &*deployment));
            if share.is_none() && memory > Footprint(0) {
                let pool = &self.budget.parsed_objects;
                share = pool.try_take(memory.0, self.facts_caps(request));
            }
            let reserved = share.as_ref().map_or(0, Share::weight);
            if memory <= Footprint(reserved) {
                let inherited = self
                    .lookups
                    .with_stamp_key(|key| owner.requesters_of(key, bundle, &deployment, moment));
                return Ok(inherited.map(|inherited| (inherited, share)));
            }
            drop(deployment);
            drop(share.take());
            share = Some(self.wait_for_facts_share(request, memory).await?);
        }
    }

    /// Reads the objects that the rules need, and computes the verdict, within the deadline.
    async fn verdict_of_write(&self, subject: &Subject<'_>, request: &Request) -> Verdict {
        let deadline = request.deadline;
        let images = ReviewImages::new(self, request);
        let requester = &request.requester;
        let judging = Box::pin(review::verdict(&self.lookups, &images, subject, requester));
        let late = || Verdict::Unknown(rejections::deadline_exceeded(deadline.limit()).into());
        deadline.run(judging).await.unwrap_or_else(late)
    }

    fn wanted(stamping: &StampChange, write: &ReviewedWrite<'_>) -> WantedStamp {
        StampInput {
            subject: &write.subject,
            requester: &write.requester,
            vouched: write.vouched.as_ref(),
            is_sealed: write.is_sealed,
            inherited: write.inherited.as_ref(),
            began: write.began,
        }
        .wanted(stamping)
    }

    /// Rejects an admitted object if its stamp was not created for this write. The stamp can be a
    /// copy of an earlier stamp. An object without a stamp would never be reconciled.
    fn stamp_unchanged(&self, verdict: Verdict, write: &ReviewedWrite<'_>) -> Verdict {
        let Verdict::Admit { stamp, .. } = &verdict else {
            return verdict;
        };
        let found = stored_object::stamp_in_review(write.subject.new);
        let wanted = Self::wanted(stamp, write);
        let is_wanted = self
            .lookups
            .with_stamp_key(|key| wanted.matches(key, found));
        if write.subject.is_deleted_unconfirmed() || is_wanted {
            return verdict;
        }
        let field = format!(
            "metadata.annotations[{}]",
            bundle_api::names::ANNOTATION_STAMP
        );
        let finding = if found.is_some() {
            Finding::error(
                codes::review::NOT_ADMITTED,
                "the admission stamp was not created for this write",
            )
            .hint("remove the annotation; the webhook sets it")
        } else {
            Finding::error(
                codes::review::NOT_ADMITTED,
                "the write has no admission stamp, and the object would never be reconciled",
            )
            .hint("try again; if the error persists, register the mutating webhook")
        };
        Verdict::Refuse(finding.at_field(field).into())
    }
}

/// Returns a patch operation that changes nothing. Without this operation, an update from `5` to
/// `5.0` increments the generation, although the review has the same text for both.
///
/// - The API server decodes an object again after each patch with at least one operation. The
///   decoding changes `5.0` to the integer `5`, because the API server encodes both as `5`.
/// - The API server calls mutating webhooks while it computes the updated object. Later,
///   `BeforeUpdate` in the API server compares this object with the stored object, and increments
///   the generation if the objects differ. For this comparison, a float and an integer are
///   different.
fn patch_without_change(kind: Kind) -> Value {
    serde_json::json!({"op": "test", "path": "/kind", "value": kind.as_str()})
}

/// Returns the kind of a reviewed request. Requests for subresources do not contain the spec, and
/// are not reviewed.
pub(super) fn kind(request: &Request) -> Option<Kind> {
    let known = request.kind.group == bundle_api::names::GROUP
        && request.kind.version == bundle_api::names::VERSION
        && request.sub_resource.is_empty()
        && matches!(request.operation.as_str(), "CREATE" | "UPDATE");
    Kind::ALL
        .into_iter()
        .find(|kind| known && kind.as_str() == request.kind.kind)
}

/// Returns the verdict on a request that this module does not review.
fn verdict_without_review(request: &Request) -> Verdict {
    let ours = request.kind.group == bundle_api::names::GROUP;
    let writes = request.sub_resource.is_empty() && request.operation != "DELETE";
    if ours && configuration::is_known(&request.kind.kind) && writes {
        let old = Some(&request.old_object).filter(|old| !old.is_null());
        let now = jiff::Timestamp::now();
        return configuration::judge(&request.kind.kind, &request.name, old, &request.object, now);
    }
    Verdict::Admit {
        warnings: Findings::default(),
        stamp: StampChange::None,
    }
}
