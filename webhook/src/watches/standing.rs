//! Tells in the status of each ProvisionerClass and SignaturePolicy whether it can be used: `Ready`, which kstatus and people read.
//! Not here: what makes one unusable (bundle-core); nothing reads this status to decide.

use std::sync::Arc;
use std::time::Duration;

use bundle_api::names::{API_VERSION, GROUP, STATUS_MANAGER, VERSION, condition};
use bundle_cluster::ByName;
use bundle_core::diagnostic::{Finding, Findings};
use bundle_core::names::KubeName;
use bundle_core::policy::Policy;
use bundle_core::review::class::Class;
use bundle_trust::proof;
use jiff::Timestamp;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::policies::Found;
use crate::shared::Shared;

/// How long a change that time alone brings may stay untold after a clock was set.
const AT_LATEST: Duration = Duration::from_mins(10);
/// The end of a root itself still counts.
const AFTER: Duration = Duration::from_millis(100);

/// What `Ready` says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Standing {
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// Tells for ever; only the replica that leads does.
pub(crate) async fn tell(shared: Arc<Shared>) {
    let (mut classes, mut policies) = (shared.classes.changes(), shared.policies.changes());
    loop {
        let names = shared.classes.all();
        let ours = names
            .iter()
            .filter(|(_, class)| class.as_ref().as_ref().map_or(true, Class::is_ours))
            .map(|(name, _)| name.clone());
        each(&shared, "ProvisionerClass", "provisionerclasses", ours).await;
        let names = shared.policies.all();
        let all = names.keys().cloned();
        each(&shared, "SignaturePolicy", "signaturepolicies", all).await;
        let now = Timestamp::now();
        let soonest = names
            .values()
            .filter_map(|policy| proof::changes_after(policy, now))
            .min();
        tokio::select! {
            changed = classes.changed() => if changed.is_err() { return },
            changed = policies.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(until(soonest, now)) => {}
        }
    }
}

/// How long to wait for a time at which a trust root begins to count or ends. Looked at again before long in any case: clocks are set.
fn until(at: Option<Timestamp>, now: Timestamp) -> Duration {
    let wait = at.and_then(|at| Duration::try_from(at.duration_since(now)).ok());
    wait.map_or(AT_LATEST, |wait| wait + AFTER).min(AT_LATEST)
}

