//! Permissions that installing a bundle requires, derived from its content without a cluster. This
//! list is for display only: during an installation the access reviews (`needs`, `roles`) decide.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{
    AccessReview, AccessReviewBudget, Need, ScopedRule, Target, compact, grant, needs, rules_after,
};
use crate::object::Manifest;
use crate::version::apis;

/// Required permissions, and the kinds for which the plural name is a guess.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Required {
    /// RBAC rules for all permissions, merged into few rules.
    pub rules: Vec<ScopedRule>,
    /// Kinds with a guessed plural, because they are neither built-in nor defined in the bundle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guessed: Vec<String>,
}

/// Returns the permissions for installing these objects:
/// - create, patch and delete for each kind in its namespaces
/// - all permissions of the roles in the content, or `escalate` for roles that are too large
/// - `bind` for other roles that the bindings in the content refer to
pub fn required(objects: &[Manifest]) -> Required {
    let defined = defined(objects);
    let mut guessed = BTreeSet::new();
    let targets: Vec<Target> = objects
        .iter()
        .map(|object| {
            let (group, kind) = (object.id.group.as_str(), object.id.kind.as_str());
            let resource = if let Some(plural) = defined.get(&(group, kind)) {
                (*plural).to_owned()
            } else {
                if !apis::is_built_in(group) {
                    guessed.insert(format!("{kind}.{group}"));
                }
                plural(kind)
            };
            Target {
                id: object.id.clone(),
                resource,
            }
        })
        .collect();
    let own_roles: BTreeSet<_> = objects
        .iter()
        .filter(|object| object.id.group == "rbac.authorization.k8s.io")
        .map(|object| {
            let namespace = object.id.namespace.as_deref();
            (object.id.kind.as_str(), namespace, object.id.name.as_str())
        })
        .collect();
    let mut questions: Vec<AccessReview> = needs(&targets).iter().map(Need::general).collect();
    let mut budget = AccessReviewBudget::default();
    for object in objects {
        let Some(grant) = grant(&object.id, &object.value["roleRef"]) else {
            continue;
        };
        let role = &grant.role;
        let name = (
            role.kind.as_str(),
            role.namespace.as_deref(),
            role.name.as_str(),
        );
        if grant.is_binding {
            // Roles of the content need no verb `bind`: a requester who may write a role with these
            // rules may also bind the role.
            if !own_roles.contains(&name) {
                questions.push(grant.shortcut);
            }
            continue;
        }
        let rules = rules_after(Some(&object.value), None);
        if !budget.take(&rules) {
            questions.push(grant.shortcut);
            continue;
        }
        let namespace = object.id.namespace.as_deref();
        questions.extend(rules.iter().flat_map(|rule| rule.questions(namespace)));
    }
    Required {
        rules: compact(&questions),
        guessed: guessed.into_iter().collect(),
    }
}

/// Returns the plural names of the kinds that the bundle defines.
fn defined(objects: &[Manifest]) -> BTreeMap<(&str, &str), &str> {
    objects
        .iter()
        .filter(|object| {
            object.id.group == "apiextensions.k8s.io"
                && object.id.kind == "CustomResourceDefinition"
        })
        .filter_map(|object| {
            let spec = &object.value["spec"];
            let names = &spec["names"];
            Some((
                (spec["group"].as_str()?, names["kind"].as_str()?),
                names["plural"].as_str()?,
            ))
        })
        .collect()
}

/// Returns the plural of a kind by the rule for built-in kinds.
fn plural(kind: &str) -> String {
    let word = kind.to_lowercase();
    if word == "endpoints" {
        return word;
    }
    for ending in ["s", "x", "ch", "sh"] {
        if word.ends_with(ending) {
            return format!("{word}es");
        }
    }
    match word.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{word}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{diagnostic::Findings, object, yaml};

    fn lines(text: &str) -> (Vec<String>, Vec<String>) {
        let mut findings = Findings::default();
        let objects: Vec<_> = yaml::documents(text.as_bytes(), "a.yaml")
            .unwrap()
            .into_iter()
            .filter_map(|document| object::read(document, "a.yaml", &mut findings))
            .collect();
        let required = required(&objects);
        let rules = required.rules.iter().map(ToString::to_string).collect();
        (rules, required.guessed)
    }

    #[test]
    fn lists_permissions_for_objects_roles_and_bindings() {
        let (rules, guessed) = lines(
            "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: n}\n---\n\
             apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: n}\n---\n\
             apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a, namespace: n}\n---\n\
             apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: mice.example.com}\nspec: {group: example.com, names: {kind: Mouse, plural: mice}}\n---\n\
             apiVersion: example.com/v1\nkind: Mouse\nmetadata: {name: a, namespace: n}\n---\n\
             apiVersion: other.example.com/v1\nkind: Widget\nmetadata: {name: a, namespace: n}\n---\n\
             apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a, namespace: n}\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: own, namespace: n}\nrules: [{apiGroups: [''], resources: [secrets], verbs: [get]}]\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: own, namespace: n}\nroleRef: {kind: Role, name: own}\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: view, namespace: n}\nroleRef: {kind: ClusterRole, name: view}\n",
        );
        assert_eq!(
            guessed,
            [
                "HTTPRoute.gateway.networking.k8s.io",
                "Widget.other.example.com"
            ]
        );
        let text = rules.join("\n");
        for part in [
            r#"resources: ["services"]"#,
            r#"resources: ["ingresses", "networkpolicies"]"#,
            r#"apiGroups: ["example.com"], resources: ["mice"], verbs: ["create", "delete", "patch"]"#,
            r#"resources: ["secrets"], verbs: ["get"]"#,
            r#"resources: ["clusterroles"], resourceNames: ["view"], verbs: ["bind"]"#,
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        assert!(!text.contains(r#"["own"]"#), "{text}");
    }
}
