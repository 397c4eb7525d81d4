//! Reviews of the size of the project's own objects: the controllers must be able to read each
//! stored object. The rule is in `bundle_core::review::size`.

use bundle_core::review::Verdict;
use bundle_core::review::size::{MeasuredObject, judge_size};

use super::review::Request;
use super::{Admission, Lookups};

impl<L: Lookups> Admission<L> {
    /// Returns the rejection of an object that is too large, and `None` for every other object.
    /// Writes of the pod are admitted: data that other users have added must not prevent the pod
    /// from writing finalizers and stamps.
    pub(super) async fn too_large(&self, request: &Request) -> Option<Verdict> {
        let (old, new) = request.weights?;
        let measured = |object, weight| MeasuredObject { object, weight };
        let old = Some(measured(&request.old_object, old)).filter(|old| !old.object.is_null());
        let findings = judge_size(old, measured(&request.object, new));
        if !findings.has_errors() || self.is_from_pod(request).await {
            return None;
        }
        Some(Verdict::Refuse(findings))
    }

    /// Returns true if the pod itself is the requester. Returns false if a person runs this program
    /// with their own credentials.
    async fn is_from_pod(&self, request: &Request) -> bool {
        let pod_user = request.deadline.run(self.lookups.own_user()).await;
        let requester = &request.requester;
        pod_user.flatten().as_deref() == Some(requester.user.as_str())
            && requester.service_account().is_some()
    }
}
