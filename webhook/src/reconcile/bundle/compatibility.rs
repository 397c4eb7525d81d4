//! Whether content supports the Kubernetes version of this server. The rule is in `bundle_core::plan::bundle`.

use bundle_api::names::reason;
use bundle_core::diagnostic::codes;
use bundle_core::format::Content;
use bundle_core::plan::bundle::{self, Compatibility};

use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};

/// The condition `Compatible` of `content`. Fails if the version of the server is needed and not known yet.
pub(in crate::reconcile) fn compatibility(
    ctx: &Context,
    content: &Content,
) -> Result<Compatibility, ReconcileError> {
    let server = ctx.shared.server_version();
    bundle::compatibility(content.package.as_ref(), server.as_deref()).ok_or_else(|| {
        ReconcileError::new(
            codes::review::SERVER_UNKNOWN,
            reason::UNPACK_FAILED,
            "the API server has not told its version yet",
            RetryPolicy::Soon,
        )
    })
}
