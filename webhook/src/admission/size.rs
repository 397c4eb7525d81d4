//! Reviews of the size of our own objects: what is stored has to be readable afterwards, or nothing could be done for it.
//! Not here: the rule (bundle_core::review::size), or how objects are weighed (cluster).

use bundle_core::review::Verdict;
use bundle_core::review::size::{MeasuredObject, judge_size};

use super::review::Request;
use super::{Admission, Lookups};
use crate::cluster::WEIGHT_LIMITS;

impl<L: Lookups> Admission<L> {
    /// Returns the refusal of an object that is too large. The pod itself is let in: its finalizer and stamps must not be kept out by what others add.
    pub(super) async fn too_large(&self, request: &Request) -> Option<Verdict> {
        let (old, new) = request.weights?;
        let measured = |object, weight| MeasuredObject { object, weight };
        let old = Some(measured(&request.old_object, old)).filter(|old| !old.object.is_null());
        let findings = judge_size(old, measured(&request.object, new), WEIGHT_LIMITS);
        if !findings.has_errors() || self.is_own(request).await {
            return None;
        }
        Some(Verdict::Refuse(findings))
    }

    /// Returns whether the pod itself asks, and no person who runs it.
    async fn is_own(&self, request: &Request) -> bool {
        let own = tokio::time::timeout(self.deadline, self.lookups.own_user()).await;
        let requester = &request.requester;
        own.ok().flatten().as_deref() == Some(requester.user.as_str())
            && requester.service_account().is_some()
    }
}
