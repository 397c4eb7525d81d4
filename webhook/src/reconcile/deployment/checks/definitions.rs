//! Safety checks for upgrades of CustomResourceDefinitions. Each definition in new content is
//! compared with the definition on the cluster. If a change can make custom resources invalid, the
//! custom resources on the cluster are validated. The rules are in
//! `bundle_core::plan::crd_upgrade`.

use std::collections::BTreeSet;

use bundle_cluster::object::custom_resources::ResourceValidation;
use bundle_core::diagnostic::{Code, codes};
use bundle_core::plan::crd_upgrade::existing::{
    self, ExistingObjectList, Unvalidated, ValidationLimits,
};
use bundle_core::plan::crd_upgrade::{self, CrdCheck, CrdVerdict};
use kube::api::DynamicObject;

use crate::blocking;
use crate::clients::cluster::with_missing_right;
use crate::reconcile::api::object;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::{self, MAX_LISTED, ReconcileError, RetryPolicy};
use crate::reconcile::inventory::namespaces;

impl DeploymentReconcile<'_> {
    /// Compares the CustomResourceDefinitions among `items` with the definitions on the cluster.
    /// Definitions can be large, so only one is in memory at a time. The installing ServiceAccount
    /// reads the definitions. A definition that does not exist on the cluster is safe.
    pub(in crate::reconcile) async fn check_definitions(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
    ) -> Result<(), ReconcileError> {
        let (mut refused, mut warnings) = (Vec::new(), Vec::new());
        let mut validated = Vec::new();
        let mut is_access_checked = false;
        for item in items.iter().filter(|item| item.id.is_definition()) {
            let Some(mut live) = self.live_definition(request, items, item).await? else {
                continue;
            };
            if !is_access_checked {
                // Only requesters with permission to write the definitions cause comparisons,
                // because a comparison can need much processor time. Also, errors and warnings
                // disclose which definitions exist, and their fields. The definition is read again,
                // so that it is not in memory during the access reviews.
                drop(live);
                self.check_access_to_definitions(request, items).await?;
                is_access_checked = true;
                let Some(again) = self.live_definition(request, items, item).await? else {
                    continue;
                };
                live = again;
            }
            let exceptions = &self.spec.crd_exceptions;
            let (lists, verdict) = blocking::run(|| {
                let lists = existing::lists(&live.data, &item.value);
                let verdict = crd_upgrade::compare(&live.data, &item.value, exceptions);
                (lists, verdict)
            });
            let is_read = lists.as_ref().map_or(true, |lists| !lists.is_empty());
            match existing::exception(&item.id.name, exceptions) {
                Some(reason) if is_read => {
                    let check = CrdCheck::ExistingCustomResources;
                    let code = codes::install::EXISTING_RESOURCES_INVALID;
                    warnings.push(exception_warning(&item.id.name, (check, reason), code));
                }
                None if is_read => validated.push((item, lists)),
                _ => {}
            }
            warnings.extend(exception_warnings(&item.id.name, &verdict));
            if crd_upgrade::is_disabled(&item.value) {
                warnings.push(disabled_warning(&item.id.name));
            }
            if !verdict.is_safe() {
                refused.push((item.id.name.as_str(), verdict));
            }
        }
        self.warnings.extend(warnings);
        if !refused.is_empty() {
            return Err(unsafe_upgrades(&refused, request.reason));
        }
        if validated.is_empty() {
            return Ok(());
        }
        self.validate_resources(request, items, &validated).await
    }

    /// Checks the permissions of the requesters to install `items`. For content that is already
    /// installed, the error has the same code as in the permission check before each write.
    async fn check_access_to_definitions(
        &self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
    ) -> Result<(), ReconcileError> {
        let checked = self.check_access(request, items).await;
        checked.map_err(|error| {
            let was_allowed = self.is_decided(request) && self.is_installed(request);
            if was_allowed && error.code == codes::install::NOT_AUTHORIZED {
                return ReconcileError {
                    code: codes::install::RIGHTS_WITHDRAWN,
                    ..error
                };
            }
            error
        })
    }

    /// Reads a CustomResourceDefinition as the installing ServiceAccount. Returns `None` if the
    /// definition does not exist.
    async fn live_definition(
        &self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
        item: &PreparedObject,
    ) -> Result<Option<DynamicObject>, ReconcileError> {
        match object::read(request.client, &item.kind, None, &item.id.name).await {
            Ok(live) => Ok(live),
            Err(error) => {
                // The error discloses whether the definition exists. Therefore the permissions of
                // the requesters are checked first.
                self.check_access(request, items).await?;
                let error = with_missing_right(error, request.account);
                Err(unreadable(&item.id.name, &error, request.reason))
            }
        }
    }

    /// Validates the custom resources on the cluster against the new definitions. The installing
    /// ServiceAccount reads the custom resources. Only one BundleDeployment is validated at a time,
    /// and waiting requesters get the slot in turn. The time limit includes the reads of the
    /// definitions.
    async fn validate_resources(
        &self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
        definitions: &[UnvalidatedDefinition<'_>],
    ) -> Result<(), ReconcileError> {
        let owned = self.owned_namespaces(request.reason).await?;
        let slot = self.ctx.validation_slot.acquire(&self.requester.user);
        let Some(_slot) = slot.await else {
            return Err(busy(request.reason));
        };
        let mut validation = ResourceValidation::new(request.client, ValidationLimits::DEFAULT);
        let mut invalid = Vec::new();
        for (item, lists) in definitions {
            let crd = item.id.name.as_str();
            let incomplete = |why: &dyn std::fmt::Display| unvalidated(crd, why, request.reason);
            let lists = lists.as_ref().map_err(|why| incomplete(why))?;
            // The definition is read again. It was not kept in memory after the comparison, because
            // a definition can be large.
            let live = validation.in_time(self.live_definition(request, items, item));
            let live = live.await.map_err(|why| incomplete(&why))?;
            let Some(live) = live? else {
                continue;
            };
            // The message names only cluster-scoped custom resources, and custom resources in
            // namespaces with objects of this BundleDeployment. Messages about a removal have the
            // same restriction.
            let can_be_named =
                |namespace: Option<&str>| namespace.is_none_or(|name| owned.contains(name));
            let found = validation
                .validate(&live.data, &item.value, lists, can_be_named)
                .await;
            match found {
                Ok(Ok(found)) if found.is_valid() => {}
                Ok(Ok(found)) => invalid.push(found.message(crd)),
                Ok(Err(why)) => return Err(incomplete(&why)),
                Err(error) if object::is_passing(&error) => {
                    let doing = format!("list the custom resources of CRD {crd}");
                    return Err(ReconcileError::api(&doing, request.reason, &error));
                }
                Err(error) => {
                    let error = with_missing_right(error, request.account);
                    return Err(incomplete(&object::error_message(&error)));
                }
            }
        }
        if invalid.is_empty() {
            return Ok(());
        }
        Err(invalid_resources(invalid, request.reason))
    }

    /// Returns the namespaces with recorded objects, except namespaces that were deleted or
    /// recreated.
    async fn owned_namespaces(
        &self,
        reason: &'static str,
    ) -> Result<BTreeSet<String>, ReconcileError> {
        let mut owned = self.inventory.namespaces_of_objects();
        let names = owned.iter().map(String::as_str).collect();
        let live = namespaces::uids(&self.ctx.own, names)
            .await
            .map_err(|error| ReconcileError::api("read the namespaces", reason, &error))?;
        owned.retain(|name| {
            let uid = live.get(name);
            uid.is_some_and(|uid| self.inventory.owns_namespace(name, uid))
        });
        Ok(owned)
    }
}

