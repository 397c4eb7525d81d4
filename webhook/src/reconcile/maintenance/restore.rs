//! Maintenance of installed objects: restores drifted objects, and verifies objects that another
//! actor wrote. `drift::watch` and `drift::states` detect drift.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use bundle_api::names::reason;
use bundle_core::diagnostic::codes;
use bundle_core::plan::backoff::RestoreFailure;
use bundle_core::plan::drift::{self, ObjectRevision};
use bundle_core::plan::phases::Phase;
use kube::Client;

use crate::reconcile::api::object;
use crate::reconcile::apply::{Applied, ApplyError, ApplyPlan, CheckedApply, Target, Targets};
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::drift::restored::{RestoreScope, RestoredObject};
use crate::reconcile::drift::states::AppliedState;
use crate::reconcile::error::{self, ReconcileError, RetryPolicy};
use crate::reconcile::install::executor::{self, ApplyResults, Install};
use crate::reconcile::install::unchanged::FormerApplies;
use crate::reconcile::rights::dry_runs::check::DryRunCheck;

impl DeploymentReconcile<'_> {
    /// Restores drifted objects of `request` that are in `scope`, and verifies objects that another
    /// actor wrote. Returns the time until the next verification. After a failed restore, each call
    /// returns the error of that restore until the objects are restored, even while they wait for
    /// the next attempt.
    pub(in crate::reconcile) async fn restore(
        &mut self,
        request: &InstallRequest<'_>,
        scope: RestoreScope<'_>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let result = Box::pin(self.restore_due(request, scope)).await;
        self.restores_tried = true;
        let states = &self.ctx.states;
        states.keep_restore_error(&self.name, result.as_ref().err());
        if !self.spec.correct_drift || self.spec.paused {
            return result;
        }
        match (result, states.restore_error(&self.name)) {
            (Ok(_), Some(error)) => Err(error),
            // The message also names objects that this call did not try to restore.
            (Err(error), Some(kept)) => Err(ReconcileError {
                message: kept.message,
                ..error
            }),
            (result, None) => result,
        }
    }

    async fn restore_due(
        &mut self,
        request: &InstallRequest<'_>,
        scope: RestoreScope<'_>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let states = &self.ctx.states;
        let correct = self.spec.correct_drift && !self.spec.paused;
        if !correct {
            states.postpone_verifications(&self.name);
        }
        let (mut due, next) = states.suspects(&self.name, Instant::now());
        due.retain(|key| scope.has(key));
        let restorable = |this: &Self| {
            let mut keys = this.ctx.states.restorable(&this.name);
            keys.retain(|key| scope.has(key));
            keys
        };
        let drifted = if correct {
            restorable(self)
        } else {
            BTreeSet::new()
        };
        if drifted.is_empty() && due.is_empty() {
            return Ok(next);
        }
        let wanted: BTreeSet<String> = drifted.union(&due).cloned().collect();
        let mut items = match self.objects_of(request, &wanted).await {
            Ok(items) => items,
            Err(error) => {
                self.not_restored(&drifted, &error).await;
                return Err(error);
            }
        };
        let known: HashSet<String> = items.iter().map(|item| item.key.clone()).collect();
        let (mut drifted, unknown): (BTreeSet<String>, BTreeSet<String>) = drifted
            .into_iter()
            .partition(|key| known.contains(key.as_str()));
        if !unknown.is_empty() && scope == RestoreScope::All {
            // The scope of the kind changed, so the objects of this kind have other keys.
            self.ctx.states.forget_content(&self.name);
            return Ok(Some(Duration::ZERO));
        }
        // The content has no values for these objects.
        let states = &self.ctx.states;
        states.record_restore_failure(&self.name, &unknown, RestoreFailure::Refused);
        // An object that drifts after this point waits for the next reconcile, because the
        // permissions for this object were not checked.
        if correct {
            drifted = restorable(self);
            drifted.retain(|key| known.contains(key.as_str()));
        }
        let before = self.restored.len();
        let install = self.install(request, reason::RECONCILE_FAILED);
        let healed = if correct {
            // Keeps drifted objects, and objects that are due for verification.
            items.retain(|item| drifted.contains(&item.key) || due.contains(&item.key));
            let check = match self.authorize_repair(request, &items).await {
                Ok(check) => check,
                Err(error) => {
                    self.not_restored(&drifted, &error).await;
                    return Err(error);
                }
            };
            // Drifted objects are not verified, because they are restored below.
            let suspects = items
                .iter()
                .filter(|item| due.contains(&item.key) && !drifted.contains(&item.key))
                .collect();
            let verified = self.verify_suspects(&check, &install, suspects).await;
            self.expire_drifted_among(request, &items).await?;
            let healed = self
                .apply_drifted(request, (install, &check), &items, (&drifted, &due))
                .await;
            healed.and(verified)
        } else {
            self.verify_by_dry_run(request, &items, &due).await;
            Ok(())
        };
        self.restored.sort();
        let count = (self.restored.len() - before) as u64;
        self.ctx.shared.metrics.drift_corrected(count);
        let recorded = if scope == RestoreScope::All {
            let fields = self.ctx.states.fields_digest(&self.name);
            self.record_fields(fields).await
        } else {
            Ok(())
        };
        if let Err(error) = &healed {
            let mut untried = restorable(self);
            untried.retain(|key| drifted.contains(key));
            self.not_restored(&untried, error).await;
        }
        healed?;
        recorded?;
        Ok(self.ctx.states.suspects(&self.name, Instant::now()).1)
    }

    /// Records that these objects could not be restored. Clears cached discovery data of custom
    /// kinds.
    async fn not_restored(&self, keys: &BTreeSet<String>, error: &ReconcileError) {
        let failure = if error.retry == RetryPolicy::Soon {
            RestoreFailure::Passing
        } else {
            RestoreFailure::Refused
        };
        self.ctx
            .states
            .record_restore_failure(&self.name, keys, failure);
        self.ctx.apis.forget_custom().await;
    }

    /// Applies objects that another actor wrote, although their recorded fields show no change. An
    /// object that the apply does not change counts as verified. An object that the apply changes
    /// counts as restored. An object with a failed apply counts as drifted.
    async fn verify_suspects(
        &mut self,
        check: &DryRunCheck<'_>,
        install: &Install<'_>,
        suspects: Vec<&PreparedObject>,
    ) -> Result<(), ReconcileError> {
        let states = &self.ctx.states;
        let targets: Targets = suspects
            .iter()
            .filter_map(|item| {
                let uid = self.inventory.uid(&item.key)?.to_owned();
                Some((item.key.clone(), Target::Uid(uid)))
            })
            .collect();
        let (mut plan, failed) = ApplyPlan::prepare(check.preparer(), &suspects, &targets).await;
        // Objects whose apply could not be prepared are marked as drifted, so that the next attempt
        // reports their errors.
        states.mark_drifted(
            &self.name,
            failed.iter().map(|(item, _)| item.key.clone()).collect(),
        );
        let (checked, refused) = check.check_drifted(&suspects, &mut plan).await;
        let sender = check.apply_client();
        let results: Vec<_> =
            crate::reconcile::api::parallel::all(checked.into_iter().map(|apply| async move {
                let item = apply.prepared().item();
                (item, sender.apply(install.client, apply).await.result)
            }))
            .await;
        let now = Instant::now();
        for (item, result) in results {
            match result {
                Ok(applied) if self.is_as_applied(item, &applied) => {
                    let state = executor::applied_state(&applied);
                    states.record_verified(&self.name, &item.key, state, now);
                }
                Ok(applied) => {
                    states.record_restored(
                        &self.name,
                        &item.key,
                        executor::applied_state(&applied),
                    );
                    self.restored.push(RestoredObject {
                        key: item.key.clone(),
                        cause: None,
                    });
                }
                Err(_) => states.mark_drifted(&self.name, [item.key.clone()].into()),
            }
        }
        refused
    }

    /// Verifies by dry run the objects in `due`, which another actor wrote. An object that an apply
    /// would change, or whose dry run fails, counts as drifted. Used if drift is only reported.
    async fn verify_by_dry_run(
        &self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
        due: &BTreeSet<String>,
    ) {
        let states = &self.ctx.states;
        let preparer = &self.preparer(request);
        let suspects = items.iter().filter_map(|item| {
            let uid = self.inventory.uid(&item.key)?.to_owned();
            due.contains(&item.key).then_some((item, uid))
        });
        let results: Vec<_> = crate::reconcile::api::parallel::all(
            suspects.map(|(item, uid)| async move { (item, preparer.dry_run(item, uid).await) }),
        )
        .await;
        let now = Instant::now();
        for (item, result) in results {
            match result {
                Ok(applied) if self.is_as_applied(item, &applied) => {
                    // A dry run sends no request, so the next installation applies the object.
                    let state = executor::observed_state(&applied.seen);
                    states.record_verified(&self.name, &item.key, state, now);
                }
                Ok(_) | Err(_) => states.mark_drifted(&self.name, [item.key.clone()].into()),
            }
        }
    }

    /// Returns true if the apply did not change the fingerprint of the object.
    fn is_as_applied(&self, item: &PreparedObject, applied: &Applied) -> bool {
        let before = self.ctx.states.state(&self.name, &item.key);
        applied.seen.state.fingerprint == before.and_then(|state| state.fingerprint)
    }

    /// Applies drifted objects again, in the order of installation. If one object fails, the other
    /// objects are still applied.
    async fn apply_drifted(
        &mut self,
        request: &InstallRequest<'_>,
        (mut install, check): (Install<'_>, &DryRunCheck<'_>),
        items: &[PreparedObject],
        (asked, due): (&BTreeSet<String>, &BTreeSet<String>),
    ) -> Result<(), ReconcileError> {
        let ctx = self.ctx;
        let now_drifted = ctx.states.drifted(&self.name);
        let mut by_phase = BTreeMap::<Phase, Vec<&PreparedObject>>::new();
        let is_requested =
            |item: &&PreparedObject| asked.contains(&item.key) || due.contains(&item.key);
        let is_drifted = |item: &&PreparedObject| now_drifted.contains_key(&item.key);
        for item in items.iter().filter(is_requested).filter(is_drifted) {
            if !ctx.states.shows_drift_in_fields(&self.name, &item.key)
                && self.is_untouched(install.client, item).await
            {
                ctx.states.mark_in_place(&self.name, &item.key);
                continue;
            }
            by_phase.entry(item.phase).or_default().push(item);
        }
        let mut last_error = None;
        for items in by_phase.values() {
            let mut targets = Targets::new();
            for item in items {
                match install.targets(&[item], &BTreeMap::new()).await {
                    Ok(found) => targets.extend(found),
                    Err(error) => last_error = Some(error),
                }
            }
            let absent: Vec<&PreparedObject> = items
                .iter()
                .copied()
                .filter(|item| {
                    let recorded = self.inventory.uid(&item.key);
                    match targets.get(&item.key) {
                        // An object that another actor created under the same name also counts as
                        // missing.
                        Some(Target::Uid(uid)) => recorded != Some(uid.as_str()),
                        Some(Target::Absent) => true,
                        None => recorded.is_none(),
                    }
                })
                .collect();
            if !absent.is_empty()
                && let Err(error) = self.check_before_recreate(request, &absent).await
            {
                last_error = Some(error);
                for item in absent {
                    targets.remove(&item.key);
                }
            }
            let (mut plan, failed) = ApplyPlan::prepare(check.preparer(), items, &targets).await;
            if !failed.is_empty() {
                last_error = Some(not_prepared(&failed));
            }
            // The dry runs are sent first, because rejected objects must not be recorded as
            // intents.
            let (applies, refused) = check.check_drifted(items, &mut plan).await;
            if let Err(error) = refused {
                last_error = Some(error);
            }
            let targets = applies.iter().map(CheckedApply::key_and_target);
            let intents = self.record_targets(targets).await?;
            let mut done = ApplyResults::default();
            // The cause must be read before the watches report the writes of this controller.
            let mut causes: BTreeMap<&str, String> = items
                .iter()
                .filter_map(|item| {
                    Some((item.key.as_str(), ctx.states.cause(&self.name, &item.key)?))
                })
                .collect();
            let before = self.revisions_of_scaled(&applies);
            let result = install
                .apply_round(check, applies, &FormerApplies::default(), &mut done)
                .await;
            let recorded = self.record_done(&done, &intents).await;
            for item in items {
                let failure = match done.failed.get(&item.key) {
                    _ if done.applied.contains_key(&item.key) => continue,
                    Some(failure) => *failure,
                    // The apply was rejected before a request was sent.
                    None if last_error
                        .as_ref()
                        .is_some_and(|t| t.retry != RetryPolicy::Soon) =>
                    {
                        RestoreFailure::Refused
                    }
                    None => RestoreFailure::Passing,
                };
                ctx.states
                    .record_restore_failure(&self.name, [&item.key], failure);
            }
            recorded?;
            install.inventory = self.inventory.clone();
            if items.iter().any(|item| item.defines_kinds()) {
                ctx.apis.forget_custom().await;
            }
            for (key, applied) in done.applied {
                let cause = causes.remove(key.as_str());
                ctx.states.record_restored(&self.name, &key, applied);
                // If an autoscaler owns the replicas of an object, the apply does not restore them.
                // If the revision is unchanged, the object does not count as restored.
                if applied.state.map(|state| state.revision) != before.get(&key).copied() {
                    self.restored.push(RestoredObject { key, cause });
                }
            }
            if let Err(error) = result {
                last_error = Some(error);
            }
        }
        last_error.map_or(Ok(()), Err)
    }

    /// Returns the revisions of the objects whose `spec.replicas` is not applied. The revisions
    /// were observed before the apply.
    pub(in crate::reconcile) fn revisions_of_scaled(
        &self,
        applies: &[CheckedApply<'_>],
    ) -> HashMap<String, ObjectRevision> {
        let scaled = applies.iter().map(|apply| apply.key_and_target().0);
        let scaled: Vec<&str> = scaled.filter(|key| self.scaled_objects.has(key)).collect();
        if scaled.is_empty() {
            return HashMap::new();
        }
        let seen = self.ctx.watches.observed_objects(&self.name);
        let revision = |key: &str| Some((key.to_owned(), seen.get(key)?.state.revision));
        scaled.into_iter().filter_map(revision).collect()
    }

    /// Returns true if an object without an entry of this controller in `managedFields` has the
    /// recorded uid and all applied values.
    async fn is_untouched(&self, client: &Client, item: &PreparedObject) -> bool {
        match object::observe(client, &item.kind, &item.id).await {
            Ok(Some(seen)) if self.inventory.owns(&item.key, &seen.uid) => {
                covered(client, item).await
            }
            _ => false,
        }
    }
}

