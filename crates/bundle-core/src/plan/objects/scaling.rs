//! Objects whose number of replicas an autoscaler sets. The autoscaler is part of the same content,
//! or exists on the cluster.

use serde_json::Value;

use crate::object::{Manifest, ObjectId};

use crate::plan::drift::FieldsEntry;

/// Field that autoscalers write, through the subresource `scale`.
pub const REPLICAS: &str = "/spec/replicas";

/// Object with `spec.replicas`, and the autoscaler that scales it.
#[derive(Debug, Clone, Copy)]
pub struct ScaledObject<'a> {
    /// HorizontalPodAutoscaler, or ScaledObject of KEDA.
    pub scaler: &'a Manifest,
    /// Scaled object.
    pub target: &'a Manifest,
}

/// Returns all objects that set `spec.replicas` and have an autoscaler in `objects`.
pub fn scaled(objects: &[Manifest]) -> Vec<ScaledObject<'_>> {
    let mut found = Vec::new();
    for scaler in objects.iter().filter(|object| is_scaler(object)) {
        let Some(reference) = scaler.value.pointer("/spec/scaleTargetRef") else {
            continue;
        };
        let targets = objects.iter().filter(|target| {
            scaler.id.namespace == target.id.namespace
                && names(reference, &target.id)
                && sets_replicas(&target.value)
        });
        found.extend(targets.map(|target| ScaledObject { scaler, target }));
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

/// Returns true if `reference`, the `scaleTargetRef` of an autoscaler, matches `target`. The caller
/// compares the namespaces. For KEDA the kind is optional and defaults to Deployment. The API
/// version is always optional.
fn names(reference: &Value, target: &ObjectId) -> bool {
    let text = |key: &str| reference.get(key).and_then(Value::as_str);
    let group = text("apiVersion").map(|api| api.split_once('/').map_or("", |(group, _)| group));
    text("name") == Some(target.name.as_str())
        && text("kind").unwrap_or("Deployment") == target.kind
        && group.is_none_or(|group| group == target.group)
}

/// Returns true if the object sets `spec.replicas`.
pub fn sets_replicas(value: &Value) -> bool {
    value
        .pointer(REPLICAS)
        .is_some_and(|replicas| !replicas.is_null())
}

/// Removes `spec.replicas`.
pub fn remove_replicas(value: &mut Value) {
    if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("replicas");
    }
}

/// Returns a rule for `spec.drift.ignore` as text. With this rule, the replicas of `target` are
/// never applied.
pub fn ignore_rule(target: &ObjectId) -> String {
    let namespace = target.namespace.as_ref();
    let namespace = namespace.map_or_else(String::new, |name| format!(", namespace: {name}"));
    let kind = match target.group.as_str() {
        "" => target.kind.clone(),
        group => format!("{}.{group}", target.kind),
    };
    format!(
        "spec.drift.ignore: [{{kind: {kind}{namespace}, name: {}, fields: [{REPLICAS}]}}]",
        target.name
    )
}

/// Owner of `spec.replicas` of an object on the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicasOwner<'a> {
    /// A HorizontalPodAutoscaler, which may no longer exist.
    Autoscaler,
    /// A controller that is not an autoscaler. Contains its field manager.
    Manager(&'a str),
}

/// Returns the actor that set the replicas of an object through its subresource `scale`; `None` if
/// there is no such actor. A change with kubectl is ignored, because such a change is drift.
pub fn replicas_owner<'a>(
    entries: impl IntoIterator<Item = FieldsEntry<'a>>,
) -> Option<ReplicasOwner<'a>> {
    let mut owners = entries.into_iter().filter(|entry| {
        entry.subresource == "scale"
            && !entry.manager.starts_with("kubectl")
            && entry.fields["f:spec"].get("f:replicas").is_some()
    });
    owners.next().map(|entry| match entry.manager {
        "kube-controller-manager" => ReplicasOwner::Autoscaler,
        manager => ReplicasOwner::Manager(manager),
    })
}

/// Returns the name of the autoscaler among `scalers` that scales `target`; `None` if no autoscaler
/// scales `target`. All autoscalers in `scalers` are in the namespace of `target`.
pub fn scaler_of<'a>(scalers: &'a [Value], target: &ObjectId) -> Option<&'a str> {
    let found = scalers.iter().find(|scaler| {
        scaler
            .pointer("/spec/scaleTargetRef")
            .is_some_and(|reference| names(reference, target))
    });
    found?["metadata"]["name"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn finds_objects_that_an_autoscaler_of_the_content_scales() {
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
    }

    #[test]
    fn replicas_owner_is_a_controller_and_never_kubectl() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let status = json!({"f:status": {"f:replicas": {}}});
        let owner = |manager, subresource, fields| {
            replicas_owner([FieldsEntry {
                manager,
                operation: "Update",
                subresource,
                api_version: "apps/v1",
                time: None,
                fields,
            }])
        };
        let autoscaler = Some(ReplicasOwner::Autoscaler);
        assert_eq!(
            owner("kube-controller-manager", "scale", &replicas),
            autoscaler
        );
        let other = Some(ReplicasOwner::Manager("autoscale-operator"));
        assert_eq!(owner("autoscale-operator", "scale", &replicas), other);
        assert_eq!(owner("kubectl", "scale", &replicas), None);
        assert_eq!(owner("kubectl-edit", "", &replicas), None);
        assert_eq!(owner("autoscale-operator", "", &replicas), None);
        assert_eq!(owner("kube-controller-manager", "status", &status), None);
        assert_eq!(owner("kube-controller-manager", "scale", &status), None);
    }

    #[test]
    fn finds_the_autoscaler_that_references_the_object() {
        let objects = objects(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, namespace: x}\nspec: {replicas: 2}\n",
        );
        let target = &objects[0];
        let scaler = |name: &str, kind: &str, of: &str| json!({"metadata": {"name": name}, "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": of}}});
        let scalers = [
            scaler("one", "StatefulSet", "a"),
            scaler("two", "Deployment", "b"),
            scaler("three", "Deployment", "a"),
        ];
        assert_eq!(scaler_of(&scalers, &target.id), Some("three"));
        assert_eq!(scaler_of(&scalers[..2], &target.id), None);
        let mut value = target.value.clone();
        assert!(sets_replicas(&value));
        remove_replicas(&mut value);
        assert!(!sets_replicas(&value) && value["spec"].is_object());
    }
}