/// A CustomResourceDefinition whose custom resources must be validated, and the lists of custom
/// resources to read. The error is the reason why the custom resources cannot be validated.
type UnvalidatedDefinition<'a> = (
    &'a PreparedObject,
    Result<Vec<ExistingObjectList>, Unvalidated>,
);

/// Hint in errors about custom resources that are invalid or were not validated.
const EXCEPTION: &str = "to allow the upgrade, add an exception from check ExistingCustomResources with its reason to spec.crdUpgrades.exceptions";

/// Returns the error for custom resources that are invalid under the new definitions of the
/// content.
pub(in crate::reconcile) fn invalid_resources(
    messages: Vec<String>,
    reason: &'static str,
) -> ReconcileError {
    let messages = error::joined(messages, MAX_LISTED);
    ReconcileError::new(
        codes::install::EXISTING_RESOURCES_INVALID,
        reason,
        format!("{messages} ({EXCEPTION})"),
        RetryPolicy::Slowly,
    )
}

/// Returns the error for a definition if not all its custom resources could be validated.
pub(in crate::reconcile) fn unvalidated(
    crd: &str,
    why: &dyn std::fmt::Display,
    reason: &'static str,
) -> ReconcileError {
    ReconcileError::new(
        codes::install::EXISTING_RESOURCES_UNVALIDATED,
        reason,
        format!(
            "error validating existing CRs against new CRD's schema for {crd:?}: {why} ({EXCEPTION})"
        ),
        RetryPolicy::Slowly,
    )
}

