//! Checks of the CustomResourceDefinitions, pods, endpoints, versions and signature policies.

use bundle_api::SignaturePolicy;
use bundle_api::names::API_VERSION;
use bundle_cluster::{ByName, parallel};
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::doctor::definitions::{self, Definition};
use bundle_core::doctor::policies::{self, ObservedPolicy, ObservedRoot};
use bundle_core::doctor::workload::{self, Workload};
use bundle_core::doctor::{CheckResult, Observed, client};
use bundle_core::policy::{Policy, ReferencedText, root_of_config_map};
use bundle_trust::root::Root;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use serde::Deserialize as _;

use super::observer::Observer;
use super::shown_date;
use crate::commands::program::version::version_of;
use crate::commands::webhook::install::manifests::{DEPLOYMENT, EmbeddedManifest, InstallPhase};
use crate::commands::webhook::install::waiting_reason;

/// Maximum number of objects of a list.
const MAX_LISTED_OBJECTS: u32 = 500;

/// Checks the CustomResourceDefinitions.
pub(super) async fn definitions(
    observer: &Observer,
    manifests: &[EmbeddedManifest],
) -> Vec<CheckResult> {
    let client = observer.client();
    let served = async {
        let list = observer
            .request(client.list_api_group_resources(API_VERSION))
            .await;
        list.map(|list| list.resources.into_iter().map(|one| one.kind).collect())
    };
    let expected: Vec<&EmbeddedManifest> = manifests
        .iter()
        .filter(|manifest| manifest.phase() == InstallPhase::Definitions)
        .collect();
    let found = parallel::ordered(expected.iter().map(|manifest| observer.read(manifest)));
    let work = async {
        let (served, found) = tokio::join!(served, found);
        let pairs = expected.iter().zip(found);
        let pairs = pairs.map(|(manifest, found)| Definition {
            expected: &manifest.object,
            found,
        });
        definitions::definitions(pairs.collect(), &served)
    };
    observer.check("definitions", API_VERSION, work).await
}

/// Checks the pods of bundle-webhook, and the versions of the plugin and of the pods.
pub(super) async fn pods(observer: &Observer, namespace: &str) -> Vec<CheckResult> {
    let subject = format!("deployment {namespace}/{DEPLOYMENT}");
    let work = async {
        let deployments: Api<Deployment> = Api::namespaced(observer.client(), namespace);
        let found = observer.request(ByName(&deployments).get(DEPLOYMENT)).await;
        let version = found.as_ref().map(version_of);
        let workload = match &found {
            Observed::Found(deployment) => {
                Observed::Found(workload_of(observer, namespace, deployment).await)
            }
            other => other.as_ref().map(|_| Workload::default()),
        };
        vec![
            workload::pods(&subject, workload),
            client::skew(env!("CARGO_PKG_VERSION"), version, &subject),
        ]
    };
    observer.check("pods", &subject, work).await
}

async fn workload_of(observer: &Observer, namespace: &str, deployment: &Deployment) -> Workload {
    let status = deployment.status.clone().unwrap_or_default();
    let desired = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let desired = desired.unwrap_or(1);
    let ready = status
        .ready_replicas
        .unwrap_or_default()
        .min(status.updated_replicas.unwrap_or_default());
    let mut reason = None;
    if ready < desired {
        let pods: Api<Pod> = Api::namespaced(observer.client(), namespace);
        let selector = ListParams::default()
            .labels("app.kubernetes.io/name=bundle-webhook")
            .limit(MAX_LISTED_OBJECTS);
        // The reason why pods are not ready is optional. A user without permission to list Pods
        // still gets the number of ready pods.
        if let Observed::Found(found) = observer.request(pods.list(&selector)).await {
            reason = found.items.iter().find_map(waiting_reason);
        }
    }
    Workload {
        desired,
        ready,
        reason,
    }
}

