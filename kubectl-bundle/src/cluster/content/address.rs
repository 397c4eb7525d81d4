//! Finds the address and the certificate authorities of the content service. Both are in the
//! webhook registration, with which the API server calls bundle-webhook.

use bundle_cluster::{ByName, ObjectUrl};
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::names::{KubeName, NameKind};
use bundle_core::review::target::default_state_namespace;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, ListParams};
use url::Url;

use super::ContentServiceSettings;
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::system::files;

/// Name of the webhook registration. It is also the assumed name of the Service, if the
/// registration cannot be read.
const WEBHOOK: &str = "bundle-webhook";
/// System namespace that is used if the registration cannot be read.
const SYSTEM_NAMESPACE: &str = "bundle-system";
/// Name of the port of the content service in a pod.
const PORT_NAME: &str = "content";
/// Default port of the content service, if the pod has no port with the name [`PORT_NAME`].
const PORT: u16 = 8443;
/// Maximum number of pods that are tried.
const MAX_PODS: u32 = 16;

/// Address and certificate authorities of the content service.
pub(super) struct ContentAddress {
    pub(super) route: Route,
    /// Certificates in PEM format.
    pub(super) authorities: Vec<u8>,
}

/// Connection to the content service.
pub(super) enum Route {
    /// Connection to this URL.
    Direct(Url),
    /// Connection to the pods of a Service, through the API server.
    PortForward(PodService),
}

/// The Service with the pods of bundle-webhook.
pub(super) struct PodService {
    namespace: KubeName,
    name: String,
}

/// A pod of bundle-webhook.
pub(super) struct WebhookPod {
    pub(super) url: ObjectUrl,
    pub(super) port: u16,
}

/// The registration of bundle-webhook.
#[derive(Default)]
struct Registration {
    service: Option<(String, String)>,
    authorities: Vec<u8>,
}

/// Returns the error for a content service that was not found.
pub(super) fn not_found_error(message: impl Into<String>, hint: &str) -> Failure {
    Finding::error(codes::cluster::NO_CONTENT_SERVICE, message)
        .hint(hint)
        .into()
}

impl ContentAddress {
    /// Returns the address and the certificate authorities. Each value comes from its flag, or else
    /// from the webhook registration.
    pub(super) async fn find(
        cluster: &Cluster,
        settings: &ContentServiceSettings,
    ) -> Outcome<Self> {
        let from_flag = settings.authorities.as_deref().map(files::read);
        let from_flag = from_flag.transpose()?;
        let is_needed = from_flag.is_none();
        let registration = match Registration::read(cluster).await {
            Ok(Some(found)) => found,
            // If a flag sets the certificate authorities, the registration is not required.
            // Therefore users without permission to read it can use the command.
            Ok(None) | Err(Failure::Server(_)) if !is_needed => Registration::default(),
            Ok(None) => {
                return Err(not_found_error(
                    format!("the cluster {} has no bundle-webhook", cluster.name),
                    "install it with `kubectl bundle install`, or select another cluster with --context",
                ));
            }
            Err(Failure::Server(status)) => {
                return Err(not_found_error(
                    format!(
                        "cannot read the certificate authority of bundle-webhook: {}",
                        status.message
                    ),
                    "pass the certificate with --content-ca FILE: an administrator reads it from caBundle of validatingwebhookconfiguration/bundle-webhook",
                ));
            }
            Err(other) => return Err(other),
        };
        let authorities = from_flag.unwrap_or_else(|| registration.authorities.clone());
        if authorities.is_empty() {
            return Err(not_found_error(
                "the registration of bundle-webhook has no certificate authority yet",
                "wait until bundle-webhook is ready: kubectl bundle doctor",
            ));
        }
        let route = match &settings.url {
            Some(url) => Route::Direct(url.clone()),
            None => Route::PortForward(registration.pods(settings, is_needed)?),
        };
        Ok(Self { route, authorities })
    }
}

impl Cluster {
    /// Returns the namespace of the inventories: `selected`, or the default state namespace for the
    /// system namespace. The system namespace comes from the webhook registration. If the
    /// registration cannot be read, the default system namespace is used.
    pub(crate) async fn state_namespace(&self, selected: Option<&KubeName>) -> String {
        if let Some(selected) = selected {
            return selected.to_string();
        }
        let registration = Registration::read(self).await.ok().flatten();
        let service = registration.and_then(|found| found.service);
        let system = service.map(|(namespace, _)| namespace);
        default_state_namespace(system.as_deref().unwrap_or(SYSTEM_NAMESPACE))
    }
}

