//! Access reviews for installing objects: one for each verb, kind and namespace, and reviews by
//! name for those that are denied. `roles` has the reviews for roles and bindings.

use std::collections::BTreeMap;

use crate::object::ObjectId;

use super::Question;

/// Verbs on the objects of a bundle during its lifetime.
pub const VERBS: [&str; 3] = ["create", "patch", "delete"];

/// Object with the resource name of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// ID of the object.
    pub id: ObjectId,
    /// Plural name of the kind.
    pub resource: String,
}

/// Access reviews for all objects of a kind in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Access review for any object of the kind in the namespace.
    pub general: Question,
    /// Access reviews for the single objects of the bundle, used if the general one is denied.
    pub by_name: Vec<Question>,
}

/// Returns the access reviews for these objects, in a stable order.
pub fn needs(targets: &[Target]) -> Vec<Need> {
    let mut groups = BTreeMap::<(&str, &str, Option<&str>), Vec<&str>>::new();
    for target in targets {
        groups
            .entry((
                &target.id.group,
                &target.resource,
                target.id.namespace.as_deref(),
            ))
            .or_default()
            .push(&target.id.name);
    }
    groups
        .into_iter()
        .flat_map(|((group, resource, namespace), mut names)| {
            names.sort_unstable();
            names.dedup();
            VERBS.map(|verb| Need {
                general: Question::resource(verb, group, resource, namespace, None),
                by_name: names
                    .iter()
                    .map(|name| Question::resource(verb, group, resource, namespace, Some(name)))
                    .collect(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: &str, resource: &str, namespace: Option<&str>, name: &str) -> Target {
        Target {
            id: ObjectId {
                group: "apps".to_owned(),
                version: "v1".to_owned(),
                kind: kind.to_owned(),
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
            },
            resource: resource.to_owned(),
        }
    }

    #[test]
    fn thousand_objects_of_one_kind_need_three_access_reviews() {
        let targets: Vec<_> = (0..1000)
            .map(|n| target("Deployment", "deployments", Some("a"), &format!("n{n}")))
            .collect();
        let found = needs(&targets);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].by_name.len(), 1000);
        assert_eq!(
            found[1].general,
            Question::resource("patch", "apps", "deployments", Some("a"), None)
        );
    }

    #[test]
    fn access_reviews_distinguish_namespaces_and_cluster() {
        let targets = [
            target("D", "ds", Some("a"), "x"),
            target("D", "ds", Some("b"), "x"),
            target("C", "cs", None, "x"),
        ];
        assert_eq!(needs(&targets).len(), 9);
        assert_eq!(needs(&[]), []);
    }
}
