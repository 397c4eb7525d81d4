//! Sends checked applies in rounds. A round is a group of objects that are applied at the same
//! time. Before a round, `rights` and `deployment::checks` check the permissions.
//! `install::collisions` decides which objects are applied.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bundle_core::diagnostic::codes;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::restores::RestoreFailure;
use bundle_core::text::{MAX_MESSAGES, MessageList, bounded};
use futures::StreamExt as _;
use kube::Client;

use crate::blocking;
use crate::clients::cluster::ServiceAccount;
use crate::reconcile::api::object::{self, ObservedObject};
use crate::reconcile::apply::{
    Applied, ApplyClient, ApplyError, ApplyRejection, CheckedApply, Target,
};
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::drift::states::AppliedState;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::install::unchanged::FormerApplies;
use crate::reconcile::inventory::store::Inventories;
use crate::reconcile::rights::dry_runs::check::DryRunCheck;
use crate::reconcile::rights::dry_runs::failures::{CANNOT_STORE, DryRunFailures};

/// Maximum number of failures in a message.
pub(in crate::reconcile) const MAX_FAILURES: usize = MAX_MESSAGES;
/// Maximum length of a warning of the API server that is kept, in bytes.
const WARNING_LIMIT: usize = 1 << 10;

/// Values that all steps of one installation need.
pub(in crate::reconcile) struct Install<'a> {
    /// Client of the installing ServiceAccount.
    pub(in crate::reconcile) client: &'a Client,
    /// The installing ServiceAccount.
    pub(in crate::reconcile) account: &'a ServiceAccount,
    /// Uid of the BundleDeployment.
    pub(in crate::reconcile) uid: &'a str,
    /// The inventory of the BundleDeployment. The inventory records the installed objects.
    pub(in crate::reconcile) inventory: Arc<Inventory>,
    /// The inventories of all BundleDeployments.
    pub(in crate::reconcile) inventories: &'a Inventories,
    /// Reason of the condition that reports a failure.
    pub(in crate::reconcile) reason: &'static str,
    /// True if objects without an owner are adopted.
    pub(in crate::reconcile) adopt: bool,
    /// The object key of the target namespace, if the installation creates this namespace. The
    /// namespace is never adopted.
    pub(in crate::reconcile) created_namespace: Option<String>,
}

/// The results of the applies that have ended.
#[derive(Default)]
pub(in crate::reconcile) struct ApplyResults {
    /// The state of each applied object. Also contains objects whose apply was not sent because it
    /// would not change the object.
    pub(in crate::reconcile) applied: HashMap<String, AppliedState>,
    /// The uid of each object in `applied`.
    pub(in crate::reconcile) uids: BTreeMap<String, String>,
    /// Objects that a request may have created although its response failed or was lost.
    pub(in crate::reconcile) uncertain: BTreeSet<String>,
    /// Objects that were deleted to be replaced. An apply creates them again.
    pub(in crate::reconcile) replaced: BTreeSet<String>,
    /// The objects with a failed apply, and the kind of failure.
    pub(in crate::reconcile) failed: BTreeMap<String, RestoreFailure>,
    pub(in crate::reconcile) warnings: MessageList,
}

impl ApplyResults {
    /// Records that these objects no longer exist, because they are replaced. The result of their
    /// deletions is no longer uncertain.
    pub(in crate::reconcile) fn record_replaced(&mut self, keys: Vec<String>) {
        for key in keys {
            self.uncertain.remove(&key);
            self.replaced.insert(key);
        }
    }

    /// Adds the warnings of one response. Long warnings are shortened, because they would exclude
    /// the warnings about other objects.
    fn add_warnings(&mut self, warnings: &[String]) {
        let warnings = warnings.iter().map(|text| bounded(text, WARNING_LIMIT));
        self.warnings.extend(warnings);
    }
}

