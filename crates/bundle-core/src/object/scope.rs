//! Removal of namespaces from cluster-scoped objects, as in the API server. All later rules then
//! use the identity that the object has in the cluster.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Manifest;
use crate::{
    diagnostic::{Finding, Findings, codes},
    version::apis,
};

/// Removes the namespace of each cluster-scoped object, with a warning. The scope is known for
/// built-in kinds, and for kinds that a CRD in `objects` defines.
pub fn drop_namespaces(objects: &mut [Manifest], findings: &mut Findings) {
    let defined: BTreeSet<(String, String)> = objects.iter().filter_map(cluster_scoped).collect();
    for object in objects {
        let (group, _, kind) = object.gvk();
        let is_cluster_scoped = match apis::is_namespaced(group, kind) {
            Some(is_namespaced) => !is_namespaced,
            None => defined.contains(&(group.to_owned(), kind.to_owned())),
        };
        if !is_cluster_scoped {
            continue;
        }
        let Some(namespace) = object.id.namespace.take() else {
            continue;
        };
        if let Some(Value::Object(metadata)) = object.value.get_mut("metadata") {
            metadata.remove("namespace");
        }
        findings.push(
            Finding::warning(
                codes::check::SCOPE,
                format!(
                    "{} is cluster-scoped: namespace `{namespace}` is ignored, as the API server ignores it",
                    object.id.kind
                ),
            )
            .in_file(&object.file)
            .at_line(object.line)
            .about(object.id.to_string())
            .at_field("metadata.namespace")
            .hint("remove the field"),
        );
    }
}

/// Returns the group and kind that `object` defines if it is the CustomResourceDefinition of a
/// cluster-scoped kind. Returns `None` for other objects.
fn cluster_scoped(object: &Manifest) -> Option<(String, String)> {
    let (group, _, kind) = object.gvk();
    if (group, kind) != ("apiextensions.k8s.io", "CustomResourceDefinition") {
        return None;
    }
    let text = |pointer: &str| object.value.pointer(pointer).and_then(Value::as_str);
    (text("/spec/scope")? == "Cluster").then_some(())?;
    Some((
        text("/spec/group")?.to_owned(),
        text("/spec/names/kind")?.to_owned(),
    ))
}
