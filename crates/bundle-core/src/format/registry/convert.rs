//! Objects that install an operator for all namespaces: namespace, ServiceAccounts, roles, CRDs and
//! workloads. Their names are deterministic.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    Operator,
    csv::{Csv, Deployment, Permission, Strategy},
    refused,
};
use crate::{
    diagnostic::Findings,
    object::{self, Manifest},
    yaml::Document,
};

/// Annotation with the suggested namespace of an operator.
const SUGGESTED_NAMESPACE: &str = "operatorframework.io/suggested-namespace";
/// Annotation that lists the namespaces of an operator. An empty value means all namespaces.
const TARGET_NAMESPACES: &str = "olm.targetNamespaces";
/// ServiceAccount that exists in every namespace.
const DEFAULT: &str = "default";
/// Maximum length of a generated name.
const MAX_NAME: usize = 63;
/// Maximum length of a namespace name.
const MAX_NAMESPACE: usize = 63;
/// Maximum total size of the ClusterServiceVersion's annotations on all deployments, in bytes. The
/// API server accepts 256 KiB on one object.
const MAX_COPIED_ANNOTATIONS: usize = 4 << 20;
/// Memory of an annotation without its texts, in bytes.
const ANNOTATION: usize = 100;

/// Memory of the objects that one permission or deployment creates, in bytes: an account, a role, a
/// binding or a Deployment, without the values that move into them.
pub(super) const CREATED: u64 = 24 << 10;

/// Kinds that a bundle may contain in addition to the ClusterServiceVersion; `true` for namespaced
/// kinds.
const OTHERS: [(&str, bool); 19] = [
    ("ClusterRole", false),
    ("ClusterRoleBinding", false),
    ("ConfigMap", true),
    ("ConsoleCLIDownload", false),
    ("ConsoleLink", false),
    ("ConsolePlugin", false),
    ("ConsoleQuickStart", false),
    ("ConsoleYAMLSample", false),
    ("NetworkPolicy", true),
    ("PodDisruptionBudget", true),
    ("PriorityClass", false),
    ("PrometheusRule", true),
    ("Role", true),
    ("RoleBinding", true),
    ("Secret", true),
    ("Service", true),
    ("ServiceAccount", true),
    ("ServiceMonitor", true),
    ("VerticalPodAutoscaler", true),
];

pub(super) fn is_csv(object: &Manifest) -> bool {
    object.id.kind == "ClusterServiceVersion" && object.id.group == "operators.coreos.com"
}

/// Returns all objects in an order in which they can be installed. They are complete if `findings`
/// has no errors.
///
/// The suggested namespace is one of the objects, as in RukPak. A `target` is not: it must exist,
/// or `spec.createNamespace` creates it.
pub(super) fn convert(
    operator: Operator,
    others: Vec<Manifest>,
    target: Option<&str>,
    findings: &mut Findings,
) -> Vec<Manifest> {
    // An invalid name was reported before. Each generated name would contain it.
    if !object::is_dns_subdomain(&operator.csv.name) {
        return Vec::new();
    }
    let refusals = refusals(&operator.csv);
    if refusals.has_errors() {
        findings.extend(refusals);
        return Vec::new();
    }
    let namespace = target.map_or_else(|| suggested_namespace(&operator), str::to_owned);
    let Csv {
        name,
        annotations,
        place,
        spec,
    } = operator.csv;
    let strategy = spec.install.spec;
    let mut made = Vec::new();
    if target.is_none() {
        made.push(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        );
        // The invalid name is reported once, and not for each object in the namespace.
        if namespace.len() > MAX_NAMESPACE {
            return written(&place, made, findings);
        }
    }
    made.extend(accounts(&strategy).into_iter().map(|name| {
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace},
        })
    }));
    let Strategy {
        deployments: workloads,
        permissions,
        cluster_permissions,
    } = strategy;
    made.extend(roles(&name, permissions, cluster_permissions, &namespace));
    let mut objects = written(&place, made, findings);
    let (crds, others): (Vec<Manifest>, Vec<Manifest>) = others
        .into_iter()
        .partition(|object| object.id.kind == "CustomResourceDefinition");
    objects.extend(crds);
    for other in others {
        objects.extend(placed(other, &namespace, findings));
    }
    let workloads = deployments(&annotations, workloads, &namespace);
    objects.extend(written(&place, workloads, findings));
    objects
}

