//! Permissions that roles and bindings grant: the access reviews of the API server's escalation
//! check.

use serde_json::Value;

use crate::object::{Manifest, ObjectId};

use super::Question;

/// Rule of a Role or ClusterRole.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Rule {
    /// Allowed verbs.
    pub verbs: Vec<String>,
    /// API groups.
    #[serde(rename = "apiGroups", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Resources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Names of objects; empty for all.
    #[serde(rename = "resourceNames", skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Paths of non-resource URLs.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// Maximum number of access reviews for one role. A rule of 1 KiB can expand to millions of
/// permissions. A role beyond this limit requires verb `escalate` or `bind`.
const MOST_QUESTIONS: usize = 10_000;

/// Returns `true` if the rules expand to at most 10 000 access reviews.
pub fn can_be_asked(rules: &[Rule]) -> bool {
    let counts = rules.iter().map(Rule::question_count);
    counts.fold(0, usize::saturating_add) <= MOST_QUESTIONS
}

impl Rule {
    /// Returns an upper bound of the number of access reviews that [`Self::questions`] returns.
    fn question_count(&self) -> usize {
        [&self.groups, &self.resources]
            .into_iter()
            .fold(self.verbs.len(), |count, list| {
                count.saturating_mul(list.len())
            })
            .saturating_mul(self.names.len().max(1))
            .saturating_add(self.verbs.len().saturating_mul(self.paths.len()))
    }

    /// Returns each single permission of the rule as an access review. Non-resource URLs only count
    /// in ClusterRoles bound for the whole cluster, as in the API server.
    pub fn questions(&self, namespace: Option<&str>) -> Vec<Question> {
        let names: Vec<Option<&str>> = if self.names.is_empty() {
            vec![None]
        } else {
            self.names.iter().map(|name| Some(name.as_str())).collect()
        };
        let mut questions = Vec::new();
        for verb in &self.verbs {
            for group in &self.groups {
                for resource in &self.resources {
                    for name in &names {
                        questions.push(Question::resource(verb, group, resource, namespace, *name));
                    }
                }
            }
            if namespace.is_none() {
                questions.extend(self.paths.iter().map(|path| Question::Path {
                    verb: verb.clone(),
                    path: path.clone(),
                }));
            }
        }
        questions
    }
}

/// Returns the rules of a Role or ClusterRole to be applied. An aggregated role counts as all
/// permissions, as in the API server, because its rules are not known yet.
fn rules_of(role: &Value) -> Vec<Rule> {
    let mut rules = rules_held(role);
    if role["aggregationRule"].is_object() {
        let all = || vec!["*".to_owned()];
        rules.push(Rule {
            verbs: all(),
            groups: all(),
            resources: all(),
            names: Vec::new(),
            paths: all(),
        });
    }
    rules
}

/// Returns the rules of a Role or ClusterRole on the cluster, including aggregated ones.
fn rules_held(role: &Value) -> Vec<Rule> {
    let texts = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|text| text.as_str().map(str::to_owned))
            .collect()
    };
    role["rules"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|rule| Rule {
            verbs: texts(&rule["verbs"]),
            groups: texts(&rule["apiGroups"]),
            resources: texts(&rule["resources"]),
            names: texts(&rule["resourceNames"]),
            paths: texts(&rule["nonResourceURLs"]),
        })
        .collect()
}

/// Returns the rules of a role after `stated` is applied over `live`, including those that
/// aggregation may add. Either may be absent.
///
/// An applied role without `rules` keeps the rules on the cluster. An aggregated role, in the
/// content or on the cluster, counts as all permissions, because its controller sets its rules
/// again after every apply.
pub fn rules_after(stated: Option<&Value>, live: Option<&Value>) -> Vec<Rule> {
    let Some(stated) = stated else {
        return live.map(rules_held).unwrap_or_default();
    };
    let mut rules = rules_of(stated);
    if let Some(live) = live {
        if !stated["rules"].is_array() {
            rules.extend(rules_held(live));
        }
        if live["aggregationRule"].is_object() {
            rules.extend(rules_of(live));
        }
    }
    rules
}

