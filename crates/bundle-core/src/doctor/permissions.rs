//! Checks of the permissions of the pod and of the caller.

use std::fmt::Write as _;

use serde_json::Value;

use super::{CheckResult, Observed};
use crate::diagnostic::{Finding, codes};
use crate::rights::{AccessReview, compact};
use crate::text::some_of;

/// Maximum number of missing rules that a message names.
const NAMED: usize = 4;
const GROUP: &str = bundle_api::names::GROUP;

/// Returns the access reviews for the rules of a Role in `namespace`, or of a ClusterRole if
/// `namespace` is `None`.
pub fn questions(role: &Value, namespace: Option<&str>) -> Vec<AccessReview> {
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items
            .filter_map(|item| Some(item.as_str()?.to_owned()))
            .collect()
    };
    let mut questions = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let names = list(&rule["resourceNames"]);
        let names: Vec<Option<&str>> = match names.as_slice() {
            [] => vec![None],
            names => names.iter().map(|name| Some(name.as_str())).collect(),
        };
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                for verb in list(&rule["verbs"]) {
                    questions.extend(names.iter().map(|name| {
                        AccessReview::resource(&verb, &group, &resource, namespace, *name)
                    }));
                }
            }
        }
    }
    questions
}

/// Returns `true` for the permission to impersonate users. With `rbac.impersonatePeople: false`,
/// the chart does not grant this permission.
fn is_optional(question: &AccessReview) -> bool {
    matches!(question, AccessReview::Resource { verb, resource, .. }
        if verb == "impersonate" && resource != "serviceaccounts")
}

/// Checks the permissions of the pod's ServiceAccount.
pub fn pod(account: &str, answers: Observed<Vec<(AccessReview, bool)>>) -> CheckResult {
    const CHECK: &str = "permissions";
    let code = codes::doctor::POD_PERMISSIONS;
    let hint = "apply its roles again: helm upgrade, or kubectl apply --server-side -f webhook/deploy/manifests";
    let missing = || {
        Finding::error(code, "it does not exist")
            .about(account)
            .hint(hint)
    };
    let answers = match answers.found_or(CHECK, account, missing) {
        Ok(answers) => answers,
        Err(result) => return result,
    };
    let denied: Vec<&AccessReview> = answers
        .iter()
        .filter(|(_, is_allowed)| !is_allowed)
        .map(|(question, _)| question)
        .collect();
    if denied.is_empty() {
        let count = answers.len();
        return CheckResult::ok(CHECK, account, format!("has all {count} permissions"));
    }
    let required: Vec<&AccessReview> = denied
        .iter()
        .copied()
        .filter(|question| !is_optional(question))
        .collect();
    if required.is_empty() {
        let message =
            "it cannot impersonate users, so classes need spec.requesterCheck: AccessReview";
        return CheckResult::of(CHECK, Finding::warning(code, message).about(account));
    }
    let rules = some_of(&compact(required), NAMED);
    let finding = Finding::error(code, format!("these permissions are missing {rules}"));
    CheckResult::of(CHECK, finding.about(account).hint(hint))
}

/// Permissions that a verb of the plugin needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PluginVerb {
    /// Verb of the plugin.
    pub verb: &'static str,
    /// Plural of the resource.
    pub resource: &'static str,
    /// Required verbs on the resource.
    pub needs: &'static [&'static str],
}

const fn verb(
    verb: &'static str,
    resource: &'static str,
    needs: &'static [&'static str],
) -> PluginVerb {
    PluginVerb {
        verb,
        resource,
        needs,
    }
}

/// Verbs of the plugin that need permissions in the cluster.
pub const VERBS: &[PluginVerb] = &[
    verb("get", "bundledeployments", &["list"]),
    verb("status", "bundledeployments", &["get"]),
    verb("deploy", "bundledeployments", &["get", "create", "patch"]),
    verb("create", "bundles", &["get", "create", "patch"]),
    verb("delete", "bundledeployments", &["get", "delete"]),
];

impl PluginVerb {
    /// Returns the access reviews for the permissions that this verb needs.
    pub fn questions(&self) -> Vec<AccessReview> {
        let needs = self.needs.iter();
        needs
            .map(|need| AccessReview::resource(need, GROUP, self.resource, None, None))
            .collect()
    }
}

/// Returns the access review for the verb `use` on a class, or on all classes if `name` is `None`.
/// The review names the system namespace. Therefore a RoleBinding in this namespace grants the verb
/// like a ClusterRoleBinding.
pub fn use_of_class(name: Option<&str>, system_namespace: &str) -> AccessReview {
    AccessReview::resource(
        "use",
        GROUP,
        "provisionerclasses",
        Some(system_namespace),
        name,
    )
}

/// Permissions of the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallerPermissions {
    /// Verbs of the plugin that the caller can run.
    pub verbs: Vec<&'static str>,
    /// Verbs of the plugin for which the caller lacks a permission.
    pub denied: Vec<&'static str>,
    /// Classes that the caller can use; `None` if the classes could not be listed.
    pub classes: Option<Vec<String>>,
}

