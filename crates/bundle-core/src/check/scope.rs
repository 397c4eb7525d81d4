//! Where objects land: namespaces that are missing, too much, not there or not the bundle's; and what shows that an object was copied.
//! Not here: what a class allows (plan::targets).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{error, warning};
use crate::{
    diagnostic::{Findings, codes},
    object::Manifest,
    version::apis,
};

/// Namespaces that every cluster has for itself.
const RESERVED: &[&str] = &["kube-node-lease", "kube-public", "kube-system"];

pub(super) fn check(objects: &[Manifest], findings: &mut Findings) {
    let defined: BTreeMap<(&str, &str), bool> = objects.iter().filter_map(defines).collect();
    let namespaced = |object: &Manifest| {
        let (group, _, kind) = object.gvk();
        let own = apis::is_namespaced(group, kind);
        own.or_else(|| defined.get(&(group, kind)).copied())
    };
    let created: BTreeSet<&str> = objects
        .iter()
        .filter(|object| object.id.group.is_empty() && object.id.kind == "Namespace")
        .map(|object| object.id.name.as_str())
        .collect();
    let some_named = objects
        .iter()
        .any(|object| object.id.namespace.is_some() && namespaced(object) != Some(false));
    let mut told: BTreeSet<&str> = BTreeSet::new();
    for object in objects {
        status(object, findings);
        match (namespaced(object), object.id.namespace.as_deref()) {
            (Some(false), Some(namespace)) => findings.push(
                error(
                    object,
                    codes::check::SCOPE,
                    format!(
                        "{} is cluster-scoped, and cannot be in namespace `{namespace}`",
                        object.id.kind
                    ),
                )
                .at_field("metadata.namespace")
                .hint("remove the field"),
            ),
            (Some(true), None) if some_named => findings.push(
                warning(
                    object,
                    codes::check::SCOPE,
                    "it names no namespace while others do, and lands where the installing ServiceAccount lives",
                )
                .at_field("metadata.namespace")
                .hint("name the namespace, if that is not what you mean"),
            ),
            (_, Some(namespace)) if told.insert(namespace) => {
                foreign(object, namespace, &created, findings);
            }
            _ => {}
        }
    }
}

/// Group, kind, and whether the objects of a definition are in namespaces.
fn defines(object: &Manifest) -> Option<((&str, &str), bool)> {
    let (group, _, kind) = object.gvk();
    if (group, kind) != ("apiextensions.k8s.io", "CustomResourceDefinition") {
        return None;
    }
    let spec = object.value.get("spec")?;
    let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str);
    let namespaced = match text("/scope")? {
        "Namespaced" => true,
        "Cluster" => false,
        _ => return None,
    };
    Some(((text("/group")?, text("/names/kind")?), namespaced))
}

/// A namespace for the first time.
fn foreign(object: &Manifest, namespace: &str, created: &BTreeSet<&str>, findings: &mut Findings) {
    if RESERVED.contains(&namespace) {
        findings.push(
            warning(
                object,
                codes::check::FOREIGN_NAMESPACE,
                format!("namespace `{namespace}` is Kubernetes' own"),
            )
            .at_field("metadata.namespace")
            .hint("many classes do not let content in there; use a namespace of the bundle, if you can"),
        );
    } else if namespace != "default" && !created.contains(namespace) {
        findings.push(
            warning(
                object,
                codes::check::FOREIGN_NAMESPACE,
                format!("nothing in the bundle creates namespace `{namespace}`"),
            )
            .at_field("metadata.namespace")
            .hint("add the Namespace to the manifests, unless it is there before the bundle is installed"),
        );
    }
}

fn status(object: &Manifest, findings: &mut Findings) {
    let filled = match object.value.get("status") {
        Some(Value::Object(status)) => !status.is_empty(),
        _ => false,
    };
    // What defines the API has a status that generators leave in, and the server makes its own of it.
    if filled && object.id.kind != "CustomResourceDefinition" {
        findings.push(
            warning(
                object,
                codes::check::STATUS,
                "its status would be ignored, or be taken for what a controller found",
            )
            .at_field("status")
            .hint("remove status"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::said;

    #[test]
    fn tells_where_objects_land() {
        let objects = "\
apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---
apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n---
apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: other}\n---
apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: other}\n---
apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\nstatus: {}\n---
apiVersion: v1\nkind: ConfigMap\nmetadata: {name: e, namespace: kube-system}\n---
apiVersion: v1\nkind: ConfigMap\nmetadata: {name: f, namespace: default}\nstatus: {a: 1}\n---
apiVersion: v1\nkind: Namespace\nmetadata: {name: g, namespace: shop}\n";
        assert_eq!(
            said("", &[("manifests/a.yaml", objects)]),
            [
                "warning: manifests/a.yaml:9: ConfigMap/other/b: metadata.namespace: nothing in the bundle creates namespace `other` (add the Namespace to the manifests, unless it is there before the bundle is installed)",
                "warning: manifests/a.yaml:17: ConfigMap/d: metadata.namespace: it names no namespace while others do, and lands where the installing ServiceAccount lives (name the namespace, if that is not what you mean)",
                "warning: manifests/a.yaml:22: ConfigMap/kube-system/e: metadata.namespace: namespace `kube-system` is Kubernetes' own (many classes do not let content in there; use a namespace of the bundle, if you can)",
                "warning: manifests/a.yaml:26: ConfigMap/default/f: status: its status would be ignored, or be taken for what a controller found (remove status)",
                "error: manifests/a.yaml:31: Namespace/shop/g: metadata.namespace: Namespace is cluster-scoped, and cannot be in namespace `shop` (remove the field)",
            ]
        );
        let portable = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        assert_eq!(said("", &[("manifests/a.yaml", portable)]), [""; 0]);
    }
}
