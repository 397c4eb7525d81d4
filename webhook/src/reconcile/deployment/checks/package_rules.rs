//! Checks the rules in `bundle.yaml` about the cluster and about upgrades, before new content is
//! installed. `bundle_core::plan::package_rules` evaluates the rules.

use std::collections::{BTreeMap, BTreeSet};

use bundle_api::names::reason;
use bundle_core::diagnostic::{Findings, codes};
use bundle_core::plan::inventory::InstalledContent;
use bundle_core::plan::package_rules::{self, AllowedUpgrades, PackageRules};
use bundle_core::plan::revisions;

use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::{self, MAX_LISTED, ReconcileError, RetryPolicy, finding_text};

impl DeploymentReconcile<'_> {
    /// Checks three rules. The spec must allow the version of the content. The content must be able
    /// to replace the installed content. The cluster must meet the requirements of the package. If
    /// requirements are missing, the check is retried after a delay.
    pub(in crate::reconcile) async fn check_package_rules(
        &self,
        request: &InstallRequest<'_>,
    ) -> Result<(), ReconcileError> {
        let refusals = self.upgrade_refusals(request);
        if !refusals.is_empty() {
            return Err(upgrade_refused(&refusals, request.reason));
        }
        match &self.package_rules {
            Some(rules) => self.check_requirements(rules).await,
            None => Ok(()),
        }
    }

    fn upgrade_refusals(&self, request: &InstallRequest<'_>) -> Findings {
        let digest = request.digest();
        // The revisions are read from the inventory and not from the status, because users cannot
        // write the inventory.
        let is_former =
            revisions::contains(&self.core_revisions(), digest) || self.was_healthy(digest);
        let settings = &self.spec.rollout;
        let mut refusals = Findings::default();
        if let (Some(versions), false) = (&settings.versions, is_former) {
            let content = request.generated.content.as_ref();
            let version = content.and_then(|content| content.version.as_deref());
            refusals.extend(package_rules::version_refusal(version, versions));
        }
        let installed = self.installed_content().and_then(InstalledContent::package);
        if let (Some(rules), Some(installed)) = (&self.package_rules, installed) {
            let allowed = if is_former {
                AllowedUpgrades::ALL
            } else {
                settings.allowed
            };
            refusals.extend(rules.upgrade_refusals(&installed, digest, allowed));
        }
        refusals
    }

    async fn check_requirements(&self, rules: &PackageRules) -> Result<(), ReconcileError> {
        let mut served: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for api in rules.apis() {
            let (api_version, _) = split(api);
            if served.contains_key(api_version) {
                continue;
            }
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            let kinds = self.ctx.apis.kinds(group, version).await;
            let kinds = kinds.map_err(|error| {
                let reason = self.install_reason();
                ReconcileError::api("discover the required APIs", reason, &error)
            })?;
            served.insert(api_version, kinds);
        }
        let is_served = |api: &str| {
            let (api_version, kind) = split(api);
            served
                .get(api_version)
                .is_some_and(|kinds| kinds.contains(kind))
        };
        let inventories = &self.ctx.inventories;
        let installed = inventories.packages(|name| rules.requires_package(name));
        let unmet = rules.unmet(is_served, &installed);
        if unmet.is_empty() {
            return Ok(());
        }
        Err(requirements_missing(&unmet))
    }

    /// If `error` reports a missing kind and requirements of the package are missing, returns the
    /// error for the missing requirements instead. A missing requirement can be the reason why the
    /// kind is missing.
    pub(in crate::reconcile) async fn with_requirements(
        &self,
        error: ReconcileError,
    ) -> ReconcileError {
        match &self.package_rules {
            Some(rules) if error.code == codes::install::MISSING_KIND => {
                self.check_requirements(rules).await.err().unwrap_or(error)
            }
            _ => error,
        }
    }
}

/// Splits a required API at the last slash, for example `apps/v1/Deployment` into `apps/v1` and
/// `Deployment`.
fn split(api: &str) -> (&str, &str) {
    api.rsplit_once('/').unwrap_or_default()
}

/// Returns the error for content that cannot replace the installed content.
pub(in crate::reconcile) fn upgrade_refused(
    refusals: &Findings,
    reason: &'static str,
) -> ReconcileError {
    ReconcileError::findings(reason, refusals, RetryPolicy::OnChange)
}

/// Returns the error for missing requirements. The reconcile is retried, because the requirements
/// can be installed at any time.
pub(in crate::reconcile) fn requirements_missing(unmet: &Findings) -> ReconcileError {
    let messages = unmet.errors().map(finding_text).collect();
    ReconcileError::new(
        codes::install::REQUIREMENT_MISSING,
        reason::REQUIREMENTS_MISSING,
        error::joined(messages, MAX_LISTED),
        RetryPolicy::Soon,
    )
}
