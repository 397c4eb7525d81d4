//! Replaces objects if the content changes their immutable fields. These objects are found before
//! the first apply. Each object is deleted directly before it is created again.
//! `bundle_core::plan::replace` decides which objects are replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bundle_cluster::ObjectUrl;
use bundle_cluster::error::immutable;
use bundle_core::diagnostic::codes;
use bundle_core::plan::jobs;
use bundle_core::plan::replace::{self, ReplacePolicy, Replacement};
use bundle_core::plan::replacement_trial::{is_full_quota, is_service, remove_held_node_ports};
use bundle_core::rights::DryRunVerdict;
use bundle_core::text::MessageList;
use futures::StreamExt as _;
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, Preconditions};
use rand::Rng as _;

use crate::reconcile::api::object;
use crate::reconcile::apply::{ApplyError, ApplyPlan, ApplyRejection, Target, Targets};
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::install::authorized::{AuthorizedInstall, Replacements};
use crate::reconcile::install::executor::MAX_FAILURES;
use crate::reconcile::install::record::Intents;
use crate::reconcile::inventory::present::{PresentObject, SharedPresentObject};
use crate::reconcile::rights::dry_runs::check::DryRunCheck;
use crate::reconcile::rights::dry_runs::failures::DryRunFailures;
use crate::retry::delays;

/// Maximum time to wait for the deletion of the replaced objects. Finalizers can delay a deletion.
const DELETION_WAIT_LIMIT: Duration = Duration::from_secs(1);
/// Maximum number of attempts to delete an object that keeps changing.
const MAX_DELETE_ATTEMPTS: u32 = 5;
/// Maximum number of characters of the original name in the name for a dry run.
const MAX_TRIAL_PREFIX: usize = 40;

