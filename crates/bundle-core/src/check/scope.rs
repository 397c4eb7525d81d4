//! Checks the namespaces of objects: a namespace can be missing, superfluous, not contained in the
//! bundle, or reserved. Also reports fields that show that an object was copied from a cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Installation, warning};
use crate::{
    diagnostic::{Finding, Findings, codes},
    object::Manifest,
    version::apis,
};

/// Namespaces that every cluster has.
const RESERVED: &[&str] = &["kube-node-lease", "kube-public", "kube-system"];

/// Maximum number of objects without a namespace that a message names.
const LISTED: usize = 3;

pub(super) fn check(
    objects: &[Manifest],
    installation: Option<&Installation<'_>>,
    findings: &mut Findings,
) {
    let namespaced = namespaced(objects);
    let created: BTreeSet<&str> = objects
        .iter()
        .filter(|object| object.id.group.is_empty() && object.id.kind == "Namespace")
        .map(|object| object.id.name.as_str())
        .chain(installation.and_then(Installation::created_namespace))
        .collect();
    let mut reported: BTreeSet<&str> = BTreeSet::new();
    let mut homeless = Vec::new();
    for object in objects {
        status(object, findings);
        match (namespaced(object), object.id.namespace.as_deref()) {
            (Some(true), None) => homeless.push(object),
            (_, Some(namespace)) if reported.insert(namespace) => {
                warn_about_namespace(object, namespace, &created, findings);
            }
            _ => {}
        }
    }
    match installation {
        Some(installation) if installation.target_namespace.is_some() => {}
        _ => findings.extend(without_namespace(&homeless, installation.is_some())),
    }
}

/// Returns a function that returns `true` for objects of namespaced kinds. For a kind that is
/// neither built-in nor defined in `objects`, the function returns `None`.
pub fn namespaced(objects: &[Manifest]) -> impl Fn(&Manifest) -> Option<bool> {
    let defined: BTreeMap<(&str, &str), bool> = objects.iter().filter_map(defines).collect();
    move |object: &Manifest| {
        let (group, _, kind) = object.gvk();
        let own = apis::is_namespaced(group, kind);
        own.or_else(|| defined.get(&(group, kind)).copied())
    }
}

/// Returns one finding for all objects without a namespace. The finding is an error if a
/// BundleDeployment installs the objects (`is_installed`), and otherwise a warning.
fn without_namespace(objects: &[&Manifest], is_installed: bool) -> Option<Finding> {
    let listed: Vec<String> = objects
        .iter()
        .take(LISTED)
        .map(|object| object.id.to_string())
        .collect();
    let listed = listed.join(", ");
    let message = match objects.len() {
        0 => return None,
        1 => format!("1 object has no namespace: {listed}"),
        count if count <= LISTED => format!("{count} objects have no namespace: {listed}"),
        count => format!(
            "{count} objects have no namespace: {listed} and {} more",
            count - LISTED
        ),
    };
    if is_installed {
        return Some(
            Finding::error(codes::install::NO_NAMESPACE, message)
                .at_field("spec.targetNamespace")
                .hint("set spec.targetNamespace, and spec.createNamespace: true if the namespace does not exist; or set the namespace in the manifests"),
        );
    }
    Some(Finding::warning(codes::check::SCOPE, message).hint(
        "set spec.targetNamespace of the BundleDeployment to the namespace for these objects, or set the namespace in the manifests",
    ))
}

/// Returns the group and kind that a CustomResourceDefinition defines, and `true` if the kind is
/// namespaced. Returns `None` for other objects.
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

/// Warns about `object` if its namespace is reserved or is not created by the bundle. The caller
/// passes only the first object in each namespace.
fn warn_about_namespace(
    object: &Manifest,
    namespace: &str,
    created: &BTreeSet<&str>,
    findings: &mut Findings,
) {
    if RESERVED.contains(&namespace) {
        findings.push(
            warning(
                object,
                codes::check::FOREIGN_NAMESPACE,
                format!("namespace `{namespace}` belongs to Kubernetes"),
            )
            .at_field("metadata.namespace")
            .hint("many classes do not allow content in this namespace; use a namespace of the bundle if possible"),
        );
    } else if namespace != "default" && !created.contains(namespace) {
        findings.push(
            warning(
                object,
                codes::check::FOREIGN_NAMESPACE,
                format!("the bundle does not create namespace `{namespace}`"),
            )
            .at_field("metadata.namespace")
            .hint(format!(
                "create the namespace before the installation, add it to the manifests, or use `kubectl bundle deploy -n {namespace} --create-namespace`"
            )),
        );
    }
}

fn status(object: &Manifest, findings: &mut Findings) {
    let filled = match object.value.get("status") {
        Some(Value::Object(status)) => !status.is_empty(),
        _ => false,
    };
    // Generators write a status into CustomResourceDefinitions. The API server replaces this
    // status, so there is no warning.
    if filled && object.id.kind != "CustomResourceDefinition" {
        findings.push(
            warning(
                object,
                codes::check::STATUS,
                "a manifest must not set the status, which controllers write",
            )
            .at_field("status")
            .hint("remove status"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::messages_of;

    #[test]
    fn reports_namespace_problems_of_objects() {
        let objects = "\
apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---
apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n---
apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: other}\n---
apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: other}\n---
apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\nstatus: {}\n---
apiVersion: v1\nkind: ConfigMap\nmetadata: {name: e, namespace: kube-system}\n---
apiVersion: v1\nkind: ConfigMap\nmetadata: {name: f, namespace: default}\nstatus: {a: 1}\n";
        assert_eq!(
            messages_of("", &[("manifests/a.yaml", objects)]),
            [
                "warning: 1 object has no namespace: ConfigMap/d (set spec.targetNamespace of the BundleDeployment to the namespace for these objects, or set the namespace in the manifests)",
                "warning: manifests/a.yaml:9: ConfigMap/other/b: metadata.namespace: the bundle does not create namespace `other` (create the namespace before the installation, add it to the manifests, or use `kubectl bundle deploy -n other --create-namespace`)",
                "warning: manifests/a.yaml:22: ConfigMap/kube-system/e: metadata.namespace: namespace `kube-system` belongs to Kubernetes (many classes do not allow content in this namespace; use a namespace of the bundle if possible)",
                "warning: manifests/a.yaml:26: ConfigMap/default/f: status: a manifest must not set the status, which controllers write (remove status)",
            ]
        );
        let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: sN}\n---\n";
        let many: Vec<String> = (0..5)
            .map(|number| secret.replace('N', &number.to_string()))
            .collect();
        let many = many.concat();
        let said = messages_of("", &[("manifests/a.yaml", &many)]).join("\n");
        assert!(
            said.contains(
                "5 objects have no namespace: Secret/s0, Secret/s1, Secret/s2 and 2 more"
            ),
            "{said}"
        );
    }
}
