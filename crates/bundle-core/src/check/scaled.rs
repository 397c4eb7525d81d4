//! Warns about objects that set their number of replicas, although an autoscaler of the same
//! content scales these objects.

use super::{Installation, warning};
use crate::{
    diagnostic::{Findings, codes},
    object::Manifest,
    plan::scaling,
};

pub(super) fn check(
    objects: &[Manifest],
    installation: Option<&Installation<'_>>,
    findings: &mut Findings,
) {
    for scaled in scaling::scaled(objects) {
        let target = match installation {
            Some(installation) => installation.settled(&scaled.target.id),
            None => scaled.target.id.clone(),
        };
        if installation.is_some_and(|installation| installation.ignores_replicas(&target)) {
            continue;
        }
        findings.push(
            warning(
                scaled.target,
                codes::check::SCALED,
                format!(
                    "{} scales the object, and the manifest also sets the number of replicas",
                    scaled.scaler.id
                ),
            )
            .at_field("spec.replicas")
            .hint(format!(
                "remove spec.replicas, or deploy the bundle with {}",
                scaling::ignore_rule(&target)
            )),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::messages_of;

    #[test]
    fn warns_of_replicas_that_an_autoscaler_sets_with_the_rule_to_add() {
        let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, namespace: default}\nspec: {replicas: 2}\n---\n";
        let scaler = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: h, namespace: default}\n\
                      spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}\n";
        let both = format!("{deployment}{scaler}");
        assert_eq!(
            messages_of("", &[("manifests/a.yaml", &both)]),
            [
                "warning: manifests/a.yaml:1: Deployment.apps/default/a: spec.replicas: HorizontalPodAutoscaler.autoscaling/default/h scales the object, and the manifest also sets the number of replicas \
                 (remove spec.replicas, or deploy the bundle with spec.drift.ignore: [{kind: Deployment.apps, namespace: default, name: a, fields: [/spec/replicas]}])"
            ]
        );
        let without = both.replace("replicas: 2", "replicas: null");
        assert_eq!(messages_of("", &[("manifests/a.yaml", &without)]), [""; 0]);
    }
}
