//! Checks of the webhook registrations and of a review through the API server.

use serde_json::Value;

use super::{CheckResult, Observed};
use crate::diagnostic::{Finding, codes};
use crate::registration::{ExpectedWebhook, GUARDS, inspect};
use crate::text::some_of;

/// Maximum number of faults that a message names.
const NAMED: usize = 3;
const APPLY: &str = "apply the registrations again: helm upgrade, or kubectl apply --server-side -f \
    webhook/deploy/admission";

/// Service that the registrations must name if they do not name a URL.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedService<'a> {
    /// Namespace of the Service.
    pub namespace: &'a str,
    /// Name of the Service.
    pub name: &'a str,
}

/// Checks that a registration requests a review of every write. `title` is the kind and name of the
/// registration.
pub fn registration(
    title: &str,
    expected: &'static [ExpectedWebhook],
    found: Observed<Value>,
    service: ExpectedService<'_>,
) -> CheckResult {
    const CHECK: &str = "registrations";
    let code = codes::doctor::REGISTRATION_FAULTY;
    let missing = || {
        Finding::error(
            code,
            "it does not exist, so the API server requests no review",
        )
        .about(title)
        .hint(APPLY)
    };
    let object = match found.found_or(CHECK, title, missing) {
        Ok(object) => object,
        Err(result) => return result,
    };
    let mut faults = Vec::new();
    let guards = inspect(GUARDS, &object);
    let guards = guards.into_iter().filter(|guard| guard.found.is_some());
    for webhook in inspect(expected, &object).into_iter().chain(guards) {
        for fault in &webhook.faults {
            faults.push(format!("{}: {fault}", webhook.name));
        }
        let Some(found) = webhook.found else {
            continue;
        };
        let client = &found["clientConfig"];
        let named = &client["service"];
        let is_ours = named["namespace"] == service.namespace && named["name"] == service.name;
        if !is_ours && !client["url"].is_string() {
            faults.push(format!(
                "{}: clientConfig names neither Service {}/{} nor a url",
                webhook.name, service.namespace, service.name
            ));
        }
    }
    if faults.is_empty() {
        let count = expected.len();
        return CheckResult::ok(CHECK, title, format!("{count} webhooks as required"));
    }
    let finding = Finding::error(code, some_of(&faults, NAMED));
    CheckResult::of(CHECK, finding.about(title).hint(APPLY))
}

/// Returns `true` if each webhook of the registration is called at a URL, and not through the
/// Service.
pub fn is_called_by_url(registration: &Value) -> bool {
    let webhooks = registration["webhooks"].as_array();
    webhooks.is_some_and(|webhooks| {
        let mut webhooks = webhooks.iter();
        webhooks.all(|webhook| webhook["clientConfig"]["url"].is_string())
    })
}

/// Response of the API server to a dry run of an object that bundle-webhook rejects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// The object was accepted.
    Accepted,
    /// The object was rejected with this code and message.
    Rejected {
        /// HTTP status of the rejection.
        code: u16,
        /// Message of the rejection.
        message: String,
    },
    /// The API server did not respond.
    Failed(String),
}

/// Checks that bundle-webhook reviews a write. `expected` is a part of the message with which
/// bundle-webhook rejects the object of the probe.
pub fn review(probe: Probe, expected: &str) -> CheckResult {
    const CHECK: &str = "admission";
    const SUBJECT: &str = "dry run of an invalid Bundle";
    let problem = |code, message: String, hint: &str| {
        let finding = Finding::error(code, message).about(SUBJECT);
        CheckResult::of(CHECK, finding.hint(hint))
    };
    let (code, message) = match probe {
        Probe::Accepted => {
            return problem(
                codes::doctor::NOT_REVIEWED,
                "the API server accepted it without a review".to_owned(),
                APPLY,
            );
        }
        Probe::Failed(message) => return CheckResult::no_response(CHECK, SUBJECT, message),
        Probe::Rejected { code, message } => (code, message),
    };
    let is_denied = message.contains("denied the request");
    if is_denied && message.contains(expected) {
        return CheckResult::ok(CHECK, SUBJECT, "bundle-webhook rejected it");
    }
    if message.contains("failed calling webhook") {
        return problem(
            codes::doctor::NO_REVIEW,
            message.clone(),
            next_step(&message),
        );
    }
    if is_denied && matches!(code, 429 | 500..=599) {
        let hint = "bundle-webhook cannot decide now; read its log, and run the command again";
        return problem(codes::doctor::NO_REVIEW, message, hint);
    }
    if is_denied {
        let hint = "another admission webhook or policy rejects Bundles before bundle-webhook";
        return problem(codes::doctor::NOT_REVIEWED, message, hint);
    }
    match code {
        401 | 403 => CheckResult::forbidden(CHECK, SUBJECT, message),
        404 => CheckResult::skipped(CHECK, SUBJECT, "the API server does not serve Bundles"),
        _ => CheckResult::no_response(CHECK, SUBJECT, message),
    }
}

