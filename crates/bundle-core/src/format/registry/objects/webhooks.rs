//! Admission and conversion webhooks of an operator: their Services, Secrets and configurations.
//! The certificates are issued when the objects are applied
//! ([`serving_certificate`](crate::serving_certificate)).

use std::collections::{BTreeMap, BTreeSet};

use bundle_api::names as api;
use serde_json::{Map, Value, json};

use super::{additions::Additions, names, overrides::map_at};
use crate::{
    format::registry::{
        csv::{Deployment, WebhookDefinition, WebhookKind},
        install_modes::TargetNamespaces,
    },
    object::Manifest,
    serving_certificate,
};

/// Port of a webhook that specifies no port.
const DEFAULT_PORT: u16 = 443;
/// Label that each namespace has, with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Volumes with the certificate: name, path, and the file names of certificate and key. The first
/// volume is for servers of controller-runtime. The second volume is for aggregated API servers.
const VOLUMES: [(&str, &str, [&str; 2]); 2] = [
    (
        "webhook-cert",
        "/tmp/k8s-webhook-server/serving-certs",
        ["tls.crt", "tls.key"],
    ),
    (
        "apiservice-cert",
        "/apiserver.local.config/certificates",
        ["apiserver.crt", "apiserver.key"],
    ),
];

/// Webhooks of an operator that runs in a namespace.
pub(in crate::format::registry) struct Webhooks<'a> {
    pub(in crate::format::registry) definitions: &'a [WebhookDefinition],
    pub(in crate::format::registry) namespace: &'a str,
    pub(in crate::format::registry) targets: &'a TargetNamespaces,
}