impl Registration {
    async fn read(cluster: &Cluster) -> Outcome<Option<Self>> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client.clone());
        let found = cluster.send(ByName(&api).get_opt(WEBHOOK)).await?;
        let Some(webhook) = found.and_then(|found| found.webhooks?.into_iter().next()) else {
            return Ok(None);
        };
        let client = webhook.client_config;
        Ok(Some(Self {
            service: client
                .service
                .map(|service| (service.namespace, service.name)),
            authorities: client.ca_bundle.unwrap_or_default().0,
        }))
    }

    /// Returns the Service of the pods of bundle-webhook. `is_read` is `true` if the registration
    /// was read.
    fn pods(self, settings: &ContentServiceSettings, is_read: bool) -> Outcome<PodService> {
        let (namespace, name) = match self.service {
            Some(found) => found,
            None if is_read => {
                return Err(not_found_error(
                    "the webhook registration has a URL instead of a Service, so the pods of bundle-webhook are unknown",
                    "pass the URL of its content service with --content-url",
                ));
            }
            None => (SYSTEM_NAMESPACE.to_owned(), WEBHOOK.to_owned()),
        };
        let namespace = match &settings.system_namespace {
            Some(namespace) => namespace.clone(),
            None => KubeName::parse(NameKind::Label, &namespace).map_err(|why| {
                not_found_error(
                    format!("the registration of bundle-webhook has an invalid namespace: {why}"),
                    "find the cause with `kubectl bundle doctor`",
                )
            })?,
        };
        Ok(PodService { namespace, name })
    }
}

impl PodService {
    /// Returns the host name in the certificate of the pods.
    pub(super) fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }

    /// Returns the running pods. Pods that are ready are first. The caller tries all pods: only the
    /// leader has content, and most users have no permission to read which pod is the leader.
    pub(super) async fn pods(&self, cluster: &Cluster) -> Outcome<Vec<WebhookPod>> {
        let services: Api<Service> = Api::namespaced(cluster.client.clone(), &self.namespace);
        let service = cluster.send(ByName(&services).get(&self.name)).await?;
        let selector = service.spec.and_then(|spec| spec.selector);
        let selector: Vec<String> = selector
            .unwrap_or_default()
            .iter()
            .map(|(label, value)| format!("{label}={value}"))
            .collect();
        if selector.is_empty() {
            return Err(not_found_error(
                format!("Service {} selects no pods", self.host()),
                "pass the URL of the content service with --content-url",
            ));
        }
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &self.namespace);
        let parameters = ListParams::default()
            .labels(&selector.join(","))
            .limit(MAX_PODS);
        let list = cluster.send(pods.list(&parameters)).await?;
        let mut found: Vec<_> = list
            .items
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .filter(|pod| has_phase(pod, "Running"))
            .collect();
        found.sort_by_key(|pod| !is_ready(pod));
        let kind = ApiResource::erase::<Pod>(&());
        let urls = found.into_iter().map(|pod| {
            Ok(WebhookPod {
                url: ObjectUrl::parse(&kind, Some(&self.namespace), &pod.name_any())
                    .map_err(kube::Error::BuildRequest)?,
                port: port(pod),
            })
        });
        let pods: Vec<_> = cluster
            .send(std::future::ready(urls.collect::<kube::Result<_>>()))
            .await?;
        if pods.is_empty() {
            return Err(not_found_error(
                format!("no pod of Service {} is running", self.host()),
                "find the cause with `kubectl bundle doctor`",
            ));
        }
        Ok(pods)
    }
}

fn has_phase(pod: &Pod, phase: &str) -> bool {
    let status = pod.status.as_ref();
    status.and_then(|status| status.phase.as_deref()) == Some(phase)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn port(pod: &Pod) -> u16 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let named = ports.find(|port| port.name.as_deref() == Some(PORT_NAME));
    named
        .and_then(|port| u16::try_from(port.container_port).ok())
        .unwrap_or(PORT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn port_of_the_content_service_is_found_by_name() {
        let pod = |ports: serde_json::Value| {
            let pod = json!({"spec": {"containers": [{"name": "w", "ports": ports}]}});
            serde_json::from_value(pod).unwrap()
        };
        let named = json!([
            {"name": "admission", "containerPort": 9443},
            {"name": "content", "containerPort": 8444},
        ]);
        assert_eq!(port(&pod(named)), 8444);
        assert_eq!(port(&pod(json!([]))), PORT);
        assert_eq!(port(&Pod::default()), PORT);
    }
}