impl Install<'_> {
    /// Sends the checked applies of one round. Omits applies that would not change their object
    /// according to `former`. Then waits until the Namespaces and CustomResourceDefinitions of the
    /// round are ready. Adds the results to `done`.
    pub(in crate::reconcile) async fn apply_round<'i>(
        &self,
        check: &DryRunCheck<'_>,
        applies: Vec<CheckedApply<'i>>,
        former: &FormerApplies,
        done: &mut ApplyResults,
    ) -> Result<(), ReconcileError> {
        let items: Vec<&'i PreparedObject> = applies
            .iter()
            .map(|apply| apply.prepared().item())
            .collect();
        // The hashes of all objects of a round are computed, and the objects can have many MiB.
        let applies = blocking::run(|| self.changed(applies, former, done));
        self.apply(check.apply_client(), applies, done)
            .await
            .map_err(|failed| failed.into_error(self.reason, check))?;
        if items.first().is_some_and(|item| item.phase.gates()) {
            self.wait_until_ready(&items, &done.uids).await?;
        }
        Ok(())
    }

    /// Returns the applies that may change their object. Adds the objects of all other applies to
    /// `done`.
    fn changed<'i>(
        &self,
        applies: Vec<CheckedApply<'i>>,
        former: &FormerApplies,
        done: &mut ApplyResults,
    ) -> Vec<CheckedApply<'i>> {
        let mut sent = Vec::with_capacity(applies.len());
        for apply in applies {
            let prepared = apply.prepared();
            let item = prepared.item();
            let unchanged = former.unchanged(prepared, &self.inventory);
            if let Some(state) = unchanged
                && let Target::Uid(uid) = prepared.target()
            {
                done.applied.insert(item.key.clone(), state);
                done.uids.insert(item.key.clone(), uid.clone());
            } else {
                sent.push(apply);
            }
        }
        sent
    }

    async fn apply(
        &self,
        apply_client: &ApplyClient<'_>,
        applies: Vec<CheckedApply<'_>>,
        done: &mut ApplyResults,
    ) -> Result<(), FailedApplies> {
        let mut outcomes =
            crate::reconcile::api::parallel::stream(applies.into_iter().map(|apply| async move {
                let item = apply.prepared().item();
                (item, apply_client.apply(self.client, apply).await)
            }));
        let mut failed = FailedApplies::default();
        while let Some((item, outcome)) = outcomes.next().await {
            match outcome.result {
                Ok(response) => {
                    let state = applied_state(&response);
                    done.applied.insert(item.key.clone(), state);
                    done.uids.insert(item.key.clone(), response.seen.uid);
                    done.add_warnings(&response.warnings);
                }
                Err(error) => {
                    if outcome.is_uncertain {
                        done.uncertain.insert(item.key.clone());
                    }
                    let failure = failed.add(item, error);
                    done.failed.insert(item.key.clone(), failure);
                }
            }
        }
        if failed.is_empty() {
            Ok(())
        } else {
            Err(failed)
        }
    }

    /// Combines the messages of failed requests into one error. Succeeds if `failed` is empty.
    pub(in crate::reconcile) fn check_failures(
        &self,
        failed: &MessageList,
        passing: bool,
        code: bundle_core::diagnostic::Code,
    ) -> Result<(), ReconcileError> {
        if failed.is_empty() {
            return Ok(());
        }
        let retry = if passing {
            RetryPolicy::Soon
        } else {
            RetryPolicy::Slowly
        };
        Err(ReconcileError::new(
            code,
            self.reason,
            failed.joined(MAX_FAILURES),
            retry,
        ))
    }
}

/// The failed applies of one round.
#[derive(Default)]
struct FailedApplies {
    messages: MessageList,
    /// Object keys of the objects that the API server cannot store.
    invalid: Vec<String>,
    /// True if `messages` contains a failure of an object that is not in `invalid`.
    has_other: bool,
    not_passing: bool,
    not_allowed: DryRunFailures,
}

impl FailedApplies {
    fn add(&mut self, item: &PreparedObject, error: ApplyError) -> RestoreFailure {
        let is_passing = error.is_passing();
        self.not_passing |= !is_passing;
        if let ApplyError::Api(error) = &error
            && let Some(why) = object::invalid(error)
        {
            self.messages.insert(format!("{}: {why}", item.key));
            self.invalid.push(item.key.clone());
            return RestoreFailure::Invalid;
        }
        match error {
            ApplyError::NotAllowed(refusal) if refusal != ApplyRejection::DeletedOrCreated => {
                self.not_allowed.add(item, refusal);
            }
            error => {
                self.has_other = true;
                let message = format!("{}: {}", item.key, error.message());
                self.messages.insert(message);
            }
        }
        if is_passing {
            RestoreFailure::Passing
        } else {
            RestoreFailure::Refused
        }
    }

    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.not_allowed.is_empty()
    }

    /// Combines the failed applies into one error. If dry runs as the requesters failed, returns
    /// only the error of these dry runs.
    fn into_error(self, reason: &'static str, check: &DryRunCheck<'_>) -> ReconcileError {
        if let Err(error) = check.result(self.not_allowed) {
            return error;
        }
        let (code, retry) = match self.not_passing {
            true if !self.has_other => (codes::install::INVALID_OBJECT, RetryPolicy::Rarely),
            true => (codes::install::APPLY_FAILED, RetryPolicy::Slowly),
            false => (codes::install::APPLY_FAILED, RetryPolicy::Soon),
        };
        let mut message = self.messages.joined(MAX_FAILURES);
        if code == codes::install::INVALID_OBJECT {
            message = format!("{CANNOT_STORE}{message}");
        }
        ReconcileError {
            objects: self.invalid,
            ..ReconcileError::new(code, reason, message, retry)
        }
    }
}

/// Returns the state of an object after an apply. Later observations of the object are compared
/// with this state.
pub(in crate::reconcile) fn applied_state(applied: &Applied) -> AppliedState {
    AppliedState {
        // If the response contained warnings, no request hash is stored. Then the next installation
        // sends the apply again, because the status must contain the warnings of the last
        // installation.
        request: applied.warnings.is_empty().then_some(applied.request),
        ..observed_state(&applied.seen)
    }
}

/// Converts the observed state of an object to its state after the last apply. The request of the
/// last apply is unknown.
pub(in crate::reconcile) fn observed_state(seen: &ObservedObject) -> AppliedState {
    AppliedState {
        state: Some(seen.state),
        version: seen.version,
        request: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_warning_excludes_no_warning_about_another_object() {
        let mut done = ApplyResults::default();
        done.add_warnings(&["a".repeat(16 << 10), "b".to_owned()]);
        done.add_warnings(&["c".to_owned()]);
        let lengths: Vec<usize> = done.warnings.messages().map(str::len).collect();
        assert_eq!(lengths, [WARNING_LIMIT, 1, 1]);
    }
}