impl DeploymentReconcile<'_> {
    /// Finds the objects among `items` that must be replaced, and removes their applies from
    /// `plan`. Fails if the requesters have no permission to delete and create these objects. Only
    /// objects whose replace policy allows a replacement can be replaced.
    pub(in crate::reconcile) async fn replacements<'i>(
        &self,
        request: &InstallRequest<'_>,
        items: &'i [PreparedObject],
        check: &DryRunCheck<'_>,
        plan: &mut ApplyPlan<'i>,
    ) -> Result<Replacements, ReconcileError> {
        let preparer = check.preparer();
        let candidates = items.iter().filter_map(|item| {
            let uid = self.inventory.uid(&item.key)?;
            let is_target = !plan.creates(item);
            let may = is_target && self.replace_policy(item).may_replace(&item.id);
            may.then(|| (item, uid.to_owned()))
        });
        let mut decisions =
            crate::reconcile::api::parallel::stream(candidates.map(|(item, uid)| async move {
                let answer = preparer.dry_run(item, uid.clone()).await;
                let Err(ApplyError::Api(kube::Error::Api(status))) = answer else {
                    return Ok(None);
                };
                let Some(fields) = immutable(&status) else {
                    return Ok(None);
                };
                let decision = self.decide(request, item, &uid).await?;
                Ok::<_, ReconcileError>(decision.map(|(decision, _)| match decision {
                    Replacement::Replace => Ok((item, uid)),
                    Replacement::Keep(reason) => {
                        let sentence = replace::sentence(&fields, reason);
                        Err(format!("{}: {sentence}", item.key))
                    }
                }))
            }));
        let (mut replaced, mut kept) = (Vec::new(), MessageList::default());
        while let Some(decision) = decisions.next().await {
            match decision? {
                Some(Ok(object)) => replaced.push(object),
                Some(Err(message)) => kept.insert(message),
                None => {}
            }
        }
        drop(decisions);
        // All objects in `kept` are running Jobs. They can be replaced after they have ended, so
        // the reconcile is retried.
        if !kept.is_empty() {
            return Err(replacement_held(request.reason, &kept));
        }
        self.check_replacement(request, check, &replaced).await?;
        let mut replacements = Replacements::default();
        for (item, uid) in replaced {
            plan.take_waiting(item);
            replacements.0.insert(item.key.clone(), uid);
        }
        Ok(replacements)
    }

    /// Returns the replace policy of the object: the value of its annotation, or the value in the
    /// spec if the object has no such annotation.
    fn replace_policy(&self, item: &PreparedObject) -> ReplacePolicy {
        let annotation = &item.value["metadata"]["annotations"][replace::ANNOTATION];
        let policy = annotation.as_str().and_then(ReplacePolicy::parse);
        policy.unwrap_or(self.spec.rollout.replace)
    }

    /// Reads the object with this uid, and decides whether it can be replaced now. Also returns the
    /// resourceVersion of the object. Returns `None` if the object no longer exists.
    async fn decide(
        &self,
        request: &InstallRequest<'_>,
        item: &PreparedObject,
        uid: &str,
    ) -> Result<Option<(Replacement, String)>, ReconcileError> {
        let namespace = item.id.namespace.as_deref();
        let live = object::read(request.client, &item.kind, namespace, &item.id.name).await;
        let live = live.map_err(|error| failed(request, item, &error))?;
        let Some(live) = live.filter(|live| live.metadata.uid.as_deref() == Some(uid)) else {
            return Ok(None);
        };
        let version = live.metadata.resource_version.unwrap_or_default();
        let has_ended = jobs::has_ended(&live.data["status"]);
        let decision = self.replace_policy(item).decide(&item.id, has_ended);
        Ok(Some((decision, version)))
    }

    /// Fails if a requester has no permission to delete one of the objects, or if a dry run of a
    /// creation fails.
    async fn check_replacement(
        &self,
        request: &InstallRequest<'_>,
        check: &DryRunCheck<'_>,
        replaced: &[(&PreparedObject, String)],
    ) -> Result<(), ReconcileError> {
        let present: Vec<SharedPresentObject> = replaced
            .iter()
            .map(|(item, uid)| {
                Arc::new(PresentObject {
                    id: item.id.clone(),
                    key: item.key.clone(),
                    kind: Arc::new(item.kind.clone()),
                    uid: uid.clone(),
                    held_by: Vec::new(),
                })
            })
            .collect();
        let refused = self.objects_to_keep(&present, request.reason).await?;
        if !refused.is_empty() {
            let refused = refused
                .into_iter()
                .map(|kept| format!("{} must be replaced: {}", kept.id, kept.why));
            return Err(ReconcileError::new(
                codes::install::REQUESTER_REFUSED,
                request.reason,
                refused.collect::<MessageList>().joined(MAX_FAILURES),
                RetryPolicy::Slowly,
            ));
        }
        let mut trials = crate::reconcile::api::parallel::stream(
            replaced
                .iter()
                .map(|(item, _)| async move { (*item, try_creation(check, item).await) }),
        );
        let (mut failures, mut failed) = (DryRunFailures::default(), MessageList::default());
        while let Some((item, trial)) = trials.next().await {
            match trial {
                Ok(()) => {}
                Err(ApplyError::NotAllowed(refusal)) => match name_restriction_message(&refusal) {
                    Some(why) => failures.refused.insert(format!("{}: {why}", item.key)),
                    None => failures.add(item, refusal),
                },
                Err(error) => failed.insert(format!("{}: {}", item.key, error.message())),
            }
        }
        check.result(failures)?;
        if failed.is_empty() {
            return Ok(());
        }
        Err(ReconcileError::new(
            codes::install::APPLY_FAILED,
            request.reason,
            failed.joined(MAX_FAILURES),
            RetryPolicy::Slowly,
        ))
    }

    /// Deletes those of `items` that are replaced, and adds applies that create them to the plan.
    /// Records intents to create these objects, and returns the intents. Fails if finalizers delay
    /// a deletion longer than [`DELETION_WAIT_LIMIT`]. Then the next reconcile repeats all checks.
    pub(in crate::reconcile) async fn delete_replaced_objects<'i>(
        &mut self,
        request: &InstallRequest<'_>,
        authorized: &mut AuthorizedInstall<'_, 'i>,
        items: &[&'i PreparedObject],
    ) -> Result<Option<Intents>, ReconcileError> {
        let replaced: Vec<(&'i PreparedObject, &String)> = items
            .iter()
            .filter_map(|item| Some((*item, authorized.replacements.0.get(&item.key)?)))
            .collect();
        if replaced.is_empty() {
            return Ok(None);
        }
        let this: &Self = self;
        let deletions = replaced
            .iter()
            .map(|&(item, uid)| async move { this.delete_replaced(request, item, uid).await });
        let mut deletions = crate::reconcile::api::parallel::stream(deletions);
        let mut result = Ok(());
        while let Some(deleted) = deletions.next().await {
            result = result.and(deleted);
        }
        drop(deletions);
        result?;
        self.wait_until_deleted(request, &replaced).await?;
        // The intents are recorded after the deletion, because an intent replaces the recorded uid.
        // Until the deletion, this uid proves the ownership of the old object.
        let absent: Targets = replaced
            .iter()
            .map(|(item, _)| (item.key.clone(), Target::Absent.into()))
            .collect();
        let targets = absent
            .iter()
            .map(|(key, found)| (key.as_str(), &found.target));
        let intents = self.record_targets(targets).await?;
        let replaced: Vec<&'i PreparedObject> =
            replaced.into_iter().map(|(item, _)| item).collect();
        let (created, _) =
            ApplyPlan::prepare(authorized.check.preparer(), &replaced, &absent).await;
        authorized.plan.extend(created);
        Ok(Some(intents))
    }

    /// Deletes the object with this uid. If the object changes before the deletion, decides again
    /// whether it can be replaced.
    async fn delete_replaced(
        &self,
        request: &InstallRequest<'_>,
        item: &PreparedObject,
        uid: &str,
    ) -> Result<(), ReconcileError> {
        let mut tries = 0;
        loop {
            let version = match self.decide(request, item, uid).await? {
                None => return Ok(()),
                Some((Replacement::Replace, version)) => version,
                Some((Replacement::Keep(reason), _)) => {
                    let kept = format!("{}: {}", item.key, reason.next_step());
                    let kept = MessageList::from_iter([kept]);
                    return Err(replacement_held(request.reason, &kept));
                }
            };
            tries += 1;
            match delete(request.client, item, uid, &version).await {
                Ok(()) => break,
                Err(error) if object::is_conflict(&error) && tries < MAX_DELETE_ATTEMPTS => {}
                Err(error) => return Err(failed(request, item, &error)),
            }
        }
        tracing::info!(
            deployment = self.name,
            object = item.key,
            "deleted an object to replace it"
        );
        Ok(())
    }

    /// Waits until the objects with these uids no longer exist. Fails if this takes longer than
    /// [`DELETION_WAIT_LIMIT`] for all objects together.
    async fn wait_until_deleted(
        &self,
        request: &InstallRequest<'_>,
        replaced: &[(&PreparedObject, &String)],
    ) -> Result<(), ReconcileError> {
        let end = Instant::now() + DELETION_WAIT_LIMIT;
        let mut pauses = delays::REPLACED.pauses();
        let mut left = replaced.to_vec();
        loop {
            let looks = left.into_iter().map(|(item, uid)| async move {
                let look = object::observe(request.client, &item.kind, &item.id).await;
                let is_there = look.map(|look| look.is_some_and(|live| live.uid == *uid));
                (item, uid, is_there)
            });
            left = Vec::new();
            let mut looks = crate::reconcile::api::parallel::stream(looks);
            while let Some((item, uid, is_there)) = looks.next().await {
                if is_there.map_err(|error| failed(request, item, &error))? {
                    left.push((item, uid));
                }
            }
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                let left = left.iter().map(|(item, _)| in_deletion(&item.key));
                return Err(replacement_held(request.reason, &left.collect()));
            }
            tokio::time::sleep(pauses.next_pause()).await;
        }
    }
}

