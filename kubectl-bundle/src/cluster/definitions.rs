//! Upgrades of CustomResourceDefinitions: the checks that bundle-webhook runs before it applies new
//! content. The command reads CustomResourceDefinitions and custom resources with the permissions
//! of its user.

use bundle_cluster::error;
use bundle_cluster::object::custom_resources::ResourceValidation;
use bundle_core::plan::crd_upgrade::existing::{self, ValidationLimits};
use bundle_core::plan::crd_upgrade::{self, CrdException};
use kube::Client;
use serde_json::Value;

/// Reason why the upgrade of a CustomResourceDefinition fails or may fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UpgradeProblem {
    /// The new CustomResourceDefinition has an unsafe change.
    Unsafe(String),
    /// Existing custom resources are invalid under the new CustomResourceDefinition.
    Invalid(String),
    /// Existing custom resources were not validated.
    Unvalidated(String),
}

/// Returns the problem of an upgrade from the `live` to the `new` CustomResourceDefinition. Returns
/// `None` if there is no problem.
pub(crate) async fn upgrade_problem(
    client: &Client,
    (live, new): (&Value, &Value),
    exceptions: &[CrdException],
) -> Option<UpgradeProblem> {
    let crd = new["metadata"]["name"].as_str().unwrap_or_default();
    let verdict = crd_upgrade::compare(live, new, exceptions);
    if !verdict.is_safe() {
        return Some(UpgradeProblem::Unsafe(verdict.message(crd)));
    }
    if existing::exception(crd, exceptions).is_some() {
        return None;
    }
    let unvalidated = |why: String| Some(UpgradeProblem::Unvalidated(why));
    let lists = match existing::lists(live, new) {
        Ok(lists) if lists.is_empty() => return None,
        Ok(lists) => lists,
        Err(why) => return unvalidated(why.to_string()),
    };
    let mut validation = ResourceValidation::new(client, ValidationLimits::DEFAULT);
    match validation.validate(live, new, &lists, |_| true).await {
        Ok(Ok(found)) if found.is_valid() => None,
        Ok(Ok(found)) => Some(UpgradeProblem::Invalid(found.message(crd))),
        Ok(Err(why)) => unvalidated(why.to_string()),
        Err(error) => unvalidated(error::error_message(&error)),
    }
}
