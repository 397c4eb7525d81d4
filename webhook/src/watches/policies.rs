//! The cache of SignaturePolicies. It includes the keys in the Secrets and the trust roots in the
//! ConfigMaps that the policies name. Secrets and ConfigMaps are read periodically, and ConfigMaps
//! also after a watch event. `bundle_core::policy` contains the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bundle_cluster::ByName;
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::names::KubeName;
use bundle_core::policy::{Policy, ReferencedText, key_of_secret, root_of_config_map};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use tokio_util::sync::CancellationToken;

use super::follow::{Follower, Specs};
use crate::readiness::Gate;
use crate::retry::delays;
use crate::shared::Shared;

/// Interval between reads of the Secrets and ConfigMaps that policies name. Secrets are not
/// watched, so a changed key takes effect after at most this time. The number of these objects is
/// small.
const REFRESH_INTERVAL: Duration = Duration::from_secs(15);

/// The Secrets and ConfigMaps of the system namespace that policies name, or the reasons why they
/// cannot be read.
#[derive(Debug, Default)]
pub(super) struct PolicyReferences {
    secrets: BTreeMap<String, ReferencedText>,
    config_maps: BTreeMap<String, ReferencedText>,
}

impl PolicyReferences {
    /// Reads the Secrets and ConfigMaps of these policies.
    pub(super) async fn look_up(shared: &Shared, policies: &[Policy]) -> Self {
        let named = |names: fn(&Policy) -> BTreeSet<&KubeName>| -> BTreeSet<KubeName> {
            let each = policies.iter().flat_map(names);
            each.cloned().collect()
        };
        Self {
            secrets: secrets(shared, &named(Policy::secrets)).await,
            config_maps: config_maps(shared, &named(Policy::config_maps)).await,
        }
    }

    /// Returns the policy with the keys and trust roots that it names.
    pub(super) fn complete(&self, policy: Policy) -> Policy {
        policy
            .with_secrets(&self.secrets)
            .with_config_maps(&self.config_maps)
    }

    /// Returns the time until the next read. Returns `None` if the policies name no Secret and no
    /// ConfigMap.
    fn next_read_delay(&self) -> Option<Duration> {
        let mut named = self
            .secrets
            .values()
            .chain(self.config_maps.values())
            .peekable();
        named.peek()?;
        if named.any(|named| matches!(named, ReferencedText::Unavailable(_))) {
            Some(delays::POLICY_REFERENCES)
        } else {
            Some(REFRESH_INTERVAL)
        }
    }
}

