//! Spans around reviews and reconciles: each log line within one carries the object, its uid, the requester, the code and the outcome.
//! They hold names, uids and codes, never content or credentials.

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

/// The span of one review, by what the API server sent. Its uid is that of the review, which audit logs have as well.
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

/// Runs one reconcile of `object` in its span. Requester and code are recorded once they are known.
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

/// Records who asked, as the stamp or seal of the object has it.
pub(crate) fn requester(name: &str) {
    Span::current().record("requester", name);
}

/// Records the diagnostic code of a refusal or failure.
pub(crate) fn code(id: &str) {
    Span::current().record("code", id);
}

/// Records how it ended.
pub(crate) fn outcome(text: &'static str) {
    Span::current().record("outcome", text);
}