/// Returns the next step for the user after the API server could not call the webhook. `message` is
/// the message of the API server.
fn next_step(message: &str) -> &'static str {
    let has = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    if has(&["x509:", "tls:"]) {
        "caBundle of the registrations is not the certificate authority of the running pods; allow the \
        pod to patch the registrations, and the pod corrects caBundle"
    } else if has(&["no endpoints available", "connection refused", "not found"]) {
        "no pod serves the Service; see the results of the checks `pods` and `endpoints`"
    } else if has(&["deadline exceeded", "timeout", "i/o timeout", "no route"]) {
        "the API server cannot reach the pods: check network policies, and that port 9443 is open from the control plane"
    } else {
        "read the log of the pods: kubectl logs deployment/bundle-webhook"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::CheckState::{Ok as Passed, Problem, Unknown};
    use crate::registration::VALIDATING;

    const SERVICE: ExpectedService<'_> = ExpectedService {
        namespace: "sys",
        name: "hook",
    };

    fn intact() -> Value {
        let webhooks: Vec<Value> = VALIDATING
            .iter()
            .map(|webhook| {
                json!({
                    "name": webhook.name,
                    "clientConfig": {"service": {"namespace": "sys", "name": "hook"}},
                    "rules": [{
                        "apiGroups": ["core.rukpak.io"], "apiVersions": ["v1alpha1"],
                        "operations": webhook.operations, "resources": [webhook.resource],
                    }],
                    "sideEffects": "None",
                })
            })
            .collect();
        json!({ "webhooks": webhooks })
    }

    fn checked(found: Observed<Value>) -> CheckResult {
        registration("validating", VALIDATING, found, SERVICE)
    }

    #[test]
    fn missing_and_altered_registrations_are_problems() {
        let altered = |alter: fn(&mut Value)| {
            let mut object = intact();
            alter(&mut object["webhooks"][0]);
            checked(Observed::Found(object))
        };
        for (result, state, part) in [
            (altered(|_| {}), Passed, "5 webhooks as required"),
            (
                altered(|webhook| {
                    webhook["clientConfig"] = json!({"url": "https://127.0.0.1:1/validate"});
                }),
                Passed,
                "as required",
            ),
            (
                altered(|webhook| webhook["failurePolicy"] = "Ignore".into()),
                Problem,
                "vbundles.core.rukpak.io: failurePolicy is Ignore",
            ),
            (
                altered(|webhook| webhook["clientConfig"]["service"]["name"] = "other".into()),
                Problem,
                "neither Service sys/hook nor a url",
            ),
            (
                checked(Observed::Found(json!({}))),
                Problem,
                "the webhook is missing",
            ),
            (checked(Observed::Missing), Problem, "does not exist"),
            (checked(Observed::Forbidden("no".into())), Unknown, "no"),
            (checked(Observed::Failed("late".into())), Unknown, "late"),
        ] {
            assert_eq!(result.state, state, "{result:?}");
            assert!(result.message.contains(part), "{result:?}");
        }
    }

    #[test]
    fn registration_with_a_service_is_not_called_by_url() {
        assert!(!is_called_by_url(&intact()));
        assert!(!is_called_by_url(&json!({})));
        let by_url = json!({"webhooks": [{"clientConfig": {"url": "https://127.0.0.1:1"}}]});
        assert!(is_called_by_url(&by_url));
    }

    #[test]
    fn response_to_the_probe_names_the_cause() {
        const DENIED: &str = "admission webhook \"vbundles.core.rukpak.io\" denied the request: ";
        const FAILED: &str = "Internal error occurred: failed calling webhook \"v\": failed to call webhook: Post \"https://a\": ";
        let rejected = |code: u16, message: &str| {
            let message = message.to_owned();
            review(Probe::Rejected { code, message }, "BUNDLE-REVIEW-001")
        };
        for (result, state, part) in [
            (
                rejected(403, &format!("{DENIED}BUNDLE-REVIEW-001: x")),
                Passed,
                "bundle-webhook rejected it",
            ),
            (
                review(Probe::Accepted, "BUNDLE-REVIEW-001"),
                Problem,
                "apply the registrations again",
            ),
            (
                rejected(
                    500,
                    &format!("{FAILED}tls: failed to verify certificate: x509: unknown authority"),
                ),
                Problem,
                "not the certificate authority of the running pods",
            ),
            (
                rejected(500, &format!("{FAILED}no endpoints available for service")),
                Problem,
                "no pod serves the Service",
            ),
            (
                rejected(500, &format!("{FAILED}context deadline exceeded")),
                Problem,
                "cannot reach the pods",
            ),
            (
                rejected(500, &format!("{FAILED}EOF")),
                Problem,
                "kubectl logs",
            ),
            (
                rejected(503, &format!("{DENIED}BUNDLE-REVIEW-009: not ready")),
                Problem,
                "cannot decide now",
            ),
            (
                rejected(403, &format!("{DENIED}no Bundles on Friday")),
                Problem,
                "another admission webhook",
            ),
            (
                rejected(403, "bundles is forbidden: User \"ana\""),
                Unknown,
                "ana",
            ),
            (rejected(404, "404 page not found"), Unknown, "not serve"),
            (rejected(500, "etcd is slow"), Unknown, "etcd is slow"),
            (
                review(Probe::Failed("late".into()), "BUNDLE-REVIEW-001"),
                Unknown,
                "late",
            ),
        ] {
            assert_eq!(result.state, state, "{result:?}");
            let text = format!("{} {:?}", result.message, result.hint);
            assert!(text.contains(part), "{result:?}");
        }
    }
}