impl Webhooks<'_> {
    /// Returns the Secrets and Services of the Deployments with webhooks.
    pub(in crate::format::registry) fn services(&self, deployments: &[Deployment]) -> Vec<Value> {
        let mut ports: BTreeMap<&str, BTreeSet<(u16, String)>> = BTreeMap::new();
        for webhook in self.definitions {
            let port = port(webhook);
            let target = webhook.target_port.clone().unwrap_or_else(|| json!(port));
            let of_deployment = ports.entry(&webhook.deployment_name).or_default();
            of_deployment.insert((port, target.to_string()));
        }
        let mut made = Vec::new();
        for deployment in deployments {
            let Some(ports) = ports.get(deployment.name.as_str()) else {
                continue;
            };
            let service = names::service(&deployment.name);
            made.push(json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": names::certificate(&service),
                    "namespace": self.namespace,
                    "annotations": {api::ANNOTATION_SERVING_CERTIFICATE: service},
                },
                "type": "kubernetes.io/tls",
                "data": {serving_certificate::CERTIFICATE: "", serving_certificate::KEY: ""},
            }));
            let ports: Vec<Value> = ports
                .iter()
                .map(|(port, target)| {
                    // The text was serialized above, so it is valid JSON.
                    let target: Value = serde_json::from_str(target).unwrap_or_default();
                    json!({"name": port.to_string(), "port": port, "targetPort": target})
                })
                .collect();
            made.push(json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": service, "namespace": self.namespace},
                "spec": {
                    "ports": ports,
                    "selector": deployment.spec["selector"]["matchLabels"],
                },
            }));
        }
        made
    }

    /// Returns the configurations of admission webhooks, in the order of the definitions.
    pub(in crate::format::registry) fn configurations(&self) -> Vec<Value> {
        let admission = self.definitions.iter().filter_map(|webhook| {
            let kind = match webhook.kind()? {
                WebhookKind::Validating => "ValidatingWebhookConfiguration",
                WebhookKind::Mutating => "MutatingWebhookConfiguration",
                WebhookKind::Conversion => return None,
            };
            Some((kind, webhook))
        });
        admission
            .map(|(kind, webhook)| {
                let name = webhook.generate_name.as_str();
                let service = names::service(&webhook.deployment_name);
                json!({
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": kind,
                    "metadata": {"name": name, "annotations": self.annotations(&service)},
                    "webhooks": [self.admission(webhook, name, &service)],
                })
            })
            .collect()
    }

    fn admission(&self, webhook: &WebhookDefinition, name: &str, service: &str) -> Value {
        let mut made = Map::new();
        made.insert("name".to_owned(), json!(name));
        made.insert(
            "clientConfig".to_owned(),
            self.client(webhook, service, webhook.webhook_path.as_deref()),
        );
        made.insert(
            "admissionReviewVersions".to_owned(),
            json!(webhook.admission_review_versions),
        );
        let is_mutating = webhook.kind() == Some(WebhookKind::Mutating);
        let reinvocation = webhook.reinvocation_policy.as_ref();
        for (key, value) in [
            ("rules", Some(&webhook.rules)),
            ("failurePolicy", webhook.failure_policy.as_ref()),
            ("matchPolicy", webhook.match_policy.as_ref()),
            ("objectSelector", webhook.object_selector.as_ref()),
            ("sideEffects", webhook.side_effects.as_ref()),
            ("timeoutSeconds", webhook.timeout_seconds.as_ref()),
            ("reinvocationPolicy", reinvocation.filter(|_| is_mutating)),
        ] {
            if let Some(value) = value.filter(|value| !value.is_null()) {
                made.insert(key.to_owned(), value.clone());
            }
        }
        // The selector does not affect cluster-scoped objects: the API server always calls the
        // webhook for these objects.
        if let TargetNamespaces::Listed(targets) = self.targets {
            let selector = json!({"matchExpressions": [{
                "key": NAMESPACE_NAME, "operator": "In", "values": targets,
            }]});
            made.insert("namespaceSelector".to_owned(), selector);
        }
        Value::Object(made)
    }

    fn client(&self, webhook: &WebhookDefinition, service: &str, path: Option<&str>) -> Value {
        let mut reference = json!({
            "namespace": self.namespace,
            "name": service,
            "port": port(webhook),
        });
        if let Some(path) = path {
            reference["path"] = json!(path);
        }
        json!({"service": reference})
    }

    fn annotations(&self, service: &str) -> Value {
        json!({api::ANNOTATION_INJECT_AUTHORITY: format!("{}/{service}", self.namespace)})
    }

    /// Adds each conversion webhook to the CustomResourceDefinitions that the webhook names.
    pub(in crate::format::registry) fn convert(&self, crds: &mut [Manifest]) {
        let conversions = self
            .definitions
            .iter()
            .filter(|webhook| webhook.kind() == Some(WebhookKind::Conversion));
        for webhook in conversions {
            let service = names::service(&webhook.deployment_name);
            let path = webhook.webhook_path.as_deref().unwrap_or("/");
            for crd in crds
                .iter_mut()
                .filter(|crd| webhook.conversion_crds.contains(&crd.id.name))
            {
                let client = self.client(webhook, &service, Some(path));
                if let Some(spec) = map_at(&mut crd.value, &["spec"]) {
                    spec.insert(
                        "conversion".to_owned(),
                        json!({"strategy": "Webhook", "webhook": {
                            "clientConfig": client,
                            "conversionReviewVersions": webhook.admission_review_versions,
                        }}),
                    );
                }
                if let Some(annotations) = map_at(&mut crd.value, &["metadata", "annotations"])
                    && let Value::Object(own) = self.annotations(&service)
                {
                    annotations.extend(own);
                }
            }
        }
    }

    /// Mounts the certificate in all containers of a Deployment with webhooks. Existing volumes
    /// with the same names or at the same paths are removed.
    pub(in crate::format::registry) fn mount(
        &self,
        deployment: &mut Deployment,
        additions: &mut Additions,
    ) {
        let name = &deployment.name;
        let mut definitions = self.definitions.iter();
        if !definitions.any(|webhook| webhook.deployment_name == *name) {
            return;
        }
        let secret = names::certificate(&names::service(name));
        let Some(pod) = map_at(&mut deployment.spec, &["template", "spec"]) else {
            return;
        };
        let mut removed: BTreeSet<String> = VOLUMES
            .iter()
            .map(|(volume, ..)| (*volume).to_owned())
            .collect();
        let containers = pod.get("containers").and_then(Value::as_array);
        let mounts = containers
            .into_iter()
            .flatten()
            .filter_map(|container| container["volumeMounts"].as_array())
            .flatten();
        for mount in mounts {
            let path = mount["mountPath"].as_str().unwrap_or_default();
            if VOLUMES.iter().any(|(_, own, _)| *own == path) {
                removed.insert(mount["name"].as_str().unwrap_or_default().to_owned());
            }
        }
        let keys = [serving_certificate::CERTIFICATE, serving_certificate::KEY];
        let volumes = VOLUMES.map(|(volume, _, files)| {
            let items: Vec<Value> = keys
                .iter()
                .zip(files)
                .map(|(key, path)| json!({"key": key, "path": path}))
                .collect();
            json!({"name": volume, "secret": {"secretName": secret, "items": items}})
        });
        replace(pod, "volumes", &removed, volumes);
        let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
        let containers = containers.into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            let mounts = VOLUMES.map(|(volume, path, _)| {
                additions.copy(&json!({"name": volume, "mountPath": path}))
            });
            replace(container, "volumeMounts", &removed, mounts);
        }
    }
}

/// Removes the entries with these names from a list, and adds other entries.
fn replace(
    owner: &mut Map<String, Value>,
    list: &str,
    removed: &BTreeSet<String>,
    added: [Value; 2],
) {
    let entry = owner.entry(list).or_insert_with(|| json!([]));
    if let Value::Array(entries) = entry {
        entries.retain(|entry| {
            !entry["name"]
                .as_str()
                .is_some_and(|name| removed.contains(name))
        });
        entries.extend(added);
    }
}

fn port(webhook: &WebhookDefinition) -> u16 {
    match webhook.container_port {
        0 => DEFAULT_PORT,
        port => port,
    }
}
