//! SignaturePolicies on their shelf, with the keys of the Secrets that they name; looked up again from time to time.
//! Not here: what a policy means (bundle_core::policy).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy::{Policy, SecretKey, key_of_secret};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio_util::sync::CancellationToken;

use super::follow::{Follower, Specs};
use crate::readiness::Gate;
use crate::shared::Shared;

/// How often the Secrets are read again. They are few and read by name: the pod may not list Secrets.
const SECRETS_AGAIN: Duration = Duration::from_secs(15);
/// After a Secret could not be read.
const SECRETS_SOON: Duration = Duration::from_secs(2);

/// Keeps the SignaturePolicies on their shelf until `shutdown`.
pub(crate) async fn policies(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut follower = Follower::new(shared.client(), "SignaturePolicy", "signaturepolicies");
    let mut specs: Option<Specs> = None;
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
            () = pause => {}
        }
        let Some(specs) = &specs else { continue };
        let secrets = secrets(&shared, &wanted(specs)).await;
        again = if secrets.is_empty() {
            None
        } else if secrets
            .values()
            .any(|key| matches!(key, SecretKey::Unavailable(_)))
        {
            Some(SECRETS_SOON)
        } else {
            Some(SECRETS_AGAIN)
        };
        let read = read(specs, &secrets);
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

fn wanted(specs: &Specs) -> BTreeSet<String> {
    specs
        .iter()
        .flat_map(|(name, spec)| {
            Policy::read(name, spec)
                .secrets()
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

fn read(specs: &Specs, secrets: &BTreeMap<String, SecretKey>) -> BTreeMap<String, Arc<Policy>> {
    specs
        .iter()
        .map(|(name, spec)| {
            let policy = Policy::read(name, spec).with_secrets(secrets);
            (name.clone(), Arc::new(policy))
        })
        .collect()
}

/// The keys in those Secrets of the system namespace.
pub(super) async fn secrets(
    shared: &Shared,
    names: &BTreeSet<String>,
) -> BTreeMap<String, SecretKey> {
    let namespace = &shared.settings.namespace;
    let api: Api<Secret> = Api::namespaced(shared.client(), namespace);
    let mut found = BTreeMap::new();
    for name in names {
        let key = match api.get_opt(name).await {
            Ok(Some(secret)) => {
                let data = secret.data.unwrap_or_default();
                let data = data
                    .into_iter()
                    .map(|(key, value)| (key, value.0))
                    .collect();
                key_of_secret(name, &data)
            }
            Ok(None) => SecretKey::Missing(format!("Secret {namespace}/{name} does not exist")),
            Err(error) => SecretKey::Unavailable(
                Finding::error(codes::cluster::UNREACHABLE, crate::chain(&error))
                    .about(format!("Secret/{namespace}/{name}")),
            ),
        };
        found.insert(name.clone(), key);
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_named_once_and_unreadable_policies_stay_on_the_shelf() {
        let policy = Arc::new(json!({
            "images": [{ "glob": "registry.example.com/**" }],
            "authorities": [{ "name": "key", "key": { "secretRef": { "name": "release-key" } } }],
        }));
        let specs = Specs::from([
            ("a".to_owned(), policy.clone()),
            ("b".to_owned(), policy),
            ("broken".to_owned(), Arc::default()),
        ]);
        assert_eq!(wanted(&specs), BTreeSet::from(["release-key".to_owned()]));
        let key = SecretKey::Found("PEM".to_owned());
        let read = read(&specs, &BTreeMap::from([("release-key".to_owned(), key)]));
        assert!(read["a"].problems().0.is_empty());
        assert!(read["broken"].problems().has_errors());
    }
}
