//! Descriptions of a BundleDeployment, its conditions and its digest, for several verbs.

use bundle_api::names::reason;
use bundle_api::{BundleDeployment, BundleDeploymentStatus};
use bundle_core::diagnostic::{Code, all_codes};
use bundle_core::reference::Reference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Returns kind and name as kubectl prints them: `bundledeployment.core.rukpak.io/web`.
pub(crate) fn kind_and_name(item: &BundleDeployment) -> String {
    kind_and_name_of(item.metadata.name.as_deref().unwrap_or_default())
}

/// Returns kind and name of the BundleDeployment `name`.
pub(crate) fn kind_and_name_of(name: &str) -> String {
    format!("bundledeployment.core.rukpak.io/{name}")
}

/// Returns the first twelve digits of a digest, as registries and git print them.
pub(crate) fn short_digest(digest: &str) -> String {
    digest
        .strip_prefix("sha256:")
        .map_or(digest, |hex| hex.get(..12).unwrap_or(hex))
        .to_owned()
}

/// Returns the condition of type `kind`.
pub(crate) fn find<'a>(item: &'a BundleDeployment, kind: &str) -> Option<&'a Condition> {
    item.status
        .as_ref()?
        .conditions
        .iter()
        .find(|condition| condition.type_ == kind)
}

/// Returns the status of the condition `kind`. The reason follows in parentheses if the status is
/// not `True`, or if the BundleDeployment is paused.
pub(crate) fn condition(item: &BundleDeployment, kind: &str) -> String {
    match find(item, kind) {
        None => "Unknown".to_owned(),
        Some(Condition { status, reason, .. }) => {
            let is_plain = status == "True" && reason != reason::PAUSED;
            if is_plain || reason.is_empty() {
                status.clone()
            } else {
                format!("{status} ({reason})")
            }
        }
    }
}

/// Returns `true` if the content of the current `spec` is installed. The digest is compared,
/// because the old content stays installed during an upgrade.
pub(crate) fn is_installed(item: &BundleDeployment) -> bool {
    let Some(status) = &item.status else {
        return false;
    };
    let generation = item.metadata.generation;
    let seen = status.observed_generation.is_some() && status.observed_generation >= generation;
    let condition = find(item, "Installed").is_some_and(|installed| {
        installed.status == "True"
            && installed
                .observed_generation
                .is_none_or(|seen| Some(seen) >= generation)
    });
    seen && condition && is_wanted(item, status)
}

fn is_wanted(item: &BundleDeployment, status: &BundleDeploymentStatus) -> bool {
    let wanted = item
        .spec
        .template
        .spec
        .source
        .image
        .as_ref()
        .and_then(|image| image.reference.parse::<Reference>().ok())
        .and_then(|reference| reference.digest().cloned());
    match (wanted, &status.installed) {
        (Some(wanted), Some(installed)) => installed.digest == wanted.as_str(),
        // For a tag or another source, only the conditions can be evaluated.
        _ => true,
    }
}

/// Splits the message of a condition into the text and the diagnostic code in brackets at its end.
pub(crate) fn split_code(message: &str) -> (&str, Option<Code>) {
    let split = message
        .strip_suffix(']')
        .and_then(|rest| rest.rsplit_once(" ["));
    let known = split.and_then(|(text, id)| {
        let code = all_codes().find(|code| code.id == id).copied()?;
        Some((text, Some(code)))
    });
    known.unwrap_or((message, None))
}

/// Returns the first reason why a BundleDeployment is not ready, in one sentence. Returns `None` if
/// the BundleDeployment is ready.
pub(crate) fn first_cause(item: &BundleDeployment) -> Option<String> {
    let Some(ready) = find(item, "Ready") else {
        return Some(
            "bundle-webhook has not reconciled the object yet (`kubectl bundle doctor` checks bundle-webhook)"
                .to_owned(),
        );
    };
    let seen = ready.observed_generation;
    if seen.is_some_and(|seen| Some(seen) < item.metadata.generation) {
        return Some(
            "bundle-webhook has not reconciled the last change of the spec yet".to_owned(),
        );
    }
    if ready.status == "True" {
        return None;
    }
    let (message, code) = split_code(&ready.message);
    // Further causes and the next step follow after semicolons.
    let cause = message.split("; ").next().unwrap_or_default();
    let cause = if cause.is_empty() {
        &ready.reason
    } else {
        cause
    };
    Some(code.map_or_else(|| cause.to_owned(), |code| format!("{cause} [{}]", code.id)))
}

