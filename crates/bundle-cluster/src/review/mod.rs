//! One admission review from the needs of an object to the verdict. The webhook and `kubectl bundle check` both call [`verdict`], each with its own lookups.
//! The rules are `bundle_core::review`.

mod content;
mod facts;

use std::sync::Arc;

use bundle_core::diagnostic::Finding;
use bundle_core::names::KubeName;
use bundle_core::policy::Policy;
use bundle_core::review::{
    Answer, ClassFact, Image, Requester, Subject, Verdict, judge, may_look, needs,
};
use bundle_core::rights::Question;
use bundle_core::version::ServerVersion;
use bundle_oci::registry::ImageMetadata;
use bundle_trust::{carried, proof};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use self::content::{Content, carried_look};
use self::facts::gather;

pub use self::facts::on_class;

/// Answers of the API server to the questions of reviews.
pub trait ReviewLookups: Sync {
    /// The namespace of the pod.
    fn system_namespace(&self) -> &str;
    /// The namespace of the pod's keys and inventories.
    fn state_namespace(&self) -> &str;
    /// The version of the API server; `None` until it is known.
    fn server(&self) -> Option<ServerVersion>;
    /// A class by name.
    fn class(&self, name: &KubeName) -> impl Future<Output = ClassFact> + Send;
    /// Returns whether `requester` has a right.
    fn may(
        &self,
        requester: &Requester,
        question: &Question,
    ) -> impl Future<Output = Answer> + Send;
    /// A BundleDeployment by name, with metadata and status.
    fn deployment(
        &self,
        name: &KubeName,
    ) -> impl Future<Output = Result<Option<Value>, Finding>> + Send;
    /// Returns whether a ConfigMap of the system namespace is immutable; `None` if there is none.
    fn immutable(
        &self,
        name: &KubeName,
    ) -> impl Future<Output = Result<Option<bool>, Finding>> + Send;
    /// The present time, for trust roots and stamps.
    fn now(&self) -> Timestamp;
    /// The examinations of signatures that this process remembers.
    fn examinations(&self) -> &proof::Memory;
}

/// The SignaturePolicies that are about an image.
#[derive(Debug, Clone)]
pub struct MatchingPolicies {
    /// The policies.
    pub policies: Vec<Arc<Policy>>,
    /// A number that changes with any policy of the cluster.
    pub generation: u64,
}

/// Answers about the image of one review.
pub trait ImageLookups: Sync {
    /// The policies about `image`. Asked once, after all other facts are known.
    fn policies(&self, image: &Image) -> Result<MatchingPolicies, Finding>;
    /// Asks the registry for `image`, and for its signatures if there are policies.
    fn look(
        &self,
        image: &Image,
        policies: &MatchingPolicies,
    ) -> impl Future<Output = Result<Arc<ImageMetadata>, Finding>> + Send;
    /// Forgets answers of the registry: the review did not admit them, and the image may be signed a moment later.
    fn forget(&self, image: &Image, policies: &MatchingPolicies)
    -> impl Future<Output = ()> + Send;
    /// Returns whether the registry is asked although other facts refuse the object already.
    fn looks_where_refused(&self) -> bool;
    /// The end of the review: no signature is examined after it. `None` without a limit.
    fn until(&self) -> Option<Instant>;
}

/// Gathers what the review of `subject` needs, and judges. The image comes last: a registry of the requester's choice is asked only if nothing else refuses.
pub async fn verdict<L: ReviewLookups, I: ImageLookups>(
    lookups: &L,
    images: &I,
    subject: &Subject<'_>,
    requester: &Requester,
) -> Verdict {
    let needs = needs(subject);
    let gathered = gather(lookups, requester, &needs).await;
    let unseen = gathered.facts(&Content::NotAsked);
    let image = match &needs.image {
        Some(image) if images.looks_where_refused() || may_look(subject, &unseen) => image,
        _ => return judge(subject, &unseen),
    };
    // Once for the whole review, and after everything that had to be waited for.
    let matching = match images.policies(image) {
        Ok(known) => known,
        Err(why) => return judge(subject, &gathered.facts(&Content::PoliciesUnknown(why))),
    };
    let judged = |looked: &Result<Arc<ImageMetadata>, Finding>| {
        let content = Content::Seen {
            looked,
            policies: &matching.policies,
            examinations: lookups.examinations(),
            now: lookups.now(),
            until: images.until(),
        };
        judge(subject, &gathered.facts(&content))
    };
    let unusable = match carried_look(subject.new, image) {
        Some(Err(why)) => Some(why),
        Some(looked) => {
            let verdict = judged(&looked.map(Arc::new));
            // In all other cases the registry may know more signatures than the object carries.
            if matches!(verdict, Verdict::Admit { .. }) {
                return verdict;
            }
            None
        }
        None => None,
    };
    let looked = images.look(image, &matching).await;
    let mut verdict = judged(&looked);
    if !matches!(verdict, Verdict::Admit { .. }) {
        images.forget(image, &matching).await;
    }
    if let Some(why) = unusable {
        let why = carried::left_aside(why);
        match &mut verdict {
            Verdict::Admit { warnings, .. } => warnings.push(why),
            Verdict::Refuse(findings) | Verdict::CannotTell(findings) => findings.push(why),
        }
    }
    verdict
}
