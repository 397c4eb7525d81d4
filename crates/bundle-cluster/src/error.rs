//! Errors of requests: their classification for retries, and their text in one line.

use std::error::Error;

use bundle_core::object::rejection::{self, Rejection};
use bundle_core::plan::replace::{self, Cause, NoReplacementReason};
use bundle_core::text::bounded;
use kube::core::Status;
use kube::runtime::watcher;

/// Longest text of an error and its causes, in bytes. The errors of watches contain the messages of
/// the API server in full.
const CHAIN_LIMIT: usize = 8 << 10;

/// Returns an error and its causes, in one line.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = describe(error);
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = describe(cause);
        // Libraries often repeat the cause in their own message.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    bounded(&text, CHAIN_LIMIT)
}

/// Returns the text of one error, without the whole response that some libraries append.
fn describe(error: &(dyn Error + 'static)) -> String {
    let status = |status: &Status| {
        if status.message.is_empty() {
            format!("{} {}", status.code, status.reason)
        } else {
            status.message.clone()
        }
    };
    if let Some(kube::Error::Api(answer)) = error.downcast_ref() {
        return status(answer);
    }
    if let Some(answer) = error.downcast_ref::<Status>() {
        return status(answer);
    }
    if let Some(answer) = error.downcast_ref::<Box<Status>>() {
        return status(answer);
    }
    match error.downcast_ref::<watcher::Error>() {
        Some(watcher::Error::InitialListFailed(_)) => "cannot list".to_owned(),
        Some(watcher::Error::WatchStartFailed(_) | watcher::Error::WatchError(_)) => {
            "cannot watch".to_owned()
        }
        Some(watcher::Error::WatchFailed(_)) => "the watch was interrupted".to_owned(),
        Some(watcher::Error::NoResourceVersion) | None => error.to_string(),
    }
}

/// Returns true if the API server can have rejected the request because of the state of the object:
/// the object was deleted or replaced, or it exists although it must not exist.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 409 | 422))
}

/// Returns true if the object or resource does not exist.
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Returns true if the API server rejected the request because of missing permissions.
pub fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Returns true if the same request may succeed later: the server is busy, starting or unreachable.
pub fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            matches!(status.code, 409 | 429)
                || status.code >= 500
                    && rejection::not_typed(status.code, &status.message).is_none()
                    && !rejection::exceeds_storage_limit(status.code, &status.message)
        }
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
    }
}

/// Returns true if the request definitely had no effect. For other errors the effect is unknown.
pub fn is_definite(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status)
        if matches!(status.code, 400..=499) && status.code != 408
            || rejection::exceeds_storage_limit(status.code, &status.message))
}

/// Returns the reason why the API server rejects the values of the object. Returns `None` if the
/// same request may succeed later.
pub fn invalid(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let fields: Vec<&str> = causes.map(|cause| cause.field.as_str()).collect();
    rejection::invalid(Rejection {
        code: status.code,
        reason: &status.reason,
        message: &status.message,
        fields: &fields,
    })
}

/// Returns the text of an error in one line. For an error response of the API server, the text is
/// only the message in the response.
pub fn error_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => chain(other),
    }
}

/// Returns the message of the API server. If the API server rejected a change of immutable fields,
/// returns a message that names these fields, without their values.
pub fn rejection_message(status: &Status) -> String {
    immutable(status).map_or_else(
        || status.message.clone(),
        |fields| replace::sentence(&fields, NoReplacementReason::NotRequested),
    )
}

/// Returns the changed immutable fields, if the API server rejected an update only because of
/// immutable fields.
pub fn immutable(status: &Status) -> Option<Vec<&str>> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes = causes.map(|cause| Cause {
        reason: &cause.reason,
        field: &cause.field,
        message: &cause.message,
    });
    replace::immutable_fields(status.code, &status.reason, causes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_that_is_too_large_for_etcd_is_definitely_refused_and_not_tried_again() {
        let answer = |code, message: &str| {
            kube::Error::Api(Box::new(Status {
                message: message.into(),
                code,
                ..Status::default()
            }))
        };
        for (code, message, passing, definite) in [
            (500, "etcdserver: request is too large", false, true),
            (500, "etcdserver: leader changed", true, false),
            (503, "", true, false),
            (408, "", false, false),
            (413, "Request entity too large", false, true),
            (422, "", false, true),
        ] {
            let error = answer(code, message);
            assert_eq!(is_passing(&error), passing, "{code} {message}");
            assert_eq!(is_definite(&error), definite, "{code} {message}");
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot create Secret a")]
    struct Outer {
        source: kube::Error,
    }

    #[test]
    fn text_of_a_response_is_its_message_once() {
        let status = Status {
            message: "namespaces \"b\" not found".into(),
            reason: "NotFound".into(),
            code: 404,
            ..Status::default()
        };
        let outer = Outer {
            source: kube::Error::Api(Box::new(status)),
        };
        assert_eq!(
            chain(&outer),
            "cannot create Secret a: namespaces \"b\" not found"
        );
        let Outer { source } = outer;
        assert_eq!(
            chain(&watcher::Error::InitialListFailed(source)),
            "cannot list: namespaces \"b\" not found"
        );
    }

    #[test]
    fn text_of_an_event_with_a_long_message_is_bounded() {
        let status = Status::failure(&"x".repeat(1 << 20), "InternalError");
        let text = chain(&watcher::Error::WatchError(Box::new(status)));
        assert!(text.len() <= CHAIN_LIMIT, "{}", text.len());
        assert!(text.starts_with("cannot watch: xxx"), "{}", &text[..20]);
    }
}
