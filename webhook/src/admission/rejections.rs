//! Findings about reviews that end before the rules have returned a verdict.

use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};

/// Hint for a requester after a review that ended without a decision.
const RETRY: &str = "try again; no decision was made";

/// Returns the finding for a review that exceeded its deadline.
pub(super) fn deadline_exceeded(deadline: Duration) -> Finding {
    Finding::error(
        codes::review::DEADLINE,
        format!("the review did not finish within {deadline:?}"),
    )
    .hint("retry; the result is not cached")
}

/// Returns the finding for a body that is not a review.
pub(super) fn malformed(why: &str) -> Finding {
    Finding::error(codes::review::MALFORMED, why)
        .hint("only API servers send reviews; find the client that sent this review")
}

/// Returns the finding for objects that need `wanted` bytes of memory after parsing.
pub(super) fn objects_too_large(wanted: u64, limit: u64) -> Finding {
    Finding::error(
        codes::review::OBJECT_TOO_LARGE,
        format!(
            "the objects of this request need {} MiB of memory when they are parsed, and the limit of a review is {} MiB",
            wanted.div_ceil(1 << 20),
            limit >> 20
        ),
    )
    .hint("use fewer and longer values; many small values, such as empty lists, need the most memory")
}

/// Returns the finding for a review that got no memory within `timeout`.
pub(super) fn no_memory(timeout: Duration) -> Finding {
    Finding::error(
        codes::review::BUSY,
        format!("no memory became available for this review within {timeout:.0?}"),
    )
    .hint(RETRY)
}

/// Returns the finding for a review that is rejected because other reviews of its requester use all
/// memory of this requester.
pub(super) fn memory_of_requester_in_use() -> Finding {
    Finding::error(
        codes::review::BUSY,
        "other reviews of this requester use all memory that one requester can use",
    )
    .hint("try again, with fewer large objects at a time; no decision was made")
}

/// Returns the finding for a review that cannot wait for memory, because the bodies of the waiting
/// reviews of its requester or address would need too much memory.
pub(super) fn too_many_waiting_reviews() -> Finding {
    let why =
        "not enough memory for this review now, and too many bytes of reviews wait for memory";
    Finding::error(codes::review::BUSY, why).hint(RETRY)
}

/// Returns the finding for an image whose metadata needs more memory than is free.
pub(super) fn no_memory_for_image() -> Finding {
    let why = "not enough memory for the response of the registry about the image";
    Finding::error(codes::review::BUSY, why).hint(RETRY)
}

/// Returns the finding for a review that got no memory for its proof.
pub(super) fn no_memory_for_proof() -> Finding {
    let why = "no memory became available for the proof of this review";
    Finding::error(codes::review::BUSY, why).hint(RETRY)
}

/// Returns the finding for a review that got no memory for the facts that a stamp or seal proves.
pub(super) fn no_memory_for_facts() -> Finding {
    let why = "not enough memory for the stamp and the seal of the stored object";
    Finding::error(codes::review::BUSY, why).hint(RETRY)
}

/// Returns the finding for a review whose response needs more memory than is free.
pub(super) fn no_memory_for_response() -> Finding {
    let why = "not enough memory for the response to this review";
    Finding::error(codes::review::BUSY, why).hint(RETRY)
}

/// Returns the finding for a review in which the verification of signatures did not begin within
/// `timeout`.
pub(super) fn no_verification_slot(timeout: Duration) -> Finding {
    let why = format!(
        "the verification of the signatures did not begin within {timeout:?}, because other reviews verify signatures"
    );
    Finding::error(codes::review::BUSY, why).hint(RETRY)
}
