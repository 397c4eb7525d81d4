//! Keys of SignaturePolicies that lie in Secrets of the system namespace, as far as they may be read.
//! Not here: which entry of a Secret is the key (bundle_core::policy).

use std::collections::BTreeMap;

use bundle_core::diagnostic::codes;
use bundle_core::policy::{Policy, SecretKey, key_of_secret};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;

use super::lookup::unavailable;
use crate::cluster::Cluster;
use crate::failure::Failure;

/// The policy with the keys of its Secrets in their place.
pub(super) async fn with_keys(cluster: &Cluster, namespace: &str, policy: Policy) -> Policy {
    let api: Api<Secret> = Api::namespaced(cluster.client.clone(), namespace);
    let mut keys = BTreeMap::new();
    for name in policy.secrets() {
        let full = format!("{namespace}/{name}");
        let key = match cluster.ask(api.get(name)).await {
            Ok(secret) => {
                let data = secret.data.unwrap_or_default();
                let data = data
                    .into_iter()
                    .map(|(key, value)| (key, value.0))
                    .collect();
                key_of_secret(&full, &data)
            }
            Err(Failure::Server(status)) if status.code == 404 => {
                SecretKey::Missing(format!("Secret {full} does not exist"))
            }
            Err(failure) => SecretKey::Unavailable(unavailable(
                codes::trust::CANNOT_TELL,
                &format!("Secret {full} cannot be read"),
                &failure,
            )),
        };
        keys.insert(name.to_owned(), key);
    }
    policy.with_secrets(&keys)
}
