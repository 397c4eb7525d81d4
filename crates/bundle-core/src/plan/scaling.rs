//! Objects whose number of replicas belongs to an autoscaler of the same content.
//! The live autoscalers of a cluster are not here.

use serde_json::Value;

use crate::object::Manifest;

use super::{applyset::GroupKind, ignore::Rule};

/// The field that autoscalers write, through the subresource `scale`.
pub const REPLICAS: &str = "/spec/replicas";

/// An object with `spec.replicas` and the autoscaler that scales it.
#[derive(Debug, Clone, Copy)]
pub struct Scaled<'a> {
    /// The HorizontalPodAutoscaler, or the ScaledObject of KEDA that makes one.
    pub scaler: &'a Manifest,
    /// The object that it scales.
    pub target: &'a Manifest,
}

impl Scaled<'_> {
    /// The rule of `spec.drift.ignore` that leaves the replicas to the autoscaler.
    pub fn rule(&self) -> Rule {
        let id = &self.target.id;
        Rule {
            kind: Some(GroupKind {
                group: id.group.clone(),
                kind: id.kind.clone(),
            }),
            namespace: id.namespace.clone(),
            name: Some(id.name.clone()),
            fields: vec![REPLICAS.to_owned()],
            manager: None,
        }
    }
}

/// All objects that set their number of replicas while an autoscaler among the objects scales them.
pub fn scaled(objects: &[Manifest]) -> Vec<Scaled<'_>> {
    let mut found = Vec::new();
    for scaler in objects.iter().filter(|object| is_scaler(object)) {
        let Some(reference) = scaler.value.pointer("/spec/scaleTargetRef") else {
            continue;
        };
        let targets = objects.iter().filter(|target| {
            names(reference, scaler, target)
                && target
                    .value
                    .pointer(REPLICAS)
                    .is_some_and(|replicas| !replicas.is_null())
        });
        found.extend(targets.map(|target| Scaled { scaler, target }));
    }
    found
}

fn is_scaler(object: &Manifest) -> bool {
    let (group, _, kind) = object.gvk();
    matches!(
        (group, kind),
        ("autoscaling", "HorizontalPodAutoscaler") | ("keda.sh", "ScaledObject")
    )
}

/// Whether a reference in `scaler` names `target`. KEDA's may leave out the kind of a Deployment, and both the API version.
fn names(reference: &Value, scaler: &Manifest, target: &Manifest) -> bool {
    let text = |key: &str| reference.get(key).and_then(Value::as_str);
    let group = text("apiVersion").map(|api| api.split_once('/').map_or("", |(group, _)| group));
    scaler.id.namespace == target.id.namespace
        && text("name") == Some(target.id.name.as_str())
        && text("kind").unwrap_or("Deployment") == target.id.kind
        && group.is_none_or(|group| group == target.id.group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{diagnostic::Findings, object, yaml};

    fn objects(text: &str) -> Vec<Manifest> {
        let mut findings = Findings::default();
        yaml::documents(text.as_bytes(), "a.yaml")
            .unwrap()
            .into_iter()
            .filter_map(|document| object::read(document, "a.yaml", &mut findings))
            .collect()
    }

    #[test]
    fn finds_replicas_that_an_autoscaler_of_the_content_owns() {
        let objects = objects(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, namespace: x}\nspec: {replicas: 2}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, namespace: y}\nspec: {replicas: 2}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: b, namespace: x}\nspec: {replicas: null}\n---\n\
             apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a, namespace: x}\nspec: {replicas: 2}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: c, namespace: x}\nspec: {replicas: 0}\n---\n\
             apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: h, namespace: x}\nspec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}\n---\n\
             apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: i, namespace: x}\nspec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: b}}\n---\n\
             apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: k, namespace: x}\nspec: {scaleTargetRef: {name: c}}\n",
        );
        let found: Vec<(String, String)> = scaled(&objects)
            .iter()
            .map(|one| (one.scaler.id.name.clone(), one.target.id.to_string()))
            .collect();
        assert_eq!(
            found,
            [
                ("h".to_owned(), "Deployment.apps/x/a".to_owned()),
                ("k".to_owned(), "Deployment.apps/x/c".to_owned()),
            ]
        );
        let rule = scaled(&objects)[0].rule();
        assert!(rule.fits(&objects[0].id) && !rule.fits(&objects[1].id));
        assert_eq!(rule.fields, ["/spec/replicas"]);
    }
}
