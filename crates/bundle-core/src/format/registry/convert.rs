//! Objects that install an operator: namespace, ServiceAccounts, roles, CRDs, workloads and
//! webhooks. Their names are deterministic.

use serde_json::{Map, Value, json};

use super::{
    Operator, config,
    config::OperatorConfig,
    csv::{Csv, Deployment, Strategy},
    install_modes::{SupportedModes, TargetNamespaces},
    objects::{
        additions::{Additions, LIMIT},
        overrides,
        permissions::{self, Permissions},
        webhooks::Webhooks,
    },
    refused, validation,
};
use crate::{
    diagnostic::Findings,
    format::RenderTarget,
    object::{self, Manifest},
    yaml::Document,
};

/// Annotation with the suggested namespace of an operator.
const SUGGESTED_NAMESPACE: &str = "operatorframework.io/suggested-namespace";
/// Annotation that lists the namespaces that an operator watches. An empty value means all
/// namespaces.
const TARGET_NAMESPACES: &str = "olm.targetNamespaces";
/// Maximum length of a namespace name, in bytes.
const MAX_NAMESPACE: usize = 63;
/// `revisionHistoryLimit` of each Deployment of an operator. The Operator Lifecycle Manager sets
/// the same number.
const REVISIONS: u32 = 1;

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

/// Returns all objects in an order in which they can be installed. The list is complete if
/// `findings` has no errors.
///
/// The list contains the suggested namespace, as in RukPak. The list does not contain the namespace
/// of `target`: this namespace must exist, or `spec.createNamespace` creates it.
pub(super) fn convert(
    operator: Operator,
    others: Vec<Manifest>,
    target: &RenderTarget,
    findings: &mut Findings,
) -> Vec<Manifest> {
    // No objects are generated for an invalid name, because their names would contain this name.
    // The parser has already reported the error.
    if !object::is_dns_subdomain(&operator.csv.name) {
        return Vec::new();
    }
    let refusals = validation::check(&operator.csv, &others);
    if refusals.has_errors() {
        findings.extend(refusals);
        return Vec::new();
    }
    let namespace = target.namespace.clone();
    let namespace = namespace.unwrap_or_else(|| suggested_namespace(&operator));
    let modes = SupportedModes::new(&operator.csv.spec.install_modes);
    let config = match config::resolve(target.config.as_ref(), &modes, &namespace) {
        Ok(config) => config,
        Err(errors) => {
            findings.extend(errors);
            return Vec::new();
        }
    };
    let Csv {
        name,
        annotations,
        place,
        spec,
    } = operator.csv;
    let Strategy {
        deployments,
        permissions,
        cluster_permissions,
    } = spec.install.spec;
    let mut additions = Additions::default();
    let mut made = Vec::new();
    if target.namespace.is_none() {
        made.push(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        );
        // A namespace with an invalid name is reported once, and not for each object in the
        // namespace.
        if namespace.len() > MAX_NAMESPACE {
            return written(&place, made, findings);
        }
    }
    let webhooks = Webhooks {
        definitions: &spec.webhookdefinitions,
        namespace: &namespace,
        targets: &config.targets,
    };
    let permissions = Permissions {
        namespaced: permissions,
        cluster: cluster_permissions,
    };
    let accounts = permissions::accounts(&permissions, &deployments);
    made.extend(accounts.into_iter().map(|name| {
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace},
        })
    }));
    made.extend(permissions.roles(&name, &namespace, &config.targets, &mut additions));
    made.extend(webhooks.services(&deployments));
    let mut objects = written(&place, made, findings);
    let (mut crds, others): (Vec<Manifest>, Vec<Manifest>) = others
        .into_iter()
        .partition(|object| object.id.kind == "CustomResourceDefinition");
    webhooks.convert(&mut crds);
    objects.extend(crds);
    for other in others {
        objects.extend(placed(other, &namespace, findings));
    }
    let workloads = Workloads {
        annotations: annotations
            .into_iter()
            .map(|(key, value)| (key, Value::String(value)))
            .collect(),
        webhooks: &webhooks,
        config: &config,
        additions,
    };
    let (mut workloads, additions) = workloads.objects(deployments);
    if additions.exceed_limit() {
        findings.push(
            refused(format!(
                "the values that are copied into several objects need more than the limit of {} MiB",
                LIMIT >> 20
            ))
            .in_file(&place.0)
            .at_line(place.1)
            .about(format!("ClusterServiceVersion/{name}"))
            .hint("use fewer watched namespaces, permissions or containers, or a shorter deploymentConfig"),
        );
        return Vec::new();
    }
    workloads.extend(webhooks.configurations());
    objects.extend(written(&place, workloads, findings));
    objects
}

fn suggested_namespace(operator: &Operator) -> String {
    match operator.csv.annotations.get(SUGGESTED_NAMESPACE) {
        Some(namespace) if !namespace.is_empty() => namespace.clone(),
        _ => format!("{}-system", operator.package),
    }
}

/// Deployments of an operator.
struct Workloads<'a> {
    /// Annotations of the ClusterServiceVersion.
    annotations: Map<String, Value>,
    webhooks: &'a Webhooks<'a>,
    config: &'a OperatorConfig,
    additions: Additions,
}

impl Workloads<'_> {
    fn objects(mut self, deployments: Vec<Deployment>) -> (Vec<Value>, Additions) {
        let made = deployments
            .into_iter()
            .map(|deployment| self.object(deployment));
        let made = made.collect();
        (made, self.additions)
    }

    fn object(&mut self, mut deployment: Deployment) -> Value {
        let targets: &TargetNamespaces = &self.config.targets;
        let mut annotations = self.annotations.clone();
        let own = &deployment.spec["template"]["metadata"]["annotations"];
        for (key, value) in own.as_object().into_iter().flatten() {
            if value.is_string() {
                annotations.insert(key.clone(), value.clone());
            }
        }
        let targets = Value::String(targets.annotation());
        annotations.insert(TARGET_NAMESPACES.to_owned(), targets);
        // The operator reads these annotations through the downward API, so its pods need them.
        merge(
            &mut deployment.spec,
            json!({
                "revisionHistoryLimit": REVISIONS,
                "template": {"metadata": {"annotations": annotations}},
            }),
        );
        self.webhooks.mount(&mut deployment, &mut self.additions);
        overrides::apply(
            &self.config.deployment,
            &mut deployment,
            &mut self.additions,
        );
        let Deployment {
            name,
            label,
            spec,
            annotations,
        } = deployment;
        let mut object = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": self.webhooks.namespace, "labels": label},
        });
        if !annotations.is_empty() {
            object["metadata"]["annotations"] = Value::Object(annotations);
        }
        object["spec"] = spec;
        object
    }
}

/// Merges maps of `from` into the maps of `into`. Values of other types are replaced.
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
/// operator's namespace. For an unsupported kind, returns `None` and adds an error to `findings`.
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

/// Checks generated objects by the rules for all objects, and returns the valid objects.
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