/// Returns the default namespace of an operator.
fn suggested_namespace(operator: &Operator) -> String {
    let suggested = operator.csv.annotations.get(SUGGESTED_NAMESPACE);
    suggested
        .filter(|name| !name.is_empty())
        .cloned()
        .unwrap_or_else(|| format!("{}-system", operator.package))
}

/// Returns the reasons for which this operator cannot be installed.
fn refusals(csv: &Csv) -> Findings {
    let mut refusals = Findings::default();
    let mut refuse = |field: &str, why: String, hint: &str| {
        refusals.push(
            refused(why)
                .in_file(&csv.place.0)
                .at_line(csv.place.1)
                .about(format!("ClusterServiceVersion/{}", csv.name))
                .at_field(field)
                .hint(hint),
        );
    };
    let spec = &csv.spec;
    let all = spec
        .install_modes
        .iter()
        .any(|mode| mode.supported && mode.kind == "AllNamespaces");
    if !all {
        refuse(
            "spec.installModes",
            "AllNamespace install mode must be enabled".to_owned(),
            "only operators for all namespaces are supported: set `supported: true` for type AllNamespaces if the operator supports it",
        );
    }
    if !spec.apiservicedefinitions.owned.is_empty() {
        refuse(
            "spec.apiservicedefinitions.owned",
            "apiServiceDefintions are not supported".to_owned(),
            "they require certificates of the Operator Lifecycle Manager: use CustomResourceDefinitions instead",
        );
    }
    if !spec.webhookdefinitions.is_empty() {
        refuse(
            "spec.webhookdefinitions",
            "webhookDefinitions are not supported".to_owned(),
            "they require certificates of the Operator Lifecycle Manager: use a release without webhooks, or plain manifests with certificates",
        );
    }
    if !matches!(spec.install.strategy.as_str(), "" | "deployment") {
        refuse(
            "spec.install.strategy",
            format!(
                "install strategy {:?} is not supported",
                spec.install.strategy
            ),
            "the only supported strategy is `deployment`",
        );
    }
    let deployments = &spec.install.spec.deployments;
    let annotations = csv.annotations.iter();
    let copied = annotations
        .map(|(key, value)| key.len() + value.len() + ANNOTATION)
        .sum::<usize>()
        .saturating_mul(deployments.len());
    if copied > MAX_COPIED_ANNOTATIONS {
        refuse(
            "metadata.annotations",
            format!(
                "the annotations of the ClusterServiceVersion have {copied} bytes on all {} deployments together, more than the limit of {MAX_COPIED_ANNOTATIONS} (4 MiB)",
                deployments.len()
            ),
            "shorten the annotations: each deployment gets a copy of them",
        );
    }
    for (index, deployment) in deployments.iter().enumerate() {
        if !deployment.spec.is_object() {
            refuse(
                &format!("spec.install.spec.deployments[{index}].spec"),
                format!("deployment {:?} has no spec", deployment.name),
                "`operator-sdk bundle validate` shows the errors",
            );
        }
    }
    refusals
}

fn account(name: &str) -> &str {
    if name.is_empty() { DEFAULT } else { name }
}

/// Returns the ServiceAccounts to create, each once: those that workloads run as, and those that
/// get permissions.
fn accounts(strategy: &Strategy) -> BTreeSet<&str> {
    let running = strategy.deployments.iter().map(|deployment| {
        account(
            deployment.spec["template"]["spec"]["serviceAccountName"]
                .as_str()
                .unwrap_or_default(),
        )
    });
    let permitted = strategy
        .permissions
        .iter()
        .chain(&strategy.cluster_permissions)
        .map(|permission| account(&permission.service_account_name));
    running
        .chain(permitted)
        .filter(|name| *name != DEFAULT)
        .collect()
}

