//! Results of the health checks of installed objects, and objects that need a health check.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bundle_core::object::GroupKind;
use bundle_core::package::Probe;
use bundle_core::plan::conditions::bounded;
use bundle_core::plan::health;
use bundle_core::plan::inventory::{self, ContentKey};
use bundle_core::plan::jobs::EXPIRED_JOB_FAILED;
use bundle_core::plan::restores::RestoreBackoff;
use bundle_core::plan::rollout::AwaitedPhase;

use super::{InstalledState, InstalledStates};

/// Maximum length of a stored reason for an unhealthy object, in bytes.
const REASON_LIMIT: usize = 1024;

/// The progress of a phase that an installation waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reconcile) struct PhaseProgress {
    /// The title of the phase, such as `phase 2 of 4`.
    pub(in crate::reconcile) title: String,
    /// The unready objects of the phase. `None` if all objects are ready.
    pub(in crate::reconcile) unready: Option<String>,
    /// The remaining delay before the installation may continue, even if all objects are ready. The
    /// total delay grows with each attempt that had to wait for the same phase.
    pub(in crate::reconcile) pause: Duration,
}

impl PhaseProgress {
    /// Returns true if the installation can continue now.
    pub(in crate::reconcile) fn is_ready(&self) -> bool {
        self.unready.is_none() && self.pause.is_zero()
    }
}

impl InstalledStates {
    /// Returns the recorded uid of the object `key`. Returns `None` if the inventory records no uid
    /// for this object.
    pub(in crate::reconcile) fn uid(&self, deployment: &str, key: &str) -> Option<String> {
        self.with(deployment, |state| {
            state.inventory.uid(key).map(str::to_owned)
        })
    }

    /// Marks an object for a health check.
    pub(in crate::reconcile) fn mark_touched(&self, deployment: &str, key: &str) {
        self.with(deployment, |state| {
            state.health_checks_due.insert(key.to_owned());
        });
    }

    /// Returns and clears the set of objects that need a health check.
    pub(in crate::reconcile) fn take_touched(&self, deployment: &str) -> BTreeSet<String> {
        self.with(deployment, |state| {
            std::mem::take(&mut state.health_checks_due)
        })
    }

    /// Records the reason why an object is unhealthy, or `None` if the object is healthy. Only the
    /// beginning of the reason is stored, because a reason from the status of an object can be
    /// long.
    pub(in crate::reconcile) fn record_health(
        &self,
        deployment: &str,
        key: &str,
        why: Option<String>,
    ) {
        self.with(deployment, |state| match why {
            Some(why) => {
                state
                    .unhealthy
                    .insert(key.to_owned(), bounded(&why, REASON_LIMIT));
            }
            None => {
                state.unhealthy.remove(key);
            }
        });
    }

    /// Stores the health probes of the content with this digest. Removes the probes of other
    /// content, except content that is installed or being installed.
    pub(in crate::reconcile) fn set_probes(
        &self,
        deployment: &str,
        digest: &str,
        probes: Arc<[Probe]>,
    ) {
        self.with(deployment, |state| {
            let used: Vec<String> = state.digests().map(str::to_owned).collect();
            state.probes.retain(|digest, _| used.contains(digest));
            state.probes.insert(digest.to_owned(), probes);
        });
    }

    /// Returns the health probes of the content with this digest.
    pub(in crate::reconcile) fn probes_of_content(
        &self,
        deployment: &str,
        digest: &str,
    ) -> Arc<[Probe]> {
        self.with(deployment, |state| {
            state.probes.get(digest).cloned().unwrap_or_default()
        })
    }

    /// Returns the health probes of the content from which the object was applied.
    pub(in crate::reconcile) fn probes(&self, deployment: &str, key: &str) -> Arc<[Probe]> {
        self.with(deployment, |state| {
            state.probes_of(key).cloned().unwrap_or_default()
        })
    }