/// Updates the cache of SignaturePolicies until `shutdown`.
pub(crate) async fn policies(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut follower = Follower::new(shared.client(), "SignaturePolicy", "signaturepolicies");
    let mut specs: Option<Specs> = None;
    let mut watched =
        super::config_maps::ConfigMapWatches::new(shared.client(), &shared.settings.namespace);
    let mut again = None;
    loop {
        let pause = async {
            match again {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            next = follower.next() => specs = Some(next),
            () = watched.changed() => {}
            () = pause => {}
        }
        let Some(specs) = &specs else { continue };
        let policies: Vec<Policy> = specs
            .iter()
            .map(|(name, spec)| Policy::read(name, spec))
            .collect();
        let found = PolicyReferences::look_up(&shared, &policies).await;
        again = found.next_read_delay();
        watched.watch(
            policies
                .iter()
                .flat_map(Policy::config_maps)
                .cloned()
                .collect(),
        );
        let read = completed(policies, &found);
        let unreadable = read
            .values()
            .filter(|policy| policy.problems().has_errors());
        shared
            .metrics
            .unreadable("SignaturePolicy", unreadable.count());
        if !shared.policies.is_synced() || *shared.policies.all() != read {
            shared.policies.replace(read);
        }
        shared.policies.set_synced();
        shared.readiness.open(Gate::Policies);
    }
}

fn completed(policies: Vec<Policy>, found: &PolicyReferences) -> BTreeMap<String, Arc<Policy>> {
    policies
        .into_iter()
        .map(|policy| (policy.name().to_owned(), Arc::new(found.complete(policy))))
        .collect()
}

/// Returns the keys in these Secrets of the system namespace.
async fn secrets(shared: &Shared, names: &BTreeSet<KubeName>) -> BTreeMap<String, ReferencedText> {
    let namespace = &shared.settings.namespace;
    let api: Api<Secret> = Api::namespaced(shared.client(), namespace);
    let mut found = BTreeMap::new();
    for name in names {
        let key = match ByName(&api).get_opt(name).await {
            Ok(Some(secret)) => {
                let data = secret.data.unwrap_or_default();
                let data = data
                    .into_iter()
                    .map(|(key, value)| (key, value.0))
                    .collect();
                key_of_secret(name, &data)
            }
            Ok(None) => {
                ReferencedText::Missing(format!("Secret {namespace}/{name} does not exist"))
            }
            // A body that cannot be parsed can contain secret data, so it must not appear in
            // findings and logs.
            Err(kube::Error::SerdeError(_)) => ReferencedText::Unavailable(
                Finding::error(codes::cluster::BAD_ANSWER, "the response is not a Secret")
                    .about(format!("Secret/{namespace}/{name}")),
            ),
            Err(error) => ReferencedText::Unavailable(
                Finding::error(codes::cluster::UNREACHABLE, crate::chain(&error))
                    .about(format!("Secret/{namespace}/{name}")),
            ),
        };
        found.insert(name.to_string(), key);
    }
    found
}

/// Returns the trust roots in these ConfigMaps of the system namespace.
async fn config_maps(
    shared: &Shared,
    names: &BTreeSet<KubeName>,
) -> BTreeMap<String, ReferencedText> {
    let namespace = &shared.settings.namespace;
    let api: Api<ConfigMap> = Api::namespaced(shared.client(), namespace);
    let mut found = BTreeMap::new();
    for name in names {
        let root = match ByName(&api).get_opt(name).await {
            Ok(Some(map)) => root_of_config_map(name, &map.data.unwrap_or_default()),
            Ok(None) => {
                ReferencedText::Missing(format!("ConfigMap {namespace}/{name} does not exist"))
            }
            Err(error) => ReferencedText::Unavailable(
                Finding::error(codes::cluster::UNREACHABLE, crate::chain(&error))
                    .about(format!("ConfigMap/{namespace}/{name}")),
            ),
        };
        found.insert(name.to_string(), root);
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policies_get_their_keys_and_roots_and_invalid_ones_stay_in_the_cache() {
        let key = json!({
            "images": [{ "glob": "registry.example.com/**" }],
            "authorities": [{ "name": "key", "key": { "secretRef": { "name": "release-key" } } }],
        });
        let keyless = json!({
            "images": [{ "glob": "registry.example.com/**" }],
            "authorities": [{ "keyless": {
                "identities": [{ "issuer": "https://issuer.example.com", "subject": "ci" }],
                "trustRoot": { "configMapRef": { "name": "our-root" } },
            } }],
        });
        let policies = || {
            vec![
                Policy::read("key", &key),
                Policy::read("keyless", &keyless),
                Policy::read("broken", &serde_json::Value::Null),
            ]
        };
        let named = |name: &str| {
            BTreeMap::from([(name.to_owned(), ReferencedText::Found("text".to_owned()))])
        };
        let found = PolicyReferences {
            secrets: named("release-key"),
            config_maps: named("our-root"),
        };
        assert_eq!(found.next_read_delay(), Some(REFRESH_INTERVAL));
        let read = completed(policies(), &found);
        assert!(read["key"].problems().is_empty());
        assert!(read["keyless"].problems().is_empty());
        assert!(read["broken"].problems().has_errors());

        let nothing = PolicyReferences::default();
        assert_eq!(nothing.next_read_delay(), None);
        let read = completed(policies(), &nothing);
        assert!(read["key"].problems().has_errors());
        assert!(read["keyless"].problems().has_errors());
    }
}
