//! Access reviews for installing objects: one review for each verb, kind and namespace. If such a
//! review is denied, the next reviews are for the names of the objects. The module `roles` contains
//! the reviews for roles and bindings.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::object::ObjectId;

use super::AccessReview;

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

/// Access reviews of one verb for all objects of a kind in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need<'a> {
    verb: &'static str,
    group: &'a str,
    resource: &'a str,
    namespace: Option<&'a str>,
    names: Arc<[&'a str]>,
}

impl<'a> Need<'a> {
    /// Returns the access review for any object of the kind in the namespace.
    pub fn general(&self) -> AccessReview {
        self.question(None)
    }

    /// Returns the access reviews for the single objects of the bundle. These reviews are used if
    /// the review for the kind is denied.
    pub fn by_name(&self) -> impl Iterator<Item = AccessReview> + Send + use<'_, 'a> {
        self.names.iter().map(|name| self.question(Some(name)))
    }

    fn question(&self, name: Option<&str>) -> AccessReview {
        AccessReview::resource(self.verb, self.group, self.resource, self.namespace, name)
    }
}

/// Returns the access reviews for these objects, in a stable order.
pub fn needs(targets: &[Target]) -> Vec<Need<'_>> {
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
            let names: Arc<[&str]> = names.into();
            VERBS.map(|verb| Need {
                verb,
                group,
                resource,
                namespace,
                names: names.clone(),
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
        assert_eq!(found[0].by_name().count(), 1000);
        assert_eq!(
            found[1].general(),
            AccessReview::resource("patch", "apps", "deployments", Some("a"), None)
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