    /// Records that the incomplete installation waits until the objects of a phase are healthy.
    /// Marks these objects for a health check.
    pub(in crate::reconcile) fn wait_for_phase(&self, deployment: &str, awaited: AwaitedPhase) {
        let now = self.began.elapsed();
        self.with(deployment, |state| {
            let former = state.awaited_phase.filter(|(phase, _)| *phase == awaited);
            let waits = former.map_or_else(RestoreBackoff::default, |(_, waits)| waits);
            state.awaited_phase = Some((awaited, waits.restored(now)));
            let Some(partial) = &mut state.partial else {
                return;
            };
            partial.awaited = Some(awaited);
            let touched = state.awaited_keys();
            state.health_checks_due.extend(touched);
        });
    }

    /// Returns the progress of the phase that the installation `content_key` waits for. Returns
    /// `None` if this installation waits for no phase.
    pub(in crate::reconcile) fn phase_progress(
        &self,
        deployment: &str,
        content_key: &ContentKey,
    ) -> Option<PhaseProgress> {
        let now = self.began.elapsed();
        self.with(deployment, |state| {
            let partial = state.partial.as_ref()?;
            let awaited = partial
                .awaited
                .filter(|_| partial.content_key == *content_key)?;
            let keys = state.awaited_keys();
            let is_awaited = |key: &&String| keys.contains(*key);
            let mut unhealthy: BTreeMap<String, String> = state
                .unhealthy
                .iter()
                .filter(|(key, _)| keys.contains(*key))
                .map(|(key, why)| (key.clone(), why.clone()))
                .collect();
            let missing = state.drifted.iter().filter(|(_, drift)| drift.is_missing);
            for key in missing.map(|(key, _)| key).filter(is_awaited) {
                unhealthy.insert(key.clone(), "is missing".to_owned());
            }
            let runs = &state.inventory.job_runs;
            for key in awaited.failed_jobs(runs, content_key.content_digest()) {
                unhealthy.insert(key.to_owned(), EXPIRED_JOB_FAILED.to_owned());
            }
            Some(PhaseProgress {
                title: awaited.title(),
                unready: awaited.progress(keys.iter().map(String::as_str), &unhealthy),
                pause: state
                    .awaited_phase
                    .map_or(Duration::ZERO, |(_, waits)| waits.wait(now)),
            })
        })
    }

    /// Returns true if an object still needs a health check, for example because it could not be
    /// read.
    pub(in crate::reconcile) fn has_touched(&self, deployment: &str) -> bool {
        self.with(deployment, |state| !state.health_checks_due.is_empty())
    }

    /// Returns the object keys of all objects with a state.
    pub(in crate::reconcile) fn keys(&self, deployment: &str) -> Vec<String> {
        self.with(deployment, |state| state.objects.keys().cloned().collect())
    }

    /// Returns the unhealthy objects, each with the reason.
    pub(in crate::reconcile) fn unhealthy(&self, deployment: &str) -> BTreeMap<String, String> {
        self.with(deployment, |state| state.unhealthy.clone())
    }
}

impl InstalledState {
    /// Returns the content digests for which probes are needed: of an incomplete installation, and
    /// of the installed content.
    fn digests(&self) -> impl Iterator<Item = &str> {
        let partial = self.partial.as_ref();
        let partial = partial.map(|partial| &partial.content_key);
        [
            partial.map(ContentKey::content_digest),
            self.content_key.as_ref().map(ContentKey::content_digest),
            self.installed_digest(),
        ]
        .into_iter()
        .flatten()
    }

    /// Returns the health probes of the content from which the object was applied.
    fn probes_of(&self, key: &str) -> Option<&Arc<[Probe]>> {
        let digest = match (&self.partial, &self.content_key) {
            (Some(partial), _) if partial.applied.contains(key) => {
                partial.content_key.content_digest()
            }
            (None, Some(content_key)) => content_key.content_digest(),
            _ => self.installed_digest()?,
        };
        self.probes.get(digest)
    }