/// Returns the message about an object that still exists after its deletion was requested.
pub(in crate::reconcile) fn in_deletion(key: &str) -> String {
    format!(
        "{key}: the object was deleted for its replacement, but finalizers of other controllers delay the deletion"
    )
}

/// Returns the error for objects that cannot be replaced yet, each with the reason.
pub(in crate::reconcile) fn replacement_held(
    reason: &'static str,
    messages: &MessageList,
) -> ReconcileError {
    ReconcileError::new(
        codes::install::REPLACEMENT_HELD,
        reason,
        messages.joined(MAX_FAILURES),
        RetryPolicy::Soon,
    )
}

fn failed(
    request: &InstallRequest<'_>,
    item: &PreparedObject,
    error: &kube::Error,
) -> ReconcileError {
    let retry = if object::is_passing(error) {
        RetryPolicy::Soon
    } else {
        RetryPolicy::Slowly
    };
    let message = format!(
        "cannot replace {}: {}",
        item.key,
        object::error_message(error)
    );
    ReconcileError::new(codes::install::APPLY_FAILED, request.reason, message, retry)
}

/// Sends dry runs that create the object under another name, because the object still exists. The
/// dry runs omit the node ports that are allocated to the object.
async fn try_creation(check: &DryRunCheck<'_>, item: &PreparedObject) -> Result<(), ApplyError> {
    let mut item = item.clone();
    if is_service(&item.id) {
        let client = &check.preparer().client;
        let namespace = item.id.namespace.as_deref();
        let live = object::read(client, &item.kind, namespace, &item.id.name).await;
        if let Some(live) = live.map_err(ApplyError::Api)? {
            remove_held_node_ports(&item.id, &mut item.value, &live.data);
        }
    }
    item.id.name = dry_run_name(&item.id.name, rand::rng().random());
    item.value["metadata"]["name"] = item.id.name.as_str().into();
    // This is the dry run as the installer. A full quota is ignored, because the deletion of the
    // replaced object frees quota. The dry runs as the requesters follow below.
    match check.preparer().dry_run_creation(&item).await {
        Err(error) if !is_full_quota(&error.message()) => return Err(error),
        _ => {}
    }
    let prepared = check.preparer().prepare(&item, Target::Absent).await?;
    let checked = check
        .apply_client()
        .check(prepared, false, Instant::now())
        .await;
    match checked {
        Ok(_) => Ok(()),
        Err((_, refusal)) if refusal.is_full_quota() => Ok(()),
        Err((_, ApplyRejection::DeletedOrCreated)) => Err(ApplyError::Moved),
        Err((_, refusal)) => Err(ApplyError::NotAllowed(refusal)),
    }
}