/// Returns the error about objects that could not be prepared.
fn not_prepared(failed: &[(&PreparedObject, ApplyError)]) -> ReconcileError {
    let messages = failed
        .iter()
        .map(|(item, error)| format!("{}: {}", item.key, error.message()))
        .collect();
    ReconcileError::new(
        codes::install::APPLY_FAILED,
        reason::RECONCILE_FAILED,
        error::joined(messages, executor::MAX_FAILURES),
        RetryPolicy::Soon,
    )
}

/// Returns true if the object has all applied values.
async fn covered(client: &Client, item: &PreparedObject) -> bool {
    let namespace = item.id.namespace.as_deref();
    match object::read(client, &item.kind, namespace, &item.id.name).await {
        Ok(Some(live)) => {
            serde_json::to_value(&live).is_ok_and(|live| drift::covers(&live, &item.value))
        }
        _ => false,
    }
}

/// Returns the keys of items that do not exist, or that do not have all applied values. Reads each
/// object. Used if the fields of the objects are not recorded.
pub(in crate::reconcile) async fn find_changed(
    client: &Client,
    items: &[PreparedObject],
    seen: &BTreeMap<String, object::ObservedObject>,
) -> BTreeSet<String> {
    let looked = crate::reconcile::api::parallel::all(items.iter().map(|item| async move {
        let same = seen.contains_key(&item.key) && covered(client, item).await;
        (!same).then(|| item.key.clone())
    }))
    .await;
    looked.into_iter().flatten().collect()
}

/// Returns the observed states of `items` as applied states. Returns `None` if an item does not
/// exist, or has no entry of this controller in `managedFields`.
pub(in crate::reconcile) fn observed_as_applied(
    items: &[PreparedObject],
    seen: &BTreeMap<String, object::ObservedObject>,
) -> Option<HashMap<String, AppliedState>> {
    items
        .iter()
        .map(|item| {
            let seen = seen.get(&item.key)?;
            seen.state.fingerprint?;
            Some((item.key.clone(), executor::observed_state(seen)))
        })
        .collect()
}