    fn installed_digest(&self) -> Option<&str> {
        let record = self.inventory.record.as_ref()?;
        Some(&record.installed.as_ref()?.digest)
    }

    /// Returns true if a health check exists for the object: its kind has a health rule, or a probe
    /// selects the object.
    pub(super) fn has_health(&self, key: &str) -> bool {
        has_health_rule(key) || self.has_probe(key)
    }

    fn has_probe(&self, key: &str) -> bool {
        let probes = self.probes_of(key).filter(|probes| !probes.is_empty());
        probes
            .zip(inventory::parts(key))
            .is_some_and(|(probes, (kind, namespace, name))| {
                health::has_probe(probes, &kind, namespace, name)
            })
    }

    /// Returns the objects that must be healthy before the incomplete installation continues.
    fn awaited_keys(&self) -> BTreeSet<String> {
        let Some(partial) = &self.partial else {
            return BTreeSet::new();
        };
        let Some(awaited) = partial.awaited else {
            return BTreeSet::new();
        };
        let keys = partial.applied.iter();
        keys.filter(|key| awaited.waits_for(key, self.has_probe(key)))
            .cloned()
            .collect()
    }
}

fn has_health_rule(key: &str) -> bool {
    let kind = GroupKind::of_key(key);
    health::has_health(&kind.group, &kind.kind)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bundle_core::package::{Assertion, ProbeSelector};
    use bundle_core::plan::inventory::{InstalledContent, Inventory};
    use bundle_core::plan::phases::Phase;
    use tokio::sync::mpsc;

    use super::*;
    use crate::reconcile::drift::states::AppliedState;

    const KEYS: [&str; 2] = ["ConfigMap/a/web", "Widget.example.com/a/web"];

    fn probes(group: &str, kind: &str) -> Arc<[Probe]> {
        let selector = ProbeSelector {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: None,
        };
        let assertions = vec![Assertion::FieldValue {
            field_path: "/a".to_owned(),
            value: "b".to_owned(),
        }];
        vec![Probe {
            selector,
            assertions,
        }]
        .into()
    }

    fn applied(keys: &[&str]) -> HashMap<String, AppliedState> {
        let keys = keys.iter();
        keys.map(|key| ((*key).to_owned(), AppliedState::default()))
            .collect()
    }

    /// Returns a content key for the content with this digest.
    fn content_key(digest: &str) -> ContentKey {
        ContentKey::from(format!("{digest} installer - spec uid"))
    }

    /// Returns the states of BundleDeployment `web` with installed content `old`.
    fn states() -> InstalledStates {
        let states = InstalledStates::new(mpsc::unbounded_channel().0);
        let mut inventory = Inventory::new("web");
        let record = inventory.record.get_or_insert_default();
        record.installed = Some(InstalledContent {
            digest: "old".to_owned(),
            ..InstalledContent::default()
        });
        states.set_inventory("web", Arc::new(inventory));
        states
    }

    #[test]
    fn each_object_has_the_probes_of_its_content() {
        let states = states();
        let (old, new) = (probes("", "ConfigMap"), probes("example.com", "Widget"));
        states.set_probes("web", "old", old.clone());
        let (old_key, new_key) = (content_key("old"), content_key("new"));
        states.finish_apply("web", &old_key, applied(&KEYS), &BTreeMap::new());
        // Both objects need a health check. ConfigMaps have no health rule, but the probe selects
        // this ConfigMap.
        let touched = states.take_touched("web");
        assert_eq!(touched.len(), 2, "{touched:?}");
        states.set_probes("web", "other", old.clone());
        states.set_probes("web", "new", new.clone());
        assert!(states.probes_of_content("web", "other").is_empty());
        states.begin_apply("web");
        let first = applied(&KEYS[..1]);
        states.record_interrupted("web", &new_key, first, &BTreeSet::new(), &BTreeMap::new());
        assert_eq!(states.probes("web", KEYS[0]), new);
        assert_eq!(states.probes("web", KEYS[1]), old);
        states.finish_apply("web", &new_key, applied(&KEYS), &BTreeMap::new());
        assert_eq!(states.probes("web", KEYS[1]), new);
        assert_eq!(states.take_touched("web"), [KEYS[1].to_owned()].into());
    }

    #[test]
    fn only_the_beginning_of_a_reason_is_kept() {
        let states = states();
        states.record_health("web", KEYS[1], Some("x".repeat(1 << 20)));
        let kept = states.unhealthy("web").remove(KEYS[1]).unwrap();
        assert!(kept.len() <= REASON_LIMIT + 8, "{}", kept.len());
    }

    #[test]
    fn unhealthy_phase_delays_further_attempts() {
        let states = states();
        let key = content_key("new");
        let phases = [Phase::Configuration, Phase::Deploy];
        let wait = |phase| {
            states.begin_apply("web");
            let (none, seen) = (BTreeSet::new(), BTreeMap::new());
            states.record_interrupted("web", &key, applied(&KEYS), &none, &seen);
            states.wait_for_phase("web", AwaitedPhase::new(phase, phases));
            states.phase_progress("web", &key).unwrap()
        };
        assert!(wait(Phase::Deploy).is_ready());
        for _ in 0..20 {
            wait(Phase::Deploy);
        }
        let progress = wait(Phase::Deploy);
        assert_eq!(progress.unready, None);
        assert!(!progress.is_ready());
        assert!(progress.pause > Duration::from_secs(1), "{progress:?}");
        // The delay does not apply to another phase.
        assert!(wait(Phase::Configuration).is_ready());
    }

    #[test]
    fn expired_failed_job_keeps_its_phase_unhealthy() {
        let states = states();
        let (key, job) = (content_key("new"), "Job.batch/a/migrate");
        let awaited = AwaitedPhase::new(Phase::Deploy, [Phase::Configuration, Phase::Deploy]);
        states.begin_apply("web");
        let (none, seen) = (BTreeSet::new(), BTreeMap::new());
        states.record_interrupted("web", &key, applied(&[job]), &none, &seen);
        states.wait_for_phase("web", awaited);
        let mut inventory = Inventory::new("web");
        inventory.job_runs.applied("new", [job]);
        inventory.job_runs.expire(job, true);
        states.set_inventory("web", Arc::new(inventory));
        let progress = states.phase_progress("web", &key).unwrap();
        assert!(progress.unready.unwrap().contains(job));
    }

    #[test]
    fn interrupted_installation_waits_until_the_phase_is_healthy() {
        let states = states();
        let key = content_key("new");
        let awaited = AwaitedPhase::new(Phase::Deploy, [Phase::Configuration, Phase::Deploy]);
        states.begin_apply("web");
        let (none, seen) = (BTreeSet::new(), BTreeMap::new());
        states.record_interrupted("web", &key, applied(&KEYS), &none, &seen);
        assert_eq!(states.phase_progress("web", &key), None);
        states.wait_for_phase("web", awaited);
        assert_eq!(states.take_touched("web"), [KEYS[1].to_owned()].into());
        let progress = |unready: Option<&str>| {
            Some(PhaseProgress {
                title: "phase 2 of 2".to_owned(),
                unready: unready.map(str::to_owned),
                pause: Duration::ZERO,
            })
        };
        states.record_health("web", KEYS[1], Some("busy".to_owned()));
        let unready = "0/1 workloads ready: Widget.example.com/a/web: busy";
        assert_eq!(states.phase_progress("web", &key), progress(Some(unready)));
        assert_eq!(states.phase_progress("web", &content_key("other")), None);
        states.record_health("web", KEYS[1], None);
        assert_eq!(states.phase_progress("web", &key), progress(None));
        // After an attempt that ended with an error, the installation waits for no phase.
        states.record_interrupted("web", &key, applied(&KEYS), &none, &seen);
        assert_eq!(states.phase_progress("web", &key), None);
    }
}
