//! Keys in Secrets and trust roots in ConfigMaps that SignaturePolicies reference in the system
//! namespace.

use std::collections::BTreeMap;

use bundle_cluster::ByName;
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy::{Policy, ReferencedText, key_of_secret, root_of_config_map};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;

use super::unavailable::unavailable;
use crate::cluster::Cluster;
use crate::failure::Failure;

/// Returns the policy with the referenced keys and trust roots.
pub(super) async fn resolve_references(
    cluster: &Cluster,
    namespace: &str,
    policy: Policy,
) -> Policy {
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), namespace);
    let mut keys = BTreeMap::new();
    for name in policy.secrets() {
        let full = format!("{namespace}/{name}");
        let key = match cluster.send(ByName(&secrets).get(name)).await {
            Ok(secret) => {
                let data = secret.data.unwrap_or_default();
                let data = data
                    .into_iter()
                    .map(|(key, value)| (key, value.0))
                    .collect();
                key_of_secret(&full, &data)
            }
            Err(failure) => unread(&format!("Secret {full}"), failure),
        };
        keys.insert(name.to_string(), key);
    }
    let config_maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), namespace);
    let mut roots = BTreeMap::new();
    for name in policy.config_maps() {
        let full = format!("{namespace}/{name}");
        let root = match cluster.send(ByName(&config_maps).get(name)).await {
            Ok(map) => root_of_config_map(&full, &map.data.unwrap_or_default()),
            Err(failure) => unread(&format!("ConfigMap {full}"), failure),
        };
        roots.insert(name.to_string(), root);
    }
    policy.with_secrets(&keys).with_config_maps(&roots)
}

fn unread(subject: &str, failure: Failure) -> ReferencedText {
    match failure {
        Failure::Server(status) if status.code == 404 => {
            ReferencedText::Missing(format!("{subject} does not exist"))
        }
        failure => ReferencedText::Unavailable(unavailable(
            codes::trust::CANNOT_TELL,
            &format!("cannot read {subject}"),
            &failure,
        )),
    }
}

/// Returns the policy for an offline check, and the references that are not checked.
pub(super) fn offline_policy(namespace: &str, policy: Policy) -> (Policy, Vec<String>) {
    let unknown = || {
        let why = Finding::error(codes::trust::CANNOT_TELL, "no cluster is used");
        ReferencedText::Unavailable(why)
    };
    let names = |names: Vec<String>| names.into_iter().map(|name| (name, unknown())).collect();
    let secrets: Vec<String> = policy
        .secrets()
        .into_iter()
        .map(ToString::to_string)
        .collect();
    let config_maps: Vec<String> = policy
        .config_maps()
        .into_iter()
        .map(ToString::to_string)
        .collect();
    let keys = secrets
        .iter()
        .map(|name| format!("Secret {namespace}/{name}: the key in it"));
    let roots = config_maps
        .iter()
        .map(|name| format!("ConfigMap {namespace}/{name}: the trust root in it"));
    let unchecked = keys.chain(roots).collect();
    let policy = policy
        .with_secrets(&names(secrets))
        .with_config_maps(&names(config_maps));
    (policy, unchecked)
}
