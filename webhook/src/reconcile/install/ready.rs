//! Waits until Namespaces and CustomResourceDefinitions are ready. Until then, the API server
//! cannot store objects that depend on them. `bundle_core::plan::health` contains the rules.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bundle_core::diagnostic::codes;
use bundle_core::plan::health::{Health, health, installed_health};
use bundle_core::text::MessageList;
use futures::StreamExt as _;
use kube::api::DynamicObject;

use crate::reconcile::api::object;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::install::executor::{Install, MAX_FAILURES};
use crate::retry::delays;

/// Maximum time to wait until Namespaces and CustomResourceDefinitions are ready.
const READY_WAIT_LIMIT: Duration = Duration::from_secs(30);

impl Install<'_> {
    /// Waits until all of `items` are ready. `uids` are the uids of the applied objects, by object
    /// key. Fails after [`READY_WAIT_LIMIT`].
    pub(in crate::reconcile) async fn wait_until_ready(
        &self,
        items: &[&PreparedObject],
        uids: &BTreeMap<String, String>,
    ) -> Result<(), ReconcileError> {
        let end = Instant::now() + READY_WAIT_LIMIT;
        let mut waiting: Vec<&PreparedObject> = items.to_vec();
        let mut pauses = delays::READY.pauses();
        loop {
            let mut looked = crate::reconcile::api::parallel::stream(
                waiting
                    .into_iter()
                    .map(|item| async move { (item, self.unready_reason(item, uids).await) }),
            );
            let mut not_ready = MessageList::default();
            waiting = Vec::new();
            while let Some((item, reason)) = looked.next().await {
                let Some(why) = reason else {
                    continue;
                };
                not_ready.insert(format!("{}: {why}", item.key));
                waiting.push(item);
            }
            if waiting.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(self::not_ready(&not_ready, self.reason));
            }
            tokio::time::sleep(pauses.next_pause()).await;
        }
    }

    /// Reads the object of `item`. Returns the reason why it is not ready, or `None` if it is
    /// ready.
    async fn unready_reason(
        &self,
        item: &PreparedObject,
        uids: &BTreeMap<String, String>,
    ) -> Option<String> {
        let namespace = item.id.namespace.as_deref();
        match object::read(self.client, &item.kind, namespace, &item.id.name).await {
            Ok(Some(live)) => match health_of(item, &live, uids) {
                Health::Ready => None,
                Health::Waiting(why) | Health::Failed(why) => Some(why),
            },
            Ok(None) => Some("was deleted".to_owned()),
            Err(error) => Some(object::error_message(&error)),
        }
    }
}

/// Returns the error for objects that are not ready. Each text in `objects` contains an object key
/// and the reason.
pub(in crate::reconcile) fn not_ready(
    objects: &MessageList,
    reason: &'static str,
) -> ReconcileError {
    ReconcileError::new(
        codes::install::NOT_READY,
        reason,
        format!(
            "objects on which other objects depend are not ready after {} s: {}",
            READY_WAIT_LIMIT.as_secs(),
            objects.joined(MAX_FAILURES)
        ),
        RetryPolicy::Soon,
    )
}

/// Returns the health of the object of `item`, which was read as `live`.
fn health_of(
    item: &PreparedObject,
    live: &DynamicObject,
    uids: &BTreeMap<String, String>,
) -> Health {
    let uid = uids.get(&item.key).map(String::as_str);
    match serde_json::to_value(live) {
        Ok(value) => installed_health(&value, uid, |live| {
            health(&item.id.group, &item.id.kind, live)
        }),
        Err(error) => Health::Waiting(error.to_string()),
    }
}
