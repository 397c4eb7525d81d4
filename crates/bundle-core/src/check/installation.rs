//! Settings of a BundleDeployment that change the findings on its content.

use crate::{
    object::ObjectId,
    plan::{ignore::Rule, scaling},
};

/// Settings of the BundleDeployment that installs the content.
#[derive(Debug, Clone, Copy, Default)]
pub struct Installation<'a> {
    /// Namespace for objects without a namespace; `None` if the BundleDeployment sets no target
    /// namespace.
    pub target_namespace: Option<&'a str>,
    /// `true` if the installation creates a missing target namespace.
    pub create_namespace: bool,
    /// Rules of `spec.drift.ignore`.
    pub drift_ignore: &'a [Rule],
}

impl<'a> Installation<'a> {
    /// Returns the target namespace if the installation creates it; otherwise `None`.
    pub(super) fn created_namespace(&self) -> Option<&'a str> {
        self.target_namespace.filter(|_| self.create_namespace)
    }

    /// Returns the identity that an object of a namespaced kind has after its installation.
    pub(super) fn settled(&self, id: &ObjectId) -> ObjectId {
        let mut settled = id.clone();
        if settled.namespace.is_none() {
            settled.namespace = self.target_namespace.map(str::to_owned);
        }
        settled
    }

    /// Returns `true` if a rule of `drift.ignore` covers the replicas of this object.
    pub(super) fn ignores_replicas(&self, id: &ObjectId) -> bool {
        self.drift_ignore
            .iter()
            .any(|rule| rule.fits(id) && rule.fields.iter().any(|field| field == scaling::REPLICAS))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_installation;
    use super::*;
    use crate::object::GroupKind;

    const SCALED: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 2}\n---\n\
                          apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: h}\n\
                          spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}\n";

    fn found(manifests: &str, installation: &Installation<'_>) -> String {
        with_installation(&[("manifests/a.yaml", manifests)], installation).join("\n")
    }

    #[test]
    fn rejects_objects_without_namespace_if_no_target_namespace_is_set() {
        let homeless = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let none = Installation::default();
        let without = found(homeless, &none);
        assert!(
            without
                .starts_with("error: spec.targetNamespace: 1 object has no namespace: ConfigMap/a"),
            "{without}"
        );
        let target = Installation {
            target_namespace: Some("team-a"),
            ..none
        };
        assert_eq!(found(homeless, &target), "");
    }

    #[test]
    fn created_target_namespace_belongs_to_the_bundle() {
        let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: team-a}\n";
        let installation = |create_namespace| Installation {
            target_namespace: Some("team-a"),
            create_namespace,
            drift_ignore: &[],
        };
        assert_eq!(found(object, &installation(true)), "");
        let warned = found(object, &installation(false));
        assert!(
            warned.contains("the bundle does not create namespace `team-a`"),
            "{warned}"
        );
    }

    #[test]
    fn rule_for_replicas_in_the_target_namespace_ends_the_warning() {
        let rule = |namespace: &str, field: &str| Rule {
            kind: Some(GroupKind {
                group: "apps".to_owned(),
                kind: "Deployment".to_owned(),
            }),
            namespace: Some(namespace.to_owned()),
            name: Some("a".to_owned()),
            fields: vec![field.to_owned()],
            manager: None,
        };
        let with = |rule: Rule| {
            found(
                SCALED,
                &Installation {
                    target_namespace: Some("team-a"),
                    create_namespace: true,
                    drift_ignore: &[rule],
                },
            )
        };
        assert_eq!(with(rule("team-a", scaling::REPLICAS)), "");
        for other in [
            rule("team-b", scaling::REPLICAS),
            rule("team-a", "/spec/paused"),
        ] {
            let warned = with(other);
            assert!(
                warned.contains("spec.drift.ignore: [{kind: Deployment.apps, namespace: team-a, name: a, fields: [/spec/replicas]}]"),
                "{warned}"
            );
        }
    }
}
