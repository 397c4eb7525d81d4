//! Hooks of a chart: objects that helm creates and removes at events such as `pre-install`. Objects
//! of tests are not installed. Programs that helm would run at an event are rejected, because a
//! BundleDeployment has no such events.

use serde_json::Value;

use crate::{
    diagnostic::{Finding, Findings, codes},
    object::Manifest,
};

/// Annotation with the events of a hook.
const HOOK: &str = "helm.sh/hook";
/// Events of `helm test`.
const TESTS: [&str; 3] = ["test", "test-success", "test-failure"];
/// Events of an installation or upgrade.
const INSTALLS: [&str; 5] = [
    "crd-install",
    "pre-install",
    "post-install",
    "pre-upgrade",
    "post-upgrade",
];

/// Returns the objects to install. Hooks of installs and upgrades become ordinary objects, unless
/// they run a program once (Job or Pod). Hooks of `helm test` are omitted. All other hooks are
/// errors.
pub(super) fn without_hooks(objects: Vec<Manifest>, findings: &mut Findings) -> Vec<Manifest> {
    let mut kept = Vec::with_capacity(objects.len());
    for object in objects {
        let Some(events) = events(&object.value) else {
            kept.push(object);
            continue;
        };
        if are_tests(&events) {
            continue;
        }
        let runs_once = matches!(
            (object.id.group.as_str(), object.id.kind.as_str()),
            ("batch", "Job") | ("", "Pod")
        );
        if !runs_once
            && events
                .iter()
                .any(|event| INSTALLS.contains(&event.as_str()))
        {
            kept.push(object);
        } else {
            findings.push(rejected(&object, &events, runs_once));
        }
    }
    kept
}

/// Returns `true` if only `helm test` creates this object.
pub(super) fn is_test(object: &Value) -> bool {
    events(object).is_some_and(|events| are_tests(&events))
}

/// Returns the events of a hook in lower case, as helm reads them; `None` if the object is not a
/// hook.
fn events(object: &Value) -> Option<Vec<String>> {
    let events = object["metadata"]["annotations"][HOOK].as_str()?;
    let events = events.split(',');
    Some(events.map(|event| event.trim().to_lowercase()).collect())
}

fn are_tests(events: &[String]) -> bool {
    events.iter().all(|event| TESTS.contains(&event.as_str()))
}

fn rejected(object: &Manifest, events: &[String], runs_once: bool) -> Finding {
    let events = events.join(", ").escape_debug().to_string();
    let hint = if runs_once {
        "disable the hook with a value of the chart in spec.config, or run the Job yourself"
    } else {
        "disable the hook with a value of the chart in spec.config"
    };
    Finding::error(
        codes::format::CHART_HOOK,
        format!("the hook {events} of helm is not supported for this object"),
    )
    .about(object.id.to_string())
    .hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::helm::output;
    use crate::yaml::Allowance;

    fn filtered(kind: &str, events: &str) -> Result<usize, String> {
        let (group, kind) = kind.split_once('/').unwrap_or(("", kind));
        let version = if group.is_empty() {
            "v1".to_owned()
        } else {
            format!("{group}/v1")
        };
        let text = format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a, annotations: {{{HOOK}: '{events}'}}}}\n"
        );
        let mut findings = Findings::default();
        let objects = output::read(text.as_bytes(), &mut Allowance::default(), &mut findings);
        let kept = without_hooks(objects, &mut findings).len();
        match findings.first() {
            Some(finding) => Err(finding.to_string()),
            None => Ok(kept),
        }
    }

    #[test]
    fn tests_are_left_out_and_objects_of_installs_are_ordinary_objects() {
        for (kind, events, kept) in [
            ("Pod", "test", 0),
            ("batch/Job", "test-success, test-failure", 0),
            ("ConfigMap", "pre-install", 1),
            ("Secret", "pre-install,pre-upgrade,pre-rollback", 1),
            ("ServiceAccount", "post-install", 1),
            ("ServiceAccount", "Pre-Install", 1),
            ("Pod", "TEST", 0),
        ] {
            assert_eq!(filtered(kind, events), Ok(kept), "{kind} {events}");
        }
    }

    #[test]
    fn programs_of_hooks_and_other_events_are_rejected_by_name() {
        for (kind, events, name) in [
            ("batch/Job", "pre-install", "Job.batch/a"),
            ("Pod", "post-upgrade", "Pod/a"),
            ("batch/Job", "test,pre-delete", "Job.batch/a"),
            ("ConfigMap", "pre-delete", "ConfigMap/a"),
            ("ConfigMap", "post-rollback", "ConfigMap/a"),
            ("ConfigMap", "sometimes", "ConfigMap/a"),
        ] {
            let found = filtered(kind, events).unwrap_err();
            assert!(found.contains(name), "{found}");
        }
    }
}
