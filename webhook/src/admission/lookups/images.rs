//! Image lookups of one review, from the cache of reviews or from the registry of the image.

use std::net::IpAddr;
use std::sync::Arc;

use bundle_cluster::review::{ImageLookups, MatchingPolicies};
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy;
use bundle_core::review::Image;
use bundle_oci::registry::{ImageMetadata, MemoryReservation as _};
use tokio::time::Instant;

use super::Lookups;
use super::cache::ImageKey;
use crate::admission::review::Request;
use crate::admission::{Admission, rejections};
use crate::budget::lookups::LookupMemory;
use crate::budget::{Budget, Share, wait_for_share};
use crate::server::deadline::ReviewDeadline;

/// Image lookups of one review. They end at the deadline of the review at the latest.
pub(in crate::admission) struct ReviewImages<'a, L> {
    admission: &'a Admission<L>,
    requester: &'a str,
    client: Option<IpAddr>,
    deadline: ReviewDeadline,
    /// Reserved memory for registry responses. The memory is released after the review, when this
    /// field is dropped.
    memory: Arc<LookupMemory>,
}

impl<'a, L> ReviewImages<'a, L> {
    /// Creates the lookups for the review of `request`.
    pub(in crate::admission) fn new(admission: &'a Admission<L>, request: &'a Request) -> Self {
        let Request {
            client, deadline, ..
        } = *request;
        let requester = request.requester.user.as_str();
        let timeout = deadline.limit() / 4;
        let memory = LookupMemory::of_review(&admission.budget, (requester, client), timeout);
        Self {
            admission,
            requester,
            client,
            deadline,
            memory: Arc::new(memory),
        }
    }
}

impl<L> ReviewImages<'_, L> {
    fn key(&self, image: &Image, policies: &MatchingPolicies) -> Option<ImageKey> {
        ImageKey::of(image, (self.requester, self.client), policies.generation)
    }
}

impl<L: Lookups> ImageLookups for ReviewImages<'_, L> {
    type VerificationSlot = Share;

    fn policies(&self, image: &Image) -> Result<MatchingPolicies, Finding> {
        let Some((policies, generation)) = self.admission.lookups.policies() else {
            let why = "the SignaturePolicies are not loaded yet";
            return Err(Finding::error(codes::trust::CANNOT_TELL, why).hint("try again"));
        };
        Ok(MatchingPolicies {
            policies: policy::matching(&image.reference, policies.values()),
            generation,
        })
    }

    async fn read_image(
        &self,
        image: &Image,
        policies: &MatchingPolicies,
    ) -> Result<Arc<ImageMetadata>, Finding> {
        let Admission {
            lookups, memory, ..
        } = self.admission;
        let key = self.key(image, policies);
        let signatures = !policies.policies.is_empty();
        let asking = lookups.read_image(image, signatures, self.memory.clone());
        memory.get_or_read(key.as_ref(), asking).await
    }

    async fn reserve(&self, bytes: u64) -> Result<(), Finding> {
        if self.memory.begin().await && self.memory.grow(bytes).await {
            return Ok(());
        }
        Err(rejections::no_memory_for_proof())
    }

    async fn forget(&self, image: &Image, policies: &MatchingPolicies) {
        if let Some(key) = self.key(image, policies) {
            self.admission.memory.forget(&key).await;
        }
    }

    fn reads_rejected_images(&self) -> bool {
        false
    }

    async fn verification_slot(&self) -> Result<Share, Finding> {
        let pool = &self.admission.budget.verifications;
        let timeout = self.deadline.limit() / 4;
        let caps = Budget::of_verification(pool, self.requester, self.client);
        match wait_for_share(timeout, pool.take(1, caps)).await {
            Some(Ok(share)) => Ok(share),
            _ => Err(rejections::no_verification_slot(timeout)),
        }
    }

    fn until(&self) -> Option<Instant> {
        Some(self.deadline.end())
    }
}