/// Returns the permission that the requester needs for objects that record their creator and act
/// with its permissions: verb `impersonate` on the ServiceAccount `account` (namespace and name),
/// which applies them. Returns `None` if there are no such objects.
pub fn made_as<'a>(
    objects: impl IntoIterator<Item = &'a ObjectId>,
    account: (&str, &str),
) -> Option<Question> {
    let records_its_maker = |id: &ObjectId| {
        matches!(
            (id.group.as_str(), id.kind.as_str()),
            (
                "core.rukpak.io",
                "Bundle" | "BundleDeployment" | "BundleApproval"
            ) | ("certificates.k8s.io", "CertificateSigningRequest")
        )
    };
    objects.into_iter().any(records_its_maker).then(|| {
        Question::resource(
            "impersonate",
            "",
            "serviceaccounts",
            Some(account.0),
            Some(account.1),
        )
    })
}

/// Role of a binding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// Name of the role.
    pub name: String,
    /// Namespace of a Role; `None` for a ClusterRole.
    pub namespace: Option<String>,
}

/// Object that grants permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// Role: the requester needs verb `escalate` on it, or all of its permissions.
    Role {
        /// Access review for verb `escalate`; if allowed, no other is necessary.
        escalate: Question,
        /// Rules of the role, checked if `escalate` is denied.
        rules: Vec<Rule>,
        /// Namespace of the role; `None` for the whole cluster.
        namespace: Option<String>,
    },
    /// Binding: the requester needs verb `bind` on the role, or all permissions of the role.
    Binding {
        /// Access review for verb `bind`; if allowed, no other is necessary.
        bind: Question,
        /// Role whose rules are checked if `bind` is denied.
        role: RoleRef,
        /// Namespace of the binding; `None` for the whole cluster.
        namespace: Option<String>,
    },
}

