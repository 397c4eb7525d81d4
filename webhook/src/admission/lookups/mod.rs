//! Lookups that a review needs in addition to those of `bundle_cluster::review`: policies,
//! registrations, inventories and images. The module `cluster` sends the requests to the API server
//! and to registries. Tests have an implementation that returns results from memory.

pub(super) mod cache;
pub(super) mod cluster;
mod config_map_reads;
mod held_deployment;
pub(super) mod images;
mod serial_reads;

use std::collections::BTreeMap;
use std::sync::Arc;

use bundle_cluster::review::ReviewLookups;
use bundle_core::diagnostic::Finding;
use bundle_core::policy::Policy;
use bundle_core::review::{Image, Requester};
use bundle_oci::registry::ImageMetadata;
use jiff::Timestamp;

use crate::budget::lookups::LookupMemory;
use crate::reconcile::RecordedOwner;

/// Maximum memory of the caches of reviews, in bytes.
pub(crate) const CACHES_BYTES: usize = cache::MAX_BYTES;

/// The SignaturePolicies by name.
pub type Policies = Arc<BTreeMap<String, Arc<Policy>>>;

/// All lookups of reviews.
pub trait Lookups: ReviewLookups + Send + 'static {
    /// Passes the key of stamps to `with`, so that the key is never copied.
    fn with_stamp_key<T>(&self, with: impl FnOnce(&[u8]) -> T) -> T;
    /// Returns the policies, and a number that changes with each change of the policies. Returns
    /// `None` until the policies are loaded.
    fn policies(&self) -> Option<(Policies, u64)>;
    /// Returns the user name of the pod, or `None` if it is unknown.
    fn own_user(&self) -> impl Future<Output = Option<String>> + Send;
    /// Returns the start of the period in which the webhook registrations have been intact. Returns
    /// `None` while a registration is missing or altered.
    fn intact_since(&self) -> Option<Timestamp>;
    /// Returns the start of the period in which the registrations have required a review of every
    /// write, according to the last watch events. Returns `None` while the registrations do not
    /// require these reviews, or are not read yet.
    fn enforced_since(&self) -> Option<Timestamp>;
    /// Returns the sorted names of the Bundles that reference the ConfigMap `name`. Requesters with
    /// waiting lookups take turns.
    fn bundles_of_config_map(
        &self,
        requester: &Requester,
        name: &str,
    ) -> impl Future<Output = Result<Vec<String>, Finding>> + Send;
    /// Returns the BundleDeployment whose inventory records the object with this key and uid. The
    /// inventory of the BundleDeployment with uid `likely` is read first. Requesters with waiting
    /// lookups take turns.
    fn recorded_owner(
        &self,
        requester: &Requester,
        object: (&str, &str),
        likely: Option<&str>,
    ) -> impl Future<Output = Result<Option<RecordedOwner>, Finding>> + Send;
    /// Reads an image, with its signatures if `signatures` is true. `memory` reserves the memory
    /// for the responses of the registry.
    fn read_image(
        &self,
        image: &Image,
        signatures: bool,
        memory: Arc<LookupMemory>,
    ) -> impl Future<Output = Result<ImageMetadata, Finding>> + Send;
}
