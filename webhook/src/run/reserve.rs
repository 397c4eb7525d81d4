//! The parts of the memory in [`PROCESS_RESERVE`]. The build fails if the sum of the parts exceeds
//! this value.

use bundle_trust::proof::ExaminationCache;

use crate::budget::{PROCESS_RESERVE, requests};
use crate::clients::{allowed_reviews, recent_digests, registries};
use crate::content_service::callers;
use crate::{admission, reconcile};

/// Anonymous memory of the process without its caches and large requests, in bytes: runtime,
/// connections and watches. This value is an estimate: the measurements of anonymous memory are in
/// `docs/reference/limits.md`. The resident memory is larger, because it includes pages of the
/// program file, which the kernel can evict at any time. The memory of installed objects is not
/// included.
const PROCESS: u64 = 6 << 20;
/// Maximum memory of all caches of the process, in bytes.
const CACHES: u64 = (admission::CACHES_BYTES
    + ExaminationCache::MAX_BYTES
    + callers::MAX_BYTES
    + allowed_reviews::MAX_BYTES
    + recent_digests::MAX_BYTES
    + registries::CACHES_BYTES
    + reconcile::CACHES_BYTES) as u64;

const _: () = assert!(
    CACHES <= PROCESS_RESERVE / 2,
    "the caches must leave half of the reserve to the process and to requests"
);
const _: () = assert!(
    PROCESS + CACHES + requests::CAPACITY <= PROCESS_RESERVE,
    "the process, its caches and its large requests must fit into the reserve"
);
