//! Progress of a rollout by phase, for the condition `Progressing`, and the phase that an
//! installation waits for.

use std::collections::BTreeMap;

use crate::object::GroupKind;
use crate::plan::conditions::some_of;
use crate::plan::health::has_health;
use crate::plan::jobs::JobRuns;
use crate::plan::phases::{Phase, can_gate};

/// Maximum number of unready objects in the message about a phase.
const MAX_NAMED: usize = 5;

/// Returns the number of ready objects of each phase that has unready objects, in the order of
/// installation: `1/2 services, 3/7 workloads ready`. Returns `None` if all objects are ready.
/// `keys` are the keys of all objects. Objects of kinds without a health rule are not included.
pub fn progress<'k>(
    keys: impl IntoIterator<Item = &'k str>,
    unhealthy: &BTreeMap<String, String>,
) -> Option<String> {
    let mut phases = BTreeMap::<Phase, (usize, usize)>::new();
    for key in keys {
        let kind = GroupKind::of_key(key);
        let is_unhealthy = unhealthy.contains_key(key);
        if !is_unhealthy && !has_health(&kind.group, &kind.kind) {
            continue;
        }
        let phase = Phase::of(&kind.group, &kind.kind);
        let (ready, all) = phases.entry(phase).or_default();
        *ready += usize::from(!is_unhealthy);
        *all += 1;
    }
    let waiting: Vec<String> = phases
        .into_iter()
        .filter(|(_, (ready, all))| ready < all)
        .map(|(phase, (ready, all))| format!("{ready}/{all} {}", noun(phase)))
        .collect();
    (!waiting.is_empty()).then(|| format!("{} ready", waiting.join(", ")))
}

/// Phase that an installation waits for, with its position among the phases of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwaitedPhase {
    /// The phase.
    pub phase: Phase,
    /// Number of the phase; the first phase has the number 1.
    pub number: usize,
    /// Number of phases of the content.
    pub phases: usize,
}

impl AwaitedPhase {
    /// Returns the awaited `phase`, with its position among the phases of the content. `phases`
    /// contains the phase of each object.
    pub fn new(phase: Phase, phases: impl IntoIterator<Item = Phase>) -> Self {
        let all: std::collections::BTreeSet<Phase> = phases.into_iter().collect();
        Self {
            phase,
            number: all.range(..=phase).count(),
            phases: all.len(),
        }
    }

    /// Returns true if the next phase waits for the health of the object with this key.
    /// `has_probe` is true if a probe selects the object.
    pub fn waits_for(&self, key: &str, has_probe: bool) -> bool {
        let kind = GroupKind::of_key(key);
        Phase::of(&kind.group, &kind.kind) == self.phase
            && can_gate(&kind.group, &kind.kind)
            && (has_probe || has_health(&kind.group, &kind.kind))
    }

    /// Returns the keys of the Jobs of the awaited phase that had failed when they expired. The
    /// Jobs were applied from the content `digest`. They do not exist any more, but the next phase
    /// still waits for them.
    pub fn failed_jobs<'a>(
        &self,
        runs: &'a JobRuns,
        digest: &'a str,
    ) -> impl Iterator<Item = &'a str> {
        let failed = runs.failed(digest);
        failed.filter(|key| self.waits_for(key, false))
    }

    /// Returns the name of the phase: `phase 2 of 4`.
    pub fn title(&self) -> String {
        format!("phase {} of {}", self.number, self.phases)
    }

    /// Returns the number of ready objects and the unready objects, with the reasons:
    /// `3/7 workloads ready: Deployment.apps/a/web: …`. Returns `None` if all objects are ready.
    /// `keys` are the keys of the objects that [`Self::waits_for`] selects.
    pub fn progress<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k str>,
        unhealthy: &BTreeMap<String, String>,
    ) -> Option<String> {
        let mut all = 0;
        let mut unready = std::collections::BTreeSet::new();
        for key in keys {
            all += 1;
            if let Some(why) = unhealthy.get(key) {
                unready.insert(format!("{key}: {why}"));
            }
        }
        if unready.is_empty() {
            return None;
        }
        let ready = all - unready.len();
        let unready: Vec<String> = unready.into_iter().collect();
        let list = some_of(&unready, MAX_NAMED);
        Some(format!("{ready}/{all} {} ready: {list}", noun(self.phase)))
    }
}

