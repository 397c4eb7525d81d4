//! The condition `Ready` of each ProvisionerClass and SignaturePolicy, for kstatus and users. No
//! decision depends on this status.

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

use super::policies::PolicyReferences;
use crate::shared::Shared;

/// Maximum interval between two updates of the conditions. It limits how long a condition is
/// outdated after the clock was changed.
const MAX_WAIT: Duration = Duration::from_mins(10);
/// Delay that is added to the end of a validity period, because a trust root is still valid at the
/// exact end.
const WAKE_MARGIN: Duration = Duration::from_millis(100);

/// The content of the condition `Ready`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReadyCondition {
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// Updates the status of all policies, and of the classes with one of the provisioners of this pod,
/// when the status changes. Runs only on the leader.
pub(crate) async fn write_all(shared: Arc<Shared>) {
    let (mut classes, mut policies) = (shared.classes.changes(), shared.policies.changes());
    loop {
        let names = shared.classes.all();
        let ours = names
            .iter()
            .filter(|(_, class)| class.as_ref().as_ref().map_or(true, Class::is_ours))
            .map(|(name, _)| name.clone());
        update_all(&shared, "ProvisionerClass", "provisionerclasses", ours).await;
        let names = shared.policies.all();
        let all = names.keys().cloned();
        update_all(&shared, "SignaturePolicy", "signaturepolicies", all).await;
        let now = Timestamp::now();
        let soonest = names
            .values()
            .filter_map(|policy| proof::changes_after(policy, now))
            .min();
        tokio::select! {
            changed = classes.changed() => if changed.is_err() { return },
            changed = policies.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(wake_delay(soonest, now)) => {}
        }
    }
}

/// Returns the time until a trust root becomes valid or expires. The result is at most `MAX_WAIT`,
/// because clocks can be changed.
fn wake_delay(at: Option<Timestamp>, now: Timestamp) -> Duration {
    let wait = at.and_then(|at| Duration::try_from(at.duration_since(now)).ok());
    wait.map_or(MAX_WAIT, |wait| wait + WAKE_MARGIN)
        .min(MAX_WAIT)
}

async fn update_all(
    shared: &Shared,
    kind: &str,
    plural: &str,
    names: impl Iterator<Item = String> + Send,
) {
    let gvk = GroupVersionKind::gvk(GROUP, VERSION, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    let api: Api<DynamicObject> = Api::all_with(shared.leader_client(), &resource);
    for name in names {
        // The API server has accepted the name, so parsing does not fail.
        let Ok(name) = name.parse::<KubeName>() else {
            continue;
        };
        if let Err(error) = update(shared, &api, kind, &name).await {
            let error = crate::chain(&error);
            tracing::warn!(kind, name = name.as_str(), error, "cannot write the status");
        }
    }
}

/// Writes the status of the stored object, so that `observedGeneration` matches the evaluated spec.
async fn update(
    shared: &Shared,
    api: &Api<DynamicObject>,
    kind: &str,
    name: &KubeName,
) -> Result<(), kube::Error> {
    let Some(found) = ByName(api).get_opt(name).await? else {
        return Ok(());
    };
    let spec = &found.data["spec"];
    let ready = match kind {
        "SignaturePolicy" => of_policy(shared, name, spec).await,
        _ => of_class(&Class::parse(name, spec)),
    };
    let generation = found.metadata.generation;
    let Some(status) = status(&found.data["status"], generation, &ready, Timestamp::now()) else {
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
        // The object was deleted, or created again with another uid.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        outcome => outcome.map(drop),
    }
}

fn of_class(class: &Result<Class, Findings>) -> ReadyCondition {
    match class {
        Ok(_) => usable(
            "users with verb `use` on this class can name the class in Bundles and \
         BundleDeployments",
        ),
        Err(findings) => unusable(findings),
    }
}

async fn of_policy(shared: &Shared, name: &str, spec: &Value) -> ReadyCondition {
    let policy = Policy::read(name, spec);
    let found = PolicyReferences::look_up(shared, std::slice::from_ref(&policy)).await;
    let policy = found.complete(policy);
    let ready = proof::ready_policy(&policy, Timestamp::now());
    if ready.problems.has_errors() {
        unusable(&ready.problems)
    } else if ready.unavailable.is_empty() {
        usable("the policy applies to the references that it matches")
    } else {
        ReadyCondition {
            status: "Unknown",
            reason: "Unavailable",
            message: finding_lines(&ready.unavailable),
        }
    }
}

fn usable(message: &str) -> ReadyCondition {
    ReadyCondition {
        status: "True",
        reason: "Usable",
        message: message.to_owned(),
    }
}

fn unusable(findings: &Findings) -> ReadyCondition {
    ReadyCondition {
        status: "False",
        reason: "Unusable",
        message: finding_lines(findings),
    }
}

fn finding_lines<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> String {
    let lines: Vec<String> = findings
        .into_iter()
        .map(|finding| format!("{}: {finding}", finding.code))
        .collect();
    lines.join("; ")
}

/// Returns the status to write, or `None` if the status is unchanged.
fn status(
    before: &Value,
    generation: Option<i64>,
    ready: &ReadyCondition,
    now: Timestamp,
) -> Option<Value> {
    let old = before["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|found| found["type"] == condition::READY);
    let field = |name: &str| old.and_then(|old| old[name].as_str()).unwrap_or_default();
    let same_status = field("status") == ready.status;
    if same_status
        && field("reason") == ready.reason
        && field("message") == ready.message
        && before["observedGeneration"].as_i64() == generation
    {
        return None;
    }
    // The Kubernetes API stores times in whole seconds.
    let now = Timestamp::from_second(now.as_second())
        .unwrap_or(now)
        .to_string();
    let since = Some(field("lastTransitionTime")).filter(|since| same_status && !since.is_empty());
    Some(json!({
        "observedGeneration": generation,
        "conditions": [{
            "type": condition::READY,
            "status": ready.status,
            "reason": ready.reason,
            "message": ready.message,
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
    fn unchanged_status_is_not_written_again() {
        let ready = usable("fine");
        let written = status(&Value::Null, Some(3), &ready, NOW).unwrap();
        assert_eq!(written["observedGeneration"], 3);
        assert_eq!(
            written["conditions"][0]["lastTransitionTime"],
            "2027-01-15T08:00:00Z"
        );
        assert_eq!(status(&written, Some(3), &ready, NOW), None);
    }

    #[test]
    fn waits_for_the_expiry_of_a_root_within_the_maximum_delay() {
        let in_a_minute = NOW + jiff::SignedDuration::from_mins(1);
        assert_eq!(
            wake_delay(Some(in_a_minute), NOW),
            Duration::from_mins(1) + WAKE_MARGIN
        );
        let in_a_year = NOW + jiff::SignedDuration::from_hours(24 * 365);
        for at in [None, Some(in_a_year)] {
            assert_eq!(wake_delay(at, NOW), MAX_WAIT);
        }
    }

    #[test]
    fn transition_time_is_kept_while_the_status_is_unchanged() {
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
