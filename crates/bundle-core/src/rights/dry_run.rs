//! Interprets responses of the API server to dry runs as the requester.

use crate::object::rejection::{self, Rejection};

/// Result of a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DryRunVerdict {
    /// The API server allows the request.
    Allowed,
    /// The API server rejects the request.
    Refused {
        /// Message of the API server, a policy or an admission webhook.
        message: String,
        /// `true` if RBAC denied the request. In this case the access reviews should have denied
        /// the permission too.
        by_rbac: bool,
    },
    /// The API server rejects the object because of a value. The message names the field.
    /// Rejections by policies and admission webhooks are [`Self::Refused`], even if their message
    /// names a field.
    Invalid(String),
    /// The object depends on another object that does not exist yet: its namespace, its kind or a
    /// role.
    Missing(String),
    /// An admission webhook does not support dry runs.
    Unsupported(String),
    /// The webhook has no permission to impersonate this requester.
    NotImpersonated(String),
    /// The result is unknown: the server is busy, or there was a conflict.
    Unknown(String),
}

impl DryRunVerdict {
    /// Returns `true` if RBAC denied the request.
    pub fn is_by_rbac(&self) -> bool {
        matches!(self, Self::Refused { by_rbac: true, .. })
    }
}

/// Interprets an error response, from its HTTP status code and its `Status`.
///
/// Sources: `k8s.io/apiserver` `pkg/endpoints/filters/impersonation` ("cannot impersonate
/// resource", "cannot impersonate:user-info resource"), `pkg/admission/plugin/webhook` ("does not
/// support dry run", "denied the request"), `pkg/admission/plugin/policy/validating` ("denied
/// request"), `pkg/endpoints/handlers/responsewriters` ("cannot patch resource"), and
/// `pkg/registry/rbac` of Kubernetes ("is attempting to grant RBAC permissions not currently
/// held").
pub fn verdict(rejection: Rejection<'_>) -> DryRunVerdict {
    let Rejection { code, message, .. } = rejection;
    let text = message.to_owned();
    let contains = |part: &str| message.contains(part);
    // Webhooks and policies choose the code of their rejections, so the texts are compared first.
    if DENIED.into_iter().any(contains) {
        return DryRunVerdict::Refused {
            message: text,
            by_rbac: false,
        };
    }
    if let Some(why) = rejection::invalid(rejection) {
        return DryRunVerdict::Invalid(why);
    }
    match code {
        400 if contains("does not support dry run") => DryRunVerdict::Unsupported(text),
        // Since Kubernetes 1.36, the verb in the message can be a constrained verb such as
        // `impersonate:user-info`.
        403 if contains("cannot impersonate") => DryRunVerdict::NotImpersonated(text),
        403 => DryRunVerdict::Refused {
            by_rbac: RBAC.iter().any(|part| contains(part)),
            message: text,
        },
        404 => DryRunVerdict::Missing(text),
        401 | 408 | 409 | 429 | 500.. => DryRunVerdict::Unknown(text),
        _ => DryRunVerdict::Refused {
            message: text,
            by_rbac: false,
        },
    }
}

/// Returns `true` if the API server rejected a write because of its user. Returns `false` if the
/// API server rejects the write for every user, for example because the object is invalid.
///
/// Admission webhooks, policies and Pod Security may depend on the user, so their rejections return
/// `true`.
///
/// Sources: `k8s.io/apimachinery` `pkg/api/errors` ("is forbidden"). In Kubernetes
/// `plugin/pkg/admission`: `resourcequota` ("exceeded quota", "failed quota"), `limitranger`
/// ("usage per", "limit to request ratio") and `namespace/lifecycle` ("because it is being
/// terminated").
pub fn concerns_rights(message: &str, by_rbac: bool) -> bool {
    let contains = |part: &&str| message.contains(*part);
    by_rbac
        || DENIED.iter().any(contains)
        || (message.contains("is forbidden") && !FOR_EVERYBODY.iter().any(contains))
}