/// Returns the plural noun for the objects of a phase.
fn noun(phase: Phase) -> &'static str {
    match phase {
        Phase::Namespaces => "namespaces",
        Phase::Policies => "policies",
        Phase::Identity => "ServiceAccounts",
        Phase::Configuration => "ConfigMaps and Secrets",
        Phase::Storage => "volumes",
        Phase::Crds => "CustomResourceDefinitions",
        Phase::Roles => "roles",
        Phase::Bindings => "role bindings",
        Phase::Infrastructure => "services",
        Phase::Deploy => "workloads",
        Phase::Scaling => "autoscalers",
        Phase::Publish => "routes",
        Phase::Admission => "webhooks and APIs",
        Phase::AdmissionBindings => "policy bindings",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(keys: &[&str], unhealthy: &[&str]) -> Option<String> {
        let unhealthy = unhealthy
            .iter()
            .map(|key| ((*key).to_owned(), "waiting".to_owned()))
            .collect();
        progress(keys.iter().copied(), &unhealthy)
    }

    #[test]
    fn unready_phases_are_listed_in_the_order_of_installation() {
        let keys = [
            "Deployment.apps/team-a/web",
            "Deployment.apps/team-a/db",
            "Widget.example.com/team-a/web",
            "Service/team-a/web",
            "ConfigMap/team-a/web",
            "CustomResourceDefinition.apiextensions.k8s.io//widgets.example.com",
        ];
        for (unhealthy, expected) in [
            (vec![], None),
            (vec![keys[0]], Some("2/3 workloads ready")),
            (
                vec![keys[3], keys[0], keys[2]],
                Some("0/1 services, 1/3 workloads ready"),
            ),
            (vec![keys[5]], Some("0/1 CustomResourceDefinitions ready")),
        ] {
            assert_eq!(shown(&keys, &unhealthy).as_deref(), expected);
        }
    }

    #[test]
    fn awaited_phase_lists_its_unready_objects() {
        let awaited = AwaitedPhase::new(
            Phase::Deploy,
            [
                Phase::Configuration,
                Phase::Deploy,
                Phase::Deploy,
                Phase::Admission,
            ],
        );
        assert_eq!(awaited.title(), "phase 2 of 3");
        let keys = ["Deployment.apps/a/web", "Deployment.apps/a/db"];
        let unhealthy = |keys: &[&str]| {
            let pairs = keys.iter();
            pairs
                .map(|key| ((*key).to_owned(), "0 of 1".to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        for (unready, expected) in [
            (&[][..], None),
            (&["Service/a/web"], None),
            (
                &keys[..1],
                Some("1/2 workloads ready: Deployment.apps/a/web: 0 of 1"),
            ),
            (
                &keys,
                Some(
                    "0/2 workloads ready: Deployment.apps/a/db: 0 of 1, Deployment.apps/a/web: 0 of 1",
                ),
            ),
        ] {
            let found = awaited.progress(keys, &unhealthy(unready));
            assert_eq!(found.as_deref(), expected);
        }
    }

    #[test]
    fn jobs_of_the_phase_that_failed_and_expired_are_returned() {
        let (failed, done) = ("Job.batch/a/failed", "Job.batch/a/done");
        let mut runs = JobRuns::default();
        runs.applied("new", [failed, done]);
        runs.expire(failed, true);
        runs.expire(done, false);
        let found = |phase, digest| -> Vec<&str> {
            AwaitedPhase::new(phase, [phase])
                .failed_jobs(&runs, digest)
                .collect()
        };
        assert_eq!(found(Phase::Deploy, "new"), [failed]);
        assert!(found(Phase::Deploy, "old").is_empty());
        assert!(found(Phase::Configuration, "new").is_empty());
    }

    #[test]
    fn next_phase_waits_for_objects_with_health_or_probe() {
        let awaited = |phase| AwaitedPhase::new(phase, [phase]);
        for (phase, key, has_probe, expected) in [
            (Phase::Deploy, "Deployment.apps/a/web", false, true),
            (Phase::Deploy, "Widget.example.com/a/web", false, true),
            (Phase::Deploy, "Service/a/web", false, false),
            (Phase::Infrastructure, "Service/a/web", false, true),
            (Phase::Configuration, "ConfigMap/a/web", false, false),
            (Phase::Configuration, "ConfigMap/a/web", true, true),
            (Phase::Storage, "PersistentVolumeClaim/a/web", false, false),
            (Phase::Storage, "PersistentVolumeClaim/a/web", true, false),
        ] {
            let found = awaited(phase).waits_for(key, has_probe);
            assert_eq!(found, expected, "{key} {has_probe}");
        }
    }

    #[test]
    fn objects_without_health_do_not_count() {
        assert_eq!(shown(&["ConfigMap/team-a/web"], &[]), None);
        assert_eq!(shown(&[], &["ConfigMap/team-a/web"]), None);
    }
}
