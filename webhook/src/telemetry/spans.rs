//! Tracing spans of reviews and reconciles. Each log line of a review or reconcile contains the
//! object, a uid, the requester, the code and the outcome. Values that are not known yet are
//! missing. Spans never contain content or credentials.

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

/// Returns the span of one review. `uid` is the uid of the AdmissionReview, which audit logs also
/// contain.
pub(crate) fn review(kind: &str, operation: &str, name: &str, uid: &str, requester: &str) -> Span {
    tracing::info_span!(
        "review",
        kind,
        operation,
        name,
        uid,
        requester,
        code = Empty,
        outcome = Empty
    )
}

/// Runs a reconcile of `object` in its span. Requester, code and outcome are recorded later.
pub(crate) async fn reconcile<T, E>(
    kind: &'static str,
    object: &DynamicObject,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let span = tracing::info_span!(
        "reconcile",
        kind,
        name = object.name_any(),
        uid = object.metadata.uid,
        requester = Empty,
        code = Empty,
        outcome = Empty
    );
    async {
        let result = work.await;
        if result.is_err() {
            outcome("error");
        }
        tracing::debug!("reconciled");
        result
    }
    .instrument(span)
    .await
}

/// Records the requester in the current span.
pub(crate) fn requester(name: &str) {
    Span::current().record("requester", name);
}

/// Records the diagnostic code in the current span.
pub(crate) fn code(id: &str) {
    Span::current().record("code", id);
}

/// Records the outcome in the current span.
pub(crate) fn outcome(text: &'static str) {
    Span::current().record("outcome", text);
}
