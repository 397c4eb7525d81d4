//! Settings of a BundleDeployment that affect objects or data outside of its content, and the terms
//! that an approval covers. The module `parts` has the requesters of these settings, and the module
//! `rights` has the rules for approvals.

use serde_json::Value;

use super::{
    canonical::{self, MemberRule, Node},
    deployment::{CheckedDeploymentSpec, CustomResources, ReplacePolicy},
};
use crate::reference::Digest;

/// Returns the settings in `spec` about objects of other owners and about data, by name:
/// `collision`, `crdUpgrades`, `drift.ignore`, `deletion` and `rollout.replace`.
pub(super) fn settings(spec: &Value) -> [(&'static str, &Value); 5] {
    [
        ("collision", &spec["collision"]),
        ("crdUpgrades", &spec["crdUpgrades"]),
        ("ignore", &spec["drift"]["ignore"]),
        ("deletion", &spec["deletion"]),
        ("replace", &spec["rollout"]["replace"]),
    ]
}

/// Returns `true` if the [`settings`] of both specs have the same meaning and parse to equal
/// values.
pub(super) fn same_settings(left: &CheckedDeploymentSpec, right: &CheckedDeploymentSpec) -> bool {
    left.adopt == right.adopt
        && left.crd_exceptions == right.crd_exceptions
        && left.drift_ignore == right.drift_ignore
        && left.deletion == right.deletion
        && left.rollout.replace == right.rollout.replace
}

/// Returns the digest of the terms in the `spec` of a BundleDeployment that an approval covers in
/// addition to the content:
/// - class, ServiceAccount, configuration
/// - target namespace, and whether it is created
/// - settings about objects of other owners and data (`collision`, `crdUpgrades`, `drift.ignore`,
///   `deletion`, `rollout.replace`)
///
/// Approvals and inventories contain this digest. For a spec without `crdUpgrades` and
/// `rollout.replace`, earlier versions of this project compute the same digest.
pub fn approval_terms(spec: &Value) -> Digest {
    let member = |name: &'static str| (name, Node::Value(&spec[name]));
    let drift = [("ignore", Node::Value(&spec["drift"]["ignore"]))];
    let rollout = [("replace", Node::Value(&spec["rollout"]["replace"]))];
    canonical::node_digest(Node::Members(&[
        member("collision"),
        member("config"),
        member("crdUpgrades"),
        member("createNamespace"),
        member("deletion"),
        ("drift", Node::Members(&drift)),
        member("provisionerClassName"),
        ("rollout", Node::Members(&rollout)),
        member("serviceAccount"),
        member("targetNamespace"),
    ]))
}

/// Returns `true` if `spec` sets only class and template, or sets everything else that
/// [`approval_terms`] covers to its default. In this case an approval may omit the generation,
/// because there is no setting that the author of the approval could have overlooked. Returns
/// `false` for an invalid spec.
pub fn has_default_terms(spec: &Value) -> bool {
    let has_config = MemberRule::of("config").is_set(&spec["config"]);
    let Ok(spec) = CheckedDeploymentSpec::parse(spec) else {
        return false;
    };
    let has_default_settings = !spec.adopt
        && spec.crd_exceptions.is_empty()
        && spec.drift_ignore.is_empty()
        && !spec.deletion.orphan
        && spec.deletion.custom_resources == CustomResources::Refuse
        && spec.rollout.replace == ReplacePolicy::default();
    has_default_settings
        && spec.service_account.is_none()
        && spec.target_namespace.is_none()
        && !spec.create_namespace
        && !has_config
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(more: &Value) -> Value {
        let mut spec = json!({
            "provisionerClassName": "plain",
            "template": {"spec": {"provisionerClassName": "plain", "source": {"type": "image", "image": {"ref": "registry.example.com/web:1"}}}},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        spec
    }

    #[test]
    fn approval_covers_every_setting_that_reaches_objects_of_others() {
        let plain = with(&json!({}));
        assert!(has_default_terms(&plain));
        let account = json!({"namespace": "a", "name": "b"});
        for settings in [
            json!({"collision": "Adopt"}),
            json!({"crdUpgrades": {"exceptions": [{"crd": "jugs.example.com", "check": "Enum", "reason": "none exist"}]}}),
            json!({"drift": {"ignore": [{"fields": ["/spec/replicas"]}]}}),
            json!({"deletion": {"customResources": "Delete"}}),
            json!({"deletion": {"objects": "Orphan"}}),
            json!({"rollout": {"replace": "Always"}}),
            json!({"rollout": {"replace": "Never"}}),
            json!({"config": {"a": 1}}),
            json!({"serviceAccount": account}),
            json!({"targetNamespace": "web"}),
        ] {
            let spec = with(&settings);
            assert_ne!(approval_terms(&spec), approval_terms(&plain), "{settings}");
            assert!(!has_default_terms(&spec), "{settings}");
        }
        for settings in [
            json!({"drift": {"mode": "Report"}}),
            json!({"drift": {}, "deletion": {}, "config": {}, "crdUpgrades": {"exceptions": []}}),
            json!({"paused": true, "createNamespace": false}),
            json!({"rollout": {"history": 3}}),
        ] {
            let spec = with(&settings);
            assert_eq!(approval_terms(&spec), approval_terms(&plain), "{settings}");
            assert!(has_default_terms(&spec), "{settings}");
        }
        let written_out = json!({"collision": "Prevent", "rollout": {"replace": "IfCompleted"}});
        assert!(has_default_terms(&with(&written_out)));
        assert!(!has_default_terms(&json!({})));
    }

    #[test]
    fn terms_without_replacement_are_those_of_earlier_versions() {
        let spec = with(&json!({"collision": "Adopt", "config": {"a": 1}}));
        let earlier = canonical::spec_digest(&json!({
            "provisionerClassName": "plain",
            "config": {"a": 1},
            "collision": "Adopt",
        }));
        assert_eq!(approval_terms(&spec), earlier);
    }
}
