//! Safety of upgrades of CustomResourceDefinitions: each definition of new content is compared with
//! the definition on the cluster. The rules are in `bundle_core::plan::crd_upgrade`.

use bundle_core::diagnostic::codes;
use bundle_core::plan::crd_upgrade::{self, CrdVerdict};

use crate::clients::cluster::with_missing_right;
use crate::reconcile::api::object;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::{self, MAX_LISTED, ReconcileError, RetryPolicy};

impl DeploymentReconcile<'_> {
    /// Compares the definitions among `items` with the definitions on the cluster. Each definition
    /// can be large, so they are compared one after the other. The installing ServiceAccount reads
    /// them. A definition that does not exist yet is safe.
    pub(in crate::reconcile) async fn check_definitions(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
    ) -> Result<(), ReconcileError> {
        let (mut refused, mut warnings) = (Vec::new(), Vec::new());
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
            warnings.extend(exception_warnings(&item.id.name, &verdict));
            if crd_upgrade::is_disabled(&item.value) {
                warnings.push(disabled_warning(&item.id.name));
            }
            if !verdict.is_safe() {
                refused.push((item.id.name.as_str(), verdict));
            }
        }
        if refused.is_empty() && warnings.is_empty() {
            return Ok(());
        }
        // Errors and warnings show which definitions exist, and their fields.
        self.check_access(request, items).await?;
        self.warnings.extend(warnings);
        if refused.is_empty() {
            return Ok(());
        }
        Err(unsafe_upgrades(&refused, request.reason))
    }
}

/// Returns the warnings about failed checks that an exception allows.
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

/// Returns the warning about a definition with an annotation that disables the checks.
fn disabled_warning(crd: &str) -> String {
    format!(
        "CustomResourceDefinition {crd}: not compared with the one on the cluster, because the content sets annotation {}: {:?} ({})",
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

/// Returns the error for definitions with unsafe changes. The texts are the same as in RukPak.
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
            "CustomResourceDefinition a.example.com: not compared with the one on the cluster, because the content sets annotation core.rukpak.io/safe-crd-upgrade-validation: \"false\" (BUNDLE-INSTALL-100)"
        );
    }
}
