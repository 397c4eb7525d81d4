//! One cluster, and one webhook on it, for all tests of a binary that do not mind each other.
//! Tests that change what all share (the webhook's absence, the server's version) start their own.

use std::ops::Deref;

use anyhow::Result;
use tokio::sync::OnceCell;

use super::{Cluster, tell_logs};
use crate::webhook::{Webhook, WebhookOptions};

/// The shared cluster in a test's hands: when the test panics, the logs are kept.
pub struct Shared(&'static Cluster);

/// The cluster that all tests of this process share: two registries, and a webhook once a test asks for it.
///
/// It is started by whoever asks first. A static is never dropped: when the process ends, the janitor takes it down.
pub async fn shared() -> Result<Shared> {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let cluster = CLUSTER
        .get_or_try_init(|| Cluster::builder().registries(2).start())
        .await?;
    Ok(Shared(cluster))
}

impl Shared {
    /// The webhook that all tests share; to be asked, never to be stopped.
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