/// Substrings in messages that reject a write because of its user. The order is: messages of
/// admission webhooks, messages of admission policies, and messages of the API server about one
/// field. For example, the API server rejects the field `paramKind` of a ValidatingAdmissionPolicy
/// if the user has no permission to read the parameters.
const DENIED: [&str; 3] = ["denied the request", "denied request", ": Forbidden: user "];

/// Substrings in messages with status 403 that do not depend on the user.
const FOR_EVERYBODY: [&str; 5] = [
    "exceeded quota",
    "failed quota",
    "usage per",
    "limit to request ratio",
    "because it is being terminated",
];

/// Substrings of messages of RBAC.
const RBAC: [&str; 5] = [
    "cannot create resource",
    "cannot patch resource",
    "cannot delete resource",
    "is attempting to grant RBAC permissions not currently held",
    "must have cluster-admin privileges to use an aggregationRule",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_for_every_user_are_not_denied_permissions() {
        for (message, by_rbac, expected) in [
            (
                r#"configmaps "a" is forbidden: User "ana" cannot patch resource "configmaps""#,
                true,
                true,
            ),
            (
                r#"pods "a" is forbidden: violates PodSecurity "restricted:latest""#,
                false,
                true,
            ),
            (
                r#"admission webhook "x" denied the request: exceeded quota"#,
                false,
                true,
            ),
            (
                r#"configmaps "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no"#,
                false,
                true,
            ),
            (
                r#"ValidatingAdmissionPolicy "a" is invalid: spec.paramKind: Forbidden: user &{ana  [] map[]} must have "get" permission on all objects"#,
                false,
                true,
            ),
            (
                r#"ConfigMap "a" is invalid: data[b c]: Invalid value: "b c""#,
                false,
                false,
            ),
            (
                r#"services "a" is forbidden: exceeded quota: q, requested: services=1, used: services=1, limited: services=1"#,
                false,
                false,
            ),
            (
                r#"pods "a" is forbidden: failed quota: q: must specify limits.cpu"#,
                false,
                false,
            ),
            (
                r#"pods "a" is forbidden: maximum cpu usage per Container is 1, but limit is 2"#,
                false,
                false,
            ),
            (
                r#"configmaps "a" is forbidden: unable to create new content in namespace n because it is being terminated"#,
                false,
                false,
            ),
            (
                "the body of the request was in an unknown format",
                false,
                false,
            ),
        ] {
            assert_eq!(concerns_rights(message, by_rbac), expected, "{message}");
        }
    }

    type Expected<'a> = &'a dyn Fn(&DryRunVerdict) -> bool;

    /// Returns the verdict for a `Status` that has neither a reason nor causes.
    fn verdict_of(code: u16, message: &str) -> DryRunVerdict {
        verdict(Rejection {
            code,
            reason: "",
            message,
            fields: &[],
        })
    }

    #[test]
    fn answers_of_the_api_server_are_allowed_refused_or_unknown() {
        let refused = |by_rbac| move |verdict: &DryRunVerdict| matches!(verdict, DryRunVerdict::Refused { by_rbac: by, .. } if *by == by_rbac);
        let (rbac, policy) = (refused(true), refused(false));
        let unknown = |verdict: &DryRunVerdict| matches!(verdict, DryRunVerdict::Unknown(_));
        let missing = |verdict: &DryRunVerdict| matches!(verdict, DryRunVerdict::Missing(_));
        let table: [(u16, &str, Expected<'_>); 16] = [
            (
                403,
                r#"configmaps "a" is forbidden: User "ana" cannot patch resource "configmaps" in API group "" in the namespace "b""#,
                &rbac,
            ),
            (
                403,
                r#"roles.rbac.authorization.k8s.io "a" is forbidden: user "ana" (groups=[]) is attempting to grant RBAC permissions not currently held:"#,
                &rbac,
            ),
            (
                403,
                r#"pods "a" is forbidden: violates PodSecurity "restricted:latest""#,
                &policy,
            ),
            (
                422,
                "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no",
                &policy,
            ),
            (
                401,
                "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no",
                &policy,
            ),
            (
                500,
                r#"admission webhook "w.example.com" denied the request: no"#,
                &policy,
            ),
            (
                404,
                r#"admission webhook "w.example.com" denied the request: no"#,
                &policy,
            ),
            (422, "Invalid value", &policy),
            (
                405,
                "the server does not allow this method on the requested resource",
                &policy,
            ),
            (404, r#"namespaces "a" not found"#, &missing),
            (404, "404 page not found\n", &missing),
            (401, "Unauthorized", &unknown),
            (409, "Operation cannot be fulfilled", &unknown),
            (429, "too many requests", &unknown),
            (
                500,
                r#"failed calling webhook "w.example.com": connection refused"#,
                &unknown,
            ),
            (504, "Timeout: request did not complete", &unknown),
        ];
        for (code, message, expected) in table {
            let found = verdict_of(code, message);
            assert!(expected(&found), "{code} {message}: {found:?}");
        }
    }

    #[test]
    fn values_that_do_not_fit_the_schema_are_invalid_for_everybody() {
        let message = "failed to create typed patch object (n/web; apps/v1, Kind=Deployment): .spec.colour: field not declared in schema";
        let expected = ".spec.colour: field not declared in schema".to_owned();
        assert_eq!(verdict_of(500, message), DryRunVerdict::Invalid(expected));
    }

    #[test]
    fn invalid_values_are_no_refusal_and_refusals_that_name_a_field_stay_refusals() {
        let validation = r#"Service "a" is invalid: spec.ports[1].name: Duplicate value: "a""#;
        let quota = r#"services "a" is forbidden: exceeded quota: q"#;
        let webhook =
            r#"admission webhook "w.example.com" denied the request: spec.type: Invalid value"#;
        let policy = "services \"a\" is invalid: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        let parameters = r#"ValidatingAdmissionPolicy "a" is invalid: spec.paramKind: Forbidden: user &{ana  [] map[]} must have "get" permission on all objects"#;
        let (none, unnamed): (&[&str], &[&str]) = (&[], &[""]);
        let field: &[&str] = &["spec.ports[1].name"];
        for (code, reason, message, fields, is_invalid) in [
            (422, "Invalid", validation, field, true),
            (422, "Invalid", validation, none, false),
            (422, "Invalid", validation, unnamed, false),
            (422, "Forbidden", validation, field, false),
            (403, "Invalid", validation, field, false),
            (403, "Forbidden", quota, field, false),
            (422, "Invalid", webhook, field, false),
            (422, "Invalid", policy, field, false),
            (422, "Invalid", parameters, field, false),
        ] {
            let rejection = Rejection {
                code,
                reason,
                message,
                fields,
            };
            let message = message.to_owned();
            let expected = if is_invalid {
                DryRunVerdict::Invalid(message)
            } else {
                DryRunVerdict::Refused {
                    message,
                    by_rbac: false,
                }
            };
            assert_eq!(verdict(rejection), expected, "{rejection:?}");
        }
    }

    #[test]
    fn webhooks_without_dry_run_and_missing_impersonation_are_told_apart() {
        let found = verdict_of(
            400,
            r#"admission webhook "w.example.com" does not support dry run"#,
        );
        assert!(matches!(found, DryRunVerdict::Unsupported(why) if why.contains("w.example.com")));
        for verb in ["impersonate", "impersonate:user-info"] {
            let refusal = format!(
                r#"users "ana" is forbidden: User "pod" cannot {verb} resource "users" in API group "" at the cluster scope"#
            );
            let found = verdict_of(403, &refusal);
            assert!(matches!(found, DryRunVerdict::NotImpersonated(_)), "{verb}");
        }
    }
}
