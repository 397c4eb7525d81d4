//! Responses to an apply that depend only on the values of the object, so that the same request
//! always fails. Rejections because of permissions, policies and webhooks can change. The module
//! `rights` handles such rejections.

/// Rejected apply request, with fields of the `Status` that the API server returned.
#[derive(Debug, Clone, Copy)]
pub struct Rejection<'a> {
    /// HTTP status code.
    pub code: u16,
    /// Field `reason` of the `Status`.
    pub reason: &'a str,
    /// Field `message` of the `Status`.
    pub message: &'a str,
    /// Field paths in `details.causes[].field` of the `Status`.
    pub fields: &'a [&'a str],
}

/// Prefix of the message about values that do not match the schema. This message does not depend on
/// the values of the stored object. The API server answers with status 500 and without a reason.
///
/// Source of the prefix: `k8s.io/apimachinery`
/// `pkg/util/managedfields/internal/structuredmerge.go`, `Apply`. Source of the rest of the
/// message: `sigs.k8s.io/structured-merge-diff` (`duplicate entries for key`,
/// `field not declared in schema`, `expected list, got …`).
const NOT_TYPED: &str = "failed to create typed patch object (";

/// Returns the reason, with the path of the field, if the values of the object are invalid, so that
/// the same request always fails. Returns `None` if the same request may succeed later.
///
/// | Status | Structure | Cause |
/// |---|---|---|
/// | 400, 500 | message begins with `failed to create typed patch object (` | unknown field, wrong type, duplicate keys of a list |
/// | 422 | reason `Invalid`, and each cause names a field | validation of the kind, or of a CustomResourceDefinition |
///
/// Admission policies also answer with status 422, but without a field.
pub fn invalid(rejection: Rejection<'_>) -> Option<String> {
    if let Some(why) = not_typed(rejection.code, rejection.message) {
        return Some(why);
    }
    let names_fields =
        !rejection.fields.is_empty() && rejection.fields.iter().all(|field| !field.is_empty());
    let is_validation = rejection.code == 422 && rejection.reason == "Invalid" && names_fields;
    is_validation.then(|| rejection.message.to_owned())
}

/// Returns the reason why values do not match the schema, from status code and message only.
/// Returns `None` for other responses.
pub fn not_typed(code: u16, message: &str) -> Option<String> {
    if !matches!(code, 400 | 500) {
        return None;
    }
    // The message has name and kind of the object in parentheses. Name and kind themselves contain
    // no parenthesis.
    let (_, why) = message.strip_prefix(NOT_TYPED)?.split_once("): ")?;
    let lines: Vec<&str> = why.split_whitespace().collect();
    Some(lines.join(" "))
}

/// Message if etcd rejects a request of more than `--max-request-bytes`. The API server answers
/// with status 500.
///
/// Source: `go.etcd.io/etcd/api/v3/v3rpc/rpctypes/error.go`, `ErrGRPCRequestTooLarge`.
const ETCD_REFUSAL: &str = "etcdserver: request is too large";
/// Prefix of the message if the etcd client does not send a request, because the request is too
/// large.
///
/// Source: `google.golang.org/grpc/stream.go`, `prepareMsg` and `SendMsg`.
const NOT_SENT: &str =
    "rpc error: code = ResourceExhausted desc = trying to send message larger than max";

/// Returns true if the object was not stored because it exceeds the size limit of etcd: the same
/// request always fails, and has no effect.
pub fn exceeds_storage_limit(code: u16, message: &str) -> bool {
    code == 500 && (message == ETCD_REFUSAL || message.starts_with(NOT_SENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_limit_is_read_from_the_exact_answers_of_etcd_and_its_client() {
        let not_sent = "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2450000 vs. 2097152)";
        let received = "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (5 vs. 4)";
        let webhook = "Internal error occurred: failed calling webhook \"a\": etcdserver: request is too large";
        for (code, message, expected) in [
            (500, "etcdserver: request is too large", true),
            (500, not_sent, true),
            // The response was lost, and the object may have been stored.
            (500, received, false),
            (500, webhook, false),
            (500, "etcdserver: request timed out", false),
            (503, "etcdserver: request is too large", false),
            (500, "", false),
        ] {
            assert_eq!(exceeds_storage_limit(code, message), expected, "{message}");
        }
    }

    type Row<'a> = (u16, &'a str, &'a str, &'a [&'a str], Option<&'a str>);

    #[test]
    fn rejection_is_permanent_only_if_its_cause_is_the_values() {
        let typed = |why: &str| {
            format!("failed to create typed patch object (n/web; apps/v1, Kind=Deployment): {why}")
        };
        let duplicate = typed(
            "errors:\n  .spec.template.spec.containers[name=\"web\"].env: duplicate entries for key [name=\"A\"]",
        );
        let unknown = typed(".spec.colour: field not declared in schema");
        let live = "failed to convert new object (n/web; apps/v1, Kind=Deployment) to smd typed: .spec.colour: field not declared in schema";
        let validation = "Deployment.apps \"web\" is invalid: spec.replicas: Invalid value: -1";
        let policy = "deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        // Columns: status code, reason, message, fields of causes, expected result.
        let table: [Row<'_>; 12] = [
            (
                500,
                "",
                &duplicate,
                &[],
                Some(
                    "errors: .spec.template.spec.containers[name=\"web\"].env: duplicate entries for key [name=\"A\"]",
                ),
            ),
            (
                500,
                "",
                &unknown,
                &[],
                Some(".spec.colour: field not declared in schema"),
            ),
            (
                400,
                "BadRequest",
                &unknown,
                &[],
                Some(".spec.colour: field not declared in schema"),
            ),
            (503, "ServiceUnavailable", &unknown, &[], None),
            (500, "InternalError", live, &[], None),
            (500, "InternalError", "etcd is away", &[], None),
            (400, "BadRequest", "the server could not read", &[], None),
            (
                422,
                "Invalid",
                validation,
                &["spec.replicas"],
                Some(validation),
            ),
            (422, "Invalid", validation, &["spec.replicas", ""], None),
            (422, "Invalid", policy, &[], None),
            (422, "Invalid", policy, &[""], None),
            (409, "Conflict", validation, &["spec.replicas"], None),
        ];
        for (code, reason, message, fields, expected) in table {
            let rejection = Rejection {
                code,
                reason,
                message,
                fields,
            };
            assert_eq!(invalid(rejection).as_deref(), expected, "{rejection:?}");
        }
    }
}
