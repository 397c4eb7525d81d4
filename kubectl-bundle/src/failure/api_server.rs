//! Errors of the API server in kubectl's words, and their exit codes.

use kube::core::Status;

use super::exit::Exit;

/// Returns the text that kubectl prints for this status.
pub(crate) fn message(status: &Status) -> String {
    match status.reason.as_str() {
        "Unauthorized" => format!(
            "error: You must be logged in to the server ({})",
            status.message
        ),
        "Invalid" => invalid(status),
        "" => format!("Error from server: {}", status.message),
        reason => format!("Error from server ({reason}): {}", status.message),
    }
}

fn invalid(status: &Status) -> String {
    let Some(details) = &status.details else {
        return if status.message.is_empty() {
            "The request is invalid".to_owned()
        } else {
            format!("The request is invalid: {}", status.message)
        };
    };
    let named = !details.kind.is_empty() || !details.name.is_empty();
    let mut text = if named {
        format!("The {} {:?} is invalid", details.kind, details.name)
    } else {
        "The request is invalid".to_owned()
    };
    let mut causes: Vec<String> = Vec::new();
    for cause in &details.causes {
        let one = format!("{}: {}", cause.field, cause.message);
        if !causes.contains(&one) {
            causes.push(one);
        }
    }
    match causes.as_slice() {
        [] if !named && !status.message.is_empty() => {
            text.push_str(": ");
            text.push_str(&status.message);
        }
        [] => {}
        [one] => {
            text.push_str(": ");
            text.push_str(one);
        }
        several => {
            text.push_str(": ");
            for one in several {
                text.push_str("\n* ");
                text.push_str(one);
            }
        }
    }
    text
}

/// Returns a hint if a flag of this program can resolve the error.
pub(crate) fn hint(status: &Status) -> Option<&'static str> {
    if status.reason != "Conflict" || !status.message.starts_with("Apply failed") {
        return None;
    }
    // `pause` patches the field. The API server distinguishes the patches of a field manager from
    // its applies.
    let is_pause = status.message.ends_with(": .spec.paused")
        && status
            .message
            .contains("1 conflict: conflict with \"kubectl-bundle\"");
    Some(if is_pause {
        "`kubectl bundle pause` set this field; --force-conflicts takes it over, and `kubectl bundle resume` removes it"
    } else {
        "another field manager owns these fields; --force-conflicts takes them over"
    })
}

/// Returns `true` if an admission webhook denied the request. Returns `false` if the API server
/// could not call a webhook.
fn denied_by_webhook(status: &Status) -> bool {
    status.message.contains("admission webhook \"") && status.message.contains("denied the request")
}

/// Returns exit code 3 for a denial, and 4 for a server that failed or is overloaded (status 5xx or
/// 429). Returns 1 for all other errors, such as "not found" and conflicts.
pub(crate) fn exit(status: &Status) -> Exit {
    // The webhook of this project responds with 5xx or 429 if it could not decide.
    match status.code {
        429 | 500..=599 => Exit::Unknown,
        _ if denied_by_webhook(status) => Exit::Rejected,
        401 | 403 | 422 => Exit::Rejected,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    fn status(code: u16, reason: &str, message: &str) -> Status {
        Status {
            code,
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..Status::default()
        }
    }

    #[test]
    fn messages_equal_those_of_kubectl() {
        let immutable = status(
            403,
            "bundle.spec is immutable",
            "admission webhook \"vbundles.core.rukpak.io\" denied the request: bundle.spec is immutable",
        );
        assert_eq!(
            message(&immutable),
            "Error from server (bundle.spec is immutable): admission webhook \"vbundles.core.rukpak.io\" denied the request: bundle.spec is immutable"
        );
        assert_eq!(exit(&immutable), Exit::Rejected);

        let away = status(
            500,
            "InternalError",
            "Internal error occurred: failed calling webhook",
        );
        assert_eq!(exit(&away), Exit::Unknown);
        assert_eq!(
            exit(&status(404, "NotFound", "bundles \"x\" not found")),
            Exit::Failed
        );
    }

    #[test]
    fn hint_for_a_conflict_with_pause_names_resume() {
        let found = |manager: &str| {
            let message = format!(
                "Apply failed with 1 conflict: conflict with \"{manager}\" using core.rukpak.io/v1alpha1: .spec.paused"
            );
            hint(&status(409, "Conflict", &message)).unwrap()
        };
        assert!(found("kubectl-bundle").contains("kubectl bundle resume"));
        assert!(found("kubectl-patch").starts_with("another field manager"));
        let stale = status(409, "Conflict", "the object has been modified");
        assert_eq!(hint(&stale), None);
    }

    #[test]
    fn lists_every_invalid_field() {
        let mut invalid = status(422, "Invalid", "long text");
        invalid.details = Some(StatusDetails {
            name: "web".to_owned(),
            group: String::new(),
            kind: "Bundle".to_owned(),
            uid: String::new(),
            causes: vec![StatusCause {
                reason: String::new(),
                field: "metadata.name".to_owned(),
                message: "Too long: may not be longer than 52".to_owned(),
            }],
            retry_after_seconds: 0,
        });
        assert_eq!(
            message(&invalid),
            "The Bundle \"web\" is invalid: metadata.name: Too long: may not be longer than 52"
        );
    }
}
