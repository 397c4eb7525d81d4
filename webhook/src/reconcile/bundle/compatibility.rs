//! The condition `Compatible`: whether content supports the version of this API server. The rule is
//! in `bundle_core::plan::bundle`.

use bundle_api::names::reason;
use bundle_core::diagnostic::codes;
use bundle_core::format::Content;
use bundle_core::plan::bundle::{self, Compatibility};

use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};

/// Returns the facts for the condition `Compatible` of `content`. Fails if the content requires a
/// range of Kubernetes versions and the version of the API server is not known yet.
pub(in crate::reconcile) fn compatibility(
    ctx: &Context,
    content: &Content,
) -> Result<Compatibility, ReconcileError> {
    let server = ctx.shared.server_version();
    bundle::compatibility(content.package.as_ref(), server.as_deref()).ok_or_else(|| {
        ReconcileError::new(
            codes::review::SERVER_UNKNOWN,
            reason::UNPACK_FAILED,
            "the version of the API server is not known yet",
            RetryPolicy::Soon,
        )
    })
}
