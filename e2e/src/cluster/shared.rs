//! One cluster with one webhook, shared by the tests of a process that do not disturb each other.
//! Tests that stop the webhook or need another server version start their own cluster.

use std::ops::Deref;

use anyhow::Result;
use tokio::sync::OnceCell;

use super::{Cluster, tell_logs};
use crate::webhook::{Webhook, WebhookOptions};

/// The shared cluster in a test's hands: when the test panics, the logs are kept.
pub struct Shared(&'static Cluster);

/// Returns the cluster that all tests of this process share: two registries, and a webhook on
/// request.
///
/// The first caller starts it. A static is never dropped; the janitor removes it when the process
/// ends.
pub async fn shared() -> Result<Shared> {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let cluster = CLUSTER
        .get_or_try_init(|| Cluster::builder().registries(2).start())
        .await?;
    Ok(Shared(cluster))
}

impl Shared {
    /// Returns the shared webhook. Tests must not stop it.
    pub async fn webhook(&self) -> Result<&'static Webhook> {
        static WEBHOOK: OnceCell<Webhook> = OnceCell::const_new();
        let start = || self.0.start_webhook(WebhookOptions::default());
        WEBHOOK.get_or_try_init(start).await
    }
}

impl Deref for Shared {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tell_logs(self.0);
        }
    }
}
