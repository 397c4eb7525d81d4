//! Maintenance of installed objects: restores drifted objects, and verifies that objects which
//! another actor wrote still have all applied values. `drift::watch` and `drift::states` detect
//! drift.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use bundle_api::names::reason;
use bundle_core::diagnostic::codes;
use bundle_core::plan::drift::{self, ObjectRevision};
use bundle_core::plan::phases::Phase;
use bundle_core::plan::restores::RestoreFailure;
use futures::StreamExt as _;
use kube::Client;

use crate::reconcile::api::object;
use crate::reconcile::apply::{
    Applied, ApplyPlan, CheckedApply, ObservedTarget, Target, Targets, UnpreparedApplies,
};
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::drift::restored::{RestoreScope, RestoredObject};
use crate::reconcile::drift::states::AppliedState;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::install::executor::{self, ApplyResults, Install};
use crate::reconcile::install::unchanged::FormerApplies;
use crate::reconcile::rights::dry_runs::check::DryRunCheck;

impl DeploymentReconcile<'_> {
    /// Restores drifted objects that are in `scope`, and verifies objects that another actor wrote.
    /// Returns the time until the next verification. After a failed restore, each call returns the
    /// error of this restore until the objects are restored.
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
            // The stored message also names objects that this call did not try to restore.
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
            // The content has no objects with these keys. A kind may have changed its scope
            // (namespaced or cluster-scoped), which changes object keys.
            self.ctx.states.forget_content(&self.name);
            return Ok(Some(Duration::ZERO));
        }
        // The content has no objects with the keys in `unknown`, so these objects cannot be
        // restored.
        let states = &self.ctx.states;
        states.record_restore_failure(&self.name, &unknown, RestoreFailure::Refused);
        // Objects that have drifted in the meantime are also restored. Objects that drift after
        // this point wait for the next reconcile, because the permissions for them are not checked.
        if correct {
            drifted = restorable(self);
            drifted.retain(|key| known.contains(key.as_str()));
        }
        let before = self.restored.len();
        let install = self.install(request, reason::RECONCILE_FAILED);
        let healed = if correct {
            // Only drifted objects and objects that are due for verification are checked and
            // applied.
            items.retain(|item| drifted.contains(&item.key) || due.contains(&item.key));
            let check = match self.authorize_repair(request, &items).await {
                Ok(check) => check,
                Err(error) => {
                    self.not_restored(&drifted, &error).await;
                    return Err(error);
                }
            };
            // Drifted objects are not verified, because `apply_drifted` restores them.
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

    /// Records that these objects could not be restored. Removes cached discovery data of custom
    /// kinds, which may be the cause.
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

    /// Verifies objects by applying them. Another actor wrote these objects, but their
    /// `managedFields` show no drift. An object that the apply does not change counts as verified.
    /// An object that the apply changes counts as restored. An object with a failed apply counts as
    /// drifted.
    async fn verify_suspects(
        &mut self,
        check: &DryRunCheck<'_>,
        install: &Install<'_>,
        suspects: Vec<&PreparedObject>,
    ) -> Result<(), ReconcileError> {
        let states = &self.ctx.states;
        let seen = self.ctx.watches.observed_objects(&self.name);
        let targets: Targets = suspects
            .iter()
            .filter_map(|item| {
                let uid = self.inventory.uid(&item.key)?.to_owned();
                let found = seen.get(&item.key).filter(|found| found.uid == uid);
                let observed = ObservedTarget {
                    target: Target::Uid(uid),
                    version: found.map(|found| found.version),
                };
                Some((item.key.clone(), observed))
            })
            .collect();
        let (mut plan, failed) = ApplyPlan::prepare(check.preparer(), &suspects, &targets).await;
        // Objects whose apply could not be prepared are marked as drifted. The next restore of
        // these objects reports the errors.
        states.mark_drifted(&self.name, failed.keys);
        let (checked, refused) = check.check_drifted(&suspects, &mut plan).await;
        let sender = check.apply_client();
        let mut results =
            crate::reconcile::api::parallel::stream(checked.into_iter().map(|apply| async move {
                let item = apply.prepared().item();
                (item, sender.apply(install.client, apply).await.result)
            }));
        while let Some((item, result)) = results.next().await {
            let now = Instant::now();
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

    /// Verifies the objects in `due` by dry runs. Used if drift is only reported. An object counts
    /// as drifted if an apply would change the object, or if the dry run fails.
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
        let mut results = crate::reconcile::api::parallel::stream(
            suspects.map(|(item, uid)| async move { (item, preparer.dry_run(item, uid).await) }),
        );
        while let Some((item, result)) = results.next().await {
            let now = Instant::now();
            match result {
                Ok(applied) if self.is_as_applied(item, &applied) => {
                    // A dry run changes nothing, so no request hash is recorded. Therefore the next
                    // installation applies the object.
                    let state = executor::observed_state(&applied.seen);
                    states.record_verified(&self.name, &item.key, state, now);
                }
                Ok(_) | Err(_) => states.mark_drifted(&self.name, [item.key.clone()].into()),
            }
        }
    }

    /// Returns true if the apply or dry run did not change the fingerprint of the object.
    fn is_as_applied(&self, item: &PreparedObject, applied: &Applied) -> bool {
        let before = self.ctx.states.state(&self.name, &item.key);
        applied.seen.state.fingerprint == before.and_then(|state| state.fingerprint)
    }

    /// Applies drifted objects again, in the order of phases. If one apply fails, the other objects
    /// are still applied.
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
                    match targets.get(&item.key).map(|found| &found.target) {
                        // If another actor created an object with the same name, the recorded
                        // object also counts as missing.
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
            if !failed.keys.is_empty() {
                last_error = Some(not_prepared(&failed));
            }
            // The dry runs are sent before intents are recorded, because rejected objects must not
            // be recorded.
            let (applies, refused) = check.check_drifted(items, &mut plan).await;
            if let Err(error) = refused {
                last_error = Some(error);
            }
            let targets = applies.iter().map(CheckedApply::key_and_target);
            let intents = self.record_targets(targets).await?;
            let mut done = ApplyResults::default();
            // The causes of the drift are read before the applies, because watch events of the
            // applies change the recorded causes.
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
                    // The apply was rejected in a check, so it was not sent.
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
                // An apply without `spec.replicas` may change nothing. If the revision of the
                // object is unchanged, the object does not count as restored.
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

    /// Returns the observed revisions of those objects whose `spec.replicas` is not applied. Called
    /// before the applies.
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

    /// Reads the object. Returns true if it has the recorded uid and all values of the content.
    /// Used if drift is not visible in `managedFields`.
    async fn is_untouched(&self, client: &Client, item: &PreparedObject) -> bool {
        match object::observe(client, &item.kind, &item.id).await {
            Ok(Some(seen)) if self.inventory.owns(&item.key, &seen.uid) => {
                covered(client, item).await
            }
            _ => false,
        }
    }
}

/// Returns the error for objects whose apply could not be prepared.
fn not_prepared(failed: &UnpreparedApplies) -> ReconcileError {
    ReconcileError::new(
        codes::install::APPLY_FAILED,
        reason::RECONCILE_FAILED,
        failed.messages.joined(executor::MAX_FAILURES),
        RetryPolicy::Soon,
    )
}

/// Reads the object. Returns true if it has all values of the content.
async fn covered(client: &Client, item: &PreparedObject) -> bool {
    let namespace = item.id.namespace.as_deref();
    match object::read(client, &item.kind, namespace, &item.id.name).await {
        Ok(Some(live)) => {
            serde_json::to_value(&live).is_ok_and(|live| drift::covers(&live, &item.value))
        }
        _ => false,
    }
}

/// Reads the objects of `items`. Returns the object keys of objects that do not exist, or that do
/// not have all values of the content. Used if the recorded states of the objects are not
/// sufficient.
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

/// Converts the observed states of `items` to states after an apply. Returns `None` if an object
/// does not exist, or has no entry of this controller in `managedFields`.
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
