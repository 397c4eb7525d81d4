//! Safety of upgrades of CustomResourceDefinitions: each definition of new content is compared with
//! the one on the cluster. The rules are in `bundle_core::plan::crd_upgrade`.

use bundle_core::diagnostic::codes;
use bundle_core::plan::crd_upgrade::{self, CrdVerdict};

use crate::clients::cluster::with_missing_right;
use crate::reconcile::api::object;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::{self, MAX_LISTED, ReconcileError, RetryPolicy};

impl DeploymentReconcile<'_> {
    /// Compares the definitions among `items` with those on the cluster, one after the other, because
    /// each can be large. The installing ServiceAccount reads them. A definition that does not exist
    /// yet is safe.
    pub(in crate::reconcile) async fn check_definitions(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
    ) -> Result<(), ReconcileError> {
        let mut refused = Vec::new();
        for item in items.iter().filter(|item| item.is_definition()) {
            let live = object::read(request.client, &item.kind, None, &item.id.name).await;
            let live = match live {
                Ok(Some(live)) => live,
                Ok(None) => continue,
                Err(error) => {
                    // A requester without permission must not learn which objects exist.
                    self.check_access(request, items).await?;
                    let error = with_missing_right(error, request.account);
                    return Err(unreadable(&item.id.name, &error, request.reason));
                }
            };
            let verdict = crd_upgrade::compare(&live.data, &item.value, &self.spec.crd_exceptions);
            self.warnings
                .extend(exception_warnings(&item.id.name, &verdict));
            if !verdict.is_safe() {
                refused.push((item.id.name.as_str(), verdict));
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        self.check_access(request, items).await?;
        Err(unsafe_upgrades(&refused, request.reason))
    }
}

/// Returns the warnings about checks whose result an exception replaces.
fn exception_warnings(crd: &str, verdict: &CrdVerdict) -> Vec<String> {
    let excepted = verdict.excepted();
    let warnings = excepted.map(|(check, reason)| {
        format!(
            "CustomResourceDefinition {crd}: exception from check {check}: {reason} ({})",
            codes::install::UNSAFE_CRD_UPGRADE
        )
    });
    warnings.collect()
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

/// Returns the error for definitions with unsafe changes. The texts are those of RukPak.
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
