//! Answers that a review may ask for beside those of the cluster (`bundle_cluster::review`). Tests answer from memory.
//! How the API server and registries are asked: live.

use std::collections::BTreeMap;
use std::sync::Arc;

use bundle_cluster::review::ReviewLookups;
use bundle_core::diagnostic::Finding;
use bundle_core::policy::Policy;
use bundle_core::review::Image;
use bundle_oci::registry::ImageMetadata;
use jiff::Timestamp;

use crate::budget::looks::LookMemory;

/// The SignaturePolicies by name.
pub type Policies = Arc<BTreeMap<String, Arc<Policy>>>;

/// Answers to all questions of reviews.
pub trait Lookups: ReviewLookups + Send + 'static {
    /// The key of the stamp; handed to `with` so that it is never copied.
    fn with_stamp_key<T>(&self, with: impl FnOnce(&[u8]) -> T) -> T;
    /// The policies, with a number that changes with them; `None` until they are known.
    fn policies(&self) -> Option<(Policies, u64)>;
    /// The user name of the pod's own identity; `None` where it could not be found out.
    fn own_user(&self) -> impl Future<Output = Option<String>> + Send;
    /// Since when the registrations have been intact; `None` while they are not.
    fn intact_since(&self) -> Option<Timestamp>;
    /// Since when the API server can have carried out nothing without a review; `None` while it can, and while that is not known.
    fn enforced_since(&self) -> Option<Timestamp>;
    /// An image, with its signatures if they are wanted. Answers of the registry are held in `memory`.
    fn look(
        &self,
        image: &Image,
        signatures: bool,
        memory: Arc<LookMemory>,
    ) -> impl Future<Output = Result<ImageMetadata, Finding>> + Send;
}