/// Returns the roles. An operator for all namespaces gets its permissions in every namespace, and
/// may read and list namespaces.
fn roles(
    csv: &str,
    permissions: Vec<Permission>,
    cluster_permissions: Vec<Permission>,
    namespace: &str,
) -> Vec<Value> {
    let promoted = permissions.into_iter().map(|mut permission| {
        permission.rules.push(json!({
            "apiGroups": [""],
            "resources": ["namespaces"],
            "verbs": ["get", "list", "watch"],
        }));
        permission
    });
    let all: BTreeMap<String, Permission> = cluster_permissions
        .into_iter()
        .chain(promoted)
        // Equal permissions have the same name and are one role.
        .map(|permission| (role_name(csv, &permission), permission))
        .collect();
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    let (mut roles, mut bindings) = (Vec::new(), Vec::new());
    for (name, permission) in all {
        let mut role = json!({
            "apiVersion": version,
            "kind": "ClusterRole",
            "metadata": {"name": name},
        });
        role["rules"] = Value::Array(permission.rules);
        roles.push(role);
        bindings.push(json!({
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{
                "kind": "ServiceAccount",
                "namespace": namespace,
                "name": account(&permission.service_account_name),
            }],
        }));
    }
    roles.append(&mut bindings);
    roles
}

/// Returns the name of a role, `<csv>-<account>-<hash>`. Different permissions have different
/// names, so an upgrade never extends an existing role.
fn role_name(csv: &str, permission: &Permission) -> String {
    let account = account(&permission.service_account_name);
    let hash = hash(csv, account, &permission.rules);
    let hash = &hash[..10];
    let base = format!("{csv}-{account}");
    let longest = MAX_NAME - hash.len() - 1;
    let base: String = base.chars().take(longest).collect();
    format!("{base}-{hash}")
}

/// Returns the hash of `[csv, account, rules]` as JSON, in hexadecimal. One rule at a time is
/// serialized.
fn hash(csv: &str, account: &str, rules: &[Value]) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("[{},{},[", json!(csv), json!(account)));
    for (index, rule) in rules.iter().enumerate() {
        if index > 0 {
            hash.update(",");
        }
        hash.update(rule.to_string());
    }
    hash.update("]]");
    hex::encode(hash.finalize())
}

fn deployments(
    of_csv: &BTreeMap<String, String>,
    deployments: Vec<Deployment>,
    namespace: &str,
) -> Vec<Value> {
    deployments
        .into_iter()
        .map(|deployment| {
            let Deployment {
                name,
                label,
                mut spec,
            } = deployment;
            let mut annotations = of_csv.clone();
            let own = &spec["template"]["metadata"]["annotations"];
            for (key, value) in own.as_object().into_iter().flatten() {
                if let Some(value) = value.as_str() {
                    annotations.insert(key.clone(), value.to_owned());
                }
            }
            annotations.insert(TARGET_NAMESPACES.to_owned(), String::new());
            // The operator reads them through the downward API, so they belong on its pods.
            merge(
                &mut spec,
                json!({"template": {"metadata": {"annotations": annotations}}}),
            );
            let mut object = json!({
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name, "namespace": namespace, "labels": label},
            });
            object["spec"] = spec;
            object
        })
        .collect()
}

/// Merges maps of `from` into those of `into`. Other values are replaced.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Converts an object other than the ClusterServiceVersion. A namespaced object is placed in the
/// operator's namespace.
fn placed(mut object: Manifest, namespace: &str, findings: &mut Findings) -> Option<Manifest> {
    let known = OTHERS.iter().find(|(kind, _)| *kind == object.id.kind);
    let Some((_, namespaced)) = known else {
        findings.push(
            refused(format!(
                "bundle contains unsupported resource: Name: {}, Kind: {}",
                object.id.name, object.id.kind
            ))
            .in_file(&object.file)
            .at_line(object.line)
            .about(object.id.to_string())
            .hint("a registry+v1 bundle has only kinds that the Operator Lifecycle Manager installs: remove the object, or use plain+v0"),
        );
        return None;
    };
    if *namespaced {
        object.value["metadata"]["namespace"] = json!(namespace);
        object.id.namespace = Some(namespace.to_owned());
    }
    Some(object)
}

/// Checks generated objects by the rules for all objects, and returns the valid ones.
fn written(
    (file, line): &(String, usize),
    made: Vec<Value>,
    findings: &mut Findings,
) -> Vec<Manifest> {
    made.into_iter()
        .filter_map(|value| {
            let document = Document { value, line: *line };
            object::read(document, file, findings)
        })
        .collect()
}
