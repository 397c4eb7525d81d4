//! One cluster with one webhook, shared by the tests of a process that do not disturb each other.
//! Tests that stop the webhook or need another server version start their own cluster.

use std::ops::Deref;

use anyhow::Result;
use tokio::sync::OnceCell;

use super::{Webhook, WebhookOptions};
use crate::cluster::{Cluster, print_logs_folder};

/// Handle of the shared cluster. If the test panics, the logs are kept.
pub struct SharedCluster(&'static Cluster);

/// Returns the cluster that all tests of this process share: two registries, and a webhook on
/// request.
///
/// The first caller starts the cluster. Rust never drops a static. Therefore the janitor removes
/// the cluster when the process ends.
pub async fn shared() -> Result<SharedCluster> {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let cluster = CLUSTER
        .get_or_try_init(|| Cluster::builder().registries(2).start())
        .await?;
    Ok(SharedCluster(cluster))
}

impl SharedCluster {
    /// Returns the shared webhook. Tests must not stop the shared webhook.
    pub async fn webhook(&self) -> Result<&'static Webhook> {
        static WEBHOOK: OnceCell<Webhook> = OnceCell::const_new();
        let start = || self.0.start_webhook(WebhookOptions::default());
        WEBHOOK.get_or_try_init(start).await
    }
}

impl Deref for SharedCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.0
    }
}

impl Drop for SharedCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_logs_folder(self.0);
        }
    }
}