/// Checks the endpoints of the Service. `is_unused` is `true` if the registrations name a URL
/// instead of the Service.
pub(super) async fn endpoints(
    observer: &Observer,
    namespace: &str,
    is_unused: bool,
) -> CheckResult {
    let slices: Api<EndpointSlice> = Api::namespaced(observer.client(), namespace);
    let selector = ListParams::default()
        .labels("kubernetes.io/service-name=bundle-webhook")
        .limit(MAX_LISTED_OBJECTS);
    let ready = observer
        .request(slices.list(&selector))
        .await
        .map(|slices| {
            let endpoints = slices.items.iter().flat_map(|slice| &slice.endpoints);
            let ready = endpoints.filter(|endpoint| {
                let conditions = endpoint.conditions.as_ref();
                // According to the API, a missing value means ready.
                conditions.and_then(|conditions| conditions.ready) != Some(false)
            });
            ready.count()
        });
    workload::endpoints(
        &format!("service {namespace}/{DEPLOYMENT}"),
        ready,
        is_unused,
    )
}

/// Checks the signature policies.
pub(super) async fn policies(observer: &Observer, namespace: &str) -> Vec<CheckResult> {
    let now = Timestamp::now();
    let work = async {
        let resource = ApiResource::erase::<SignaturePolicy>(&());
        let api: Api<DynamicObject> = Api::all_with(observer.client(), &resource);
        let parameters = ListParams::default().limit(MAX_LISTED_OBJECTS);
        let found = match observer.request(api.list(&parameters)).await {
            Observed::Found(list) => {
                let each = list
                    .items
                    .iter()
                    .map(|object| policy(observer, namespace, object, now));
                Observed::Found(parallel::ordered(each.collect::<Vec<_>>()).await)
            }
            other => other.map(|_| Vec::new()),
        };
        policies::policies(found, now.as_second(), shown_date)
    };
    observer.check("policies", "signaturepolicies", work).await
}

async fn policy(
    observer: &Observer,
    namespace: &str,
    object: &DynamicObject,
    now: Timestamp,
) -> ObservedPolicy {
    let name = object.name_any();
    let parsed = Policy::read(&name, &object.data["spec"]);
    let maps: Api<ConfigMap> = Api::namespaced(observer.client(), namespace);
    let mut roots = Vec::new();
    for config_map in parsed.config_maps() {
        let state = match observer.request(ByName(&maps).get(config_map)).await {
            Observed::Found(map) => {
                match root_of_config_map(config_map, &map.data.unwrap_or_default()) {
                    ReferencedText::Found(text) => Observed::Found(validity(&text, now)),
                    ReferencedText::Unavailable(finding) => Observed::Found(Err(finding)),
                    ReferencedText::Missing(message) => {
                        Observed::Found(Err(Finding::error(codes::trust::ROOT_UNREADABLE, message)))
                    }
                }
            }
            other => other.map(|_| Ok(None)),
        };
        roots.push(ObservedRoot {
            config_map: config_map.to_string(),
            state,
        });
    }
    ObservedPolicy {
        name,
        ready: ready_condition(object),
        roots,
    }
}

/// Returns the end of the validity of a trust root in Unix seconds, if the validity is limited.
fn validity(text: &str, now: Timestamp) -> Result<Option<i64>, Finding> {
    let root = Root::from_text(text)?;
    root.check(now)?;
    Ok(root.valid_until().map(Timestamp::as_second))
}

/// Returns the condition Ready of the current generation: `true` if its status is True, and its
/// message.
fn ready_condition(object: &DynamicObject) -> Option<(bool, String)> {
    let conditions = Vec::<Condition>::deserialize(&object.data["status"]["conditions"]).ok()?;
    let ready = conditions.into_iter().find(|one| one.type_ == "Ready")?;
    if ready.observed_generation != object.metadata.generation {
        return None;
    }
    Some((ready.status == "True", ready.message))
}
