//! Checks and sends applies. If the object is not in the expected state, prepares the apply again.

use std::time::{Duration, Instant};

use bundle_core::plan::backoff::Pauses;
use bundle_core::plan::ownership::OwnershipChange;
use bundle_core::rights::DryRunVerdict;
use kube::Client;

use super::{Applied, ApplyError, ApplyRejection, CheckedApply, DryRuns, PreparedApply, Preparer};
use crate::reconcile::api::object;
use crate::reconcile::content::objects::PreparedObject;
use crate::retry::delays;

/// Time limit for all attempts to check or apply one object. Attempts are repeated while the API
/// server is busy or does not serve a new kind yet, and while other actors change the object.
pub(super) const RETRY_LIMIT: Duration = Duration::from_secs(5);

/// Prepares, checks and sends applies.
pub(in crate::reconcile) struct ApplyClient<'a> {
    pub(in crate::reconcile) preparer: Preparer,
    pub(in crate::reconcile) dry_runs: DryRuns<'a>,
}

/// The result of an apply, and a flag for an uncertain effect.
pub(in crate::reconcile) struct ApplyOutcome {
    pub(in crate::reconcile) result: Result<Applied, ApplyError>,
    /// True if a request may have succeeded although its response failed or was lost.
    pub(in crate::reconcile) is_uncertain: bool,
}

/// Attempts with growing delays within a time limit.
pub(super) struct Attempts {
    end: Instant,
    pauses: Pauses,
    conflict_pauses: Pauses,
}

impl Attempts {
    pub(super) fn new(end: Instant) -> Self {
        Self {
            end,
            pauses: delays::APPLY.pauses(),
            conflict_pauses: delays::APPLY_CONFLICT.pauses(),
        }
    }

    /// Waits before the next attempt. The delay is shorter after a conflict with another actor.
    /// Returns false if the time limit is reached.
    pub(super) async fn next(&mut self, is_conflict: bool) -> bool {
        if Instant::now() > self.end {
            return false;
        }
        let pauses = if is_conflict {
            &mut self.conflict_pauses
        } else {
            &mut self.pauses
        };
        tokio::time::sleep(pauses.next_pause()).await;
        true
    }
}