/// Checks the permissions of the caller, who has the user name `user`.
pub fn caller(user: &str, observed: Observed<CallerPermissions>) -> CheckResult {
    const CHECK: &str = "caller";
    let CallerPermissions {
        verbs,
        denied,
        classes,
    } = match observed {
        Observed::Found(permissions) => permissions,
        Observed::Missing => CallerPermissions::default(),
        Observed::Forbidden(message) => return CheckResult::forbidden(CHECK, user, message),
        Observed::Failed(message) => return CheckResult::no_response(CHECK, user, message),
    };
    let warning = |message: String, hint: &str| {
        let finding = Finding::warning(codes::doctor::CALLER_PERMISSIONS, message);
        CheckResult::of(CHECK, finding.about(user).hint(hint))
    };
    if verbs.is_empty() {
        return warning(
            format!("has no permission for {}", denied.join(", ")),
            "an administrator can bind ClusterRole bundle-viewer or bundle-editor to this user",
        );
    }
    let mut message = format!("can run {}", verbs.join(", "));
    if !denied.is_empty() {
        // Writing to a String cannot fail.
        let _ = write!(message, "; has no permission for {}", denied.join(", "));
    }
    match classes {
        Some(classes) if classes.is_empty() && verbs.contains(&"deploy") => warning(
            format!("{message}; can use no ProvisionerClass"),
            "an administrator can bind ClusterRole bundle-user to this user",
        ),
        Some(classes) if !classes.is_empty() => {
            let _ = write!(message, "; can use {}", some_of(&classes, 8));
            CheckResult::ok(CHECK, user, message)
        }
        _ => CheckResult::ok(CHECK, user, message),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::CheckState::{Ok as Passed, Problem, Unknown, Warning};

    #[test]
    fn rules_of_a_role_become_one_question_for_each_verb_resource_and_name() {
        let role = json!({"rules": [
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get", "update"]},
            {"apiGroups": ["core.rukpak.io"], "resources": ["bundles/status"], "verbs": ["patch"]},
        ]});
        let secret = |verb: &str, name: &str| {
            AccessReview::resource(verb, "", "secrets", Some("sys"), Some(name))
        };
        assert_eq!(
            questions(&role, Some("sys")),
            [
                secret("get", "a"),
                secret("get", "b"),
                secret("update", "a"),
                secret("update", "b"),
                AccessReview::resource(
                    "patch",
                    "core.rukpak.io",
                    "bundles/status",
                    Some("sys"),
                    None
                ),
            ]
        );
        assert!(questions(&json!({}), None).is_empty());
    }

    #[test]
    fn missing_permissions_of_the_pod_are_listed() {
        let patch = AccessReview::resource("patch", GROUP, "bundles", None, None);
        let people = AccessReview::resource("impersonate", "", "users", None, None);
        let installer =
            AccessReview::resource("impersonate", "", "serviceaccounts", Some("s"), None);
        let with = |answers: &[(&AccessReview, bool)]| {
            let answers = answers
                .iter()
                .map(|(question, yes)| ((*question).clone(), *yes));
            pod("serviceaccount s/w", Observed::Found(answers.collect()))
        };
        for (result, state, part) in [
            (with(&[(&patch, true), (&people, true)]), Passed, "all 2"),
            (with(&[(&patch, false)]), Problem, r#"verbs: ["patch"]"#),
            (
                with(&[(&patch, true), (&people, false)]),
                Warning,
                "requesterCheck: AccessReview",
            ),
            (with(&[(&installer, false)]), Problem, "in namespace s"),
            (
                pod("a", Observed::Forbidden("no".to_owned())),
                Unknown,
                "no",
            ),
        ] {
            assert_eq!(result.state, state, "{result:?}");
            assert!(result.message.contains(part), "{result:?}");
        }
    }

    #[test]
    fn caller_without_permission_or_class_gets_a_warning() {
        let with = |verbs: &[&'static str], denied: &[&'static str], classes: Option<&[&str]>| {
            let classes = classes.map(|all| all.iter().map(|&one| one.to_owned()).collect());
            let permissions = CallerPermissions {
                verbs: verbs.to_vec(),
                denied: denied.to_vec(),
                classes,
            };
            caller("ana", Observed::Found(permissions))
        };
        for (result, state, part) in [
            (
                with(&["get", "deploy"], &[], Some(&["a"])),
                Passed,
                "can use a",
            ),
            (
                with(&["get"], &["deploy"], Some(&[])),
                Passed,
                "no permission for deploy",
            ),
            (
                with(&["get", "deploy"], &[], None),
                Passed,
                "can run get, deploy",
            ),
            (
                with(&["deploy"], &[], Some(&[])),
                Warning,
                "no ProvisionerClass",
            ),
            (with(&[], &["get"], None), Warning, "no permission for get"),
            (
                caller("ana", Observed::Failed("late".into())),
                Unknown,
                "late",
            ),
        ] {
            assert_eq!(result.state, state, "{result:?}");
            assert!(result.message.contains(part), "{result:?}");
        }
    }

    #[test]
    fn deploy_needs_permission_to_write_bundle_deployments() {
        let deploy = VERBS.iter().find(|one| one.verb == "deploy").unwrap();
        let questions = deploy.questions();
        let create = AccessReview::resource("create", GROUP, "bundledeployments", None, None);
        assert!(questions.contains(&create), "{questions:?}");
    }
}