async fn each(
    shared: &Shared,
    kind: &str,
    plural: &str,
    names: impl Iterator<Item = String> + Send,
) {
    let gvk = GroupVersionKind::gvk(GROUP, VERSION, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    let api: Api<DynamicObject> = Api::all_with(shared.client(), &resource);
    for name in names {
        // A listed object has a name that the API server accepted.
        let Ok(name) = name.parse::<KubeName>() else {
            continue;
        };
        if let Err(error) = one(shared, &api, kind, &name).await {
            let error = crate::chain(&error);
            tracing::warn!(kind, name = name.as_str(), error, "cannot write the status");
        }
    }
}

/// Judges what is stored now, so that `observedGeneration` never says too much.
async fn one(
    shared: &Shared,
    api: &Api<DynamicObject>,
    kind: &str,
    name: &KubeName,
) -> Result<(), kube::Error> {
    let Some(found) = ByName(api).get_opt(name).await? else {
        return Ok(());
    };
    let spec = &found.data["spec"];
    let standing = match kind {
        "SignaturePolicy" => of_policy(shared, name, spec).await,
        _ => of_class(&Class::parse(name, spec)),
    };
    let generation = found.metadata.generation;
    let Some(status) = status(
        &found.data["status"],
        generation,
        &standing,
        Timestamp::now(),
    ) else {
        return Ok(());
    };
    let patch = json!({
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": { "name": name.as_str(), "uid": found.metadata.uid },
        "status": status,
    });
    let as_us = PatchParams::apply(STATUS_MANAGER).force();
    match ByName(api)
        .patch_status(name, &as_us, &Patch::Apply(patch))
        .await
    {
        // Gone meanwhile, or made anew.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        outcome => outcome.map(drop),
    }
}

fn of_class(class: &Result<Class, Findings>) -> Standing {
    match class {
        Ok(_) => usable("people with verb `use` on it can name it"),
        Err(findings) => unusable(findings),
    }
}

async fn of_policy(shared: &Shared, name: &str, spec: &Value) -> Standing {
    let policy = Policy::read(name, spec);
    let found = Found::look_up(shared, std::slice::from_ref(&policy)).await;
    let policy = found.complete(policy);
    let ready = proof::ready(&policy, Timestamp::now());
    if ready.problems.has_errors() {
        unusable(&ready.problems)
    } else if ready.unavailable.is_empty() {
        usable("it is applied to the references that it matches")
    } else {
        Standing {
            status: "Unknown",
            reason: "Unavailable",
            message: told(&ready.unavailable),
        }
    }
}

fn usable(message: &str) -> Standing {
    Standing {
        status: "True",
        reason: "Usable",
        message: message.to_owned(),
    }
}

fn unusable(findings: &Findings) -> Standing {
    Standing {
        status: "False",
        reason: "Unusable",
        message: told(&findings.0),
    }
}

fn told(findings: &[Finding]) -> String {
    let lines: Vec<String> = findings
        .iter()
        .map(|finding| format!("{}: {finding}", finding.code))
        .collect();
    lines.join("; ")
}

/// The status to write; `None` if it says so already.
fn status(
    before: &Value,
    generation: Option<i64>,
    standing: &Standing,
    now: Timestamp,
) -> Option<Value> {
    let old = before["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|found| found["type"] == condition::READY);
    let field = |name: &str| old.and_then(|old| old[name].as_str()).unwrap_or_default();
    let same_status = field("status") == standing.status;
    if same_status
        && field("reason") == standing.reason
        && field("message") == standing.message
        && before["observedGeneration"].as_i64() == generation
    {
        return None;
    }
    // Seconds, as the API has them.
    let now = Timestamp::from_second(now.as_second())
        .unwrap_or(now)
        .to_string();
    let since = Some(field("lastTransitionTime")).filter(|since| same_status && !since.is_empty());
    Some(json!({
        "observedGeneration": generation,
        "conditions": [{
            "type": condition::READY,
            "status": standing.status,
            "reason": standing.reason,
            "message": standing.message,
            "observedGeneration": generation,
            "lastTransitionTime": since.unwrap_or(&now),
        }],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 5);

    #[test]
    fn what_is_said_already_is_not_written_again() {
        let standing = usable("fine");
        let written = status(&Value::Null, Some(3), &standing, NOW).unwrap();
        assert_eq!(written["observedGeneration"], 3);
        assert_eq!(
            written["conditions"][0]["lastTransitionTime"],
            "2027-01-15T08:00:00Z"
        );
        assert_eq!(status(&written, Some(3), &standing, NOW), None);
    }

    #[test]
    fn the_end_of_a_root_is_waited_for_and_no_clock_is_trusted_for_long() {
        let in_a_minute = NOW + jiff::SignedDuration::from_mins(1);
        assert_eq!(
            until(Some(in_a_minute), NOW),
            Duration::from_mins(1) + AFTER
        );
        let in_a_year = NOW + jiff::SignedDuration::from_hours(24 * 365);
        for at in [None, Some(in_a_year)] {
            assert_eq!(until(at, NOW), AT_LATEST);
        }
    }

    #[test]
    fn the_time_of_a_transition_stays_while_the_status_does() {
        let later = NOW + jiff::SignedDuration::from_secs(60);
        let first = status(&Value::Null, Some(1), &usable("fine"), NOW).unwrap();
        let second = status(&first, Some(2), &usable("better"), later).unwrap();
        let time = |status: &Value| status["conditions"][0]["lastTransitionTime"].clone();
        assert_eq!(time(&first), time(&second));
        let third = status(
            &second,
            Some(2),
            &of_class(&Class::parse("a", &Value::Null)),
            later,
        );
        let third = third.unwrap();
        assert_eq!(third["conditions"][0]["status"], "False");
        assert_ne!(time(&third), time(&second));
    }
}