/// Returns the error for a validation that did not begin within the time limit, because other
/// validations run.
pub(in crate::reconcile) fn busy(reason: &'static str) -> ReconcileError {
    ReconcileError::new(
        codes::install::EXISTING_RESOURCES_BUSY,
        reason,
        "the custom resources of other BundleDeployments are being validated; the reconcile is retried",
        RetryPolicy::Soon,
    )
}

/// Returns the warnings about failed checks for which the spec has an exception.
fn exception_warnings(crd: &str, verdict: &CrdVerdict) -> Vec<String> {
    let excepted = verdict.excepted();
    let code = codes::install::UNSAFE_CRD_UPGRADE;
    excepted
        .map(|excepted| exception_warning(crd, excepted, code))
        .collect()
}

fn exception_warning(crd: &str, (check, reason): (CrdCheck, &str), code: Code) -> String {
    format!("CustomResourceDefinition {crd}: exception from check {check}: {reason} ({code})")
}

/// Returns the warning about a definition with an annotation that disables the checks.
fn disabled_warning(crd: &str) -> String {
    format!(
        "CustomResourceDefinition {crd}: not compared with the definition on the cluster, because the content sets annotation {}: {:?} ({})",
        crd_upgrade::ANNOTATION,
        crd_upgrade::DISABLED,
        codes::install::UNSAFE_CRD_UPGRADE
    )
}

fn unreadable(crd: &str, error: &kube::Error, reason: &'static str) -> ReconcileError {
    let doing = format!("read CustomResourceDefinition {crd}, which the content upgrades");
    let failed = ReconcileError::api(&doing, reason, error);
    if object::is_passing(error) {
        return failed;
    }
    ReconcileError {
        code: codes::install::APPLY_FAILED,
        retry: RetryPolicy::Slowly,
        ..failed
    }
}

/// Returns the error for definitions with unsafe changes. The messages equal the messages of
/// RukPak.
pub(in crate::reconcile) fn unsafe_upgrades(
    refused: &[(&str, CrdVerdict)],
    reason: &'static str,
) -> ReconcileError {
    let messages = refused.iter().map(|(crd, verdict)| {
        let message = verdict.message(crd);
        format!("validating upgrade for CRD {crd:?} failed: {message}")
    });
    let messages = error::joined(messages.collect(), MAX_LISTED);
    let checks = refused.iter().map(|(crd, verdict)| {
        let checks: Vec<&str> = verdict.checks().iter().map(|check| check.name()).collect();
        format!("{crd}: {}", checks.join(", "))
    });
    let checks = error::joined(checks.collect(), MAX_LISTED);
    ReconcileError::new(
        codes::install::UNSAFE_CRD_UPGRADE,
        reason,
        format!(
            "{messages} (to allow a change, add an exception with its reason to spec.crdUpgrades.exceptions; failed checks: {checks})"
        ),
        RetryPolicy::Slowly,
    )
}

#[cfg(test)]
mod tests {
    use bundle_core::plan::crd_upgrade::{CrdCheck, CrdException};
    use serde_json::json;

    use super::*;

    #[test]
    fn warnings_name_exceptions_and_disabled_checks() {
        let definition =
            |scope: &str| json!({"metadata": {"name": "a.example.com"}, "spec": {"scope": scope}});
        let exception = CrdException {
            crd: "a.example.com".to_owned(),
            check: CrdCheck::NoScopeChange,
            reason: "no objects".to_owned(),
        };
        let (live, new) = (definition("Cluster"), definition("Namespaced"));
        let verdict = crd_upgrade::compare(&live, &new, &[exception]);
        assert_eq!(
            exception_warnings("a.example.com", &verdict),
            [
                "CustomResourceDefinition a.example.com: exception from check NoScopeChange: no objects (BUNDLE-INSTALL-100)"
            ]
        );
        assert_eq!(
            disabled_warning("a.example.com"),
            "CustomResourceDefinition a.example.com: not compared with the definition on the cluster, because the content sets annotation core.rukpak.io/safe-crd-upgrade-validation: \"false\" (BUNDLE-INSTALL-100)"
        );
    }
}