/// Returns a message if RBAC denies the dry run under another name to a requester. This can happen
/// if RBAC allows the requester to create only the object with its real name. The dry run cannot be
/// omitted: without it, the object could be deleted although admission would reject the new object.
fn name_restriction_message(refusal: &ApplyRejection) -> Option<String> {
    match refusal {
        ApplyRejection::Verdict(DryRunVerdict::Refused {
            message,
            by_rbac: true,
        }) => Some(format!(
            "{message} (the dry run of the creation uses another name, because the object still exists: a permission without resourceNames is required to replace it)"
        )),
        _ => None,
    }
}

/// Returns a valid object name for a dry run: the beginning of `name` with a random suffix.
fn dry_run_name(name: &str, random: u32) -> String {
    let start: String = name.chars().take(MAX_TRIAL_PREFIX).collect();
    let start = start.trim_end_matches(|last: char| !last.is_ascii_alphanumeric());
    format!("{start}-{random:08x}")
}

async fn delete(
    client: &Client,
    item: &PreparedObject,
    uid: &str,
    version: &str,
) -> Result<(), kube::Error> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
        }),
        ..DeleteParams::background()
    };
    let namespace = item.id.namespace.as_deref();
    let namespace = namespace.filter(|_| item.kind.namespaced);
    let request = ObjectUrl::parse(&item.kind.resource, namespace, &item.id.name)
        .and_then(|url| url.requests().delete(url.name(), &parameters))
        .map_err(kube::Error::BuildRequest)?;
    match client.request_status::<DynamicObject>(request).await {
        Ok(_) => Ok(()),
        Err(error) if object::is_not_found(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejection_by_rbac_names_the_permission_that_a_trial_requires() {
        let refusal = |by_rbac| {
            let message = "User \"ana\" cannot create resource \"jobs\"".to_owned();
            ApplyRejection::Verdict(DryRunVerdict::Refused { message, by_rbac })
        };
        let told = name_restriction_message(&refusal(true)).unwrap();
        assert!(told.contains("without resourceNames"), "{told}");
        assert_eq!(name_restriction_message(&refusal(false)), None);
        assert_eq!(
            name_restriction_message(&ApplyRejection::DeletedOrCreated),
            None
        );
    }

    #[test]
    fn trial_name_is_valid_and_differs_from_the_original() {
        assert_eq!(dry_run_name("web", 7), "web-00000007");
        let long = dry_run_name(&format!("{}.{}", "a".repeat(39), "b".repeat(200)), 7);
        assert_eq!(long, format!("{}-00000007", "a".repeat(39)));
    }
}
