//! Watches the metadata of the ConfigMaps that policies name, each ConfigMap by its name. The
//! module `policies` reads the ConfigMaps after a change. Secrets are never watched, because the
//! pod would need permission to watch all Secrets of the namespace.

use std::collections::BTreeSet;
use std::sync::Arc;

use bundle_core::names::KubeName;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::WatchParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::retry::delays;

/// The watches. A watch ends when it is dropped.
pub(super) struct ConfigMapWatches {
    client: Client,
    namespace: String,
    config_maps: BTreeSet<KubeName>,
    watches: JoinSet<()>,
    changed: Arc<Notify>,
}

impl ConfigMapWatches {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            config_maps: BTreeSet::new(),
            watches: JoinSet::new(),
            changed: Arc::default(),
        }
    }

    /// Replaces the set of watched ConfigMaps.
    pub(super) fn watch(&mut self, config_maps: BTreeSet<KubeName>) {
        if config_maps == self.config_maps {
            return;
        }
        self.watches = JoinSet::new();
        let (client, namespace) = (&self.client, &self.namespace);
        for name in &config_maps {
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            let watch = follow(api, name.clone(), Arc::clone(&self.changed));
            self.watches.spawn(watch);
        }
        self.config_maps = config_maps;
    }

    /// Waits until a watched ConfigMap was changed, created or deleted, or a watch has started.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

async fn follow<K: Clone + DeserializeOwned + std::fmt::Debug>(
    api: Api<K>,
    name: KubeName,
    changed: Arc<Notify>,
) {
    let params = WatchParams::default().fields(&name.field_selector());
    loop {
        match api.watch_metadata(&params, "0").await {
            Ok(events) => {
                let mut events = std::pin::pin!(events);
                while let Some(Ok(_)) = events.next().await {
                    changed.notify_one();
                }
            }
            Err(error) => tracing::debug!(
                name = name.as_str(),
                error = crate::chain(&error),
                "cannot watch a ConfigMap of a policy; it is read periodically"
            ),
        }
        tokio::time::sleep(delays::CONFIG_MAP_WATCH).await;
    }
}
