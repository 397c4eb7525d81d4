//! Errors of the API server as kubectl prints them, and their exit codes.

use kube::core::Status;
use kube::core::response::StatusCause;

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

/// Returns the fields of other field managers that an apply would change. The list is empty for all
/// other errors.
fn field_conflicts(status: &Status) -> Vec<&StatusCause> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .collect()
}

/// Returns `true` if an apply failed because other field managers own its fields.
pub(crate) fn is_apply_conflict(status: &Status) -> bool {
    !field_conflicts(status).is_empty()
}

/// Returns a hint if a flag of this program can resolve the error.
pub(crate) fn hint(status: &Status) -> Option<&'static str> {
    // `pause` sets `spec.paused` with a patch. The API server treats a patch and an apply by the
    // same field manager as two managers, so they can conflict. Only the message of the conflict
    // names the manager.
    let is_pause = match field_conflicts(status).as_slice() {
        [] => return None,
        [one] => {
            one.field == ".spec.paused"
                && one.message.starts_with("conflict with \"kubectl-bundle\"")
        }
        _ => false,
    };
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
    // bundle-webhook responds with 5xx or 429 if it could not decide.
    match status.code {
        429 | 500..=599 => Exit::Unknown,
        _ if denied_by_webhook(status) => Exit::Rejected,
        401 | 403 | 422 => Exit::Rejected,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::response::StatusDetails;
    use serde_json::json;

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
        let conflict = |manager: &str, field: &str| StatusCause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with \"{manager}\" using core.rukpak.io/v1alpha1"),
            field: field.to_owned(),
        };
        let found = |causes: Vec<StatusCause>| {
            let mut status = status(409, "Conflict", "Apply failed with conflicts");
            status.details = serde_json::from_value(json!({"causes": causes})).unwrap();
            hint(&status).unwrap()
        };
        let paused = conflict("kubectl-bundle", ".spec.paused");
        assert!(found(vec![paused.clone()]).contains("kubectl bundle resume"));
        for causes in [
            vec![conflict("kubectl-patch", ".spec.paused")],
            vec![conflict("kubectl-bundle", ".spec.template")],
            vec![paused, conflict("helm", ".spec.template")],
        ] {
            assert!(found(causes).starts_with("another field manager"));
        }
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