impl ApplyClient<'_> {
    /// Sends the dry runs of an apply. Retries until `end` while the result is unknown, and
    /// prepares the apply again after a conflict. `is_due` is true directly before the apply is
    /// sent. Then the function also moves the ownership of lists with conflicting items. It also
    /// retries while the API server does not serve a kind that the content defines. The error
    /// contains the apply and the reason.
    pub(in crate::reconcile) async fn check<'i>(
        &self,
        prepared: PreparedApply<'i>,
        is_due: bool,
        end: Instant,
    ) -> Result<CheckedApply<'i>, (PreparedApply<'i>, ApplyRejection)> {
        let mut attempts = Attempts::new(end);
        let mut prepared = prepared;
        loop {
            let (back, refusal) = match self.dry_runs.check(prepared).await {
                Ok(checked) => return Ok(checked),
                Err(refused) => refused,
            };
            prepared = back;
            if let ApplyRejection::SharedLists(verdict, lists) = &refusal {
                let change = OwnershipChange {
                    lists: lists.clone(),
                    ..OwnershipChange::default()
                };
                if !is_due && !self.can_move_ownership(&prepared, &change).await {
                    return Err((prepared, ApplyRejection::Conflict(verdict.clone())));
                }
                let client = &self.preparer.client;
                if is_due && !prepared.has_moved_fields() {
                    match self.move_ownership(client, &prepared, &change).await {
                        Ok(true) => {
                            prepared = prepared.with_moved_fields();
                            continue;
                        }
                        Ok(false) => {}
                        Err(error) => {
                            let refusal = ApplyRejection::ownership_error(verdict, error);
                            return Err((prepared, refusal));
                        }
                    }
                }
            }
            let is_conflict = matches!(refusal, ApplyRejection::Conflict(_));
            let may_change = match &refusal {
                ApplyRejection::Verdict(DryRunVerdict::Missing(_)) => {
                    is_due && prepared.item().is_defined_by_content
                }
                other => other.may_change(),
            };
            // The object is read after the pause, so that little time is left for another change
            // between the read and the next dry run.
            let tries_again = may_change && attempts.next(is_conflict).await;
            if is_conflict {
                match self.preparer.prepare_again(&prepared, false).await {
                    Ok(now) => prepared = now,
                    Err(ApplyError::Moved) => {
                        return Err((prepared, ApplyRejection::DeletedOrCreated));
                    }
                    // This error is ignored, because the next loop iteration repeats the check.
                    Err(_) => {}
                }
            }
            if !tries_again {
                return Err((prepared, refusal));
            }
        }
    }

    /// Returns true if the apply of `item` to the current object passes the dry runs.
    pub(in crate::reconcile) async fn is_allowed(&self, item: &PreparedObject) -> bool {
        let client = &self.preparer.client;
        let Ok(live) = object::observe(client, &item.kind, &item.id).await else {
            return false;
        };
        let target = live.map_or(super::Target::Absent, |live| super::Target::Uid(live.uid));
        let Ok(prepared) = self.preparer.prepare(item, target).await else {
            return false;
        };
        self.check(prepared, false, Instant::now()).await.is_ok()
    }

    /// Applies one object, and retries transient errors for a limited time. Repeats an expired
    /// check first. If the object changed, the apply is prepared and checked again. If another
    /// object with the same name exists now, nothing is applied.
    pub(in crate::reconcile) async fn apply(
        &self,
        client: &Client,
        checked: CheckedApply<'_>,
    ) -> ApplyOutcome {
        let mut is_uncertain = false;
        let result = match self.with_moved_ownership(client, checked).await {
            Ok(checked) => self.apply_checked(client, checked, &mut is_uncertain).await,
            Err(error) => Err(error),
        };
        ApplyOutcome {
            result,
            is_uncertain,
        }
    }

    async fn apply_checked(
        &self,
        client: &Client,
        mut checked: CheckedApply<'_>,
        is_uncertain: &mut bool,
    ) -> Result<Applied, ApplyError> {
        let end = Instant::now() + RETRY_LIMIT;
        let mut attempts = Attempts::new(end);
        loop {
            // The check can expire while other objects are applied.
            if !checked.is_recent() {
                let again = self.check(checked.into_stale(), true, end).await;
                checked = again.map_err(|(_, refusal)| apply_error(refusal))?;
            }
            let prepared = checked.prepared();
            let error = match checked.send(client).await {
                // The API server ignored the resourceVersion, and merged the apply into an object
                // that another actor had created.
                Ok(applied) if prepared.creates() && !applied.created => {
                    return Err(ApplyError::Moved);
                }
                Ok(applied) => return Ok(applied),
                Err(error) => error,
            };
            if !prepared.has_moved_fields()
                && let Some(again) = self.with_moved_lists(client, prepared, &error).await?
            {
                checked = again;
                continue;
            }
            let is_conflict = object::is_conflict(&error);
            *is_uncertain |= !object::is_definite(&error);
            let may_change = object::is_passing(&error)
                || (prepared.item().is_defined_by_content && object::is_not_found(&error));
            if !may_change && !is_conflict {
                return Err(ApplyError::Api(error));
            }
            let tries_again = attempts.next(is_conflict).await;
            if is_conflict || prepared.creates() {
                match self.preparer.prepare_again(prepared, *is_uncertain).await {
                    Ok(now) if !now.has_same_body(prepared) => {
                        let again = self.check(now, true, end).await;
                        checked = again.map_err(|(_, refusal)| apply_error(refusal))?;
                    }
                    // The object is in the expected state, so the API server rejected the values.
                    Ok(_) if !may_change => return Err(ApplyError::Api(error)),
                    Err(ApplyError::Moved) => return Err(ApplyError::Moved),
                    Ok(_) | Err(_) => {}
                }
            }
            if !tries_again {
                return Err(ApplyError::Api(error));
            }
        }
    }
}

fn apply_error(refusal: ApplyRejection) -> ApplyError {
    match refusal {
        ApplyRejection::DeletedOrCreated => ApplyError::Moved,
        refusal => ApplyError::NotAllowed(refusal),
    }
}
