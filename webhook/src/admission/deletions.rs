//! Reviews of deletions, and of updates that lead to a deletion. This module collects the facts for
//! the decision. The rule is in `bundle_core::review::deletion`.

use bundle_api::names::{ANNOTATION_ADMIT, FINALIZER_INSTALLED, GROUP, verb};
use bundle_cluster::review::on_class;
use bundle_core::diagnostic::{Findings, Outcome};
use bundle_core::names::{KubeName, NameKind};
use bundle_core::review::deletion::{
    Deletion, DeletionFacts, OwnerFact, has_finalizer, is_guarded_update, judge_deletion, too_early,
};
use bundle_core::review::owners::reject_owner_reference;
use bundle_core::review::{ConfirmedFacts, Kind, StampChange, Verdict, adds_future_write};
use bundle_core::rights::AccessReview;
use futures::future::{OptionFuture, join_all};
use jiff::Timestamp;
use serde_json::Value;

use super::review::Request;
use super::stamps::stamping;
use super::{Admission, Lookups, rejections};
use crate::stored_object::written_times;

/// Returns the kind of the deleted object if the request deletes one of the project's own objects.
pub(super) fn kind(request: &Request) -> Option<Kind> {
    let known = request.kind.group == GROUP
        && request.sub_resource.is_empty()
        && request.operation == "DELETE";
    Kind::ALL
        .into_iter()
        .find(|kind| known && kind.as_str() == request.kind.kind)
}

impl<L: Lookups> Admission<L> {
    /// Returns the verdict of the validating call on a deletion.
    pub(super) async fn deletion(&self, request: &Request, kind: Kind) -> Verdict {
        let findings = self.findings_of_deletion(request, kind, false).await;
        match findings.outcome() {
            None => Verdict::Admit {
                warnings: findings,
                stamp: StampChange::None,
            },
            Some(Outcome::Unknown) => Verdict::Unknown(findings),
            Some(_) => Verdict::Refuse(findings),
        }
    }

    /// Checks an update that requires the permissions of a deletion (`is_guarded_update`,
    /// `adds_future_write`). Returns a rejection if the requester does not have these permissions, or if they are unknown.
    /// Returns `None` for every other update. The caller checks the other rules.
    pub(super) async fn guarded_update(&self, request: &Request, kind: Kind) -> Option<Verdict> {
        let (old, new) = (&request.old_object, &request.object);
        let now = self.lookups.now().as_millisecond();
        let is_guarded = is_guarded_update(kind, old, new, (FINALIZER_INSTALLED, ANNOTATION_ADMIT))
            || adds_future_write(written_times(old), written_times(new), now);
        if old.is_null() || !is_guarded {
            return None;
        }
        let findings = self.findings_of_deletion(request, kind, true).await;
        match findings.outcome()? {
            Outcome::Unknown => Some(Verdict::Unknown(findings)),
            _ => Some(Verdict::Refuse(findings)),
        }
    }

    async fn findings_of_deletion(
        &self,
        request: &Request,
        kind: Kind,
        is_update: bool,
    ) -> Findings {
        let deadline = request.deadline;
        let judging = async {
            let own = self.lookups.own_user().await;
            let requester = &request.requester;
            // When a collection is deleted, the API server sends one request per object, and the
            // name in each request is empty.
            let name = match request.name.as_str() {
                "" => request.old_object["metadata"]["name"].as_str(),
                name => Some(name),
            };
            let deletion = Deletion {
                kind,
                name: name.unwrap_or_default(),
                object: &request.old_object,
                requester,
                // A person can run this program outside of a pod with their own credentials. In
                // this case the requester is the person, not the pod.
                own: own.as_deref() == Some(requester.user.as_str())
                    && requester.service_account().is_some(),
                is_finalized: has_finalizer(&request.old_object, FINALIZER_INSTALLED),
            };
            if is_update && deletion.is_trusted() {
                return Findings::default();
            }
            let stored = (kind, deletion.name, deletion.object);
            let _share = match self.facts_share(request, stored).await {
                Ok(share) => share,
                Err(busy) => return busy.into(),
            };
            let facts = self.deletion_facts(&deletion).await;
            let mut findings = judge_deletion(&deletion, &facts);
            if !is_update && findings.outcome().is_none() && !deletion.own {
                let since = self.lookups.enforced_since();
                findings.extend(too_early(
                    &deletion,
                    self.lookups.now().as_millisecond(),
                    since.map(Timestamp::as_millisecond),
                ));
            }
            let is_taken_over = is_update
                && kind == Kind::BundleDeployment
                && !deletion.is_trusted()
                && !deletion.is_foreign(&facts)
                && !deletion.is_by_recorded(&facts);
            if is_taken_over {
                let owner = reject_owner_reference(deletion.name, &request.object);
                findings.extend(owner);
            }
            findings
        };
        let late = || rejections::deadline_exceeded(deadline.limit()).into();
        deadline.run(judging).await.unwrap_or_else(late)
    }

    async fn deletion_facts(&self, deletion: &Deletion<'_>) -> DeletionFacts {
        let lookups = &self.lookups;
        let vouched = self.vouched(deletion);
        let covers_owners = vouched
            .as_ref()
            .map(|vouched| vouched.covers_owners(deletion.object));
        let owner = deletion.owner().map(async |(name, uid)| {
            // The owner reference contains an invalid name. An object with this name cannot exist.
            let Ok(name) = KubeName::parse(NameKind::Subdomain, name) else {
                return OwnerFact::DeletedOrAbsent;
            };
            match lookups.deployment(deletion.requester, &name).await {
                Ok(Some(found)) if is_staying(&found, uid) => OwnerFact::Present,
                Ok(_) => OwnerFact::DeletedOrAbsent,
                Err(why) => OwnerFact::Unavailable(why),
            }
        });
        if deletion.is_trusted() {
            return DeletionFacts {
                owner: OptionFuture::from(owner).await,
                covers_owners,
                ..DeletionFacts::default()
            };
        }
        let may = async |question: AccessReview| {
            lookups.has_permission(deletion.requester, &question).await
        };
        let classes = deletion.classes();
        let classes = join_all(classes.iter().map(async |name| {
            let asked = may(on_class(verb::USE, name, lookups.system_namespace()));
            let (class, allowed) = futures::join!(lookups.class(name), asked);
            (name.clone(), class, allowed)
        }));
        let resource = deletion.kind.plural();
        let manages = may(AccessReview::resource(
            verb::MANAGE,
            GROUP,
            resource,
            None,
            Some(deletion.name),
        ));
        let (classes, may_manage) = futures::join!(classes, manages);
        let mut facts = DeletionFacts {
            recorded: vouched.map_or_else(Vec::new, |vouched| {
                vouched.parts.content().into_iter().cloned().collect()
            }),
            may_manage: Some(may_manage),
            covers_owners,
            ..DeletionFacts::default()
        };
        for (name, class, allowed) in classes {
            facts.classes.insert(name.to_string(), class);
            facts.may_use.insert(name.into(), allowed);
        }
        facts
    }

    /// Returns the facts that the stamp or the seal of the object proves.
    fn vouched(&self, deletion: &Deletion<'_>) -> Option<ConfirmedFacts> {
        let (kind, name, object) = (deletion.kind, deletion.name, deletion.object);
        let moment = self.seal_moment(self.lookups.now());
        self.lookups
            .with_stamp_key(|key| stamping::confirmed_facts(key, kind, name, object, &moment))
    }
}

fn is_staying(deployment: &Value, uid: &str) -> bool {
    let metadata = &deployment["metadata"];
    metadata["uid"] == uid && metadata["deletionTimestamp"].is_null()
}