/// Returns a line for each condition that does not have its expected status. Conditions with the
/// same message are combined into one line. Conditions with status `Unknown` are included only if
/// there are no others. Health is included only if `health_counts` is `true`.
pub(crate) fn unmet_conditions(item: &BundleDeployment, health_counts: bool) -> Vec<String> {
    let conditions = item.status.iter().flat_map(|status| &status.conditions);
    let mut found: Vec<&Condition> = conditions
        .filter(|condition| {
            let expected = if condition.type_ == "Drifted" {
                "False"
            } else {
                "True"
            };
            let is_health = condition.type_ == "Healthy" || condition.reason == "Unhealthy";
            condition.type_ != "Progressing"
                && (health_counts || !is_health)
                && condition.status != expected
                && !condition.message.is_empty()
        })
        .collect();
    if found.iter().any(|condition| condition.status != "Unknown") {
        found.retain(|condition| condition.status != "Unknown");
    }
    let mut lines = Vec::new();
    let mut messages: Vec<&str> = Vec::new();
    for condition in found {
        let (message, _) = split_code(&condition.message);
        if !messages.contains(&message) {
            messages.push(message);
            lines.push(format!(
                "{}={} {}: {}",
                condition.type_, condition.status, condition.reason, condition.message
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn code_is_read_from_the_end_of_a_message() {
        for (message, text, code) in [
            (
                "it exists [BUNDLE-INSTALL-002]",
                "it exists",
                Some("BUNDLE-INSTALL-002"),
            ),
            ("a list [a, b]", "a list [a, b]", None),
            (
                "[BUNDLE-INSTALL-002] first",
                "[BUNDLE-INSTALL-002] first",
                None,
            ),
            ("", "", None),
        ] {
            let (found, id) = split_code(message);
            assert_eq!((found, id.map(|code| code.id)), (text, code));
        }
    }

    #[test]
    fn first_cause_is_one_sentence_of_the_current_generation() {
        let item = |ready: Value| -> BundleDeployment {
            serde_json::from_value(json!({
                "metadata": {"name": "web", "generation": 2},
                "spec": {"provisionerClassName": "c", "template": {"spec": {"provisionerClassName": "c", "source": {"type": "git"}}}},
                "status": {"conditions": ready}
            }))
            .unwrap()
        };
        let ready = |status: &str, generation: i64, message: &str| {
            item(
                json!([{"type": "Ready", "status": status, "reason": "InstallFailed", "message": message,
                "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"}]),
            )
        };
        let cause = |item: &BundleDeployment| first_cause(item).unwrap_or_default();
        assert_eq!(first_cause(&ready("True", 2, "")), None);
        assert_eq!(
            cause(&ready(
                "False",
                2,
                "ana may not create Secrets; ana may not get Pods [BUNDLE-INSTALL-006]"
            )),
            "ana may not create Secrets [BUNDLE-INSTALL-006]"
        );
        assert_eq!(cause(&ready("False", 2, "")), "InstallFailed");
        assert!(cause(&ready("True", 1, "")).contains("has not reconciled the last change"));
        assert!(cause(&item(json!([]))).contains("has not reconciled the object yet"));
    }

    #[test]
    fn reason_follows_a_status_unless_it_is_true_without_a_pause() {
        for (status, reason, expected) in [
            ("True", "Installed", "True"),
            ("True", "Paused", "True (Paused)"),
            ("False", "Paused", "False (Paused)"),
            ("False", "Unhealthy", "False (Unhealthy)"),
            ("Unknown", "", "Unknown"),
        ] {
            let item: BundleDeployment = serde_json::from_value(json!({
                "metadata": {"name": "web"},
                "spec": {"provisionerClassName": "c", "template": {"spec": {"provisionerClassName": "c", "source": {"type": "git"}}}},
                "status": {"conditions": [{"type": "Ready", "status": status, "reason": reason, "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
            }))
            .unwrap();
            assert_eq!(condition(&item, "Ready"), expected);
        }
        let item = BundleDeployment::default();
        assert_eq!(condition(&item, "Ready"), "Unknown");
    }

    #[test]
    fn old_content_does_not_count_as_installed() {
        let digest = |first: &str| format!("sha256:{first}{}", "0".repeat(63));
        let item = |generation: i64, installed: &str| -> BundleDeployment {
            serde_json::from_value(json!({
                "metadata": {"name": "web", "generation": generation},
                "spec": {"provisionerClassName": "c", "template": {"spec": {"provisionerClassName": "c", "source": {
                    "type": "image", "image": {"ref": format!("registry.example.com/web@{}", digest("2"))}}}}},
                "status": {
                    "observedGeneration": 2,
                    "installed": {"digest": digest(installed)},
                    "conditions": [{"type": "Installed", "status": "True", "reason": "InstallationSucceeded", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
                }
            }))
            .unwrap()
        };
        assert!(is_installed(&item(2, "2")));
        assert!(!is_installed(&item(2, "1")), "other content");
        assert!(!is_installed(&item(3, "2")), "a spec that nobody looked at");
    }
}