/// Returns the permissions that `object` grants; `None` if it is neither a role nor a binding.
pub fn grant(object: &Manifest) -> Option<Grant> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if object.id.group != GROUP {
        return None;
    }
    let namespace = object.id.namespace.clone();
    let plural = |kind: &str| {
        if kind == "ClusterRole" {
            "clusterroles"
        } else {
            "roles"
        }
    };
    match object.id.kind.as_str() {
        kind @ ("Role" | "ClusterRole") => Some(Grant::Role {
            escalate: Question::resource(
                "escalate",
                GROUP,
                plural(kind),
                namespace.as_deref(),
                Some(&object.id.name),
            ),
            rules: rules_of(&object.value),
            namespace,
        }),
        "RoleBinding" | "ClusterRoleBinding" => {
            let reference = &object.value["roleRef"];
            let text = |key: &str| reference[key].as_str().unwrap_or_default().to_owned();
            let role = RoleRef {
                namespace: (text("kind") == "Role")
                    .then(|| namespace.clone())
                    .flatten(),
                kind: text("kind"),
                name: text("name"),
            };
            Some(Grant::Binding {
                bind: Question::resource(
                    "bind",
                    GROUP,
                    plural(&role.kind),
                    namespace.as_deref(),
                    Some(&role.name),
                ),
                role,
                namespace,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, namespace: Option<&str>, value: Value) -> Manifest {
        Manifest {
            id: ObjectId {
                group: "rbac.authorization.k8s.io".to_owned(),
                version: "v1".to_owned(),
                kind: kind.to_owned(),
                namespace: namespace.map(str::to_owned),
                name: "x".to_owned(),
            },
            value,
            file: String::new(),
            line: 1,
        }
    }

    #[test]
    fn bounds_access_reviews_of_a_rule_before_expanding_it() {
        let many = |count: usize| {
            (0..count)
                .map(|number| format!("a{number}"))
                .collect::<Vec<_>>()
        };
        let rule = |count: usize| Rule {
            verbs: many(count),
            groups: many(count),
            resources: many(count),
            names: many(count),
            paths: many(count),
        };
        assert_eq!(rule(3).question_count(), rule(3).questions(None).len());
        let nameless = Rule {
            names: Vec::new(),
            ..rule(3)
        };
        assert_eq!(nameless.question_count(), nameless.questions(None).len());
        assert!(can_be_asked(&[rule(3), rule(3)]));
        assert!(!can_be_asked(&[rule(30)]));
    }

    #[test]
    fn expands_rule_into_single_permissions() {
        let role = json!({ "rules": [
            { "apiGroups": ["", "apps"], "resources": ["pods", "pods/log"], "verbs": ["get", "list"], "resourceNames": ["a", "b"] },
            { "nonResourceURLs": ["/metrics"], "verbs": ["get"] },
        ] });
        let rules = rules_of(&role);
        assert_eq!(rules[0].questions(Some("n")).len(), 16);
        assert_eq!(
            rules[1].questions(None),
            [Question::Path {
                verb: "get".to_owned(),
                path: "/metrics".to_owned()
            }]
        );
        assert_eq!(rules[1].questions(Some("n")), []);
    }

    #[test]
    fn aggregated_role_counts_as_all_permissions() {
        let rules = rules_of(&json!({ "aggregationRule": {}, "rules": null }));
        assert!(
            rules[0]
                .questions(None)
                .contains(&Question::resource("*", "*", "*", None, None))
        );
        assert_eq!(rules[0].questions(None).len(), 2);
        // A role in a cluster contains its aggregated rules.
        let collected = json!({ "aggregationRule": {}, "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }] });
        assert_eq!(rules_held(&collected).len(), 1);
        assert_eq!(rules_held(&collected)[0].questions(None).len(), 1);
    }

    #[test]
    fn binding_is_checked_with_its_role_and_namespace() {
        let cluster =
            json!({ "roleRef": { "kind": "ClusterRole", "name": "admin" }, "subjects": [] });
        let Some(Grant::Binding {
            bind,
            role,
            namespace,
        }) = grant(&object("RoleBinding", Some("team-a"), cluster))
        else {
            panic!("no binding");
        };
        assert_eq!(
            bind,
            Question::resource(
                "bind",
                "rbac.authorization.k8s.io",
                "clusterroles",
                Some("team-a"),
                Some("admin")
            )
        );
        assert_eq!(
            (role.namespace, namespace.as_deref()),
            (None, Some("team-a"))
        );
        let own = json!({ "roleRef": { "kind": "Role", "name": "r" } });
        let Some(Grant::Binding { role, .. }) = grant(&object("RoleBinding", Some("team-a"), own))
        else {
            panic!("no binding");
        };
        assert_eq!(role.namespace.as_deref(), Some("team-a"));
    }

    #[test]
    fn objects_that_record_their_creator_need_impersonate() {
        let id = |group: &str, kind: &str| ObjectId {
            group: group.to_owned(),
            kind: kind.to_owned(),
            ..object("x", None, Value::Null).id
        };
        let installer = ("bundle-system", "installer");
        let asked = made_as(
            &[
                id("", "ConfigMap"),
                id("core.rukpak.io", "BundleDeployment"),
            ],
            installer,
        );
        assert_eq!(
            asked,
            Some(Question::resource(
                "impersonate",
                "",
                "serviceaccounts",
                Some("bundle-system"),
                Some("installer")
            ))
        );
        for harmless in [
            id("", "ConfigMap"),
            id("example.com", "Bundle"),
            id("core.rukpak.io", "ProvisionerClass"),
        ] {
            assert_eq!(made_as(&[harmless], installer), None);
        }
    }

    #[test]
    fn role_after_apply_includes_kept_and_aggregated_rules() {
        let rule = |resource: &str| json!({ "apiGroups": [""], "resources": [resource], "verbs": ["get"] });
        let live = json!({ "rules": [rule("secrets")] });
        let resources = |stated: Option<&Value>, live: Option<&Value>| {
            let rules = rules_after(stated, live);
            let all: Vec<String> = rules.into_iter().flat_map(|rule| rule.resources).collect();
            all.join(" ")
        };
        for silent in [json!({}), json!({ "rules": null })] {
            assert_eq!(resources(Some(&silent), Some(&live)), "secrets");
            assert_eq!(resources(Some(&silent), None), "");
        }
        let own = json!({ "rules": [rule("pods")] });
        assert_eq!(resources(Some(&own), Some(&live)), "pods");
        assert_eq!(resources(None, Some(&live)), "secrets");
        assert_eq!(resources(None, None), "");
        let collected =
            json!({ "aggregationRule": {"clusterRoleSelectors": []}, "rules": [rule("secrets")] });
        for stated in [json!({ "rules": [] }), json!({})] {
            assert!(resources(Some(&stated), Some(&collected)).contains('*'));
        }
        assert_eq!(resources(None, Some(&collected)), "secrets");
    }

    #[test]
    fn other_objects_grant_no_permissions() {
        let mut other = object("Role", None, Value::Null);
        other.id.group = "example.com".to_owned();
        assert_eq!(grant(&other), None);
    }
}
