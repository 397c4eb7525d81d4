//! Missing permissions, merged into few RBAC rules that an administrator can read and apply.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{AccessReview, Rule};

/// Rule with the namespace in which the permission must be granted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct ScopedRule {
    /// Namespace of the Role; `None` for a ClusterRole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The merged RBAC rule.
    #[serde(flatten)]
    pub rule: Rule,
}

impl fmt::Display for ScopedRule {
    /// Formats the rule as one line of YAML for `rules:` of a Role or ClusterRole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: &[String]| {
            let quoted: Vec<_> = items.iter().map(|item| format!("\"{item}\"")).collect();
            format!("[{}]", quoted.join(", "))
        };
        match &self.namespace {
            Some(namespace) => write!(f, "in namespace {namespace}: ")?,
            None => f.write_str("in the cluster: ")?,
        }
        if self.rule.paths.is_empty() {
            write!(
                f,
                "{{apiGroups: {}, resources: {}, ",
                list(&self.rule.groups),
                list(&self.rule.resources)
            )?;
            if !self.rule.names.is_empty() {
                write!(f, "resourceNames: {}, ", list(&self.rule.names))?;
            }
        } else {
            write!(f, "{{nonResourceURLs: {}, ", list(&self.rule.paths))?;
        }
        write!(f, "verbs: {}}}", list(&self.rule.verbs))
    }
}

/// Merges permissions into few rules, in three steps. Each step merges one of:
/// - the verbs of equal resources and names
/// - the names of equal verbs
/// - the resources and groups of equal verbs and names
pub fn compact<'a>(missing: impl IntoIterator<Item = &'a AccessReview>) -> Vec<ScopedRule> {
    type Set = BTreeSet<String>;
    let mut verbs = BTreeMap::<(String, String, String, Option<String>), Set>::new();
    let mut path_verbs = BTreeMap::<String, Set>::new();
    for question in missing {
        match question {
            AccessReview::Resource {
                verb,
                group,
                resource,
                namespace,
                name,
            } => {
                let key = (
                    namespace.clone(),
                    group.clone(),
                    resource.clone(),
                    name.clone(),
                );
                verbs.entry(key).or_default().insert(verb.clone());
            }
            AccessReview::Path { verb, path } => {
                path_verbs
                    .entry(path.clone())
                    .or_default()
                    .insert(verb.clone());
            }
        }
    }
    let mut names = BTreeMap::<(String, String, String, Set, bool), Set>::new();
    for ((namespace, group, resource, name), verbs) in verbs {
        names
            .entry((namespace, group, resource, verbs, name.is_some()))
            .or_default()
            .extend(name);
    }
    let mut resources = BTreeMap::<(String, String, Set, Set), Set>::new();
    for ((namespace, group, resource, verbs, _), names) in names {
        resources
            .entry((namespace, group, verbs, names))
            .or_default()
            .insert(resource);
    }
    let mut groups = BTreeMap::<(String, Set, Set, Set), Set>::new();
    for ((namespace, group, verbs, names), resources) in resources {
        groups
            .entry((namespace, resources, verbs, names))
            .or_default()
            .insert(group);
    }
    let mut paths = BTreeMap::<Set, Set>::new();
    for (path, verbs) in path_verbs {
        paths.entry(verbs).or_default().insert(path);
    }
    let list = |set: Set| set.into_iter().collect::<Vec<_>>();
    let about_objects =
        groups.into_iter().map(
            |((namespace, resources, verbs, names), groups)| ScopedRule {
                namespace: Some(namespace).filter(|namespace| !namespace.is_empty()),
                rule: Rule {
                    verbs: list(verbs),
                    groups: list(groups),
                    resources: list(resources),
                    names: list(names),
                    paths: Vec::new(),
                },
            },
        );
    let about_paths = paths.into_iter().map(|(verbs, paths)| ScopedRule {
        namespace: None,
        rule: Rule {
            verbs: list(verbs),
            paths: list(paths),
            ..Rule::default()
        },
    });
    about_objects.chain(about_paths).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_verbs_names_and_resources_into_few_rules() {
        let mut missing = Vec::new();
        for verb in ["patch", "create"] {
            for resource in ["deployments", "statefulsets"] {
                missing.push(AccessReview::resource(
                    verb,
                    "apps",
                    resource,
                    Some("team-a"),
                    None,
                ));
            }
            for name in ["b", "a"] {
                missing.push(AccessReview::resource(
                    verb,
                    "",
                    "secrets",
                    Some("team-a"),
                    Some(name),
                ));
            }
        }
        missing.push(AccessReview::resource(
            "create",
            "",
            "namespaces",
            None,
            None,
        ));
        missing.push(AccessReview::Path {
            verb: "get".to_owned(),
            path: "/metrics".to_owned(),
        });
        let lines: Vec<_> = compact(&missing).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                r#"in the cluster: {apiGroups: [""], resources: ["namespaces"], verbs: ["create"]}"#,
                r#"in namespace team-a: {apiGroups: ["apps"], resources: ["deployments", "statefulsets"], verbs: ["create", "patch"]}"#,
                r#"in namespace team-a: {apiGroups: [""], resources: ["secrets"], resourceNames: ["a", "b"], verbs: ["create", "patch"]}"#,
                r#"in the cluster: {nonResourceURLs: ["/metrics"], verbs: ["get"]}"#,
            ]
        );
    }

    #[test]
    fn keeps_rules_for_all_and_for_named_objects_apart() {
        let missing = [
            AccessReview::resource("get", "", "pods", Some("n"), None),
            AccessReview::resource("get", "", "pods", Some("n"), Some("a")),
        ];
        assert_eq!(compact(&missing).len(), 2);
        assert_eq!(compact([]), []);
    }
}
