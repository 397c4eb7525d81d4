//! Review of updates that other clients make to CustomResourceDefinitions of BundleDeployments,
//! with the texts of RukPak's `crdvalidator`. Admission calls these functions. The label of a
//! definition only selects the updates to review. The inventories decide which definitions belong
//! to BundleDeployments.

use serde_json::Value;

use super::{ANNOTATION, CrdException, compare};
use crate::diagnostic::{Finding, Findings, codes};

/// The BundleDeployment to which a CustomResourceDefinition belongs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefinitionOwner {
    /// Name of the BundleDeployment.
    pub deployment: String,
    /// ServiceAccount that has installed the objects, as namespace and name.
    pub account: Option<(String, String)>,
    /// Exceptions of the BundleDeployment. The list is empty if the spec has no valid stamp or
    /// seal.
    pub exceptions: Vec<CrdException>,
}

/// Returns true if the update is safe, so that the owner of the definition does not matter.
pub fn is_safe_update(live: &Value, new: &Value) -> bool {
    compare(live, new, &[]).is_safe()
}

/// Returns the findings about an update that is not safe. `requester` is the ServiceAccount that
/// sends the update, as namespace and name. The ServiceAccount of the installation is exempt: the
/// pod acts as that ServiceAccount, and has compared the definitions before.
pub fn judge_update(
    live: &Value,
    new: &Value,
    owner: &DefinitionOwner,
    requester: Option<(&str, &str)>,
) -> Findings {
    let account = owner.account.as_ref();
    let account = account.map(|(namespace, name)| (namespace.as_str(), name.as_str()));
    if account.is_some() && account == requester {
        return Findings::default();
    }
    let crd = new["metadata"]["name"].as_str().unwrap_or_default();
    let verdict = compare(live, new, &owner.exceptions);
    let code = codes::review::UNSAFE_CRD_UPDATE;
    let deployment = &owner.deployment;
    if !verdict.is_safe() {
        let checks: Vec<&str> = verdict.checks().iter().map(|check| check.name()).collect();
        return Finding::error(
            code,
            format!(
                "failed to validate safety of UPDATE for CRD {crd:?} (NOTE: to disable this validation, set the {ANNOTATION:?} annotation to \"false\"): error validating existing CRs against new CRD's schema for {crd:?}: {}",
                verdict.message(crd)
            ),
        )
        .hint(format!(
            "the definition belongs to BundleDeployment {deployment}: change its content, or add exceptions with their reasons to its spec.crdUpgrades.exceptions; failed checks: {}",
            checks.join(", ")
        ))
        .into();
    }
    let warnings = verdict.excepted().map(|(check, reason)| {
        Finding::warning(
            code,
            format!("exception of BundleDeployment {deployment} from check {check}: {reason}"),
        )
    });
    warnings.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::CrdCheck;
    use super::*;

    fn definition(required: &[&str]) -> Value {
        json!({
            "metadata": {"name": "jugs.example.com"},
            "spec": {"scope": "Cluster", "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "required": required}},
            }]},
        })
    }

    fn owner(check: Option<CrdCheck>) -> DefinitionOwner {
        let exception = |check| CrdException {
            crd: "jugs.example.com".to_owned(),
            check,
            reason: "none exist".to_owned(),
        };
        DefinitionOwner {
            deployment: "shop".to_owned(),
            account: Some(("bundle-system".to_owned(), "installer".to_owned())),
            exceptions: check.map(exception).into_iter().collect(),
        }
    }

    #[test]
    fn unsafe_update_is_rejected_except_from_the_installer_and_with_an_exception() {
        let (live, new) = (definition(&[]), definition(&["spec"]));
        assert!(is_safe_update(&new, &live));
        assert!(!is_safe_update(&live, &new));
        let unknown = DefinitionOwner::default();
        let installer = ("bundle-system", "installer");
        for (owner, requester, is_rejected) in [
            (owner(None), None, true),
            (owner(None), Some(("default", "installer")), true),
            (owner(None), Some(installer), false),
            (unknown, None, true),
            (owner(Some(CrdCheck::Enum)), None, true),
            (owner(Some(CrdCheck::ChangeValidator)), None, false),
        ] {
            let findings = judge_update(&live, &new, &owner, requester);
            assert_eq!(findings.has_errors(), is_rejected, "{owner:?}");
        }
        let findings = judge_update(&live, &new, &owner(None), None);
        assert_eq!(
            findings.first().unwrap().message,
            r#"failed to validate safety of UPDATE for CRD "jugs.example.com" (NOTE: to disable this validation, set the "core.rukpak.io/safe-crd-upgrade-validation" annotation to "false"): error validating existing CRs against new CRD's schema for "jugs.example.com": CustomResourceDefinition jugs.example.com failed upgrade safety validation. "ChangeValidator" validation failed: version "v1", field "^": new required fields added: [spec]"#
        );
        let excepted = judge_update(&live, &new, &owner(Some(CrdCheck::Required)), None);
        assert_eq!(
            excepted.first().unwrap().message,
            "exception of BundleDeployment shop from check Required: none exist"
        );
        let mut disabled = new;
        disabled["metadata"]["annotations"] = json!({ANNOTATION: "false"});
        assert!(is_safe_update(&live, &disabled));
    }
}
